//! The reader of event streams: bytes in, however they were cut; whole events out.
//!
//! It follows the WHATWG grammar: CR, LF and CRLF end a line, a leading byte order mark is dropped,
//! comments and unknown fields are ignored, several data lines are joined by a line feed, and an
//! event without its blank line at the end of the stream is no event. There is no limit on the
//! length of a line or an event. What an event means is decided in `event`.

use memchr::memchr2;

/// Buffers that grew beyond this for one long event are given back after it, in bytes.
const KEEP: usize = 16 * 1024;

const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// One event of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The `event` field; empty where none came.
    pub event: &'a [u8],
    /// The `data` fields, joined by line feeds. Bytes as they came, not checked for UTF-8.
    pub data: &'a [u8],
}

/// An incremental reader of one stream.
#[derive(Debug, Default)]
pub struct Sse {
    /// Bytes of the line that the last read left unfinished.
    line: Vec<u8>,
    /// Data lines of the event under way that could not stay in the caller's bytes.
    data: Vec<u8>,
    /// Whether a data line of the event under way is in `data`.
    has_data: bool,
    /// The `event` field of the event under way.
    event: Vec<u8>,
    /// Whether the last line ended with CR, so that a LF right behind it belongs to that end.
    after_cr: bool,
    /// Bytes of the byte order mark matched so far; 3 and more: the beginning is over.
    mark: usize,
    /// Whether a comment or a field of the grammar was seen.
    spoke: bool,
}

/// What a line says.
enum Line<'a> {
    Blank,
    Data(&'a [u8]),
    Event(&'a [u8]),
    /// A comment or a field that does not matter here.
    Known,
    /// No field of the grammar.
    Unknown,
}

impl Sse {
    /// A reader at the beginning of a stream.
    pub fn new() -> Sse {
        Sse::default()
    }

    /// Whether anything so far was a comment or a field of the grammar, so that this can be an
    /// event stream at all.
    pub fn spoke(&self) -> bool {
        self.spoke
    }

    /// Takes the next bytes and hands over each event that they complete.
    pub fn feed(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(Message<'_>)) {
        let mut bytes = self.skip_mark(bytes);
        // The one data line of the event under way, while it can stay where it was read: most
        // events have one, and then nothing is copied.
        let mut held: Option<&[u8]> = None;
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', bytes) else {
                self.line.extend_from_slice(bytes);
                break;
            };
            self.after_cr = bytes[end] == b'\r';
            let piece = &bytes[..end];
            bytes = &bytes[end + 1..];
            if self.line.is_empty() {
                self.take_line(piece, &mut held, on_event);
            } else {
                // Only the first line of a call can have begun in an earlier one: nothing is held.
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(piece);
                let mut own = None;
                self.take_line(&line, &mut own, on_event);
                if let Some(value) = own {
                    self.push_data(value);
                }
                recycle(&mut line);
                self.line = line;
            }
        }
        if let Some(value) = held {
            self.push_data(value);
        }
    }

    /// Drops a byte order mark at the beginning, even where reads cut it.
    fn skip_mark<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while self.mark < BYTE_ORDER_MARK.len() {
            match bytes.split_first() {
                None => break,
                Some((&byte, rest)) if byte == BYTE_ORDER_MARK[self.mark] => {
                    self.mark += 1;
                    bytes = rest;
                }
                Some(_) => {
                    self.line.extend_from_slice(&BYTE_ORDER_MARK[..self.mark]);
                    self.mark = BYTE_ORDER_MARK.len();
                }
            }
        }
        bytes
    }

    fn take_line<'a>(
        &mut self,
        line: &'a [u8],
        held: &mut Option<&'a [u8]>,
        on_event: &mut dyn FnMut(Message<'_>),
    ) {
        match read_line(line) {
            Line::Blank => {
                if let Some(data) = held.take() {
                    on_event(Message { event: &self.event, data });
                } else if self.has_data {
                    on_event(Message { event: &self.event, data: &self.data });
                }
                self.has_data = false;
                recycle(&mut self.data);
                recycle(&mut self.event);
            }
            Line::Data(value) => {
                self.spoke = true;
                if held.is_none() && !self.has_data {
                    *held = Some(value);
                } else {
                    if let Some(earlier) = held.take() {
                        self.push_data(earlier);
                    }
                    self.push_data(value);
                }
            }
            Line::Event(name) => {
                self.spoke = true;
                self.event.clear();
                self.event.extend_from_slice(name);
            }
            Line::Known => self.spoke = true,
            Line::Unknown => {}
        }
    }

    fn push_data(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
    }
}

fn read_line(line: &[u8]) -> Line<'_> {
    if line.is_empty() {
        return Line::Blank;
    }
    let (field, value) = match line.iter().position(|&byte| byte == b':') {
        Some(0) => return Line::Known,
        Some(colon) => {
            let value = &line[colon + 1..];
            (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
        }
        None => (line, &b""[..]),
    };
    match field {
        b"data" => Line::Data(value),
        b"event" => Line::Event(value),
        b"id" | b"retry" => Line::Known,
        _ => Line::Unknown,
    }
}

