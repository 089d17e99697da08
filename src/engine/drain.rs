//! The drain: what an engine prints on its way into the log.
//!
//! The engine writes into a pipe that a thread of the supervisor empties, whatever the disk does:
//! secrets are hidden, and of a log that grows without end the beginning and the end are kept. What a
//! full disk does not take is counted and lost. It reads no line and judges none.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::log::LogFile;
use super::redact::{Redactor, Stream};

/// Bytes that the kernel holds for a drain that is late. More than the usual limit is refused, and
/// then it is what the kernel gives.
const PIPE: usize = 1 << 20;
/// Most bytes that are read at once.
const PIECE: usize = 256 << 10;
/// How long more is waited for once something has come: an engine that prints line by line wakes the
/// drain a hundred times a second, not at each line.
const GATHER: Duration = Duration::from_millis(10);
/// Pieces from this size on are not waited for.
const MUCH: usize = 32 << 10;
/// After so long a silence nothing is held back but what a secret begins with.
const SILENCE: Duration = Duration::from_millis(250);
/// How long the supervisor waits for what has been printed to be in the log.
const PATIENCE: Duration = Duration::from_secs(2);

/// Orders to the thread; it answers each with the byte itself.
const CATCH_UP: u8 = b'c';
const END: u8 = b'e';

/// The way into one log.
pub(crate) struct Drain {
    entrance: PipeWriter,
    orders: UnixStream,
    /// Orders that were not answered in time, and will be.
    late: usize,
}

