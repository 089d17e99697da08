//! The engine's log: its telling lines, and whether it holds what it must.
//!
//! The cause of a failed start often stands a hundred lines above the end, so the lines that name
//! a cause are picked first and the last lines follow. Logs may be large, without line ends, or no
//! text at all: they are read as a stream and each line is kept up to a limit. It writes nothing.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::redact::Redactor;

/// Most lines that are shown.
pub const SHOWN: usize = 20;
/// How many of the last lines are shown where causes were found above them.
const LAST: usize = 8;
/// Longest line that is shown, in characters.
const LINE_SHOWN: usize = 400;
/// Longest line that is kept in memory while reading, in bytes. It is longer than what is shown, so
/// that a secret is hidden whole before the line is cut.
const LINE_KEPT: usize = 8 * 1024;
/// How far back from the end telling lines are looked for, in bytes.
const REACH: u64 = 16 * 1024 * 1024;

/// The part of a log file that one launch wrote.
#[derive(Debug, Clone)]
pub struct LogFile {
    /// Where it is.
    pub path: PathBuf,
    /// Byte where the launch began: an earlier try may have written before.
    pub start: u64,
}

impl LogFile {
    /// The file as it is now; what follows belongs to the launch.
    pub fn from_here(path: &Path) -> LogFile {
        let start = std::fs::metadata(path).map_or(0, |meta| meta.len());
        LogFile { path: path.to_owned(), start }
    }

    /// The lines worth reading, at most [`SHOWN`], redacted; none where there is no file.
    pub fn telling(&self, redact: &Redactor) -> Vec<String> {
        let mut chosen = Telling::default();
        // A log that can't be read has nothing to tell; the failure that led here is told anyway.
        let _ = self.each_line(|line| chosen.line(redact, line));
        chosen.lines()
    }

    /// The first line that names the exception or else the cause of an end, redacted; `None` where
    /// none does.
    pub fn cause(&self, redact: &Redactor) -> Option<String> {
        let mut chosen = Telling::default();
        let _ = self.each_line(|line| chosen.line(redact, line));
        chosen.exception.or(chosen.causes.into_iter().next().map(|(_, line)| line))
    }

    /// Those of `needles` that the log does not hold.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn missing<'a>(&self, needles: &'a [String]) -> io::Result<Vec<&'a str>> {
        let mut left: Vec<&str> =
            needles.iter().map(String::as_str).filter(|needle| !needle.is_empty()).collect();
        let overlap = left.iter().map(|needle| needle.len()).max().unwrap_or(0);
        let mut file = self.open()?;
        file.seek(SeekFrom::Start(self.start))?;
        let mut window: Vec<u8> = Vec::new();
        let mut piece = vec![0; 64 * 1024];
        while !left.is_empty() {
            let got = match file.read(&mut piece) {
                Ok(0) => break,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            window.extend_from_slice(&piece[..got]);
            left.retain(|needle| !holds(&window, needle.as_bytes()));
            let keep = window.len().saturating_sub(overlap);
            window.drain(..keep);
        }
        Ok(left)
    }

    /// Whether the engine says that it could not have its port.
    pub fn address_in_use(&self) -> bool {
        let mut found = false;
        let _ = self.each_line(|line| found |= says_address_in_use(&String::from_utf8_lossy(line)));
        found
    }

    /// Opens the log itself: a link that an engine put in its place is not followed, and a pipe, which
    /// would be waited for, is none.
    fn open(&self) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = File::options().read(true).custom_flags(flags).open(&self.path)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::other("it is no file any more"))
    }

    /// Calls `each` for each line within reach of the end, without its line end.
    fn each_line(&self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut file = self.open()?;
        let length = file.metadata()?.len();
        // A log that was cut meanwhile is shorter than where the part began.
        let start = if self.start > length { 0 } else { self.start };
        let from = start.max(length.saturating_sub(REACH));
        file.seek(SeekFrom::Start(from))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let mut line: Vec<u8> = Vec::new();
        let mut open = false;
        loop {
            let piece = match reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() {
                break;
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let text = &piece[..end.unwrap_or(piece.len())];
            let room = LINE_KEPT.saturating_sub(line.len()).min(text.len());
            line.extend_from_slice(&text[..room]);
            let used = text.len() + usize::from(end.is_some());
            reader.consume(used);
            open = end.is_none();
            if !open {
                each(&line);
                line.clear();
            }
        }
        if open {
            each(&line);
        }
        Ok(())
    }
}

