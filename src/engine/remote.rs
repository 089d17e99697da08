//! Control requests to an engine: health, models, tokenizer, metrics, facts.
//!
//! Every request has a time limit on the runtime's clock, so that it holds in virtual time too.
//! No proxy is ever used: the measured streams go direct, and what is asked must come from the
//! server that they reach. It interprets answers as far as their shape goes and measures nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use reqwest::Url;
use serde_json::{Value, json};

use super::Kind;
use super::exposition;
use super::metrics::Gauges;
use crate::transport::Transport;

/// Time limit of a control request, unless said otherwise.
pub const LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a tokenizer request: the first may load the tokenizer.
const TOKENIZER_LIMIT: Duration = Duration::from_secs(30);
/// Largest answer that is read, in bytes: a tokenizer's may hold a million ids with their texts.
const LARGEST: usize = 64 * 1024 * 1024;
/// Largest answer to everything else below the base url, in bytes.
const LARGEST_WORD: usize = 4 * 1024 * 1024;

/// A control request that got no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// A url that can't be used.
    #[error("`{url}` can't be used: {why}")]
    Url {
        /// The url.
        url: String,
        /// Why, in words.
        why: String,
    },
    /// No connection, or it broke.
    #[error("{what}: {why}")]
    Unreachable {
        /// Method and path.
        what: String,
        /// Why, in words.
        why: String,
    },
    /// No whole answer in time.
    #[error("{what}: no answer within {}", crate::quantity::print_duration(*.limit))]
    TimedOut {
        /// Method and path.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// An answer other than 200.
    #[error("{what}: {status} {}", excerpt(.body))]
    Refused {
        /// Method and path.
        what: String,
        /// HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// An answer of another shape than expected.
    #[error("{what}: {why}")]
    Unreadable {
        /// Method and path.
        what: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The beginning of an answer, on one line.
pub(crate) fn excerpt(body: &str) -> String {
    // No more is looked at than can be shown, however long the body.
    let words = body.split_whitespace().take(301).map(|word| match word.char_indices().nth(301) {
        Some((at, _)) => &word[..at],
        None => word,
    });
    let line: String = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(300) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as text, what is no UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether the server has no such endpoint (or it is switched off).
    pub fn is_absent(&self) -> bool {
        matches!(self.status, 404 | 405 | 501)
    }
}

/// The way to ask an engine.
#[derive(Debug, Clone)]
pub struct Remote {
    shared: Arc<Shared>,
    model: Arc<str>,
}

#[derive(Debug)]
struct Shared {
    kind: Kind,
    base: String,
    headers: Vec<(String, String)>,
    metrics_urls: Vec<String>,
    transport: Transport,
    client: reqwest::Client,
}

impl Remote {
    /// The way to ask the engine at `base` (no trailing slash, no `/v1`).
    ///
    /// # Errors
    /// A url that isn't plain `http`, or headers that can't be sent.
    pub fn new(
        kind: Kind,
        base: &str,
        headers: &[(String, String)],
        metrics_urls: &[String],
        transport: &Transport,
    ) -> Result<Remote, RemoteError> {
        for url in std::iter::once(base).chain(metrics_urls.iter().map(String::as_str)) {
            let unusable = |why: String| RemoteError::Url { url: url.to_owned(), why };
            let parsed = Url::parse(url).map_err(|error| unusable(error.to_string()))?;
            match parsed.scheme() {
                "http" => {}
                "https" => {
                    let why = "TLS is not spoken here; give the engine's plain http url";
                    return Err(unusable(why.to_owned()));
                }
                _ => return Err(unusable("write one that begins with http://".to_owned())),
            }
        }
        for (name, value) in headers {
            let sendable = name.parse::<hyper::header::HeaderName>().is_ok()
                && hyper::header::HeaderValue::from_str(value).is_ok();
            if !sendable {
                let why =
                    format!("the header `{name}` can't be sent; its name or value is not HTTP");
                return Err(RemoteError::Url { url: base.to_owned(), why });
            }
        }
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| RemoteError::Url { url: base.to_owned(), why: error.to_string() })?;
        Ok(Remote {
            shared: Arc::new(Shared {
                kind,
                base: base.trim_end_matches('/').to_owned(),
                headers: headers.to_vec(),
                metrics_urls: metrics_urls.to_vec(),
                transport: transport.clone(),
                client,
            }),
            model: Arc::from(""),
        })
    }

    /// The same way, naming `model` in requests.
    pub fn with_model(&self, model: &str) -> Remote {
        Remote { shared: Arc::clone(&self.shared), model: Arc::from(model) }
    }

    /// The base url, without trailing slash.
    pub fn url(&self) -> &str {
        &self.shared.base
    }

    /// Which engine it is.
    pub fn kind(&self) -> Kind {
        self.shared.kind
    }

    /// The model that requests name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// GET of a path below the base url.
    ///
    /// # Errors
    /// No whole answer within `limit`; any status is an answer.
    pub async fn get(&self, path: &str, limit: Duration) -> Result<Answer, RemoteError> {
        self.ask(&format!("{}{path}", self.shared.base), path, None, limit).await
    }

    /// POST of JSON to a path below the base url.
    ///
    /// # Errors
    /// No whole answer within `limit`; any status is an answer.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<Answer, RemoteError> {
        self.ask(&format!("{}{path}", self.shared.base), path, Some(body), limit).await
    }

    /// Ids of a text's tokens, without those that mark a beginning; `None` where the server has no
    /// tokenizer endpoint.
    ///
    /// # Errors
    /// No answer, a refusal, or an answer of another shape.
    pub async fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, RemoteError> {
        let body = match self.shared.kind {
            Kind::LlamaCpp => json!({ "content": text, "add_special": false }),
            Kind::Vllm | Kind::Sglang | Kind::Openai | Kind::Sim => {
                json!({ "model": &*self.model, "prompt": text, "add_special_tokens": false })
            }
        };
        let answer = self.post("/tokenize", &body, TOKENIZER_LIMIT).await?;
        self.ids(answer)
    }

    fn ids(&self, answer: Answer) -> Result<Option<Vec<u32>>, RemoteError> {
        const WHAT: &str = "POST /tokenize";
        let Some(body) = present(WHAT, answer)? else { return Ok(None) };
        let ids: Option<Vec<u32>> =
            body.get("tokens").and_then(Value::as_array).and_then(|tokens| {
                tokens.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
            });
        match ids {
            Some(ids) => Ok(Some(ids)),
            None => Err(RemoteError::Unreadable {
                what: WHAT.to_owned(),
                why: format!("no list of token ids in {}", excerpt(&body.to_string())),
            }),
        }
    }

    /// The text of token ids; `None` where the server has no such endpoint.
    ///
    /// # Errors
    /// No answer, a refusal, or an answer of another shape.
    pub async fn detokenize(&self, ids: &[u32]) -> Result<Option<String>, RemoteError> {
        const WHAT: &str = "POST /detokenize";
        let (body, key) = match self.shared.kind {
            Kind::LlamaCpp => (json!({ "tokens": ids }), "content"),
            Kind::Sglang => (json!({ "model": &*self.model, "tokens": ids }), "text"),
            Kind::Vllm | Kind::Openai | Kind::Sim => {
                (json!({ "model": &*self.model, "tokens": ids }), "prompt")
            }
        };
        let answer = self.post("/detokenize", &body, TOKENIZER_LIMIT).await?;
        let Some(body) = present(WHAT, answer)? else { return Ok(None) };
        match body.get(key).and_then(Value::as_str) {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(RemoteError::Unreadable {
                what: WHAT.to_owned(),
                why: format!("no text `{key}` in {}", excerpt(&body.to_string())),
            }),
        }
    }

    /// Metrics as the engine writes them, one text for each of its urls; `None` where it has none. One
    /// url without metrics among several makes it none: a sum without it would be wrong.
    ///
    /// # Errors
    /// No answer, or a refusal other than that there is no such endpoint.
    pub async fn metrics_text(&self) -> Result<Option<Vec<Bytes>>, RemoteError> {
        let mut texts = Vec::new();
        for url in &self.shared.metrics_urls {
            let answer = self.ask(url, url, None, LIMIT).await?;
            if answer.is_absent() {
                return Ok(None);
            }
            texts.push(accepted(&format!("GET {url}"), answer)?.body);
        }
        Ok((!texts.is_empty()).then_some(texts))
    }

    /// The gauges, summed over the engine's metrics urls; `None` where it has none.
    ///
    /// # Errors
    /// As [`Remote::metrics_text`].
    pub async fn gauges(&self) -> Result<Option<Gauges>, RemoteError> {
        let Some(texts) = self.metrics_text().await? else { return Ok(None) };
        let samples: Vec<_> = texts.iter().map(|text| exposition::parse(text)).collect();
        Ok(Some(Gauges::of(&samples)))
    }

    /// JSON of a GET; `None` where the server has no such endpoint.
    ///
    /// # Errors
    /// No answer, a refusal, or an answer that is no JSON.
    pub async fn fact(&self, path: &str) -> Result<Option<Value>, RemoteError> {
        present(&format!("GET {path}"), self.get(path, LIMIT).await?)
    }

    async fn ask(
        &self,
        url: &str,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Answer, RemoteError> {
        let what = format!("{} {path}", if body.is_some() { "POST" } else { "GET" });
        let most = if path.starts_with('/') && !path.ends_with("tokenize") {
            LARGEST_WORD
        } else {
            LARGEST
        };
        let exchange = async {
            match &self.shared.transport {
                Transport::Tcp | Transport::Relayed(_) => self.over_tcp(url, body, most).await,
                Transport::InProcess(connect) => self.in_process(connect(), url, body, most).await,
            }
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(why)) => Err(RemoteError::Unreachable { what, why }),
            Err(_) => Err(RemoteError::TimedOut { what, limit }),
        }
    }

    async fn over_tcp(
        &self,
        url: &str,
        body: Option<&Value>,
        most: usize,
    ) -> Result<Answer, String> {
        let mut request = match body {
            Some(body) => self.shared.client.post(url).json(body),
            None => self.shared.client.get(url),
        };
        for (name, value) in &self.shared.headers {
            request = request.header(name, value);
        }
        let mut response = request.send().await.map_err(|error| innermost(&error))?;
        let status = response.status().as_u16();
        let mut whole = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| innermost(&error))? {
            if whole.len() + piece.len() > most {
                return Err(format!("the answer is longer than {most} bytes"));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Answer { status, body: whole.into() })
    }

    async fn in_process(
        &self,
        stream: tokio::io::DuplexStream,
        url: &str,
        body: Option<&Value>,
        most: usize,
    ) -> Result<Answer, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_owned(),
        };
        let mut request = hyper::Request::builder()
            .method(if body.is_some() { "POST" } else { "GET" })
            .uri(target)
            .header("host", host);
        for (name, value) in &self.shared.headers {
            request = request.header(name, value);
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(Full::new(bytes)).map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // The connection ends with the sender, when the answer is whole or no longer awaited.
        let driver = tokio::spawn(connection);
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| innermost(&error))?;
            let status = response.status().as_u16();
            let whole = Limited::new(response.into_body(), most);
            let whole = whole.collect().await.map_err(|error| error.to_string())?;
            Ok(Answer { status, body: whole.to_bytes() })
        };
        let answer = exchange.await;
        drop(sender);
        driver.abort();
        answer
    }
}

