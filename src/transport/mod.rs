//! How bytes reach an engine: over TCP, or in process to the simulated engine; and, so that a gate can
//! be tried, a way on which every answer takes longer.
//!
//! It names the way, and `load` and `engine` open their own connections along it; `sim` answers at the
//! other end of the in-process one. When held bytes are due is decided in `delay`; `relay` holds those
//! that come over TCP.

use std::sync::Arc;

use tokio::io::DuplexStream;

mod alarm;
mod delay;
mod relay;

pub use delay::{Delay, delayed};
pub use relay::Relay;

/// Opens one in-process connection; the other end is already served.
pub type Connect = Arc<dyn Fn() -> DuplexStream + Send + Sync>;

/// The way to an engine.
#[derive(Clone)]
pub enum Transport {
    /// A TCP connection to host and port of the url.
    Tcp,
    /// A TCP connection to a relay, which leads to host and port of the url.
    Relayed(Arc<Relay>),
    /// A pipe in memory; host and port of the url only fill the `Host` header.
    InProcess(Connect),
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Transport::Tcp => f.write_str("Tcp"),
            Transport::Relayed(relay) => write!(f, "Relayed({})", relay.address()),
            Transport::InProcess(_) => f.write_str("InProcess"),
        }
    }
}