impl Drain {
    /// Opens the way into the log at `path`; what is there already stays.
    pub(crate) fn open(path: &Path, redactor: Redactor) -> io::Result<Drain> {
        let LogFile { path, start } = LogFile::from_here(path);
        let (exit, entrance) = io::pipe()?;
        #[cfg(target_os = "linux")]
        let _ = rustix::pipe::fcntl_setpipe_size(&entrance, PIPE);
        let (orders, answers) = UnixStream::pair()?;
        orders.set_read_timeout(Some(PATIENCE))?;
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)?;
        let log = Log { file, path, start, length: 0, limits: LIMITS, due: LIMITS.most, lost: 0 };
        let stream = Stream::new(redactor);
        let flow = Flow { exit, answers, stream, log, piece: vec![0; PIECE], clear: Vec::new() };
        std::thread::Builder::new().name("tokgate-drain".to_owned()).spawn(move || flow.run())?;
        Ok(Drain { entrance, orders, late: 0 })
    }

    /// What a program prints into.
    pub(crate) fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(self.entrance.try_clone()?.into())
    }

    /// Waits until all that was printed so far is in the log, but for what may become a secret; not
    /// for ever, since the disk may hang.
    pub(crate) fn catch_up(&mut self) {
        self.order(CATCH_UP);
    }

    /// As [`Drain::catch_up`], with what was held back: nothing more is printed.
    pub(crate) fn finish(&mut self) {
        self.order(END);
    }

    fn order(&mut self, order: u8) {
        // A thread that is gone has nothing to wait for.
        if self.orders.write_all(&[order]).is_err() {
            return;
        }
        self.late += 1;
        while self.late > 0 {
            match self.orders.read(&mut [0]) {
                Ok(1) => self.late -= 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// The thread's side.
struct Flow {
    exit: PipeReader,
    answers: UnixStream,
    stream: Stream,
    log: Log,
    piece: Vec<u8>,
    /// What is to be written, secrets hidden.
    clear: Vec<u8>,
}

impl Flow {
    fn run(mut self) {
        let mut much = false;
        let mut silent = false;
        loop {
            let Some((printed, ordered)) = self.wait(if silent { None } else { Some(SILENCE) })
            else {
                return;
            };
            if ordered {
                let mut order = [END];
                // Without a word more from the other side it is the end.
                let _ = self.answers.read(&mut order);
                self.take(order == [END]);
                let _ = self.answers.write_all(&order);
                if order == [END] {
                    return;
                }
                continue;
            }
            silent = !printed;
            if !printed {
                self.stream.pause(&mut self.clear);
                self.write();
                continue;
            }
            if !much {
                let mut orders = [PollFd::new(&self.answers, PollFlags::IN)];
                let _ = poll(&mut orders, Some(&timespec(GATHER)));
            }
            much = self.read() >= MUCH;
        }
    }

    /// Whether something was printed, and whether there is an order; neither after `limit`. `None`
    /// where that can't be told any more.
    fn wait(&self, limit: Option<Duration>) -> Option<(bool, bool)> {
        let mut both =
            [PollFd::new(&self.exit, PollFlags::IN), PollFd::new(&self.answers, PollFlags::IN)];
        let limit = limit.map(timespec);
        loop {
            match poll(&mut both, limit.as_ref()) {
                Ok(_) => {
                    return Some((!both[0].revents().is_empty(), !both[1].revents().is_empty()));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }

    /// Takes what is in the pipe now, however fast somebody goes on printing.
    fn take(&mut self, last: bool) {
        let mut left = rustix::io::ioctl_fionread(&self.exit).unwrap_or(0);
        while left > 0 {
            match self.read() {
                0 => break,
                got => left = left.saturating_sub(got as u64),
            }
        }
        if last {
            self.stream.end(&mut self.clear);
        } else {
            self.stream.pause(&mut self.clear);
        }
        self.write();
    }

    /// Reads once, where something is there, and writes it; how many bytes it were.
    fn read(&mut self) -> usize {
        let got = loop {
            match self.exit.read(&mut self.piece) {
                Ok(got) => break got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return 0,
            }
        };
        self.stream.push(&self.piece[..got], &mut self.clear);
        self.write();
        got
    }

    fn write(&mut self) {
        self.log.write(&self.clear);
        self.clear.clear();
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Bytes that are kept.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// A log of more is cut.
    most: u64,
    /// What is left of its beginning, and of its end.
    head: u64,
    tail: u64,
}

const LIMITS: Limits = Limits { most: 64 << 20, head: 1 << 20, tail: 16 << 20 };

/// The log of one program.
struct Log {
    /// Whatever is written goes to its end.
    file: File,
    path: PathBuf,
    /// Where the program's part of it begins.
    start: u64,
    /// How long that part is.
    length: u64,
    limits: Limits,
    /// From which length on it is cut.
    due: u64,
    /// Bytes that the disk did not take.
    lost: u64,
}

impl Log {
    fn write(&mut self, mut text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if self.lost > 0 {
            let said = format!("\n… {} bytes lost: the log could not be written …\n", self.lost);
            match self.file.write(said.as_bytes()) {
                Ok(written) => {
                    self.length += written as u64;
                    self.lost = 0;
                }
                Err(_) => {
                    self.lost += text.len() as u64;
                    return;
                }
            }
        }
        while !text.is_empty() {
            match self.file.write(text) {
                Ok(written) if written > 0 => {
                    self.length += written as u64;
                    text = &text[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.lost += text.len() as u64;
                    break;
                }
            }
        }
        if self.length > self.due {
            // One that can't be cut goes on growing: nobody's measurement should end for that.
            let cut = self.cut();
            self.due = if cut.is_ok() { self.limits.most } else { self.length + self.limits.head };
        }
    }

    /// Leaves the beginning and the end.
    fn cut(&mut self) -> io::Result<()> {
        let Limits { head, tail, .. } = self.limits;
        let mut options = OpenOptions::new();
        // A link that an engine put in its place may lead to somebody's file, which is not to be cut.
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.path)?;
        let end = self.start + self.length;
        let (mut from, mut to) = (end - tail, self.start + head);
        let mut piece = vec![0; PIECE.min(tail as usize)];
        // What is kept begins with a whole line, if lines there are.
        let got = file.read_at(&mut piece, from)?;
        from += piece[..got].iter().position(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
        let said = format!("\n… {} bytes left out: the log grew too long …\n", from - to);
        file.write_all_at(said.as_bytes(), to)?;
        to += said.len() as u64;
        while from < end {
            let got = file.read_at(&mut piece, from)?;
            if got == 0 {
                break;
            }
            file.write_all_at(&piece[..got], to)?;
            (from, to) = (from + got as u64, to + got as u64);
        }
        file.set_len(to)?;
        self.length = to - self.start;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Limits = Limits { most: 4096, head: 64, tail: 512 };

    fn log(path: &Path) -> Log {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        let LogFile { path, start } = LogFile::from_here(path);
        Log { file, path, start, length: 0, limits: SMALL, due: SMALL.most, lost: 0 }
    }

    #[test]
    fn beginning_and_end_are_kept_however_often_it_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "what was there before\n").unwrap();
        let mut log = log(&path);
        for number in 0..10_000 {
            log.write(format!("line {number}\n").as_bytes());
            assert!(std::fs::metadata(&path).unwrap().len() <= 4096 + 64);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("what was there before\nline 0\nline 1\n"), "{text}");
        assert_eq!(text.matches(" bytes left out: the log grew too long").count(), 1, "{text}");
        // The end is whole: no line is missing since the last cut.
        let (_, end) = text.rsplit_once("…\n").unwrap();
        let numbers: Vec<u32> = end.lines().map(|line| line[5..].parse().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
        assert_eq!(numbers.last(), Some(&9999));
        assert!(end.len() >= 400, "{}", end.len());
    }

    #[test]
    fn one_without_line_ends_is_cut_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = log(&path);
        log.write(&[b'x'; 4096]);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096, "a short one is left alone");
        log.write(&[b'x'; 904]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("\n… 4424 bytes left out: the log grew too long …\nxxx"), "{text}");
        assert_eq!(text.matches('x').count(), 64 + 512);
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, vec![b'x'; 9000]).unwrap();
        let path = dir.path().join("log");
        let mut log = log(&path);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        log.write(&[b'y'; 5000]);
        assert!(Drain::open(&path, Redactor::default()).is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), vec![b'x'; 9000]);
    }

    #[test]
    fn what_the_disk_does_not_take_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = log(&path);
        let disk = std::mem::replace(&mut log.file, File::open("/dev/null").unwrap());
        log.write(b"one\n");
        log.write(b"two\n");
        log.file = disk;
        log.write(b"three\n");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "\n… 8 bytes lost: the log could not be written …\nthree\n");
    }

    fn drain(path: &Path) -> (Drain, PipeWriter) {
        File::create(path).unwrap();
        let drain = Drain::open(path, Redactor::new(&["sk-secret-key".to_owned()])).unwrap();
        let entrance = drain.entrance().unwrap().into();
        (drain, entrance)
    }

    #[test]
    fn what_was_printed_is_there_once_it_has_caught_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut drain, mut engine) = drain(&path);
        for number in 0..200 {
            engine.write_all(format!("line {number}\n").as_bytes()).unwrap();
            drain.catch_up();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.ends_with(&format!("line {number}\n")), "{text}");
        }
    }

    #[test]
    fn a_secret_in_two_pieces_is_hidden_and_half_of_one_is_written_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (mut drain, mut engine) = drain(&path);
        for piece in ["key: sk-secr", "et-key\n", "then sk-sec"] {
            engine.write_all(piece.as_bytes()).unwrap();
            drain.catch_up();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "key: [redacted]\nthen ");
        drain.finish();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "key: [redacted]\nthen sk-sec");
        drop(engine);
        drain.finish();
    }

    #[test]
    fn somebody_who_goes_on_printing_delays_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (mut drain, mut engine) = drain(&dir.path().join("log"));
        let printing = std::thread::spawn(move || while engine.write_all(&[b'x'; 4096]).is_ok() {});
        for _ in 0..5 {
            drain.catch_up();
        }
        drain.finish();
        assert_eq!(drain.late, 0);
        // The end of the drain is that of who prints.
        printing.join().unwrap();
    }
}