fn holds(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

fn says_address_in_use(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["address already in use", "address in use", "couldn't bind", "eaddrinuse", "errno 98]"]
        .iter()
        .any(|sign| line.contains(sign))
}

/// A line as people can read it: what a progress display wrote last, without escape sequences,
/// control characters and non-characters.
pub fn clean(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let line = line.rsplit('\r').next().unwrap_or(line);
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            // The one-character form of `ESC [`.
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\t' => out.push(' '),
            '\u{fffe}' | '\u{ffff}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_control_sequence(chars),
        // Strings (titles, links) end with BEL or `ESC \`.
        Some(']' | 'P' | '_' | '^') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    break;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    break;
                }
            }
        }
        Some(' '..='/') => {
            chars.next();
        }
        Some(_) | None => {}
    }
}

fn skip_control_sequence(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Picks the telling lines out of a stream of lines.
#[derive(Default)]
struct Telling {
    count: usize,
    /// First lines that name a cause, with their numbers.
    causes: Vec<(usize, String)>,
    /// The first line that names an exception.
    exception: Option<String>,
    /// What those lines say behind prefix and level: a cause is often logged by several processes.
    said: Vec<String>,
    last: VecDeque<(usize, String)>,
    /// Whether a Python traceback is open: the first line of it that is not indented names the
    /// exception.
    in_traceback: bool,
}

impl Telling {
    fn line(&mut self, redact: &Redactor, line: &[u8]) {
        let line = clean(&redact.said(&String::from_utf8_lossy(line)));
        if line.trim().is_empty() {
            return;
        }
        let line = cut(line);
        let (level, core) = core(&line);
        let exception = self.follow_traceback(core);
        if self.exception.is_none() && (exception || (level != Level::Quiet && is_exception(core)))
        {
            self.exception = Some(line.clone());
        }
        let causes = SHOWN - LAST - 1;
        if (exception || names_cause(level, core))
            && self.causes.len() < causes
            && !self.said.iter().any(|said| said == core)
        {
            self.said.push(core.to_owned());
            self.causes.push((self.count, line.clone()));
        }
        self.last.push_back((self.count, line));
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
        self.count += 1;
    }

    fn follow_traceback(&mut self, core: &str) -> bool {
        if core.starts_with("Traceback (most recent call last)") {
            self.in_traceback = true;
            return false;
        }
        let ends = self.in_traceback && !core.starts_with(char::is_whitespace) && !core.is_empty();
        self.in_traceback &= !ends;
        ends
    }

    fn lines(self) -> Vec<String> {
        if self.count <= SHOWN {
            return self.last.into_iter().map(|(_, line)| line).collect();
        }
        let tail: Vec<(usize, String)> = self.last.into_iter().collect();
        let above: Vec<(usize, String)> = {
            let first_shown = |last: usize| tail[tail.len() - last].0;
            self.causes.into_iter().filter(|(at, _)| *at < first_shown(LAST)).collect()
        };
        // Without causes above, all lines go to the end of the log.
        let last = if above.is_empty() { SHOWN } else { SHOWN - 1 - above.len() };
        let mut tail: Vec<(usize, String)> = tail[tail.len() - last..].to_vec();
        let begin = tail[0].0;
        let mut out: Vec<String> =
            above.iter().filter(|(at, _)| *at < begin).map(|(_, line)| line.clone()).collect();
        if let Some((at, _)) = above.iter().rev().find(|(at, _)| *at < begin) {
            let between = begin - at - 1;
            if between > 0 {
                out.push(format!("… {between} lines …"));
            }
        }
        out.extend(tail.drain(..).map(|(_, line)| line));
        out
    }
}

fn cut(line: String) -> String {
    match line.char_indices().nth(LINE_SHOWN) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// How loud a log line is, where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Quiet,
    Error,
    Unknown,
}

/// The level of a line, and what it says behind process name, level, date and place in the code.
fn core(line: &str) -> (Level, &str) {
    let mut rest = line;
    // vLLM: "(EngineCore pid=25513) ERROR 11-30 02:30:46 [core.py:1510] ValueError: …"
    if rest.starts_with('(')
        && let Some(end) = rest.find(") ")
        && rest[..end].contains("pid=")
    {
        rest = &rest[end + 2..];
    }
    for (word, level) in [
        ("ERROR ", Level::Error),
        ("CRITICAL ", Level::Error),
        ("WARNING ", Level::Quiet),
        ("INFO ", Level::Quiet),
        ("DEBUG ", Level::Quiet),
        ("INFO:", Level::Quiet),
        ("WARNING:", Level::Quiet),
        ("ERROR:", Level::Error),
    ] {
        if let Some(behind) = rest.strip_prefix(word) {
            let dated = behind.starts_with(|c: char| c.is_ascii_digit());
            let core = match behind.find("] ") {
                Some(end) if dated => &behind[end + 2..],
                Some(_) | None if dated && behind.ends_with(']') => "",
                Some(_) | None => behind,
            };
            return (level, core);
        }
    }
    // llama.cpp: "0.02.913.898 E ggml_aligned_malloc: insufficient memory (…)"
    let mut words = rest.splitn(3, ' ');
    if let (Some(time), Some(level), Some(core)) = (words.next(), words.next(), words.next())
        && time.len() > 8
        && time.chars().all(|c| c.is_ascii_digit() || c == '.')
        && level.len() == 1
    {
        let level = if level == "E" { Level::Error } else { Level::Quiet };
        return (level, core.trim_start());
    }
    (Level::Unknown, rest)
}

/// Whether a line names a cause by itself.
fn names_cause(level: Level, core: &str) -> bool {
    let text = core.trim_start();
    let frame = text.starts_with("File \"") || text.chars().all(|c| matches!(c, '^' | '~' | ' '));
    if level == Level::Quiet || frame || text.starts_with("Traceback (") {
        return false;
    }
    if is_exception(core) {
        return true;
    }
    let lower = text.to_ascii_lowercase();
    const SIGNS: [&str; 23] = [
        "error:",
        "error,",
        "error while",
        "error loading",
        "fatal",
        "panicked at",
        "out of memory",
        "insufficient memory",
        "failed to",
        "couldn't ",
        "could not ",
        "cannot open",
        "no such file",
        "command not found",
        "killed",
        "segmentation fault",
        "illegal instruction",
        "core dumped",
        "invalid argument",
        "permission denied",
        "address already in use",
        "unrecognized arguments",
        "assert",
    ];
    // Code lines of a traceback are indented, and are no causes whatever they spell.
    let indented = core.starts_with("    ");
    !indented
        && (SIGNS.iter().any(|sign| lower.contains(sign))
            || (level == Level::Error && !core.starts_with(char::is_whitespace)))
}

/// The last line of a Python traceback: `ValueError: …`, `torch.OutOfMemoryError: …`.
fn is_exception(core: &str) -> bool {
    let name = core.split([':', ' ']).next().unwrap_or_default();
    let behind = &core[name.len()..];
    !name.is_empty()
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_'))
        && ["Error", "Exception", "Interrupt", "Exit"].iter().any(|end| name.ends_with(end))
        && (behind.is_empty() || behind.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn telling(text: &[u8]) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        LogFile { path: file.path().to_owned(), start: 0 }.telling(&Redactor::default())
    }

    #[test]
    fn the_cause_is_found_far_above_the_end() {
        let log = include_bytes!("../../tests/data/engine/vllm-startfail-kv-oom.log");
        let lines = telling(log);
        assert!(lines.len() <= SHOWN);
        insta::assert_snapshot!("vllm_kv_oom", short(&lines));
    }

    #[test]
    fn a_failed_llama_server_tells_why() {
        let log = include_bytes!("../../tests/data/engine/llama-startfail-oom-ulimit.log");
        insta::assert_snapshot!("llama_abort", short(&telling(log)));
    }

    #[test]
    fn an_engine_that_shut_down_in_good_order_says_why_above() {
        // An API server whose engine process was killed: every request is told, then it ends well.
        let log = include_bytes!("../../tests/data/engine/vllm-core-killed.log");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), log).unwrap();
        let file = LogFile { path: file.path().to_owned(), start: 0 };
        let redact = Redactor::default();
        assert_eq!(
            file.telling(&redact).last().unwrap(),
            "INFO:     Finished server process [3854]"
        );
        let cause = file.cause(&redact).unwrap();
        assert!(cause.ends_with("EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."), "{cause}");
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let log = include_bytes!("../../tests/data/engine/vllm-startfail-max-model-len.log");
        let text = telling(log).join("\n");
        assert!(text.contains("User-specified max_model_len (999999)"), "{text}");
    }

    fn short(lines: &[String]) -> String {
        let cut = |line: &String| line.chars().take(150).collect::<String>();
        lines.iter().map(cut).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_short_log_is_shown_whole() {
        assert_eq!(telling(b"one\n\ntwo\nerror: three"), ["one", "two", "error: three"]);
        assert!(telling(b"").is_empty());
        let nowhere = LogFile { path: "/nowhere/at/all".into(), start: 0 };
        assert!(nowhere.telling(&Redactor::default()).is_empty());
    }

    #[test]
    fn without_a_cause_the_last_lines_are_shown() {
        let log: String = (0..100).map(|i| format!("line {i}\n")).collect();
        let lines = telling(log.as_bytes());
        assert_eq!(
            (lines.len(), lines[0].as_str(), lines[19].as_str()),
            (20, "line 80", "line 99")
        );
    }

    #[test]
    fn megabytes_without_a_line_end_and_bytes_that_are_no_text_are_read() {
        let mut log = vec![b'x'; 5_000_000];
        log.extend_from_slice(b"\nValueError: \xff\xfe bad\n");
        let lines = telling(&log);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].chars().count() <= LINE_SHOWN + 1);
        assert_eq!(lines[1], "ValueError: \u{fffd}\u{fffd} bad");
    }

    #[test]
    fn secrets_are_hidden_before_a_line_is_cut() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = format!("{}sk-secret-key", "x".repeat(LINE_SHOWN - 4));
        std::fs::write(file.path(), log).unwrap();
        let log = LogFile { path: file.path().to_owned(), start: 0 };
        let line = log.telling(&Redactor::new(&["sk-secret-key".to_owned()])).remove(0);
        assert!(!line.contains("sk-"), "{line}");
    }

    #[test]
    fn escapes_and_control_characters_are_taken_out() {
        assert_eq!(
            clean("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}a\u{0}b\tc\u{1b}(B"),
            "redab c".replacen("red", "red ", 1)
        );
        assert_eq!(clean("10%\r50%\r100%\r"), "100%");
        assert_eq!(clean("a\u{fffe}b\u{9b}2Kc"), "abc");
    }

    #[test]
    fn what_the_log_must_contain_is_looked_for_across_reads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = b"Using FLASH_ATTN\n".to_vec();
        log.extend(vec![b'.'; 64 * 1024 - 5]);
        log.extend_from_slice(b"Using FLASHINFER backend");
        std::fs::write(file.path(), &log).unwrap();
        let needles =
            ["Using FLASHINFER".to_owned(), "Using FLASH_ATTN".to_owned(), "gone".to_owned()];
        let whole = LogFile { path: file.path().to_owned(), start: 0 };
        assert_eq!(whole.missing(&needles).unwrap(), ["gone"]);
        let second_try = LogFile { start: 10, ..whole };
        assert_eq!(second_try.missing(&needles).unwrap(), ["Using FLASH_ATTN", "gone"]);
    }

    #[test]
    fn what_an_engine_put_in_place_of_its_log_is_neither_followed_nor_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (elsewhere, path) = (dir.path().join("elsewhere"), dir.path().join("engine.log"));
        std::fs::write(&elsewhere, "error: out of memory, address already in use\n").unwrap();
        let log = LogFile { path: path.clone(), start: 0 };
        let link = || std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        let pipe = || rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        for put in [&link as &dyn Fn(), &pipe] {
            put();
            assert!(log.telling(&Redactor::default()).is_empty() && !log.address_in_use());
            assert!(log.missing(&["memory".to_owned()]).is_err());
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_taken_port_is_recognised() {
        for log in [
            &include_bytes!("../../tests/data/engine/vllm-startfail-port-in-use.log")[..],
            &include_bytes!("../../tests/data/engine/llama-startfail-port-in-use.log")[..],
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), log).unwrap();
            assert!(LogFile { path: file.path().to_owned(), start: 0 }.address_in_use());
        }
        assert!(!says_address_in_use("Address space is 98 % full"));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_few_clean_lines(log in proptest::collection::vec(any::<u8>(), 0..4000)) {
            let lines = telling(&log);
            prop_assert!(lines.len() <= SHOWN);
            prop_assert!(lines.iter().all(|line| !line.chars().any(char::is_control)));
        }

        #[test]
        fn at_most_twenty_lines_whatever_they_say(
            lines in proptest::collection::vec("(ValueError: |INFO x |Traceback \\(most recent call last\\):|  File|error: )[a-z]{0,3}", 0..80)
        ) {
            let shown = telling(lines.join("\n").as_bytes());
            prop_assert!(shown.len() <= SHOWN);
            if let Some(last) = lines.iter().rfind(|line| !line.trim().is_empty()) {
                prop_assert_eq!(shown.last(), Some(last));
            }
        }
    }
}
