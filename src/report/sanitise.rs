//! Foreign text made safe: what an engine, a server or a user printed may stand in XML, on a
//! terminal and in Markdown afterwards.
//!
//! It decides which characters survive. Terminal sequences are taken out whole; other control
//! characters, and the marks that reorder text, are replaced visibly. It shortens nothing: cutting
//! comes after it, so that a cut can't leave half a sequence.

use std::iter::Peekable;
use std::str::Chars;

/// Text of several lines: line ends become LF, tabs stay.
pub fn lines(text: &str) -> String {
    clean(text, false)
}

/// Text for one line: line ends and tabs become one blank.
pub fn line(text: &str) -> String {
    clean(text, true)
}

/// Splits every `]]>` of a text, so that a writer can put it into one CDATA section.
pub fn cdata(text: &str) -> String {
    text.replace("]]>", "]]]]><![CDATA[>")
}

/// One line of text for Markdown, in a table cell too: nothing in it is markup.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text = line(text);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        // What refers to an issue, a change, a milestone, a snippet: `#1`, `!1`, `GH-1`. It is looked for in the
        // rendered text, so that escapes don't help; a blank of no width parts it.
        let refers = matches!(c, '#' | '!' | '$' | '%' | '&' | '~')
            || c == '-'
                && out
                    .get(out.len().saturating_sub(2)..)
                    .is_some_and(|it| it.eq_ignore_ascii_case("gh"));
        let refers = refers && rest.as_str().starts_with(|c: char| c.is_ascii_alphanumeric());
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' => {
                out.push('\\');
                out.push(c);
            }
            // A mention would notify somebody.
            '@' => out.push_str("@&#8203;"),
            c => out.push(c),
        }
        if refers {
            out.push_str("&#8203;");
        }
    }
    out
}

/// Cuts a text that the reader gets as XML so that it takes at most `most` bytes there, and says
/// how much is missing. The beginning survives.
pub fn cut(text: &str, most: usize) -> String {
    cut_beside(text, most, 0)
}

/// One washed line of at most `most` bytes of XML: what is cut off is not even read, which counts where a tool
/// printed megabytes.
pub fn short(text: &str, most: usize) -> String {
    let read =
        (0..=text.len().min(most.saturating_mul(4))).rev().find(|at| text.is_char_boundary(*at));
    let (head, rest) = text.split_at(read.unwrap_or(0));
    line(&cut_beside(&line(head), most, rest.len()))
}

/// As [`cut`], where so many bytes more are missing already.
fn cut_beside(text: &str, most: usize, missing: usize) -> String {
    if missing == 0 && escaped_len(text) <= most {
        return text.to_owned();
    }
    // Room for the mark, whose number has at most 20 digits.
    let room = most.saturating_sub(40);
    let mut used = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        used += escaped_char(c);
        if used > room {
            break;
        }
        end = at + c.len_utf8();
    }
    format!("{}\n… {} bytes cut", &text[..end], text.len() - end + missing)
}

/// Bytes that a text takes in XML, whichever way it is escaped there.
pub fn escaped_len(text: &str) -> usize {
    text.chars().map(escaped_char).sum()
}

fn escaped_char(c: char) -> usize {
    match c {
        '&' | '<' | '>' | '"' | '\'' => 6,
        c => c.len_utf8(),
    }
}

fn clean(text: &str, one_line: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => escape(&mut chars, &mut out),
            '\u{9b}' => control_sequence(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => control_string(&mut chars),
            '\r' | '\n' | '\t' | '\u{2028}' | '\u{2029}' if one_line => {
                if !out.is_empty() && !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            '\n' | '\t' => out.push(c),
            // A lone CR redraws the line; what it redraws is worth a line of its own.
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            c => out.push(visible(c)),
        }
    }
    if one_line {
        out.truncate(out.trim_end().len());
    }
    out
}

/// A forbidden or misleading character as one that may stand anywhere.
fn visible(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}'),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        // Marks that reorder the text around them.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{fdd0}'..='\u{fdef}' => '\u{fffd}',
        c if (c as u32) & 0xfffe == 0xfffe => '\u{fffd}',
        c => c,
    }
}

/// What follows an ESC: a sequence is dropped, a lone ESC is shown.
fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            control_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            control_string(chars);
        }
        Some('\u{20}'..='\u{2f}') => {
            while chars.next_if(|c| ('\u{20}'..='\u{2f}').contains(c)).is_some() {}
            chars.next_if(|c| ('\u{30}'..='\u{7e}').contains(c));
        }
        Some('\u{30}'..='\u{7e}') => {
            chars.next();
        }
        Some(_) | None => out.push('\u{241b}'),
    }
}

