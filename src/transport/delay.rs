//! A delay on the way from an engine: what it answers comes as if all of it had taken longer, by the same
//! share.
//!
//! What the engine wrote at a time t after it was asked reaches the client at t × (1 + share) after it
//! asked. So the time to the first token, each gap and the whole answer grow by that share, and rates fall
//! by what belongs to it. Each request counts from its own beginning. Bytes on their way to the engine are
//! not held, nor is the end of a connection longer than the bytes before it.
//!
//! Held bytes are queued, never dropped: the engine is read as fast as it writes, so that it feels nothing
//! of a client that is behind. A queue is no longer than what a stream says in the time that it is behind.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::Connect;
use super::alarm::Alarm;

/// Bytes that an in-memory connection holds before its writer waits.
const PIPE: usize = 256 * 1024;
/// Most bytes that are read at once.
pub(super) const PIECE: usize = 64 * 1024;
/// The greatest share: eleven times as long.
const MOST: f64 = 10.0;

/// By which share everything takes longer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delay(f64);

impl Delay {
    /// A share as a fraction, 0.1 for a tenth; `None` unless it is above 0 and at most 10.
    pub fn new(share: f64) -> Option<Delay> {
        (share > 0.0 && share <= MOST).then_some(Delay(share))
    }

    /// The share as a fraction.
    pub fn share(self) -> f64 {
        self.0
    }

    fn of(self, time: Duration) -> Duration {
        time.mul_f64(1.0 + self.0)
    }
}

/// A way to the same engine on which every answer takes longer.
pub fn delayed(connect: Connect, delay: Delay) -> Connect {
    Arc::new(move || {
        let (near, far) = tokio::io::duplex(PIPE);
        tokio::spawn(pass(far, connect(), delay, Alarm::coarse(), None));
        near
    })
}

/// What a client sent while there was no connection to the engine yet, and when.
pub(super) type Early = Option<(Instant, Vec<u8>)>;

/// When the answers on one connection are due.
struct Schedule {
    delay: Delay,
    /// When the request that is being answered came from the client, and when it went on.
    asked: Option<(Instant, Instant)>,
    /// Whether the engine has said anything since.
    answered: bool,
    /// When the bytes before are due.
    last: Option<Instant>,
}

impl Schedule {
    fn new(delay: Delay) -> Schedule {
        Schedule { delay, asked: None, answered: false, last: None }
    }

    /// Bytes of the client, which came at `came` and go on at `goes`. Bytes that follow an answer are the
    /// next request: a client asks again when it has been answered.
    fn ask(&mut self, came: Instant, goes: Instant) {
        if self.answered || self.asked.is_none() {
            self.asked = Some((came, goes));
            self.answered = false;
        }
    }

    /// When bytes of the engine are due that came at `came`.
    fn answer(&mut self, came: Instant) -> Instant {
        self.answered = true;
        let due = match self.asked {
            Some((asked, gone)) => asked + self.delay.of(came.saturating_duration_since(gone)),
            None => came,
        };
        // Bytes keep their order.
        let due = self.last.map_or(due, |last| due.max(last));
        self.last = Some(due);
        due
    }
}

/// Passes bytes between a client (`near`) and an engine (`far`) until both have ended or the client is
/// gone; those of the engine when they are due.
pub(super) async fn pass<N, F>(near: N, far: F, delay: Delay, mut alarm: Alarm, early: Early)
where
    N: AsyncRead + AsyncWrite + Send,
    F: AsyncRead + AsyncWrite + Send,
{
    let (near, far) = (pin!(near), pin!(far));
    let (mut from_client, mut to_client) = tokio::io::split(near);
    let (mut from_engine, mut to_engine) = tokio::io::split(far);
    let schedule = &Mutex::new(Schedule::new(delay));
    let on_schedule = || schedule.lock().unwrap_or_else(PoisonError::into_inner);
    let (queue, mut queued) = unbounded_channel::<(Instant, Bytes)>();

    // Ends where the client is gone. One that has only said that it asks nothing more is still answered.
    let asking = async {
        let mut piece = vec![0; PIECE];
        let mut next = early;
        loop {
            let (came, bytes) = match next.take() {
                Some(early) => early,
                None => match from_client.read(&mut piece).await {
                    Ok(0) => break,
                    Ok(count) => (Instant::now(), piece[..count].to_vec()),
                    Err(_) => return,
                },
            };
            on_schedule().ask(came, Instant::now());
            // What an engine that takes no more has said before is still to be delivered.
            if to_engine.write_all(&bytes).await.is_err() {
                return std::future::pending().await;
            }
        }
        let _ = to_engine.shutdown().await;
        std::future::pending().await
    };
    // An engine that breaks off has ended: its last words are delivered.
    let answering = async move {
        let mut piece = vec![0; PIECE];
        while let Ok(count @ 1..) = from_engine.read(&mut piece).await {
            let due = on_schedule().answer(Instant::now());
            let _ = queue.send((due, Bytes::copy_from_slice(&piece[..count])));
        }
        drop(queue);
        std::future::pending::<()>().await
    };
    let delivering = async {
        while let Some((due, bytes)) = queued.recv().await {
            alarm.at(due).await;
            if to_client.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to_client.shutdown().await;
    };
    tokio::select! {
        () = asking => {}
        () = answering => {}
        () = delivering => {}
    }
}

#[cfg(test)]
mod tests;
