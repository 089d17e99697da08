//! The prompts of a launch: drawn from ids that the server's own tokenizer gave, or fitted as text
//! by asking the server what it counts.
//!
//! What a prompt says is decided in `load::prompt`; here is only the asking.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::engine::remote::Remote;
use crate::load::fit::{Fit, Step};
use crate::load::prompt::{PromptKey, PromptKind, SAMPLE, Vocabulary};
use crate::load::request::{Ask, Prepared};
use crate::load::{Api, Cancel, Client, Dialect, Endpoint, Outcome, Prompt};
use crate::record::run_record::CellState;
use crate::suite::model::Prefix;

use super::cell::{broken, broken_words};

/// What a prompt is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// A stream of a decode cell: the same in all cells of this context and launch.
    Stream {
        /// The stream's ordinal.
        stream: u32,
        /// How it shares its beginning with others.
        prefix: Prefix,
    },
    /// One use only.
    Cold {
        /// The request's ordinal within the cell.
        ordinal: u64,
        /// The stream's ordinal.
        stream: u32,
    },
}

/// Where a prompt goes.
pub(super) struct Target<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) clock: Clock,
    pub(super) api: Api,
    pub(super) model: &'a str,
    pub(super) idle_timeout: Duration,
    pub(super) context: u64,
    /// Tells the cell from all others of the suite, in every selection.
    pub(super) cell: u64,
    pub(super) tolerance: Option<f64>,
}

/// The prompts of one launch.
pub(super) struct Prompts {
    seed: u64,
    launch: u64,
    vocabulary: Option<Vocabulary>,
    tokens_per_word: Option<f64>,
}

/// A number that tells a cell from all others, whatever the selection.
pub(super) fn cell_number(classname: &str, id: &str) -> u64 {
    let digest = Sha256::digest(format!("{classname}\n{id}"));
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Prompts {
    /// Learns the server's vocabulary where it has a tokenizer that can be asked.
    pub(super) async fn learn(
        seed: u64,
        launch: u64,
        remote: &Remote,
        dialect: Dialect,
    ) -> Prompts {
        let takes_ids = match dialect {
            Dialect::Vllm | Dialect::LlamaCpp => true,
            Dialect::OpenAi => false,
        };
        let tokens = if takes_ids { remote.tokenize(SAMPLE).await.ok().flatten() } else { None };
        let vocabulary = tokens.and_then(|tokens| Vocabulary::learn(&tokens).ok());
        Prompts { seed, launch, vocabulary, tokens_per_word: None }
    }

    /// The prompt of `length` tokens for `purpose`.
    pub(super) async fn make(
        &mut self,
        target: &Target<'_>,
        purpose: Purpose,
        length: u64,
    ) -> Result<Prompt, CellState> {
        let (own, group) = self.keys(target, purpose);
        match &self.vocabulary {
            Some(vocabulary) if target.api == Api::Completions => {
                let ids = match group {
                    None => vocabulary.ids(self.seed, &own, length),
                    Some((key, common)) => {
                        vocabulary.grouped(self.seed, &key, common, &own, length)
                    }
                };
                Ok(Prompt::Ids(ids.into()))
            }
            Some(_) | None => {
                let beginning: Arc<str> = match group {
                    None => "".into(),
                    Some((key, common)) => {
                        self.fit(target, key, common.min(length), "".into()).await?
                    }
                };
                Ok(Prompt::Text(self.fit(target, own, length, beginning).await?))
            }
        }
    }

    fn keys(&self, target: &Target<'_>, purpose: Purpose) -> (PromptKey, Option<(PromptKey, u64)>) {
        let key = |kind, stream: u64, salt| PromptKey {
            kind,
            stream,
            context: target.context,
            launch: self.launch,
            salt,
        };
        match purpose {
            Purpose::Cold { ordinal, stream } => {
                (key(PromptKind::Cold, stream.into(), target.cell.wrapping_add(ordinal)), None)
            }
            Purpose::Stream { stream, prefix } => match prefix {
                Prefix::Unique => (key(PromptKind::Warm, stream.into(), 0), None),
                Prefix::Shared => (key(PromptKind::Warm, 0, 0), None),
                Prefix::Cold => {
                    (key(PromptKind::Cold, stream.into(), target.cell.wrapping_add(1 << 32)), None)
                }
                Prefix::Groups { groups, length } => {
                    let group = u64::from(stream % groups.max(1));
                    let common = key(PromptKind::Group, group, 0);
                    (key(PromptKind::Warm, stream.into(), 0), Some((common, length)))
                }
            },
        }
    }

    /// A text of so many tokens as the server counts them.
    async fn fit(
        &mut self,
        target: &Target<'_>,
        key: PromptKey,
        length: u64,
        beginning: Arc<str>,
    ) -> Result<Arc<str>, CellState> {
        let tolerance = target.tolerance.map_or(1, |share| (length as f64 * share).max(1.0) as u64);
        let mut fit = Fit::new(self.seed, key, length, tolerance).with_beginning(beginning);
        if let Some(known) = self.tokens_per_word {
            fit = fit.with_tokens_per_word(known);
        }
        let mut client = Client::new(target.endpoint, target.clock)
            .map_err(|error| broken_words("client", &error.to_string()))?;
        loop {
            let text: Arc<str> = fit.text().into();
            if target.tolerance.is_none() {
                return Ok(text);
            }
            let prompt = Prompt::Text(Arc::clone(&text));
            let ask = Ask {
                api: target.api,
                dialect: target.endpoint.dialect,
                model: target.model,
                prompt: &prompt,
                max_tokens: 1,
                cache_prompt: true,
                body: &serde_json::Map::new(),
                idle_timeout: target.idle_timeout,
                timeout: None,
            };
            let request =
                Prepared::new(&ask).map_err(|e| broken_words("prompt", &e.to_string()))?;
            let trace = client.stream(&request, 0, &mut |_| {}, &mut Cancel::never()).await;
            if let Outcome::Failed(failure) = trace.outcome {
                return Err(broken(failure));
            }
            let Some(counted) = trace.usage.and_then(|usage| usage.prompt) else {
                return Err(broken_words(
                    "prompt",
                    "the server does not count prompt tokens; set request.prompt-tolerance = \"off\"",
                ));
            };
            match fit.observe(counted) {
                Step::Ask => {}
                // A text that is not near enough is found out by the check of its length.
                Step::Fits | Step::GaveUp { .. } => {
                    self.tokens_per_word = Some(fit.tokens_per_word());
                    return Ok(fit.text().into());
                }
            }
        }
    }
}
