//! The wire: what servers send, over real sockets and in virtual time, and what the client makes of
//! it.

#![allow(clippy::unwrap_used)]

mod cases;
mod connection;
mod engines;
mod server;
mod virtual_time;

use std::time::Duration;

use bytes::Bytes;
use tokgate::clock::Clock;
use tokgate::load::{Cancel, Client, Dialect, Endpoint, Prepared, Trace};
use tokgate::transport::Transport;

use server::Server;

/// A client of the server, without a connection yet.
fn client(server: &Server) -> Client {
    client_of(server.url(), Transport::Tcp, Clock::start())
}

fn client_of(url: String, transport: Transport, clock: Clock) -> Client {
    let endpoint = Endpoint { url, transport, headers: Vec::new(), dialect: Dialect::OpenAi };
    Client::new(&endpoint, clock).unwrap()
}

/// A request that the servers here do not look at.
fn request(idle_timeout: Duration) -> Prepared {
    Prepared {
        path: "/v1/completions",
        body: Bytes::from_static(b"{}"),
        idle_timeout,
        timeout: None,
    }
}

/// Sends one request and waits for its trace, at most as long as no test here may take.
async fn one(client: &mut Client, request: &Prepared) -> Trace {
    let (mut on_token, mut never) = (|_| {}, Cancel::never());
    let stream = client.stream(request, 0, &mut on_token, &mut never);
    tokio::time::timeout(Duration::from_secs(120), stream).await.expect("the client hangs")
}
