//! The truth log: when each request was read and each token written, for whoever checks a client.
//!
//! JSON Lines with stamps in nanoseconds of `CLOCK_MONOTONIC`, which every process of a machine
//! shares. A thread of its own writes, so that a slow disk delays no token. A token's stamp is taken
//! where its bytes go to the system, by a [`Pen`] that the connection's socket carries: none is later
//! than what a client can see.
//!
//! - `{"event":"read","at":…,"whole":…,"request":1,"id":"cmpl-…","prompt":8192,"output":128}`: head read at
//!   `at`, body at `whole`;
//! - `{"event":"token","at":…,"request":1,"n":5,"tokens":1}`: `tokens` tokens up to the `n`-th written to the
//!   socket.

use std::fs::File;
use std::io::{self, BufWriter, IoSlice, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
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

    /// A pen for one connection.
    pub(crate) fn pen(&self) -> Pen {
        Pen { truth: self.clone(), waiting: Arc::default() }
    }

    /// Waits until everything so far is in the file.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.lines.send(Line::Flush(done)).is_ok() {
            let _ = wait.recv_timeout(Duration::from_secs(2));
        }
    }
}

/// Notes when the tokens of one connection are written.
#[derive(Debug, Clone)]
pub(crate) struct Pen {
    truth: Truth,
    /// Request, place and number of the tokens that are not yet written.
    waiting: Arc<Mutex<Vec<(u64, u64, u32)>>>,
}

impl Pen {
    /// So many tokens, up to the `n`-th, go out with the next write.
    pub(crate) fn hand(&self, request: u64, n: u64, tokens: u32) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((request, n, tokens));
    }

    /// What was handed over was written; the write began at `at`.
    fn written(&self, at: u64) {
        for (request, n, tokens) in
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).drain(..)
        {
            let _ = self.truth.lines.send(Line::Token { at, request, n, tokens });
        }
    }
}

/// A connection whose writes are noted, where there is a log.
#[derive(Debug)]
pub(crate) struct Noted<S> {
    pub(crate) socket: S,
    pub(crate) pen: Option<Pen>,
}

impl<S> Noted<S> {
    fn note(&self, begun: Option<u64>, result: &Poll<io::Result<usize>>) {
        if let (Some(pen), Some(begun), Poll::Ready(Ok(1..))) = (&self.pen, begun, result) {
            pen.written(begun);
        }
    }
}

impl<S: Read + Unpin> Read for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: Write + Unpin> Write for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let begun = self.pen.is_some().then(now);
        let result = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.note(begun, &result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let begun = self.pen.is_some().then(now);
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.note(begun, &result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Rest of the writer once it has written all there was: it is not woken for each token.
const REST: Duration = Duration::from_millis(20);

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
                std::thread::sleep(REST);
                inbox.recv().ok()
            }
            Err(TryRecvError::Disconnected) => None,
        };
    }
}
