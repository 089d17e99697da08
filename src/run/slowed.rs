//! The way of measured streams: the engine's own, or in a self-test one on which its answers take longer.
//!
//! Health, metrics, the tokenizer and external tools go the engine's own way all the same.

use crate::engine::LaunchSpec;
use crate::transport::{Delay, Relay, Transport, delayed};

/// The way on which the streams of a launch are measured.
///
/// # Errors
/// Why nothing can stand between client and engine, in words.
pub(super) fn way(
    transport: &Transport,
    spec: &LaunchSpec,
    slow: Option<Delay>,
) -> Result<Transport, String> {
    let Some(delay) = slow else { return Ok(transport.clone()) };
    match transport {
        Transport::InProcess(connect) => Ok(Transport::InProcess(delayed(connect.clone(), delay))),
        Transport::Tcp | Transport::Relayed(_) => {
            let refused =
                |why: &str| format!("nothing can be held back before {}: {why}", spec.url);
            let url: hyper::Uri = spec.url.parse().map_err(|_| refused("it is no url"))?;
            let host = url.host().ok_or_else(|| refused("it names no host"))?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let relay = Relay::open(host, url.port_u16().unwrap_or(80), delay)
                .map_err(|error| refused(&error.to_string()))?;
            Ok(Transport::Relayed(relay.into()))
        }
    }
}
