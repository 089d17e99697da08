//! The terminal that the live display draws on.
//!
//! indicatif ends a line by filling it with blanks up to the edge, where the terminal wraps. Then
//! the `^C` that a terminal echoes wraps too, one line is left over, and a terminal made narrower
//! shows every line twice. Here lines end where their text ends.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use indicatif::TermLike;

/// A terminal behind `W`, drawn in whole frames.
#[derive(Debug)]
pub struct Screen<W> {
    frame: Mutex<Frame<W>>,
}

#[derive(Debug)]
struct Frame<W> {
    out: W,
    text: String,
    /// indicatif writes each line as two texts: what it says, and blanks up to the edge.
    filler_next: bool,
    /// The line has ended, and another one may follow.
    ended: bool,
}

impl<W: Write> Screen<W> {
    /// A screen that writes to `out`.
    pub fn new(out: W) -> Screen<W> {
        let frame = Frame { out, text: String::new(), filler_next: false, ended: false };
        Screen { frame: Mutex::new(frame) }
    }

    fn draw(&self, draw: impl FnOnce(&mut Frame<W>) -> io::Result<()>) -> io::Result<()> {
        draw(&mut self.frame.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn travel(&self, n: usize, direction: char) -> io::Result<()> {
        self.draw(|frame| {
            if n > 0 {
                frame.text.push_str(&format!("\u{1b}[{n}{direction}"));
            }
            Ok(())
        })
    }
}

/// Columns and rows of the terminal on stderr.
pub fn size() -> (u16, u16) {
    match rustix::termios::tcgetwinsize(io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        Ok(_) | Err(_) => (80, 24),
    }
}

impl<W: Write + std::fmt::Debug + Send> TermLike for Screen<W> {
    fn width(&self) -> u16 {
        size().0
    }

    fn height(&self) -> u16 {
        size().1
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.travel(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.travel(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.travel(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.travel(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.draw(|frame| {
            frame.text.push_str(text);
            frame.text.push_str("\r\n");
            Ok(())
        })
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(|frame| {
            let filler = frame.filler_next;
            frame.filler_next = !filler;
            if filler {
                frame.ended = true;
            } else {
                if std::mem::take(&mut frame.ended) {
                    frame.text.push_str("\r\n");
                }
                frame.text.push_str(text);
            }
            Ok(())
        })
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw(|frame| {
            frame.text.push_str("\r\u{1b}[2K");
            Ok(())
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.draw(|frame| {
            (frame.filler_next, frame.ended) = (false, false);
            let text = std::mem::take(&mut frame.text);
            frame.out.write_all(text.as_bytes())?;
            frame.out.flush()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

    #[derive(Debug, Clone, Default)]
    struct Tape(Arc<Mutex<Vec<u8>>>);

    impl Write for Tape {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What stands on a terminal after `tape`, and where the cursor is.
    fn shown(tape: &str) -> (Vec<String>, usize) {
        let mut lines = vec![String::new()];
        let mut row = 0;
        let mut rest = tape;
        while let Some(first) = rest.chars().next() {
            let mut taken = first.len_utf8();
            if let Some(code) = rest.strip_prefix("\u{1b}[") {
                let end = code.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                let n: usize = code[..end].parse().unwrap_or(1);
                match &code[end..=end] {
                    "A" => row -= n,
                    "B" => row += n,
                    "K" => lines[row].clear(),
                    other => panic!("unexpected {other}"),
                }
                taken = 2 + end + 1;
            } else if first == '\n' {
                row += 1;
                lines.resize(lines.len().max(row + 1), String::new());
            } else if first != '\r' {
                lines[row].push(first);
            }
            rest = &rest[taken..];
        }
        (lines, row)
    }

    #[test]
    fn lines_end_with_their_text_and_nothing_is_left() {
        let tape = Tape::default();
        let screen = Screen::new(tape.clone());
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::term_like(Box::new(screen)));
        let line = || {
            let line = ProgressBar::new(0);
            line.set_style(ProgressStyle::with_template("> {msg}").unwrap());
            all.add(line)
        };
        let lines = [line(), line(), line()];
        let seen = || shown(std::str::from_utf8(&tape.0.lock().unwrap()).unwrap());
        for (line, text) in lines.iter().zip(["one", "two", "three"]) {
            line.set_message(text);
            line.tick();
        }
        assert_eq!(seen(), (["> one", "> two", "> three"].map(str::to_owned).to_vec(), 2));
        lines[1].set_message("");
        lines[2].set_message("3");
        assert_eq!(seen(), (["> one", "> ", "> 3"].map(str::to_owned).to_vec(), 2));
        all.println("stays").unwrap();
        assert_eq!(seen(), (["stays", "> one", "> ", "> 3"].map(str::to_owned).to_vec(), 3));
        for line in &lines {
            line.finish_and_clear();
        }
        all.clear().unwrap();
        let (lines, row) = seen();
        assert_eq!(lines.concat(), "stays");
        assert_eq!(row, 1, "the next line is written below what stays");
    }
}
