//! Signals: SIGINT, SIGTERM and SIGHUP become causes to halt.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use super::halt::{Cause, Halter};

/// Listens on the current runtime until it ends.
///
/// # Errors
/// The handlers can't be installed.
pub fn listen(halter: &Halter) -> io::Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let mut stream = signal(kind)?;
        let halter = halter.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                halter.halt(Cause::Signal(kind.as_raw_value()));
            }
        });
    }
    Ok(())
}
