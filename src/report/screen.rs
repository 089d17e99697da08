//! The terminal that the live display draws on: some lines that are redrawn in place, and lines above them that stay.
//!
//! A terminal that is made narrower breaks lines that stand on it, so that they take more rows than when they
//! were drawn. How far up they begin is reckoned anew for each frame, by the width that the terminal has then.
//! Lines end where their text ends, with room for the `^C` that a terminal echoes: a line that reaches the
//! edge would wrap.

use std::io::{self, Write};

use unicode_width::UnicodeWidthChar;

/// Columns that the display leaves free at the edge.
pub const MARGIN: usize = 3;

/// A terminal behind `W`, drawn in whole frames.
#[derive(Debug)]
pub struct Screen<W> {
    out: W,
    /// Columns of each line that stands and is to be redrawn.
    drawn: Vec<usize>,
    /// Columns that the terminal had then.
    columns: usize,
}

impl<W: Write> Screen<W> {
    /// A screen that writes to `out`.
    pub fn new(out: W) -> Screen<W> {
        Screen { out, drawn: Vec::new(), columns: 0 }
    }

    /// Draws `lines` in the place of those before, below `above`, which stays: whole lines or nothing. Of more
    /// lines than the terminal has rows the last ones are drawn. A terminal that takes nothing is drawn on
    /// again soon.
    pub fn draw(&mut self, (columns, rows): (u16, u16), above: &str, lines: &[String]) {
        let (columns, rows) = (usize::from(columns.max(1)), usize::from(rows.max(1)));
        let mut frame = self.home(columns);
        // Otherwise lines are written over each other, which does not flicker.
        if !above.is_empty() || self.columns != columns {
            frame.push_str("\u{1b}[J");
        }
        self.columns = columns;
        for line in above.lines() {
            frame.push_str(line);
            frame.push_str("\r\n");
        }
        let room = columns.saturating_sub(MARGIN).max(1);
        let shown = &lines[lines.len().saturating_sub(rows)..];
        self.drawn.clear();
        for (at, line) in shown.iter().enumerate() {
            let line = cut(line, room);
            frame.push_str(if at > 0 { "\r\n" } else { "" });
            frame.push_str(&line);
            frame.push_str("\u{1b}[K");
            self.drawn.push(width(&line));
        }
        frame.push_str("\u{1b}[J");
        self.write(&frame);
    }

    /// Takes the lines off the terminal.
    pub fn clear(&mut self, (columns, _): (u16, u16)) {
        if self.drawn.is_empty() {
            return;
        }
        let mut frame = self.home(usize::from(columns.max(1)));
        frame.push_str("\u{1b}[J");
        self.drawn.clear();
        self.write(&frame);
    }

    /// The way to where the lines begin.
    fn home(&self, columns: usize) -> String {
        let rows: usize = self.drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        match rows {
            0 | 1 => "\r".to_owned(),
            rows => format!("\r\u{1b}[{}A", rows - 1),
        }
    }

    fn write(&mut self, frame: &str) {
        let _ = self.out.write_all(frame.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// Columns and rows of the terminal on stderr.
pub fn size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        Ok(_) | Err(_) => (80, 24),
    }
}

/// The characters of a text with the columns that each takes; those of a colour code take none.
fn measured(text: &str) -> impl Iterator<Item = (char, usize)> {
    let mut code = false;
    text.chars().map(move |c| {
        let begins = c == '\u{1b}';
        let width = if code || begins { 0 } else { c.width().unwrap_or(0) };
        code = begins || (code && !c.is_ascii_alphabetic());
        (c, width)
    })
}

/// Columns that a text takes; colours take none.
pub fn width(text: &str) -> usize {
    measured(text).map(|(_, width)| width).sum()
}

/// The beginning of a text, so much as fits, with a sign where something is left out.
pub fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 0);
    for (c, width) in measured(text) {
        if used + width + 1 > room {
            break;
        }
        used += width;
        out.push(c);
    }
    if out.contains('\u{1b}') {
        out.push_str("\u{1b}[0m");
    }
    out.push('…');
    out
}

