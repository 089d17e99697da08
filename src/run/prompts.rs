//! The prompts of a launch: drawn from ids that the server's own tokenizer gave, or fitted as text
//! by asking the server what it counts.
//!
//! What a prompt says is decided in `load::prompt`; here is only the asking.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::engine::remote::Remote;
use crate::load::fit::{Fit, Step};
use crate::load::prompt::{PromptKey, PromptKind, SAMPLE, Vocabulary};
use crate::load::request::{Ask, Prepared};
use crate::load::{Api, Cancel, Client, Dialect, Endpoint, Outcome, Prompt, Yardstick};
use crate::record::run_record::CellState;
use crate::suite::model::Prefix;

use super::cell::{broken, broken_words};
use super::serve::Decks;

/// Where a prompt goes.
pub(super) struct Target<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) clock: Clock,
    pub(super) api: Api,
    pub(super) model: &'a str,
    /// Extra fields of the body: they may change what the template adds to a prompt.
    pub(super) body: &'a serde_json::Map<String, serde_json::Value>,
    pub(super) idle_timeout: Duration,
    pub(super) tolerance: Option<f64>,
}

/// The prompts of one launch.
pub(super) struct Prompts {
    pub(super) seed: u64,
    pub(super) launch: u64,
    /// What was read of files of prompts.
    pub(super) decks: Decks,
    vocabulary: Option<Arc<Vocabulary>>,
    tokens_per_word: Option<f64>,
    fitted: HashMap<Wanted, Arc<Fit>>,
    yardsticks: HashMap<Api, Yardstick>,
}

/// What prompts of any length are made of, without asking anybody.
pub(super) enum Wording {
    Ids(Arc<Vocabulary>),
    Text(Yardstick),
}

/// A text that was searched for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    api: Api,
    /// The extra fields of the body.
    body: String,
    length: u64,
    /// Of it, tokens of a common beginning.
    common: u64,
}

/// The prompts of one cell, made without asking anybody.
pub(super) struct Source {
    seed: u64,
    launch: u64,
    context: u64,
    cell: u64,
    length: u64,
    prefix: Prefix,
    material: Material,
}

enum Material {
    Ids(Arc<Vocabulary>),
    Text { own: Arc<Fit>, common: Option<Arc<Fit>> },
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
        let vocabulary = tokens.and_then(|tokens| Vocabulary::learn(&tokens).ok()).map(Arc::new);
        Prompts {
            seed,
            launch,
            decks: Decks::default(),
            vocabulary,
            tokens_per_word: None,
            fitted: HashMap::new(),
            yardsticks: HashMap::new(),
        }
    }

    /// What prompts of any length are made of: token ids where the server takes them, else words whose
    /// cost it was asked for once.
    pub(super) async fn wording(&mut self, target: &Target<'_>) -> Result<Wording, CellState> {
        match &self.vocabulary {
            Some(vocabulary) if target.api == Api::Completions => {
                return Ok(Wording::Ids(Arc::clone(vocabulary)));
            }
            Some(_) | None => {}
        }
        if let Some(known) = self.yardsticks.get(&target.api) {
            return Ok(Wording::Text(*known));
        }
        if target.tolerance.is_none() {
            return Ok(Wording::Text(Yardstick::uncounted()));
        }
        let mut client = client(target)?;
        let mut counted = [0; 3];
        for (count, text) in counted.iter_mut().zip(Yardstick::questions(self.seed)) {
            *count = count_tokens(target, &mut client, text).await?;
        }
        let made = Yardstick::new(counted).map_err(|e| broken_words("prompt", &e.to_string()))?;
        self.yardsticks.insert(target.api, made);
        Ok(Wording::Text(made))
    }

    /// The prompts of `length` tokens of a cell. `cell` tells it from all others.
    pub(super) async fn source(
        &mut self,
        target: &Target<'_>,
        context: u64,
        cell: u64,
        prefix: Prefix,
        length: u64,
    ) -> Result<Source, CellState> {
        let material = match &self.vocabulary {
            Some(vocabulary) if target.api == Api::Completions => {
                Material::Ids(Arc::clone(vocabulary))
            }
            Some(_) | None => {
                let common = match prefix {
                    Prefix::Unique | Prefix::Shared | Prefix::Cold => 0,
                    Prefix::Groups { length: common, .. } => common.min(length),
                };
                let beginning = match common {
                    0 => None,
                    common => Some(self.fitted(target, common, None).await?),
                };
                let own = self.fitted(target, length, beginning.as_ref().zip(Some(common))).await?;
                Material::Text { own, common: beginning }
            }
        };
        let Prompts { seed, launch, .. } = *self;
        Ok(Source { seed, launch, context, cell, length, prefix, material })
    }

    /// A text of so many tokens as the server counts them, searched for once.
    async fn fitted(
        &mut self,
        target: &Target<'_>,
        length: u64,
        beginning: Option<(&Arc<Fit>, u64)>,
    ) -> Result<Arc<Fit>, CellState> {
        let common = beginning.map_or(0, |(_, tokens)| tokens);
        let body = serde_json::to_string(target.body).unwrap_or_default();
        let wanted = Wanted { api: target.api, body, length, common };
        if let Some(known) = self.fitted.get(&wanted) {
            return Ok(Arc::clone(known));
        }
        let key = PromptKey {
            kind: PromptKind::Rehearsal,
            stream: common,
            context: length,
            launch: self.launch,
            salt: 0,
        };
        let beginning = beginning.map_or_else(String::new, |(fit, _)| fit.text());
        let fit = Arc::new(self.fit(target, key, length, beginning.into()).await?);
        self.fitted.insert(wanted, Arc::clone(&fit));
        Ok(fit)
    }

    async fn fit(
        &mut self,
        target: &Target<'_>,
        key: PromptKey,
        length: u64,
        beginning: Arc<str>,
    ) -> Result<Fit, CellState> {
        let mut fit = Fit::new(self.seed, key, length, 0).with_beginning(beginning);
        if let Some(known) = self.tokens_per_word {
            fit = fit.with_tokens_per_word(known);
        }
        if target.tolerance.is_none() {
            return Ok(fit);
        }
        let mut client = client(target)?;
        loop {
            let counted = count_tokens(target, &mut client, fit.text()).await?;
            match fit.observe(counted) {
                Step::Ask => {}
                // A text that is not near enough is found out by the check of its length.
                Step::Fits | Step::GaveUp { .. } => {
                    self.tokens_per_word = Some(fit.tokens_per_word());
                    return Ok(fit);
                }
            }
        }
    }
}

