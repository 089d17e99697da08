//! The truth log: when each request was read and each token written, for whoever checks a client.
//!
//! JSON Lines with stamps in nanoseconds of `CLOCK_MONOTONIC`, which every process of a machine
//! shares. A thread of its own writes, so that a slow disk delays no token.
//!
//! - `{"event":"read","at":…,"whole":…,"request":1,"id":"cmpl-…","prompt":8192,"output":128}`: head read at
//!   `at`, body at `whole`;
//! - `{"event":"token","at":…,"request":1,"n":5,"tokens":1}`: `tokens` tokens up to the `n`-th handed to the
//!   socket.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A handle to the log.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    lines: Sender<Line>,
}

#[derive(Debug)]
enum Line {
    Read { at: u64, whole: u64, request: u64, id: String, prompt: u64, output: u64 },
    Token { at: u64, request: u64, n: u64, tokens: u32 },
    Flush(SyncSender<()>),
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Truth {
    /// Creates the file and starts its writer.
    pub(crate) fn create(path: &Path) -> std::io::Result<Truth> {
        let file = File::create(path).map_err(|error| {
            std::io::Error::other(format!("can't write {}: {error}", path.display()))
        })?;
        let (lines, inbox) = channel();
        std::thread::Builder::new()
            .name("truth".to_owned())
            .spawn(move || write(BufWriter::new(file), &inbox))?;
        Ok(Truth { lines })
    }

    /// A request was read: its head at `at`, its body by now.
    pub(crate) fn read(&self, at: u64, request: u64, id: &str, prompt: u64, output: u64) {
        let id = id.to_owned();
        // Without its writer (disk full) the log ends; the engine goes on.
        let _ = self.lines.send(Line::Read { at, whole: now(), request, id, prompt, output });
    }

    /// So many tokens, up to the `n`-th, are handed to the socket.
    pub(crate) fn written(&self, request: u64, n: u64, tokens: u32) {
        let _ = self.lines.send(Line::Token { at: now(), request, n, tokens });
    }

    /// Waits until everything so far is in the file.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.lines.send(Line::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(Duration::from_secs(2));
        }
    }
}

fn write(mut file: BufWriter<File>, inbox: &Receiver<Line>) {
    let mut line = inbox.recv().ok();
    while let Some(one) = line {
        let written = match one {
            Line::Read { at, whole, request, id, prompt, output } => writeln!(
                file,
                r#"{{"event":"read","at":{at},"whole":{whole},"request":{request},"id":"{id}","prompt":{prompt},"output":{output}}}"#
            ),
            Line::Token { at, request, n, tokens } => writeln!(
                file,
                r#"{{"event":"token","at":{at},"request":{request},"n":{n},"tokens":{tokens}}}"#
            ),
            Line::Flush(done) => file.flush().map(|()| {
                let _ = done.send(());
            }),
        };
        if let Err(error) = written {
            eprintln!("WARNING sim: the truth log ends here: {error}");
            return;
        }
        line = match inbox.try_recv() {
            Ok(next) => Some(next),
            Err(TryRecvError::Empty) => {
                // Nothing to do: a reader may be waiting for the last lines.
                if file.flush().is_err() {
                    return;
                }
                inbox.recv().ok()
            }
            Err(TryRecvError::Disconnected) => None,
        };
    }
}