/// Empties a buffer, and gives its memory back where one long event made it large.
fn recycle(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > KEEP {
        *buffer = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events of a stream that comes in the given pieces, as `(event, data)`.
    fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(String, String)> {
        let mut sse = Sse::new();
        let mut out = Vec::new();
        for piece in pieces {
            sse.feed(piece, &mut |message| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                out.push((text(message.event), text(message.data)));
            });
        }
        out
    }

    fn data(stream: &[u8]) -> Vec<String> {
        events([stream]).into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn every_line_end_counts() {
        for stream in ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n"] {
            assert_eq!(data(stream.as_bytes()), ["a", "b"]);
        }
        assert_eq!(data(b"data: a\r\rdata: b\r\r"), ["a", "b"]);
        assert_eq!(data(b"data: a\r\n\ndata: b\n\r\n"), ["a", "b"]);
    }

    #[test]
    fn a_crlf_is_one_end_even_where_reads_cut_it() {
        assert_eq!(data(b"data: a\r\ndata: b\r\n\r\n"), ["a\nb"]);
        let cut = events([&b"data: a\r"[..], b"", b"\ndata: b\r\n\r", b"\n"]);
        assert_eq!(cut, [(String::new(), "a\nb".to_owned())]);
    }

    #[test]
    fn a_lone_cr_ends_its_line_at_once() {
        assert_eq!(data(b"data: a\r\n\r"), ["a"]);
    }

    #[test]
    fn one_blank_after_the_colon_is_dropped_and_no_more() {
        assert_eq!(data(b"data:a\n\ndata:  a \n\n"), ["a", " a "]);
    }

    #[test]
    fn data_lines_are_joined_by_line_feeds() {
        assert_eq!(data(b"data: a\ndata\ndata: b\n\n"), ["a\n\nb"]);
        assert_eq!(data(b"data:\n\n"), [""]);
    }

    #[test]
    fn comments_other_fields_and_blank_lines_make_no_event() {
        assert_eq!(data(b": ping\n\n:\n\nid: 1\nretry: 5\nfoo: bar\n\n\n\ndata: a\n\n"), ["a"]);
        assert_eq!(data(b"data: a\n: ping\ndata: b\n\n"), ["a\nb"]);
    }

    #[test]
    fn the_event_name_holds_for_one_event() {
        let seen = events([&b"event: error\ndata: x\n\ndata: y\n\nevent: lost\n\ndata: z\n\n"[..]]);
        let seen: Vec<_> = seen.iter().map(|(e, d)| (e.as_str(), d.as_str())).collect();
        assert_eq!(seen, [("error", "x"), ("", "y"), ("", "z")]);
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_beginning_only() {
        assert_eq!(data(b"\xEF\xBB\xBFdata: a\n\n"), ["a"]);
        assert_eq!(events([&b"\xEF"[..], b"\xBB", b"\xBFdata: a\n\n"]).len(), 1);
        assert_eq!(data(b"data: a\n\n\xEF\xBB\xBFdata: b\n\n"), ["a"]);
        assert_eq!(data(b"\xEF\xBBdata: a\n\n"), [""; 0]);
    }

    #[test]
    fn an_event_without_its_blank_line_is_no_event() {
        assert_eq!(data(b"data: a\n\ndata: b\n"), ["a"]);
    }

    #[test]
    fn it_knows_whether_it_has_seen_an_event_stream() {
        let spoke = |stream: &[u8]| {
            let mut sse = Sse::new();
            sse.feed(stream, &mut |_| {});
            sse.spoke()
        };
        assert!(spoke(b": ping\n"));
        assert!(!spoke(b"{\"error\": 1}\n\n"));
    }

    proptest! {
        #[test]
        fn any_cut_of_the_bytes_gives_the_same_events(
            lines in prop::collection::vec(
                prop_oneof![
                    Just("data: {\"a\": \"日本語\"}"), Just("data"), Just("data:x"), Just(": ping"),
                    Just("event: e"), Just(""), Just(""), Just("junk"), Just("\u{feff}data: y"),
                ],
                0..20,
            ),
            ends in prop::collection::vec(prop_oneof![Just("\n"), Just("\r"), Just("\r\n")], 20),
            cuts in prop::collection::vec(1usize..9, 1..40),
        ) {
            let stream: Vec<u8> =
                lines.iter().zip(&ends).flat_map(|(l, e)| [l.as_bytes(), e.as_bytes()]).flatten().copied().collect();
            let whole = events([stream.as_slice()]);
            let mut pieces = Vec::new();
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, tail) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            prop_assert_eq!(&events(pieces), &whole);
            prop_assert_eq!(&events(stream.chunks(1)), &whole);
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let whole = events([bytes.as_slice()]);
            prop_assert_eq!(events(bytes.chunks(1)), whole);
        }
    }
}