fn client(target: &Target<'_>) -> Result<Client, CellState> {
    Client::new(target.endpoint, target.clock)
        .map_err(|error| broken_words("client", &error.to_string()))
}

/// Asks the server how many tokens a text has as a prompt.
async fn count_tokens(
    target: &Target<'_>,
    client: &mut Client,
    text: String,
) -> Result<u64, CellState> {
    let prompt = Prompt::Text(text.into());
    let ask = Ask {
        api: target.api,
        dialect: target.endpoint.dialect,
        model: target.model,
        prompt: &prompt,
        max_tokens: 1,
        cache_prompt: true,
        body: target.body,
        idle_timeout: target.idle_timeout,
        timeout: None,
    };
    let request = Prepared::new(&ask).map_err(|e| broken_words("prompt", &e.to_string()))?;
    let trace = client.stream(&request, 0, &mut |_| {}, &mut Cancel::never()).await;
    if let Outcome::Failed(failure) = trace.outcome {
        return Err(broken(failure));
    }
    trace.usage.and_then(|usage| usage.prompt).ok_or_else(|| {
        broken_words(
            "prompt",
            "the server does not count prompt tokens; set request.prompt-tolerance = \"off\"",
        )
    })
}

impl Source {
    /// The prompt of a stream's `ordinal`-th request: where `prefix` warms prompts the stream's own
    /// in all cells of this context and launch, where it does not another each time.
    pub(super) fn prompt(&self, stream: u32, ordinal: u64) -> Prompt {
        let key = |kind, stream: u64, salt| PromptKey {
            kind,
            stream,
            context: self.context,
            launch: self.launch,
            salt,
        };
        let own = match self.prefix {
            Prefix::Unique | Prefix::Groups { .. } => key(PromptKind::Warm, stream.into(), 0),
            Prefix::Shared => key(PromptKind::Warm, 0, 0),
            Prefix::Cold => key(PromptKind::Cold, stream.into(), self.cell.wrapping_add(ordinal)),
        };
        let group = match self.prefix {
            Prefix::Unique | Prefix::Shared | Prefix::Cold => None,
            Prefix::Groups { groups, length } => {
                Some((key(PromptKind::Group, u64::from(stream % groups.max(1)), 0), length))
            }
        };
        match &self.material {
            Material::Ids(vocabulary) => Prompt::Ids(
                match group {
                    None => vocabulary.ids(self.seed, &own, self.length),
                    Some((group, common)) => {
                        vocabulary.grouped(self.seed, &group, common, &own, self.length)
                    }
                }
                .into(),
            ),
            Material::Text { own: words, common } => {
                let beginning = common.as_ref().zip(group);
                let beginning =
                    beginning.map_or_else(String::new, |(fit, (key, _))| fit.arranged("", &key));
                Prompt::Text(words.arranged(&beginning, &own).into())
            }
        }
    }
}