/// A line broken at blanks so that it fits, further lines after an indent. A word that is too long stays whole:
/// a terminal breaks it, and what is copied has it in one piece.
pub fn fold(line: &str, columns: usize, indent: usize) -> String {
    let (mut out, mut used) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        let wide = width(word.trim_end());
        let empty = out.rsplit('\n').next().is_none_or(|last| last.trim().is_empty());
        if !empty && used + wide > columns {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        }
        out.push_str(word);
        used += width(word);
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a screen wrote.
    #[derive(Debug, Clone, Default)]
    #[allow(missing_docs)]
    pub struct Tape(Arc<Mutex<Vec<u8>>>);

    impl Tape {
        /// What was written since this was last asked.
        pub fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
        }
    }

    impl Write for Tape {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A terminal that breaks what stands on it anew when its width changes, as most do. It has lines as they were
    /// written and the cursor in one of them, and knows rows only to move between.
    #[derive(Debug)]
    pub struct Terminal {
        columns: usize,
        lines: Vec<Vec<char>>,
        /// Line and column within it.
        cursor: (usize, usize),
    }

    impl Terminal {
        pub fn new(columns: usize) -> Terminal {
            Terminal { columns, lines: vec![Vec::new()], cursor: (0, 0) }
        }

        pub fn resize(&mut self, columns: usize) {
            self.columns = columns;
        }

        /// The rows that are shown.
        pub fn rows(&self) -> Vec<String> {
            let rows = self.lines.iter().flat_map(|line| match line.is_empty() {
                true => vec![String::new()],
                false => line.chunks(self.columns).map(|row| row.iter().collect()).collect(),
            });
            rows.collect()
        }

        /// The lines as they would be copied.
        pub fn lines(&self) -> Vec<String> {
            self.lines.iter().map(|line| line.iter().collect()).collect()
        }

        /// From the beginning of a row.
        fn up(&mut self) {
            let (line, column) = self.cursor;
            self.cursor = match column >= self.columns {
                true => (line, column - self.columns),
                false => {
                    let above = line.checked_sub(1).expect("there is nothing above the first line");
                    let last = self.lines[above].len().saturating_sub(1) / self.columns;
                    (above, last * self.columns + column)
                }
            };
        }

        pub fn see(&mut self, tape: &str) {
            let mut rest = tape;
            while let Some(first) = rest.chars().next() {
                let mut taken = first.len_utf8();
                let (line, column) = self.cursor;
                if let Some(code) = rest.strip_prefix("\u{1b}[") {
                    let end = code.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                    let n: usize = code[..end].parse().unwrap_or(1);
                    let row_end = (column / self.columns + 1) * self.columns;
                    match &code[end..=end] {
                        "A" => (0..n).for_each(|_| self.up()),
                        "K" if self.lines[line].len() <= row_end => {
                            self.lines[line].truncate(column);
                        }
                        "K" => self.lines[line][column..row_end].fill(' '),
                        "J" => {
                            self.lines[line].truncate(column);
                            self.lines.truncate(line + 1);
                        }
                        "m" => {}
                        other => panic!("unexpected {other}"),
                    }
                    taken = 2 + end + 1;
                } else if first == '\n' {
                    self.cursor = (line + 1, column % self.columns);
                    if self.lines.len() == line + 1 {
                        self.lines.push(Vec::new());
                    }
                } else if first == '\r' {
                    let on = column - usize::from(column > 0 && column % self.columns == 0);
                    self.cursor.1 = on / self.columns * self.columns;
                } else {
                    let text = &mut self.lines[line];
                    text.resize(text.len().max(column + 1), ' ');
                    text[column] = first;
                    self.cursor.1 += 1;
                }
                rest = &rest[taken..];
            }
        }
    }

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn lines_are_redrawn_in_place_and_nothing_is_left() {
        let (tape, mut terminal) = (Tape::default(), Terminal::new(80));
        let mut screen = Screen::new(tape.clone());
        let mut draw = |above: &str, lines: &[&str]| {
            screen.draw((80, 24), above, &owned(lines));
            terminal.see(&tape.take());
            terminal.rows()
        };
        assert_eq!(draw("", &["one", "two", "three"]), ["one", "two", "three"]);
        assert_eq!(draw("", &["one", "", "3"]), ["one", "", "3"]);
        assert_eq!(draw("stays\n", &["one", "", "3"]), ["stays", "one", "", "3"]);
        assert_eq!(draw("", &["1"]), ["stays", "1"]);
        screen.clear((80, 24));
        terminal.see(&tape.take());
        assert_eq!(terminal.rows(), ["stays", ""], "the next line is written below what stays");
    }

    #[test]
    fn a_terminal_made_narrower_or_wider_shows_each_line_once() {
        let long = "a line of some length that does not fit when the terminal is made narrow";
        for widths in [[80, 30, 30, 80], [80, 20, 31, 25], [40, 100, 24, 60], [80, 5, 4, 80]] {
            let (tape, mut terminal) = (Tape::default(), Terminal::new(widths[0]));
            let mut screen = Screen::new(tape.clone());
            for (at, columns) in widths.into_iter().enumerate() {
                terminal.resize(columns);
                let above = format!("{at} stays\n");
                let lines = owned(&[long, "", long]);
                screen.draw((columns as u16, 24), "", &lines);
                screen.draw((columns as u16, 24), &above, &lines);
                terminal.see(&tape.take());
                let shown = cut(long, columns - MARGIN);
                let lines = terminal.lines();
                assert_eq!(lines[at + 1..], [shown.as_str(), "", shown.as_str()], "{columns}");
                assert_eq!(lines[at], above.trim_end());
            }
        }
    }

    #[test]
    fn a_low_terminal_shows_the_last_lines() {
        let tape = Tape::default();
        Screen::new(tape.clone()).draw((80, 2), "", &owned(&["one", "two", "three"]));
        let mut terminal = Terminal::new(80);
        terminal.see(&tape.take());
        assert_eq!(terminal.rows(), ["two", "three"]);
    }

    #[test]
    fn texts_are_cut_and_folded_by_the_columns_that_they_take() {
        assert_eq!(cut("模型量化", 8), "模型量化");
        assert_eq!(cut("模型量化", 7), "模型量…");
        assert_eq!(cut("模型量化", 6), "模型…");
        assert_eq!(cut("\u{1b}[31mred\u{1b}[0m", 3), "\u{1b}[31mred\u{1b}[0m");
        assert_eq!(width(&cut("\u{1b}[31mred and more\u{1b}[0m", 4)), 4);
        assert_eq!(fold("[1/2]  one two", 80, 4), "[1/2]  one two");
        assert_eq!(fold("[1/2]  one two three", 10, 4), "[1/2]  one\n    two\n    three");
        assert_eq!(fold("a much-too-long-word b", 8, 2), "a\n  much-too-long-word\n  b");
    }
}
