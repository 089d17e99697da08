//! A toy engine: enough of vLLM's surface for `tokgate run` to measure it, in this process, and
//! otherwise as a test wants it. It writes down every request.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// One thing that an answer does.
#[derive(Debug, Clone)]
pub enum Act {
    /// Writes these bytes at once.
    Write(Vec<u8>),
    /// Does nothing for so long.
    Pause(Duration),
    /// Writes these bytes again and again, so far apart, until the client has gone.
    Repeat(Vec<u8>, Duration),
    /// Closes the connection.
    Close,
}

/// A request for a completion.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How many came before it.
    pub n: usize,
    /// The path.
    pub path: String,
    /// Headers by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Value,
}

impl Asked {
    /// Whether it is for the chat API.
    pub fn is_chat(&self) -> bool {
        self.path == "/v1/chat/completions"
    }

    /// Tokens that it may have.
    pub fn max_tokens(&self) -> u64 {
        self.body["max_tokens"].as_u64().unwrap()
    }

    /// The prompt as token ids: as they came, or one for each word.
    pub fn prompt(&self) -> Vec<u64> {
        let prompt = if self.is_chat() {
            &self.body["messages"][0]["content"]
        } else {
            &self.body["prompt"]
        };
        match prompt {
            Value::Array(ids) => ids.iter().map(|id| id.as_u64().unwrap()).collect(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => tokenize(prompt.as_str().unwrap()),
        }
    }

    /// A good answer: what was asked for, a token an event, two milliseconds apart.
    pub fn stream(&self) -> Stream {
        Stream {
            chat: self.is_chat(),
            first: Duration::from_millis(1),
            step: Duration::from_millis(2),
            tokens: self.max_tokens(),
            finish: "length",
            prompt: self.prompt().len() as u64,
            cached: None,
            counts: true,
        }
    }
}

/// An answer that comes to its end.
#[derive(Debug, Clone)]
pub struct Stream {
    chat: bool,
    /// Before the first token.
    pub first: Duration,
    /// Before each further one.
    pub step: Duration,
    /// Tokens, one an event.
    pub tokens: u64,
    /// The finish reason.
    pub finish: &'static str,
    /// What it says of the prompt's length.
    pub prompt: u64,
    /// What it says of cached tokens.
    pub cached: Option<u64>,
    /// Whether it says how many tokens there are.
    pub counts: bool,
}

impl Stream {
    /// The events, each by itself.
    pub fn events(&self) -> Vec<String> {
        (1..=self.tokens)
            .map(|count| {
                let finish = (count == self.tokens).then_some(self.finish);
                let mut event = if self.chat {
                    json!({ "choices": [{ "delta": { "content": "a" }, "finish_reason": finish }] })
                } else {
                    json!({ "choices": [{ "text": "a", "finish_reason": finish }] })
                };
                if self.counts {
                    event["usage"] = json!({
                        "prompt_tokens": self.prompt, "completion_tokens": count,
                        "prompt_tokens_details": self.cached.map(|n| json!({ "cached_tokens": n })),
                    });
                }
                format!("data: {event}\n\n")
            })
            .collect()
    }

    /// The whole answer.
    pub fn acts(&self) -> Vec<Act> {
        let mut acts = vec![head("text/event-stream")];
        for (n, event) in self.events().iter().enumerate() {
            acts.push(Act::Pause(if n == 0 { self.first } else { self.step }));
            acts.push(chunk(event));
        }
        acts.extend([chunk("data: [DONE]\n\n"), end()]);
        acts
    }
}

/// The head of a 200 answer in chunks.
pub fn head(content_type: &str) -> Act {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: ";
    Act::Write(format!("{head}{content_type}\r\n\r\n").into())
}

/// A whole answer with this status and body.
pub fn whole(status: &str, more: &str, body: &[u8]) -> Vec<Act> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{more}\r\n", body.len());
    vec![Act::Write([head.as_bytes(), body].concat())]
}

/// One HTTP chunk.
pub fn chunk(text: &str) -> Act {
    Act::Write(format!("{:x}\r\n{text}\r\n", text.len()).into())
}

/// The end of an answer in chunks.
pub fn end() -> Act {
    Act::Write(b"0\r\n\r\n".to_vec())
}

/// An id for each word; words alike have ids alike.
pub fn tokenize(text: &str) -> Vec<u64> {
    let id = |word: &str| word.bytes().fold(7u64, |id, b| (id * 31 + u64::from(b)) % 30_011) + 100;
    text.split_whitespace().map(id).collect()
}

type Answer = dyn Fn(&Asked) -> Vec<Act> + Send + Sync;
type Page = dyn Fn() -> Option<String> + Send + Sync;

/// The engine. It lives as long as this process.
pub struct Toy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<Answer>,
    metrics: Box<Page>,
    /// A connection is closed without notice when it was idle for so long.
    patience: Option<Duration>,
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    flying: AtomicUsize,
    most: AtomicUsize,
}

