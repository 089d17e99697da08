//! The deck: entries of a data set, dealt to the loads of a launch so that none is sent twice before
//! all have been.
//!
//! How a file is written is read in `load::dataset`; here its entries are held against the limits of
//! the suite, by the server's own tokenizer.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use crate::engine::remote::Remote;
use crate::load::dataset::{self, Content, Entry};
use crate::load::prompt::Numbers;
use crate::load::{Api, Prompt};
use crate::record::run_record::CellState;
use crate::suite::model::{Dataset, DatasetFormat};

use super::super::cell::broken_words;

/// Texts that the server is asked to tokenize at once.
const ASKED_AT_ONCE: usize = 16;

/// Tokens that a chat template may add to a prompt.
const TEMPLATE: u64 = 64;

/// The files of a launch, each read once.
#[derive(Default)]
pub(in crate::run) struct Decks(HashMap<PathBuf, Deck>);

/// The entries of a file.
struct Deck {
    entries: Vec<Entry>,
    /// Entries that have been sent in this launch.
    used: HashSet<usize>,
    /// What is known of their lengths.
    lengths: HashMap<usize, Lengths>,
}

/// Tokens of a prompt, and of the answer that it once got.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    input: u64,
    reply: Option<u64>,
}

/// An entry as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Dealt {
    /// Its place in the file.
    pub(super) place: usize,
    pub(super) prompt: Prompt,
    /// Tokens of output; `None`: as the test says.
    pub(super) output: Option<u64>,
}

/// What a load wants of a data set.
pub(super) struct Wish<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) api: Api,
    pub(super) seed: u64,
    /// Names the order in which entries are dealt.
    pub(super) draws: u64,
    pub(super) count: u64,
    /// The engine's longest sequence.
    pub(super) longest: Option<u64>,
}

/// What a load got.
#[derive(Default)]
pub(super) struct Hand {
    pub(super) dealt: Vec<Dealt>,
    /// Words worth reading.
    pub(super) warnings: Vec<String>,
}

impl Decks {
    /// Deals as many entries as are wished for; fewer where the file has no more that keep the limits.
    ///
    /// # Errors
    /// A file that can't be read, limits without a tokenizer to count by, and none that keeps them.
    pub(super) async fn deal(
        &mut self,
        wish: &Wish<'_>,
        remote: &Remote,
    ) -> Result<Hand, CellState> {
        let path = &wish.dataset.file;
        let mut hand = Hand::default();
        let deck = match self.0.entry(path.clone()) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(place) => {
                let (deck, warning) = Deck::read(path, wish.dataset.format)?;
                hand.warnings.extend(warning);
                place.insert(deck)
            }
        };
        deck.deal(wish, remote, &mut hand).await?;
        Ok(hand)
    }

    /// Notes that the entries at these places of a file were sent; true where one of them had been
    /// before.
    pub(super) fn sent(&mut self, path: &Path, places: impl Iterator<Item = usize>) -> bool {
        let Some(deck) = self.0.get_mut(path) else { return false };
        let mut again = false;
        places.for_each(|place| again |= !deck.used.insert(place));
        again
    }
}

fn refused(path: &Path, words: &str) -> CellState {
    broken_words("dataset", &format!("{}: {words}", path.display()))
}

impl Deck {
    fn read(path: &Path, format: DatasetFormat) -> Result<(Deck, Option<String>), CellState> {
        let file = File::open(path).map_err(|error| refused(path, &error.to_string()))?;
        let file = BufReader::new(file);
        let read = match format {
            DatasetFormat::Sharegpt => dataset::sharegpt(file),
            DatasetFormat::Jsonl => dataset::jsonl(file),
        };
        let found = read.map_err(|error| refused(path, &error.to_string()))?;
        let warning = (found.passed_over > 0).then(|| {
            format!(
                "{} conversations of {} have no question with an answer and are passed over",
                found.passed_over,
                path.display()
            )
        });
        let deck = Deck { entries: found.entries, used: HashSet::new(), lengths: HashMap::new() };
        Ok((deck, warning))
    }

