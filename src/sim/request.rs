//! What clients send: bodies of completions, chat, tokenize and detokenize, checked as vLLM checks them.
//!
//! Bytes in, [`Wanted`] or a [`Refusal`] in vLLM's words out. Fields that change no timing are ignored.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::noise::mix;
use super::profile::Profile;
use super::scheduler::Finish;
use super::tokenizer;

/// An answer other than 200, as vLLM words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) param: Option<&'static str>,
    pub(crate) message: String,
    /// vLLM notices an unknown token id only when the stream has begun.
    pub(crate) in_stream: bool,
}

impl Refusal {
    pub(crate) fn bad(param: Option<&'static str>, message: impl Into<String>) -> Refusal {
        let (kind, message) = ("BadRequestError", message.into());
        Refusal { status: 400, kind, param, message, in_stream: false }
    }
}

/// A request for tokens that can be carried out.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Whether it came by `/v1/chat/completions`.
    pub(crate) chat: bool,
    /// Length of the prompt in tokens.
    pub(crate) prompt: u64,
    /// Hashes of the prefixes that end with each whole block.
    pub(crate) hashes: Vec<u64>,
    /// Hash of the whole prompt.
    pub(crate) digest: u64,
    /// Tokens that it will get.
    pub(crate) output: u64,
    /// Tokens that it may get.
    pub(crate) most: u64,
    /// Why it ends after `output`.
    pub(crate) finish: Finish,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompt>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<i64>,
    n: Option<i64>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    tokens: Option<Vec<u32>>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

/// A text, or token ids.
#[derive(Debug)]
enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

struct PromptVisitor;

impl<'de> Visitor<'de> for PromptVisitor {
    type Value = Prompt;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one prompt: a string or an array of token ids")
    }

    fn visit_str<E>(self, text: &str) -> Result<Prompt, E> {
        Ok(Prompt::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Prompt, A::Error> {
        let mut ids = Vec::new();
        while let Some(id) = sequence.next_element()? {
            ids.push(id);
        }
        Ok(Prompt::Ids(ids))
    }
}

impl<'de> Deserialize<'de> for Prompt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prompt, D::Error> {
        deserializer.deserialize_any(PromptVisitor)
    }
}