impl Toy {
    /// An engine without metrics that answers requests for completions like this.
    pub fn start(answer: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static) -> Toy {
        Toy::with(answer, || None, None)
    }

    /// One that has a page of metrics, and may close idle connections.
    pub fn with(
        answer: impl Fn(&Asked) -> Vec<Act> + Send + Sync + 'static,
        metrics: impl Fn() -> Option<String> + Send + Sync + 'static,
        patience: Option<Duration>,
    ) -> Toy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            metrics: Box::new(metrics),
            patience,
            asked: Mutex::default(),
            connections: AtomicUsize::new(0),
            flying: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                served.connections.fetch_add(1, Ordering::SeqCst);
                let served = Arc::clone(&served);
                thread::spawn(move || {
                    let mut connection = Connection { stream, rest: Vec::new() };
                    while connection.serve(&served).is_some() {}
                });
            }
        });
        Toy { address, shared }
    }

    /// Its base url.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every streaming request so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The most requests that were in flight at one time.
    pub fn most_in_flight(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }
}

struct Connection {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl Connection {
    /// Serves one request; `None` where the connection is at its end.
    fn serve(&mut self, shared: &Shared) -> Option<()> {
        self.stream.set_nodelay(true).ok()?;
        self.stream.set_read_timeout(shared.patience).ok()?;
        let (line, headers, body) = self.request()?;
        let mut words = line.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let reply = |value: Value| {
            whole("200 OK", "content-type: application/json\r\n", value.to_string().as_bytes())
        };
        let acts = match (method, path) {
            ("GET", "/health") => whole("200 OK", "", b""),
            ("GET", "/v1/models") => {
                reply(json!({ "data": [{ "id": "toy", "max_model_len": 32768 }] }))
            }
            ("GET", "/metrics") => match (shared.metrics)() {
                Some(page) => whole("200 OK", "content-type: text/plain\r\n", page.as_bytes()),
                None => whole("404 Not Found", "", b""),
            },
            ("POST", "/tokenize") => {
                let body: Value = serde_json::from_slice(&body).unwrap();
                reply(json!({ "tokens": tokenize(body["prompt"].as_str().unwrap()) }))
            }
            ("POST", "/v1/completions" | "/v1/chat/completions") => {
                let body: Value = serde_json::from_slice(&body).unwrap();
                if body["stream"] == true {
                    return self.stream(shared, path, headers, body);
                }
                reply(json!({
                    "choices": [{ "text": "a", "message": { "content": "a" }, "finish_reason": "length" }],
                    "usage": { "prompt_tokens": 1, "completion_tokens": 1 },
                }))
            }
            _ => whole("404 Not Found", "", b""),
        };
        self.play(&acts)
    }

    fn stream(
        &mut self,
        shared: &Shared,
        path: &str,
        headers: BTreeMap<String, String>,
        body: Value,
    ) -> Option<()> {
        let flying = shared.flying.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most.fetch_max(flying, Ordering::SeqCst);
        let asked = {
            let mut all = shared.asked.lock().unwrap();
            let n = all.len();
            all.push(Asked { n, path: path.to_owned(), headers, body });
            all[n].clone()
        };
        let mut acts = (shared.answer)(&asked);
        // The client may ask again as soon as it has read the last byte.
        let last = acts.pop();
        let played = self.play(&acts);
        shared.flying.fetch_sub(1, Ordering::SeqCst);
        played?;
        self.play(last.as_slice())
    }

    fn play(&mut self, acts: &[Act]) -> Option<()> {
        for act in acts {
            match act {
                Act::Write(bytes) => self.stream.write_all(bytes).ok()?,
                Act::Pause(time) => thread::sleep(*time),
                Act::Repeat(bytes, apart) => {
                    while self.stream.write_all(bytes).is_ok() {
                        thread::sleep(*apart);
                    }
                }
                Act::Close => return None,
            }
        }
        Some(())
    }

    /// Request line, headers and body of the next request; `None` where none comes.
    fn request(&mut self) -> Option<(String, BTreeMap<String, String>, Vec<u8>)> {
        let mut buffer = [0; 65536];
        loop {
            if let Some(end) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.rest[..end]).into_owned();
                let (line, headers) = head.split_once("\r\n").unwrap_or((&head, ""));
                let headers: BTreeMap<String, String> = headers
                    .split("\r\n")
                    .filter_map(|line| line.split_once(':'))
                    .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                    .collect();
                let length =
                    headers.get("content-length").map_or(0, |length| length.parse().unwrap());
                let mut body = self.rest.split_off(end + 4);
                while body.len() < length {
                    let n = self.stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
                    body.extend_from_slice(&buffer[..n]);
                }
                self.rest = body.split_off(length);
                return Some((line.to_owned(), headers, body));
            }
            let n = self.stream.read(&mut buffer).ok().filter(|n| *n > 0)?;
            self.rest.extend_from_slice(&buffer[..n]);
        }
    }
}