/// The JSON of a 200; `None` where there is no such endpoint.
fn present(what: &str, answer: Answer) -> Result<Option<Value>, RemoteError> {
    if answer.is_absent() {
        return Ok(None);
    }
    let answer = accepted(what, answer)?;
    match answer.json() {
        Some(value) => Ok(Some(value)),
        None => Err(RemoteError::Unreadable {
            what: what.to_owned(),
            why: format!("no JSON: {}", excerpt(&answer.text())),
        }),
    }
}

fn accepted(what: &str, answer: Answer) -> Result<Answer, RemoteError> {
    if answer.status == 200 {
        return Ok(answer);
    }
    let body = answer.text();
    Err(RemoteError::Refused { what: what.to_owned(), status: answer.status, body })
}

/// The cause that stands at the bottom of a chain of errors: the outer ones repeat the url.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let text = deepest.to_string();
    match text.find(" (os error") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(kind: Kind, url: &str) -> Result<Remote, RemoteError> {
        Remote::new(kind, url, &[], &[], &Transport::Tcp)
    }

    #[test]
    fn only_plain_http_is_spoken() {
        assert!(remote(Kind::Vllm, "http://127.0.0.1:8000").is_ok());
        let refused = remote(Kind::Vllm, "https://example.org").unwrap_err().to_string();
        assert!(refused.contains("plain http url"), "{refused}");
        assert!(remote(Kind::Vllm, "127.0.0.1:8000").is_err());
    }

    #[test]
    fn answers_of_both_tokenizers_are_read() {
        let remote = remote(Kind::LlamaCpp, "http://127.0.0.1:1").unwrap();
        let answer = |status, body: &'static str| Answer { status, body: Bytes::from(body) };
        let vllm =
            r#"{"count":4,"max_model_len":2048,"tokens":[819,369,370,387],"token_strs":null}"#;
        assert_eq!(remote.ids(answer(200, vllm)), Ok(Some(vec![819, 369, 370, 387])));
        assert_eq!(remote.ids(answer(200, r#"{"tokens":[]}"#)), Ok(Some(vec![])));
        assert_eq!(remote.ids(answer(404, r#"{"detail":"Not Found"}"#)), Ok(None));
        assert!(remote.ids(answer(200, r#"{"tokens":[{"id":2}]}"#)).is_err());
        let refused = remote.ids(answer(401, r#"{"error":"Unauthorized"}"#)).unwrap_err();
        assert_eq!(refused.to_string(), r#"POST /tokenize: 401 {"error":"Unauthorized"}"#);
    }
}
