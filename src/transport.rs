//! How bytes reach an engine: over TCP, or in process to the simulated engine.
//!
//! It only names the way. `load` and `engine` open their own connections along it; `sim` answers
//! at the other end of the in-process one.

use std::sync::Arc;

use tokio::io::DuplexStream;

/// Opens one in-process connection; the other end is already served.
pub type Connect = Arc<dyn Fn() -> DuplexStream + Send + Sync>;

/// The way to an engine.
#[derive(Clone)]
pub enum Transport {
    /// A TCP connection to host and port of the url.
    Tcp,
    /// A pipe in memory; host and port of the url only fill the `Host` header.
    InProcess(Connect),
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Transport::Tcp => f.write_str("Tcp"),
            Transport::InProcess(_) => f.write_str("InProcess"),
        }
    }
}