/// The rest of `CSI parameters intermediates final`; of a malformed one what is certainly part of it.
fn control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| ('\u{30}'..='\u{3f}').contains(c)).is_some() {}
    while chars.next_if(|c| ('\u{20}'..='\u{2f}').contains(c)).is_some() {}
    chars.next_if(|c| ('\u{40}'..='\u{7e}').contains(c));
}

/// The rest of a string command (title, hyperlink, device control) up to its end; one that does not
/// end within its line loses its introducer alone, so that it can't swallow a log.
fn control_string(chars: &mut Peekable<Chars<'_>>) {
    let mut ahead = chars.clone();
    loop {
        match ahead.next() {
            Some('\u{7}' | '\u{9c}') => break,
            Some('\u{1b}') => {
                ahead.next_if_eq(&'\\');
                break;
            }
            Some('\n' | '\r') | None => return,
            Some(_) => {}
        }
    }
    *chars = ahead;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_sequences_leave_no_trace() {
        for (dirty, clean) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{7}", "link"),
            ("\u{1b}]0;title\u{7}text", "text"),
            ("\u{1b}(Bplain", "plain"),
            ("\u{1b}Mup", "up"),
            ("\u{9b}2Jcleared", "cleared"),
            ("\u{1b}P1$r\u{1b}\\dcs", "dcs"),
        ] {
            assert_eq!(lines(dirty), clean, "{dirty:?}");
        }
    }

    #[test]
    fn a_halved_sequence_takes_nothing_with_it() {
        assert_eq!(lines("end\u{1b}"), "end\u{241b}");
        assert_eq!(lines("end\u{1b}[3"), "end");
        assert_eq!(lines("a\u{1b}[3\nb"), "a\nb");
        assert_eq!(lines("a\u{1b}]0;never closed\nb"), "a0;never closed\nb");
    }

    #[test]
    fn control_characters_are_seen() {
        assert_eq!(lines("a\0b\u{8}c\u{7f}d\u{85}e\u{fffe}f"), "a␀b␈c␡d\u{fffd}e\u{fffd}f");
        assert_eq!(lines("10 %\r20 %\r\ndone\ttab"), "10 %\n20 %\ndone\ttab");
        assert_eq!(line(" a\r\n\tb\n"), " a b");
        assert_eq!(lines("\u{202e}gnp.exe"), "\u{fffd}gnp.exe");
    }

    #[test]
    fn markdown_has_no_markup_left() {
        assert_eq!(
            markdown("a|b `c` <b>*x*</b> [l](u) @me\nz"),
            "a\\|b \\`c\\` &lt;b&gt;\\*x\\*&lt;/b&gt; \\[l\\](u) @&#8203;me z"
        );
        assert_eq!(
            markdown("#1 !2 $3 %4 &5 ~6 gh-7 a-8 5 % # x"),
            "\\#&#8203;1 \\!&#8203;2 $&#8203;3 %&#8203;4 &amp;&#8203;5 \\~&#8203;6 gh-&#8203;7 a-8 5 % \\# x"
        );
    }

    #[test]
    fn a_cut_keeps_the_beginning_and_says_what_is_missing() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut(&"x".repeat(100), 50), format!("{}\n… 90 bytes cut", "x".repeat(10)));
        // Escaped, an ampersand may take six bytes.
        assert_eq!(cut(&"&".repeat(100), 100), format!("{}\n… 90 bytes cut", "&".repeat(10)));
        assert_eq!(cut(&"é".repeat(60), 61), format!("{}\n… 100 bytes cut", "é".repeat(10)));
    }

    #[test]
    fn what_is_much_too_long_is_counted_and_not_read() {
        assert_eq!(short("a\nb", 10), "a b");
        let long = "é".repeat(1_000_000);
        assert_eq!(short(&long, 61), format!("{} … 1999980 bytes cut", "é".repeat(10)));
    }

    fn allowed_in_xml(c: char) -> bool {
        matches!(c, '\t' | '\n' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    }

    proptest! {
        #[test]
        fn whatever_comes_is_xml_and_stays_so(
            text in "(\u{1b}[\\[\\]P0-9;m]{0,4}|[\0-\u{9f}]|\u{fffe}|.){0,60}",
            most in 0..80usize,
        ) {
            let clean = lines(&text);
            prop_assert!(clean.chars().all(|c| allowed_in_xml(c) && c != '\u{1b}'), "{clean:?}");
            prop_assert_eq!(&lines(&clean), &clean);
            prop_assert!(!line(&text).contains(['\n', '\r', '\t']));
            prop_assert!(cut(&clean, most).len() <= most.max(45));
        }
    }
}
