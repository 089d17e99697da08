//! A small raw HTTP server that answers as a test scripts it. It knows no more of HTTP than where a
//! request ends, and runs on threads of its own, so that the client's reads are real ones.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// One thing that the server does on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Reads a request whole.
    ReadRequest,
    /// Writes these bytes at once.
    Write(Vec<u8>),
    /// Writes these bytes, each on its own.
    Trickle(Vec<u8>),
    /// Does nothing for so long.
    Pause(Duration),
    /// Writes these bytes again and again, so far apart, until the client has gone.
    Repeat(Vec<u8>, Duration),
    /// Waits until the client has closed.
    AwaitClose,
}

/// The server; connection `n` follows script `n`, or the last one.
pub(crate) struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    finished: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Server {
    /// A server on a free port.
    pub(crate) fn start(scripts: Vec<Vec<Act>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            finished: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, finished, requests) = (
            Arc::clone(&server.connections),
            Arc::clone(&server.finished),
            Arc::clone(&server.requests),
        );
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let n = connections.fetch_add(1, Ordering::SeqCst);
                let script = scripts[n.min(scripts.len() - 1)].clone();
                let (finished, requests) = (Arc::clone(&finished), Arc::clone(&requests));
                thread::spawn(move || {
                    if play(stream, &script, &requests).is_some() {
                        finished.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        server
    }

    /// Its base url.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections whose script was played to its end.
    pub(crate) fn finished(&self) -> usize {
        self.finished.load(Ordering::SeqCst)
    }

    /// Bodies of the requests read so far.
    pub(crate) fn requests(&self) -> Vec<Vec<u8>> {
        self.requests.lock().unwrap().clone()
    }
}

fn play(mut stream: TcpStream, script: &[Act], requests: &Mutex<Vec<Vec<u8>>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    for act in script {
        match act {
            Act::ReadRequest => requests.lock().unwrap().push(read_request(&mut stream)?),
            Act::Write(bytes) => stream.write_all(bytes).ok()?,
            Act::Trickle(bytes) => {
                for byte in bytes {
                    stream.write_all(&[*byte]).ok()?;
                }
            }
            Act::Pause(time) => thread::sleep(*time),
            Act::Repeat(bytes, apart) => {
                while stream.write_all(bytes).is_ok() {
                    thread::sleep(*apart);
                }
            }
            Act::AwaitClose => while stream.read(&mut [0; 256]).is_ok_and(|n| n > 0) {},
        }
    }
    Some(())
}

/// The body of the next request; `None` where the client closes instead.
fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"))
                .and_then(|value| value.trim().parse().ok())
                .unwrap_or(0);
            let mut body = bytes.split_off(end + 4);
            let have = body.len();
            body.resize(length, 0);
            stream.read_exact(&mut body[have..]).ok()?;
            return Some(body);
        }
        let n = stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&buffer[..n]);
    }
}

/// The head of a 200 answer whose body ends with the connection.
pub(crate) fn head_until_close(content_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n").into()
}

/// The head of a 200 answer in chunks.
pub(crate) fn head_chunked(content_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n")
        .into()
}

/// One HTTP chunk.
pub(crate) fn http_chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// The end of an answer in chunks.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