    async fn deal(
        &mut self,
        wish: &Wish<'_>,
        remote: &Remote,
        hand: &mut Hand,
    ) -> Result<(), CellState> {
        let path = &wish.dataset.file;
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        Numbers::of("tokgate deck 1", &[wish.seed, wish.draws]).shuffle(&mut order);
        let (fresh, seen): (Vec<usize>, Vec<usize>) =
            order.iter().partition(|index| !self.used.contains(index));
        let mut counts = true;
        for part in fresh.chunks(ASKED_AT_ONCE).chain(seen.chunks(ASKED_AT_ONCE)) {
            if hand.dealt.len() as u64 >= wish.count {
                break;
            }
            counts = counts && self.count(part, wish, remote).await?;
            for index in part {
                if let Some(dealt) =
                    self.dealt(*index, wish).map_err(|words| refused(path, &words))?
                    && (hand.dealt.len() as u64) < wish.count
                {
                    hand.dealt.push(dealt);
                }
            }
        }
        if hand.dealt.is_empty() {
            let read = self.entries.len();
            return Err(refused(path, &format!("none of its {read} prompts keeps the limits")));
        }
        if !counts && self.entries.iter().any(|entry| entry.reply.is_some()) {
            hand.warnings.push(
                "the server has no tokenizer to count answers by: outputs are as long as `output` says"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Has the server count what is not known yet; false where it has no tokenizer that can be asked.
    async fn count(
        &mut self,
        part: &[usize],
        wish: &Wish<'_>,
        remote: &Remote,
    ) -> Result<bool, CellState> {
        let limited = is_limited(wish.dataset);
        let wanted: Vec<usize> = part
            .iter()
            .copied()
            .filter(|index| !self.lengths.contains_key(index))
            .filter(|index| limited || self.entries[*index].reply.is_some())
            .collect();
        let entries = &self.entries;
        let asked = wanted.iter().map(|index| async move {
            let entry = &entries[*index];
            let input = tokens(remote, &spoken(&entry.content)).await?;
            let reply = match &entry.reply {
                Some(reply) if entry.output.is_none() => tokens(remote, reply).await?,
                Some(_) | None => None,
            };
            Ok::<_, CellState>(input.map(|input| Lengths { input, reply }))
        });
        let found = futures_util::future::join_all(asked).await;
        for (index, lengths) in wanted.into_iter().zip(found) {
            match lengths? {
                Some(lengths) => {
                    self.lengths.insert(index, lengths);
                }
                None if limited => {
                    let words = "its limits are in tokens, and the server has no tokenizer to count \
                                 them by: leave min-input, max-input, min-output, max-output and \
                                 max-total out";
                    return Err(refused(&wish.dataset.file, words));
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The entry as it is sent; `None` where it breaks a limit.
    fn dealt(&self, index: usize, wish: &Wish<'_>) -> Result<Option<Dealt>, String> {
        let entry = &self.entries[index];
        let prompt = match (&entry.content, wish.api) {
            (Content::Text(text), _) => Prompt::Text(text.clone()),
            (Content::Messages(messages), Api::Chat) => Prompt::Messages(messages.clone()),
            (Content::Messages(_), Api::Completions) => {
                return Err("it has messages: write request.api = \"chat\"".to_owned());
            }
        };
        let lengths = self.lengths.get(&index);
        let output = entry.output.or(lengths.and_then(|lengths| lengths.reply));
        if output == Some(0) {
            return Ok(None);
        }
        let Dataset { input: (least_in, most_in), output: (least_out, most_out), total, .. } =
            wish.dataset;
        let within = |value: u64, least: &Option<u64>, most: &Option<u64>| {
            least.is_none_or(|least| value >= least) && most.is_none_or(|most| value <= most)
        };
        let keeps = match (lengths, output) {
            (Some(Lengths { input, .. }), Some(output)) => {
                let both = input + output;
                within(*input, least_in, most_in)
                    && within(output, least_out, most_out)
                    && total.is_none_or(|total| both <= total)
                    && wish.longest.is_none_or(|longest| both + TEMPLATE <= longest)
            }
            (Some(Lengths { input, .. }), None) => within(*input, least_in, most_in),
            (None, _) => true,
        };
        Ok(keeps.then_some(Dealt { place: index, prompt, output }))
    }
}

fn is_limited(dataset: &Dataset) -> bool {
    let Dataset { input, output, total, .. } = dataset;
    [input.0, input.1, output.0, output.1, *total].iter().any(Option::is_some)
}

/// The words of an entry, without what a chat template puts around them: texts and no images.
fn spoken(content: &Content) -> String {
    let messages = match content {
        Content::Text(text) => return text.to_string(),
        Content::Messages(messages) => messages,
    };
    let messages: Vec<serde_json::Value> = serde_json::from_str(messages).unwrap_or_default();
    let words = messages.iter().flat_map(|message| {
        let content = &message["content"];
        let parts = content.as_array().into_iter().flatten();
        content.as_str().into_iter().chain(parts.filter_map(|part| part["text"].as_str()))
    });
    words.collect::<Vec<_>>().join("\n")
}

/// Tokens of a text by the server's tokenizer; `None` where it has none that can be asked.
async fn tokens(remote: &Remote, text: &str) -> Result<Option<u64>, CellState> {
    match remote.tokenize(text).await {
        Ok(tokens) => Ok(tokens.map(|tokens| tokens.len() as u64)),
        Err(error) => Err(broken_words("dataset", &format!("no count of tokens: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_messages_are_their_texts() {
        let messages = r#"[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "text", "text": "And why?"}]},
            {"role": "assistant", "content": null}]"#;
        let spoken = spoken(&Content::Messages(messages.into()));
        assert_eq!(spoken, "Be brief.\nWhat is this?\nAnd why?");
    }
}
