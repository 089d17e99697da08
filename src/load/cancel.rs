//! Cancelling requests under way, many at once.
//!
//! The [`Canceller`] is kept by whoever decides that it is enough; each stream holds a [`Cancel`].
//! A cancelled stream hands out its trace and closes its connection, so that the server stops too.

use tokio::sync::watch;

/// Cancels all streams that hold a [`Cancel`] of it.
#[derive(Debug, Clone)]
pub struct Canceller(watch::Sender<bool>);

/// Tells a stream that it was cancelled.
#[derive(Debug, Clone)]
pub struct Cancel(Option<watch::Receiver<bool>>);

impl Default for Canceller {
    fn default() -> Self {
        Canceller::new()
    }
}

impl Canceller {
    /// One that has not cancelled anything yet.
    pub fn new() -> Canceller {
        Canceller(watch::Sender::new(false))
    }

    /// A handle for one more stream.
    pub fn handle(&self) -> Cancel {
        Cancel(Some(self.0.subscribe()))
    }

    /// Cancels all streams, also those that begin later.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

impl Cancel {
    /// A handle that nobody can cancel.
    pub fn never() -> Cancel {
        Cancel(None)
    }

    /// Whether it is cancelled by now.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|receiver| *receiver.borrow())
    }

    /// Waits until it is cancelled; for ever, where the canceller has gone without a word.
    pub async fn cancelled(&mut self) {
        if let Some(receiver) = &mut self.0
            && receiver.wait_for(|cancelled| *cancelled).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn handles_learn_of_it_before_and_after() {
        let canceller = Canceller::new();
        let mut early = canceller.handle();
        assert!(!early.is_cancelled());
        canceller.cancel();
        early.cancelled().await;
        canceller.handle().cancelled().await;
    }
}
