//! The socket of a measured stream: every read is stamped with the time at which its bytes came in.
//!
//! It carries bytes over TCP or an in-process pipe and notes two stamps that its owner reads
//! through [`Marks`]: of the last read, and of the first write since the owner armed it. hyper hands
//! over a piece of a body only after the read that brought it and before the next one, so that the
//! last read is that of the piece in hand.
//!
//! Over TCP the stamp of a read is the kernel's where it has one, so that it does not move when we
//! are late; else it is the time at which the read returned. A read has one stamp, that of its
//! newest bytes: tokens of a stream that came in since the last look share it, as those do that a
//! server sends in one piece.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::DuplexStream;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

use super::kernel;
use crate::clock::{Clock, Stamp};

/// Stamps of one socket, shared with its owner.
#[derive(Debug)]
pub struct Marks {
    last_read: AtomicU64,
    first_write: AtomicU64,
}

/// Stands for "nothing written yet".
const NEVER: u64 = u64::MAX;

impl Marks {
    /// When the bytes of the last read came in, or when it found the end of the stream.
    pub fn last_read(&self) -> Stamp {
        Stamp(self.last_read.load(Ordering::Relaxed))
    }

    /// Makes the next write the first one.
    pub fn arm(&self) {
        self.first_write.store(NEVER, Ordering::Relaxed);
    }

    /// When the first write since [`Marks::arm`] was handed over; `None` before it.
    pub fn first_write(&self) -> Option<Stamp> {
        match self.first_write.load(Ordering::Relaxed) {
            NEVER => None,
            at => Some(Stamp(at)),
        }
    }
}

#[derive(Debug)]
enum Way {
    Tcp(Tcp),
    InProcess(TokioIo<DuplexStream>),
}

/// A TCP connection. tokio's own type would read, but not hand over what comes beside the bytes.
#[derive(Debug)]
struct Tcp {
    socket: AsyncFd<std::net::TcpStream>,
    /// Whether the kernel stamps what it receives.
    stamped: bool,
}

impl Tcp {
    /// Reads, and says how long ago the bytes came in, where the kernel does.
    fn poll_read(
        &self,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<Option<Duration>>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let free = buf.remaining();
            match kernel::read(self.socket.get_ref().as_fd(), &mut buf) {
                Ok(read) => {
                    // Less than there was room for: nothing is left, which spares a look.
                    if (1..free).contains(&read.bytes) {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(read.age));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.socket.poll_write_ready(cx))?;
            match io::Write::write_vectored(&mut self.socket.get_ref(), bufs) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub struct Socket {
    way: Way,
    clock: Clock,
    marks: Arc<Marks>,
}

impl Socket {
    /// A socket over a TCP connection; small writes go out at once.
    ///
    /// # Errors
    /// The system's, where it refuses `TCP_NODELAY`.
    #[allow(unsafe_code)]
    pub fn tcp(stream: TcpStream, clock: Clock) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let stamped = kernel::ask(stream.as_fd());
        // SAFETY: the stream owns its descriptor, which nobody replaces or closes before both go.
        let socket = unsafe { AsyncFd::register(stream) }?;
        Ok(Socket::new(Way::Tcp(Tcp { socket, stamped }), clock))
    }

    /// A socket over an in-process pipe.
    pub fn in_process(pipe: DuplexStream, clock: Clock) -> Socket {
        Socket::new(Way::InProcess(TokioIo::new(pipe)), clock)
    }

    fn new(way: Way, clock: Clock) -> Socket {
        let marks = Marks { last_read: AtomicU64::new(0), first_write: AtomicU64::new(NEVER) };
        Socket { way, clock, marks: Arc::new(marks) }
    }

    /// Whether reads have the kernel's stamps.
    pub fn is_stamped(&self) -> bool {
        match &self.way {
            Way::Tcp(tcp) => tcp.stamped,
            Way::InProcess(_) => false,
        }
    }

    /// Notes a read whose bytes came in so long ago. No stamp is earlier than the one before, nor than
    /// the request: the clock of the kernel's stamps may be set in between.
    fn read(&self, age: Option<Duration>) {
        let now = self.clock.now().0;
        let age = age.map_or(0, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        let sent = self.marks.first_write().map_or(0, |sent| sent.0);
        let earliest = self.marks.last_read().0.max(sent).min(now);
        self.marks.last_read.store(now.saturating_sub(age).max(earliest), Ordering::Relaxed);
    }

    /// Its stamps.
    pub fn marks(&self) -> Arc<Marks> {
        Arc::clone(&self.marks)
    }

    /// Notes the first write. The stamp is from before the call, since sending a large prompt takes
    /// its time, which is part of the latency.
    fn wrote(&self, before: Stamp, result: &Poll<io::Result<usize>>) {
        if matches!(result, Poll::Ready(Ok(1..))) && self.marks.first_write().is_none() {
            self.marks.first_write.store(before.0, Ordering::Relaxed);
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let result = match &mut self.way {
            Way::Tcp(tcp) => ready!(tcp.poll_read(cx, buf)),
            Way::InProcess(io) => ready!(Pin::new(io).poll_read(cx, buf)).map(|()| None),
        };
        self.read(result.as_ref().ok().copied().flatten());
        Poll::Ready(result.map(|_| ()))
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let before = self.clock.now();
        let result = match &mut self.way {
            Way::Tcp(tcp) => tcp.poll_write(cx, &[IoSlice::new(buf)]),
            Way::InProcess(io) => Pin::new(io).poll_write(cx, buf),
        };
        self.wrote(before, &result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let before = self.clock.now();
        let result = match &mut self.way {
            Way::Tcp(tcp) => tcp.poll_write(cx, bufs),
            Way::InProcess(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        };
        self.wrote(before, &result);
        result
    }

    // Prompts of megabytes are written from where they are, without a copy for each stream.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Tcp(_) => Poll::Ready(Ok(())),
            Way::InProcess(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Tcp(tcp) => Poll::Ready(tcp.socket.get_ref().shutdown(Shutdown::Write)),
            Way::InProcess(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}

/// Fewer file descriptors than the streams need, even at the hard limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{streams} streams need {needed} file descriptors, and the hard limit is {limit}: raise it \
     (`ulimit -Hn {needed}`) or lower the concurrency"
)]
pub struct TooFewDescriptors {
    /// Streams asked for.
    pub streams: u64,
    /// Descriptors that they need, with some for everything else.
    pub needed: u64,
    /// The hard limit.
    pub limit: u64,
}

/// Descriptors that the rest of the process may need beside the streams.
const OTHERS: u64 = 256;

/// Makes sure that `streams` connections can be open at once, and raises the soft limit of open
/// files where it is too low.
///
/// # Errors
/// The hard limit is too low.
pub fn make_room_for(streams: u64) -> Result<(), TooFewDescriptors> {
    let needed = streams.saturating_add(OTHERS);
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(limit) = now.maximum
        && limit < needed
    {
        return Err(TooFewDescriptors { streams, needed, limit });
    }
    let raised = Rlimit { current: Some(needed), maximum: now.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| TooFewDescriptors {
        streams,
        needed,
        limit: now.current.unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_up_to_the_hard_limit() {
        make_room_for(1).unwrap();
        if let Some(limit) = getrlimit(Resource::Nofile).maximum {
            let refused = make_room_for(limit).unwrap_err();
            assert_eq!(refused.limit, limit);
        }
    }
}
