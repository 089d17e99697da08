//! Prompts: what a request says, the same for the same seed and key on every machine.
//!
//! Token prompts are drawn from ids that the server's own tokenizer gave for a built-in text, so
//! that every id is ordinary and the length is exact. A prompt is a pure function of the run's seed
//! and its [`PromptKey`]; two keys share no beginning that a prefix cache could serve. Text prompts
//! of a given token count are searched for in `fit`.

use std::sync::Arc;

use sha2::{Digest, Sha256};

/// What a request says. Clones share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Token ids, for servers that take them.
    Ids(Arc<[u32]>),
    /// Text, which the server tokenizes.
    Text(Arc<str>),
    /// The messages of a chat, as JSON.
    Messages(Arc<str>),
}

/// What a prompt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PromptKind {
    /// Sent before, so that the prefix cache holds it.
    Warm,
    /// Never sent before.
    Cold,
    /// The common beginning of a group.
    Group,
    /// Anything that is not measured.
    Rehearsal,
    /// One of a load, sent once.
    Served,
}

/// What tells one prompt from another. Everything in it enters the bytes of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PromptKey {
    /// What it is for.
    pub kind: PromptKind,
    /// The ordinal of the stream, or of the group.
    pub stream: u64,
    /// The context in tokens of the cell.
    pub context: u64,
    /// The ordinal of the launch.
    pub launch: u64,
    /// Anything else: the ordinal of a sample, a hash of the cell.
    pub salt: u64,
}

impl PromptKey {
    /// A source of numbers for this key: the same on every machine and in every version.
    pub(crate) fn numbers(&self, seed: u64) -> Numbers {
        let kind: u64 = match self.kind {
            PromptKind::Warm => 0,
            PromptKind::Cold => 1,
            PromptKind::Group => 2,
            PromptKind::Rehearsal => 3,
            PromptKind::Served => 4,
        };
        let parts = [seed, kind, self.stream, self.context, self.launch, self.salt];
        Numbers::of("tokgate prompt 1", &parts)
    }
}

/// xoshiro256++ by Blackman and Vigna, written out so that no release of a crate changes prompts.
#[derive(Debug, Clone)]
pub(crate) struct Numbers([u64; 4]);

impl Numbers {
    /// The source that a purpose and some numbers name.
    pub(crate) fn of(purpose: &str, parts: &[u64]) -> Numbers {
        let mut hash = Sha256::new();
        hash.update(purpose);
        parts.iter().for_each(|part| hash.update(part.to_le_bytes()));
        Numbers::new(hash.finalize().into())
    }

