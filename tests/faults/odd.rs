//! An odd engine: this executable, started again as a server that answers in one of many wrong ways.
//!
//! It listens on `ODD_PORT` and answers as `ODD` says; what is not odd about it is a sound server of
//! the model `ours`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The command that starts it, as a suite writes it.
pub fn command() -> String {
    let executable = std::env::current_exe().unwrap();
    format!("{} --exact faults::odd::as_odd_engine --ignored --nocapture", executable.display())
}

/// The `[engine]` table that starts it, odd in this way; `ready` is its time-out.
pub fn engine(odd: &str, ready: &str) -> String {
    format!(
        "[engine]\nkind = \"openai\"\ncommand = \"{} {{{{ port }}}}\"\n\
         env = {{ ODD = \"{odd}\", ODD_PORT = \"{{{{ port }}}}\" }}\n\
         ready = {{ timeout = \"{ready}\" }}\nstop = {{ grace = \"1s\" }}\n",
        command()
    )
}

/// What is sent for a request.
enum Reply {
    /// A status and a body.
    Body(u16, &'static str),
    /// Bytes, then the end of the connection.
    Bytes(&'static [u8]),
    /// Nothing, for ever.
    Nothing,
    /// A head, then bytes without end.
    Endless,
    /// A head that never ends, a byte at a time.
    Trickle,
}

const MODELS: &str = r#"{"data":[{"id":"ours"}]}"#;
const TOKEN: &str = r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}"#;
const GARBAGE: &[u8] = b"hello\r\n\x00\xff this is no HTTP\r\n";

/// What an engine, odd in this way, answers to the nth request for a path, having been asked for its
/// models so often.
fn reply(odd: &str, path: &str, nth: usize, listings: usize) -> Reply {
    match (odd, path) {
        ("mute-health", "/health") => Reply::Nothing,
        ("mute-models", "/v1/models") => Reply::Nothing,
        ("mute-canary", "/v1/completions") => Reply::Nothing,
        ("garbage", _) => Reply::Bytes(GARBAGE),
        ("redirect", "/health") => Reply::Bytes(
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        ),
        ("endless-health", "/health") | ("endless-canary", "/v1/completions") => Reply::Endless,
        ("trickle", "/health") => Reply::Trickle,
        ("loading", "/v1/models") if nth < 3 => Reply::Body(200, r#"{"data":[]}"#),
        ("loading", "/v1/completions") if listings < 4 => Reply::Body(404, "no such model"),
        ("loading", "/v1/completions") if nth < 3 => Reply::Body(503, "loading"),
        ("loading", "/v1/completions") if nth < 6 => Reply::Body(500, "not warm"),
        ("never-loaded", "/v1/models") => Reply::Body(200, r#"{"data":[]}"#),
        ("zero-tokens", "/v1/completions") => {
            Reply::Body(200, r#"{"choices":[{"text":""}],"usage":{"completion_tokens":0}}"#)
        }
        ("error-in-200", "/v1/completions") => {
            Reply::Body(200, r#"{"error":{"message":"CUDA error: an illegal access"}}"#)
        }
        ("html", "/v1/completions") => Reply::Body(200, "<html><body>Welcome</body></html>"),
        (_, "/health") => Reply::Body(200, ""),
        (_, "/v1/models") => Reply::Body(200, MODELS),
        (_, "/v1/completions") => Reply::Body(200, TOKEN),
        (_, _) => Reply::Body(404, "{}"),
    }
}

/// Reads a request whole; its path.
fn request(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    Some(path)
}

fn answer(mut stream: TcpStream, reply: Reply) -> std::io::Result<()> {
    match reply {
        Reply::Body(status, body) => write!(
            stream,
            "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
        Reply::Bytes(bytes) => stream.write_all(bytes),
        Reply::Nothing => loop {
            std::thread::sleep(Duration::from_secs(600));
        },
        Reply::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                stream.write_all(&[b'x'; 65536])?;
            }
        }
        Reply::Trickle => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: ")?;
            loop {
                stream.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

#[test]
#[ignore = "an engine that other tests start"]
fn as_odd_engine() {
    let Some(port) = std::env::var("ODD_PORT").ok().and_then(|port| port.parse::<u16>().ok())
    else {
        return;
    };
    let odd = std::env::var("ODD").unwrap();
    // Signs of life before it listens.
    let (loads, lines) =
        if odd == "slow" { (Duration::from_secs(3), true) } else { Default::default() };
    let begun = Instant::now();
    let mut shard = 0;
    while begun.elapsed() < loads && lines {
        shard += 1;
        println!("loading shard {shard}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    if odd == "deaf" {
        std::thread::sleep(Duration::from_secs(600));
    }
    let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    for stream in listener.incoming().flatten() {
        let (odd, counts) = (odd.clone(), Arc::clone(&counts));
        std::thread::spawn(move || {
            let Some(path) = request(&stream) else { return };
            let (nth, listings) = {
                let mut counts = counts.lock().unwrap();
                let nth = counts.get(&path).copied().unwrap_or(0);
                counts.insert(path.clone(), nth + 1);
                (nth, counts.get("/v1/models").copied().unwrap_or(0))
            };
            let _ = answer(stream, reply(&odd, &path, nth, listings));
        });
    }
}
