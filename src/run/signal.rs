//! Signals: SIGINT, SIGTERM and SIGHUP become causes to halt.
//!
//! A SIGHUP that is ignored from the start stays so: that is how `nohup` asks to go on.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use super::halt::{Cause, Halter};

/// Listens on the current runtime until it ends.
///
/// # Errors
/// The handlers can't be installed.
pub fn listen(halter: &Halter) -> io::Result<()> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        if kind == SignalKind::hangup() && is_ignored(kind) {
            continue;
        }
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

/// Whether this process was started with the signal ignored, where it can be told.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status, kind.as_raw_value())
}

/// Reads the mask of ignored signals out of `/proc/self/status`.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\ttokgate\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000000001\n";
        assert!(ignores(status, 1));
        assert!(!ignores(status, 2) && !ignores("", 1));
    }
}