/// The text of a message: a string, or the text parts of an array.
#[derive(Debug)]
struct Content(String);

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an array of parts with a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Content, A::Error> {
        let mut text = String::new();
        while let Some(part) = sequence.next_element::<Part>()? {
            text.push_str(part.text.as_deref().unwrap_or_default());
        }
        Ok(Content(text))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

fn read(bytes: &[u8]) -> Result<Body, Refusal> {
    serde_json::from_slice(bytes).map_err(|error| Refusal {
        status: 400,
        kind: "Bad Request",
        param: Some("body"),
        message: format!("1 validation error:\n  {{'loc': 'body', 'msg': '{error}'}}"),
        in_stream: false,
    })
}

fn served(body: &Body, model: &str) -> Result<(), Refusal> {
    match &body.model {
        Some(name) if name != model => Err(Refusal {
            status: 404,
            kind: "NotFoundError",
            param: Some("model"),
            message: format!("The model `{name}` does not exist. Valid aliases: {model}."),
            in_stream: false,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Reads a request for tokens.
pub(crate) fn wanted(
    bytes: &[u8],
    chat: bool,
    model: &str,
    profile: &Profile,
) -> Result<Wanted, Refusal> {
    let body = read(bytes)?;
    served(&body, model)?;
    let stream = body.stream.unwrap_or(false);
    if body.stream_options.is_some() && !stream {
        return Err(Refusal::bad(
            Some("stream_options"),
            "Stream options can only be defined when `stream=True`.",
        ));
    }
    if body.n.is_some_and(|n| n != 1) {
        return Err(Refusal::bad(Some("n"), "the simulated engine gives one choice per request"));
    }
    let ids = if chat { chat_ids(&body)? } else { completion_ids(&body)? };
    if let Some(id) = ids.iter().find(|id| **id >= tokenizer::VOCABULARY) {
        let refusal = Refusal::bad(None, format!("Token id {id} is out of vocabulary"));
        return Err(Refusal { in_stream: stream, ..refusal });
    }
    let options = body.stream_options.as_ref();
    let include_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
    let continuous = options.and_then(|options| options.continuous_usage_stats).unwrap_or(false);
    let prompt = ids.len() as u64;
    let most = longest(&body, chat, prompt, profile.max_model_len)?;
    let least = body.min_tokens.unwrap_or(0);
    if least > most as i64 {
        let message =
            format!("min_tokens must be less than or equal to max_tokens={most}, got {least}.");
        return Err(Refusal::bad(None, message));
    }
    let (hashes, digest) = digest(&ids, profile.block_size as usize);
    let natural = natural_length(digest, profile.natural_output).max(least.max(0) as u64 + 1);
    let (output, finish) = if body.ignore_eos.unwrap_or(false) || natural >= most {
        (most, Finish::Length)
    } else {
        (natural, Finish::Stop)
    };
    let continuous_usage = include_usage && continuous;
    Ok(Wanted {
        chat,
        prompt,
        hashes,
        digest,
        output,
        most,
        finish,
        stream,
        include_usage,
        continuous_usage,
    })
}

fn longest(body: &Body, chat: bool, prompt: u64, max_model_len: u64) -> Result<u64, Refusal> {
    if prompt >= max_model_len {
        return Err(Refusal::bad(
            Some("input_tokens"),
            format!(
                "This model's maximum context length is {max_model_len} tokens. However, your prompt contains {prompt} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={prompt})"
            ),
        ));
    }
    let room = max_model_len - prompt;
    let asked = if chat { body.max_completion_tokens.or(body.max_tokens) } else { body.max_tokens };
    let Some(asked) = asked else {
        return Ok(if chat { room } else { room.min(16) });
    };
    let refuse = |message: String| Err(Refusal::bad(Some("max_tokens"), message));
    match u64::try_from(asked) {
        Err(_) | Ok(0) => refuse(format!(
            "max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})"
        )),
        Ok(asked) if asked > max_model_len => refuse(format!(
            "max_tokens={asked} cannot be greater than max_model_len={max_model_len}. Please request fewer output tokens. (parameter=max_tokens, value={asked})"
        )),
        Ok(asked) if asked > room => refuse(format!(
            "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is {max_model_len} tokens and your request has {prompt} input tokens ({asked} > {max_model_len} - {prompt}). (parameter=max_tokens, value={asked})"
        )),
        Ok(asked) => Ok(asked),
    }
}

fn completion_ids(body: &Body) -> Result<Vec<u32>, Refusal> {
    let ids = match &body.prompt {
        Some(Prompt::Text(text)) => tokenizer::encode(text),
        Some(Prompt::Ids(ids)) => ids.clone(),
        None => Vec::new(),
    };
    if ids.is_empty() {
        return Err(Refusal::bad(
            Some("prompt"),
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
        ));
    }
    Ok(ids)
}

fn chat_ids(body: &Body) -> Result<Vec<u32>, Refusal> {
    let messages = body.messages.as_deref().unwrap_or_default();
    if messages.is_empty() {
        return Err(Refusal::bad(
            None,
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
        ));
    }
    Ok(tokenizer::encode(&template(messages)))
}

fn template(messages: &[Message]) -> String {
    let mut text = String::new();
    for Message { role, content } in messages {
        let content = content.as_ref().map_or("", |content| content.0.as_str());
        text.push_str(&format!("<|im_start|>{role}\n{content}<|im_end|>\n"));
    }
    text + "<|im_start|>assistant\n"
}

/// The ids of a `/tokenize` request.
pub(crate) fn tokenize(bytes: &[u8], model: &str) -> Result<Vec<u32>, Refusal> {
    let body = read(bytes)?;
    served(&body, model)?;
    match (&body.prompt, &body.messages) {
        (Some(Prompt::Text(text)), _) => Ok(tokenizer::encode(text)),
        (Some(Prompt::Ids(_)), _) => Err(Refusal::bad(Some("prompt"), "prompt must be a string")),
        (None, Some(messages)) => Ok(tokenizer::encode(&template(messages))),
        (None, None) => Err(Refusal::bad(None, "prompt or messages must be provided")),
    }
}

/// The text of a `/detokenize` request.
pub(crate) fn detokenize(bytes: &[u8], model: &str) -> Result<String, Refusal> {
    let body = read(bytes)?;
    served(&body, model)?;
    match &body.tokens {
        Some(ids) => Ok(tokenizer::decode(ids)),
        None => Err(Refusal::bad(Some("tokens"), "tokens must be provided")),
    }
}

/// Hashes of the prefixes that end with each whole block, and one of it all. None is zero.
fn digest(ids: &[u32], block: usize) -> (Vec<u64>, u64) {
    let fold = |hash: u64, ids: &[u32]| {
        let mut hash = hash;
        for pair in ids.chunks(2) {
            let word = u64::from(pair[0]) | u64::from(*pair.last().unwrap_or(&0)) << 32;
            hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^= hash >> 29;
        }
        hash
    };
    let mut hash = 0x5BD1_E995;
    let mut hashes = Vec::with_capacity(ids.len() / block);
    let blocks = ids.chunks_exact(block);
    let rest = blocks.remainder();
    for block in blocks {
        hash = fold(hash, block);
        hashes.push(mix(hash, 0).max(1));
    }
    (hashes, mix(fold(hash, rest), ids.len() as u64))
}

/// Where the model would end by itself: exponential with this mean, fixed by the prompt.
fn natural_length(digest: u64, mean: u64) -> u64 {
    let uniform = ((mix(digest, 77) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-uniform.ln() * mean as f64).ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_with_the_same_beginning_share_hashes_up_to_the_first_difference() {
        let ids: Vec<u32> = (0..100).collect();
        let mut other = ids.clone();
        other[40] = 7;
        let ((a, whole_a), (b, whole_b)) = (digest(&ids, 16), digest(&other, 16));
        assert_eq!(a.len(), 6);
        assert_eq!(a[..2], b[..2]);
        assert!(a[2..].iter().zip(&b[2..]).all(|(a, b)| a != b));
        assert_ne!(whole_a, whole_b);
        let mut swapped = ids.clone();
        swapped.swap(0, 1);
        assert_ne!(digest(&swapped, 16).0[0], a[0]);
    }

    #[test]
    fn an_answer_ends_by_itself_unless_told_to_go_on() {
        let profile = Profile::default();
        let wanted = |extra: &str| {
            let body = format!(r#"{{"prompt":"Once upon a time","max_tokens":9999{extra}}}"#);
            wanted(body.as_bytes(), false, "sim", &profile).unwrap()
        };
        let natural = wanted("");
        assert_eq!(natural.finish, Finish::Stop);
        assert!(natural.output < 9999);
        let forced = wanted(",\"ignore_eos\":true");
        assert_eq!((forced.output, forced.finish), (9999, Finish::Length));
        assert_eq!(wanted(",\"min_tokens\":9000").output, 9001);
    }

    #[test]
    fn refusals_use_the_words_of_vllm() {
        let profile = Profile::default();
        let refused =
            |body: &str, chat| wanted(body.as_bytes(), chat, "sim", &profile).unwrap_err();
        assert_eq!(refused(r#"{"prompt":"a","model":"gpt"}"#, false).status, 404);
        insta::assert_snapshot!(refused(r#"{"prompt":""}"#, false).message, @"Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)");
        insta::assert_snapshot!(refused(r#"{"prompt":"a","max_tokens":0}"#, false).message, @"max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)");
        insta::assert_snapshot!(refused(r#"{"prompt":"a","max_tokens":32768}"#, false).message, @"'max_tokens' or 'max_completion_tokens' is too large: 32768. This model's maximum context length is 32768 tokens and your request has 1 input tokens (32768 > 32768 - 1). (parameter=max_tokens, value=32768)");
        insta::assert_snapshot!(refused(r#"{"messages":[]}"#, true).message, @"Cannot apply chat template to an empty conversation. Provide at least one message.");
        assert_eq!(refused(r#"{"prompt":"#, false).kind, "Bad Request");
        assert_eq!(refused(r#"{"prompt":"a","max_tokens":"lots"}"#, false).kind, "Bad Request");
        let unknown = refused(r#"{"prompt":[2,99999999],"stream":true}"#, false);
        assert_eq!(
            (unknown.message.as_str(), unknown.in_stream),
            ("Token id 99999999 is out of vocabulary", true)
        );
    }
}