    fn new(seed: [u8; 32]) -> Numbers {
        let mut state = [0u64; 4];
        for (word, bytes) in state.iter_mut().zip(seed.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Numbers(state)
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `n`; 0 where `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // The high half of the product; its bias is below n / 2^64.
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// A number above 0 and up to 1, evenly.
    pub(crate) fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Puts items into a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Ids that prompts are drawn from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    ids: Vec<u32>,
}

/// A tokenization with too few different ids to draw prompts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tokenizer gave {found} different ids for the sample text, and {least} are needed")]
pub struct TooFewIds {
    /// Different ids in it.
    pub found: usize,
    /// Ids that are needed.
    pub least: usize,
}

/// With fewer ids two prompts could begin alike.
const LEAST_IDS: usize = 32;

impl Vocabulary {
    /// Learns it from the server's tokenization of [`SAMPLE`], without special tokens.
    ///
    /// # Errors
    /// Fewer than 32 different ids.
    pub fn learn(tokens: &[u32]) -> Result<Vocabulary, TooFewIds> {
        let mut ids = tokens.to_vec();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() < LEAST_IDS {
            return Err(TooFewIds { found: ids.len(), least: LEAST_IDS });
        }
        Ok(Vocabulary { ids })
    }

    /// The prompt of a key: `length` ids.
    pub fn ids(&self, seed: u64, key: &PromptKey, length: u64) -> Vec<u32> {
        let mut ids = Vec::new();
        self.draw(seed, key, length, &mut ids);
        ids
    }

    /// A prompt of `length` ids whose first `common` ones are those of the group's key.
    pub fn grouped(
        &self,
        seed: u64,
        group: &PromptKey,
        common: u64,
        own: &PromptKey,
        length: u64,
    ) -> Vec<u32> {
        let common = common.min(length);
        let mut ids = Vec::new();
        self.draw(seed, group, common, &mut ids);
        self.draw(seed, own, length - common, &mut ids);
        ids
    }

    fn draw(&self, seed: u64, key: &PromptKey, count: u64, ids: &mut Vec<u32>) {
        let mut numbers = key.numbers(seed);
        ids.extend((0..count).map(|_| self.ids[numbers.below(self.ids.len())]));
    }
}

/// The built-in text: its tokenization gives the ids, and its words make text prompts.
pub const SAMPLE: &str = "\
The harbour wakes before the town does. Long before any window shows a light, the night ferry \
turns its broad side towards the quay, and men in heavy coats walk out along the wet stones to \
catch its ropes. Nobody speaks much at that hour. A winch groans, a gull complains, and the smell \
of diesel, salt and fresh bread drifts across the water from the bakery on Mill Street.

Anna keeps the ledger in the customs house. She has written down every crate, barrel and bicycle \
that came ashore since the spring of her nineteenth year: oranges from the south, timber from the \
fjords, glass lamps packed in straw, one grand piano, and once a crate of live geese that escaped \
and held the market square for an entire afternoon. Her handwriting is small and even. Numbers, \
she says, are honest company; they neither flatter nor forget.

On Thursdays her brother climbs the hill to repair the weather station. It measures wind, rain, \
pressure and temperature, and it sends its readings by radio to a computer in the capital, where \
a model of the whole atmosphere is calculated four times a day. If a sensor fails, the forecast \
for half the coast grows vague. He carries spare batteries, a screwdriver, a thermos of black \
coffee and a notebook in which he draws the clouds, because no instrument has yet learned to do \
that well. Cirrus like combed hair means a change within two days. Towers of grey in the west mean \
that he should already be walking home.

Children believe that the old lighthouse is empty, but a painter lives on its third floor. She \
mixes colours in oyster shells and sleeps under a map of the stars. Visitors who bring firewood \
may choose a small picture in exchange; visitors who ask about prices are offered soup instead. \
Last winter a storm broke the great lens, and for eleven nights fishermen lit fires on the beach \
so that boats could find the narrow channel between the rocks. Everyone remembers who brought \
driftwood and who only brought opinions.

When summer ends, the orchard behind the school is picked clean within a week. Apples are sorted \
by size, pears are wrapped in paper, and plums become a dark jam that must be stirred for six \
hours without stopping. The teacher counts jars with the youngest pupils: seven rows of twelve, \
and five left over. How many is that, and how shall we divide them fairly among thirty families? \
Someone always suggests giving the remainder to the baker, who smiles, says nothing, and leaves \
warm rolls on the doorstep the next morning.";

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PromptKey =
        PromptKey { kind: PromptKind::Warm, stream: 0, context: 8192, launch: 0, salt: 0 };

    fn vocabulary() -> Vocabulary {
        Vocabulary::learn(&(100..400).chain([100, 100]).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // State 1, 2, 3, 4: the reference values of the authors' code.
        let mut numbers = Numbers([1, 2, 3, 4]);
        let first: Vec<u64> = (0..4).map(|_| numbers.next()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn the_same_seed_and_key_give_the_same_prompt_for_ever() {
        let first = vocabulary().ids(7, &KEY, 8);
        assert_eq!(first, vocabulary().ids(7, &KEY, 8));
        assert_eq!(first, vocabulary().ids(7, &KEY, 5000)[..8]);
        insta::assert_snapshot!(format!("{first:?}"), @"[105, 272, 325, 264, 167, 121, 150, 306]");
    }

    #[test]
    fn any_other_key_or_seed_begins_differently() {
        let keys = [
            PromptKey { kind: PromptKind::Cold, ..KEY },
            PromptKey { stream: 1, ..KEY },
            PromptKey { context: 8193, ..KEY },
            PromptKey { launch: 1, ..KEY },
            PromptKey { salt: 1, ..KEY },
        ];
        let mut beginnings: Vec<_> = keys.iter().map(|key| vocabulary().ids(7, key, 4)).collect();
        beginnings.push(vocabulary().ids(7, &KEY, 4));
        beginnings.push(vocabulary().ids(8, &KEY, 4));
        let n = beginnings.len();
        beginnings.sort();
        beginnings.dedup();
        assert_eq!(beginnings.len(), n);
    }

    #[test]
    fn a_thousand_streams_share_no_beginning() {
        let mut beginnings: Vec<_> =
            (0..1024).map(|stream| vocabulary().ids(1, &PromptKey { stream, ..KEY }, 8)).collect();
        beginnings.sort();
        beginnings.dedup();
        assert_eq!(beginnings.len(), 1024);
    }

    #[test]
    fn a_group_shares_its_beginning_and_nothing_more() {
        let group = PromptKey { kind: PromptKind::Group, ..KEY };
        let prompt =
            |stream| vocabulary().grouped(1, &group, 100, &PromptKey { stream, ..KEY }, 120);
        assert_eq!(prompt(1)[..100], prompt(2)[..100]);
        assert_ne!(prompt(1)[100..104], prompt(2)[100..104]);
        assert_eq!(prompt(1).len(), 120);
    }

    #[test]
    fn a_poor_tokenization_is_refused() {
        assert_eq!(Vocabulary::learn(&[1; 500]), Err(TooFewIds { found: 1, least: 32 }));
    }

    #[test]
    fn the_sample_has_varied_words() {
        let mut words: Vec<_> = SAMPLE.split_whitespace().collect();
        words.sort_unstable();
        words.dedup();
        assert!(words.len() > 250, "{}", words.len());
    }
}
