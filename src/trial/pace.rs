//! The pace of an engine, roughly: enough to choose sizes by, and for nothing else.
//!
//! A few requests without streaming, small ones first, larger ones where those were quick. What a run says of
//! the engine is measured anew.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::portrait::{Portrait, Refusal};
use crate::engine::Kind;
use crate::engine::remote::{Remote, RemoteError, excerpt};

/// A request that takes so long says enough of the pace.
const TELLING: f64 = 0.3;
/// Longest prompt that is sent, in words.
const LONGEST: u64 = 12_288;
/// Words of the shortest prompt.
const SHORT: u64 = 8;
/// Words that are a token or little more each, in every common tokenizer.
const WORDS: [&str; 16] = [
    "river", "stone", "light", "paper", "green", "house", "music", "seven", "winter", "garden",
    "table", "market", "silver", "window", "animal", "simple",
];
/// Tokens that a word has at most, before an answer has told.
const TOKENS_A_WORD: f64 = 1.5;
/// Requests side by side.
const CROWD: u64 = 8;
/// Tokens of each of them.
const CROWD_OUTPUT: u64 = 16;

/// How fast an engine roughly is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Seconds to the first token of a short prompt.
    pub overhead: f64,
    /// Prompt tokens a second.
    pub prefill: f64,
    /// Prompt tokens at which that was seen.
    pub seen_at: u64,
    /// Tokens a second of one stream.
    pub decode: f64,
    /// Streams side by side, and tokens a second of all together.
    pub crowd: Option<(u64, f64)>,
}

/// Measures the pace; `seconds` is the time that the whole trial has.
///
/// # Errors
/// The engine refuses, or is far too slow.
pub async fn take(remote: &Remote, portrait: &Portrait, seconds: f64) -> Result<Pace, Refusal> {
    let budget = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let asker = Asker { remote, portrait, budget };
    // The first request of a shape may pay for compiling.
    asker.ask(SHORT, 1).await?;
    let overhead = asker.ask(SHORT, 1).await?.seconds;
    let (prefill, seen_at) = prefill(&asker, overhead, seconds).await?;
    let decode = decode(&asker, overhead).await?;
    let crowd = crowd(&asker, decode, seconds).await?;
    Ok(Pace { overhead, prefill, seen_at, decode, crowd })
}

async fn prefill(asker: &Asker<'_>, overhead: f64, seconds: f64) -> Result<(f64, u64), Refusal> {
    let facts = &asker.portrait.facts;
    let room = [facts.max_model_len, facts.kv_capacity].into_iter().flatten().min();
    let room = room.map_or(1024, |room| (room as f64 * 0.8 / TOKENS_A_WORD) as u64);
    let most = room.clamp(SHORT, LONGEST);
    let mut words = 64.min(most);
    loop {
        let told = asker.ask(words, 1).await?;
        // Of a prompt that takes no longer than a short one, the whole time is the honest figure.
        let beyond = told.seconds - overhead;
        let taken = if beyond > overhead * 0.2 { beyond } else { told.seconds };
        let rate = told.prompt.max(1) as f64 / taken.max(1e-4);
        let next = (words * 4).min(most);
        // A prompt four times as long may take more than four times as long.
        let affordable = told.seconds * 6.0 < seconds * 0.05;
        if told.seconds >= TELLING || next == words || !affordable {
            return Ok((rate, told.prompt.max(1)));
        }
        words = next;
    }
}

async fn decode(asker: &Asker<'_>, overhead: f64) -> Result<f64, Refusal> {
    let mut rate = 1.0 / overhead.max(1e-4);
    for output in [8, 64] {
        let told = asker.ask(SHORT, output).await?;
        let tokens = told.completion.saturating_sub(1);
        if tokens > 0 {
            rate = tokens as f64 / (told.seconds - overhead).max(1e-4);
        }
        if told.seconds > TELLING {
            break;
        }
    }
    Ok(rate)
}

async fn crowd(
    asker: &Asker<'_>,
    decode: f64,
    seconds: f64,
) -> Result<Option<(u64, f64)>, Refusal> {
    let facts = &asker.portrait.facts;
    let fits = facts.kv_capacity.map_or(CROWD, |kv| kv / (CROWD_OUTPUT + 4 * SHORT));
    let streams = CROWD.min(facts.slots.unwrap_or(CROWD)).min(fits);
    // As long as it takes if side by side is no quicker than one after the other.
    let longest = (streams * CROWD_OUTPUT) as f64 / decode.max(1e-3);
    if streams < 2 || longest > seconds * 0.1 {
        return Ok(None);
    }
    let began = Instant::now();
    let all = (0..streams).map(|_| asker.ask(SHORT, CROWD_OUTPUT));
    let mut tokens = 0;
    for told in futures_util::future::join_all(all).await {
        tokens += told?.completion;
    }
    Ok(Some((streams, tokens as f64 / began.elapsed().as_secs_f64().max(1e-4))))
}

/// One answer, in figures.
struct Told {
    prompt: u64,
    completion: u64,
    seconds: f64,
}

struct Asker<'a> {
    remote: &'a Remote,
    portrait: &'a Portrait,
    budget: Duration,
}

impl Asker<'_> {
    /// One request, with a prompt that was never sent before.
    async fn ask(&self, words: u64, output: u64) -> Result<Told, Refusal> {
        let (path, body) = self.request(words, output);
        let began = Instant::now();
        let answer = self.remote.post(path, &body, self.budget).await;
        let seconds = began.elapsed().as_secs_f64();
        let answer = match answer {
            Ok(answer) => answer,
            Err(RemoteError::TimedOut { .. }) => {
                let what =
                    format!("a prompt of {words} words and {output} tokens of output took longer");
                return Err(Refusal::Slow { budget: self.budget, what });
            }
            Err(error) => {
                let url = self.remote.url().to_owned();
                return Err(Refusal::Dead { url, why: error.to_string() });
            }
        };
        let body = answer.json().filter(|_| answer.status == 200);
        let Some(body) = body else {
            let text = excerpt(&answer.text());
            return Err(Refusal::Mute { told: format!("POST {path}: {} {text}", answer.status) });
        };
        let count = |key: &str| body.pointer(key).and_then(Value::as_u64);
        Ok(Told {
            prompt: count("/usage/prompt_tokens").unwrap_or(words),
            completion: count("/usage/completion_tokens").unwrap_or(1),
            seconds,
        })
    }

    fn request(&self, words: u64, output: u64) -> (&'static str, Value) {
        let salt: u64 = rand::random();
        let word = |at: u64| {
            WORDS[(salt.rotate_left((at * 7 % 64) as u32).wrapping_add(at) % 16) as usize]
        };
        let text: Vec<&str> = (0..words).map(word).collect();
        let text = text.join(" ");
        let mut body = json!({
            "model": self.remote.model(), "max_tokens": output, "temperature": 0, "stream": false,
        });
        match self.portrait.kind {
            Kind::Vllm | Kind::Sglang | Kind::LlamaCpp | Kind::Sim => {
                body["ignore_eos"] = json!(true)
            }
            // One that does not know the field may refuse it.
            Kind::Openai => {}
        }
        if self.portrait.chat {
            body["messages"] = json!([{ "role": "user", "content": text }]);
            ("/v1/chat/completions", body)
        } else {
            body["prompt"] = json!(text);
            ("/v1/completions", body)
        }
    }
}
