//! The yardstick: what a fixed list of short words costs in tokens, so that texts of any length can
//! be cut without asking the server about each.
//!
//! A load has prompts of many lengths. Common words of at most three letters are one token each in
//! every tokenizer that was trained on English, so that a text of n of them is n tokens beyond the
//! template. Whether this server counts so is learnt with a few questions and not taken for granted:
//! where words cost more, whole rounds of the list cost what was counted, and fillers make up the
//! rest. A pure machine; the asking is done by whoever holds it.

use super::prompt::{Numbers, PromptKey};

/// Words of at most three letters, all different.
pub(super) const WORDS: [&str; 64] = [
    "air", "all", "and", "any", "are", "art", "bad", "big", "box", "boy", "but", "buy", "can",
    "car", "day", "did", "dog", "eat", "end", "eye", "far", "few", "for", "get", "had", "has",
    "her", "him", "his", "hot", "how", "its", "job", "key", "law", "let", "lot", "low", "man",
    "map", "may", "men", "new", "not", "now", "off", "old", "one", "our", "out", "own", "pay",
    "put", "red", "run", "say", "see", "set", "she", "sun", "ten", "top", "two", "who",
];

/// Every text begins with it, so that the first word, which has no blank before it, costs always the
/// same.
const FIRST: &str = "the";

/// Makes up what is left of a length.
const FILLER: &str = " the";

/// Rounds of the list in the shorter and the longer one of the texts that are asked about.
const ROUNDS: (u64, u64) = (1, 3);

/// Fillers in the text that tells their cost.
const FILLERS: u64 = 32;

/// The size of a text behind its first word: words of the list, then fillers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    words: u64,
    fillers: u64,
}

/// The texts that a server is asked about.
const QUESTIONS: [Size; 3] = [
    Size { words: ROUNDS.0 * WORDS.len() as u64, fillers: 0 },
    Size { words: ROUNDS.1 * WORDS.len() as u64, fillers: 0 },
    Size { words: ROUNDS.0 * WORDS.len() as u64, fillers: FILLERS },
];

/// What words and template cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yardstick {
    /// Tokens of the template and the first word.
    template: u64,
    /// Tokens of a round of the list.
    round: u64,
    /// Tokens of a filler.
    filler: f64,
}

/// A server whose counts make no sense: a longer text costs no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server counts {short} tokens for {short_words} words and {long} for {long_words}, so that \
     no text can be cut to a length; set request.prompt-tolerance = \"off\""
)]
pub struct NoMeasure {
    short: u64,
    long: u64,
    short_words: u64,
    long_words: u64,
}

impl Yardstick {
    /// The texts whose token counts make a yardstick, each with words of its own order.
    pub fn questions(seed: u64) -> Vec<String> {
        let ask = |(index, size): (usize, &Size)| {
            let numbers = Numbers::of("tokgate yardstick 1", &[seed, index as u64]);
            spelt("", *size, numbers)
        };
        QUESTIONS.iter().enumerate().map(ask).collect()
    }

    /// The yardstick of a server that counted so many tokens for each of [`Yardstick::questions`].
    ///
    /// # Errors
    /// More words cost no more tokens.
    pub fn new(counted: [u64; 3]) -> Result<Yardstick, NoMeasure> {
        let [short, long, filled] = counted;
        let rounds = ROUNDS.1 - ROUNDS.0;
        let round = long.saturating_sub(short) / rounds;
        if round < WORDS.len() as u64 / 2 {
            let (short_words, long_words) = (QUESTIONS[0].words, QUESTIONS[1].words);
            return Err(NoMeasure { short, long, short_words, long_words });
        }
        let filler = filled.saturating_sub(short).max(1) as f64 / FILLERS as f64;
        Ok(Yardstick { template: short.saturating_sub(ROUNDS.0 * round), round, filler })
    }

    /// The yardstick where nobody counts: a word is a token.
    pub fn uncounted() -> Yardstick {
        Yardstick { template: 1, round: WORDS.len() as u64, filler: 1.0 }
    }

    /// The key's text of `length` tokens. Texts of one key and different lengths begin alike.
    pub fn text(&self, seed: u64, key: &PromptKey, length: u64) -> String {
        spelt("", self.size(length.saturating_sub(self.template)), key.numbers(seed))
    }

    /// A text of `length` tokens that begins with the group's own text of `common` tokens.
    pub fn grouped(
        &self,
        seed: u64,
        group: &PromptKey,
        common: u64,
        own: &PromptKey,
        length: u64,
    ) -> String {
        let common = common.min(length);
        let beginning = self.text(seed, group, common);
        let rest = length.saturating_sub(common.max(self.template));
        spelt(&beginning, self.size(rest), own.numbers(seed))
    }

    /// Words and fillers that come to so many tokens.
    fn size(&self, tokens: u64) -> Size {
        let list = WORDS.len() as u64;
        if self.round == list {
            return Size { words: tokens, fillers: 0 };
        }
        let rounds = tokens / self.round;
        let rest = (tokens - rounds * self.round) as f64;
        Size { words: rounds * list, fillers: (rest / self.filler).round() as u64 }
    }
}

/// A text of this size behind a beginning: round after round of the list, each in an order of its own.
fn spelt(beginning: &str, size: Size, mut numbers: Numbers) -> String {
    let mut text = String::from(if beginning.is_empty() { FIRST } else { beginning });
    let mut round = WORDS;
    for place in 0..size.words {
        let place = (place % WORDS.len() as u64) as usize;
        if place == 0 {
            numbers.shuffle(&mut round);
        }
        text.push(' ');
        text.push_str(round[place]);
    }
    (0..size.fillers).for_each(|_| text.push_str(FILLER));
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::PromptKind;

    const KEY: PromptKey =
        PromptKey { kind: PromptKind::Served, stream: 3, context: 0, launch: 0, salt: 0 };

    /// A tokenizer: one token for each `piece` letters begun of a word, and a template around.
    fn count(text: &str, piece: usize, template: u64) -> u64 {
        let words = text.split_whitespace();
        words.map(|word| word.len().div_ceil(piece) as u64).sum::<u64>() + template
    }

    fn yardstick(piece: usize, template: u64) -> Yardstick {
        let counted: Vec<u64> =
            Yardstick::questions(1).iter().map(|text| count(text, piece, template)).collect();
        Yardstick::new(counted.try_into().unwrap()).unwrap()
    }

    #[test]
    fn the_words_are_short_and_all_different() {
        let mut words = WORDS.to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), WORDS.len());
        assert!(words.iter().all(|word| word.len() <= 3));
    }

    #[test]
    fn a_server_that_does_not_count_words_is_found_out() {
        assert!(Yardstick::new([5, 5, 5]).is_err());
        let told = Yardstick::new([5, 5, 5]).unwrap_err().to_string();
        assert!(told.contains("5 tokens for 64 words and 5 for 192"), "{told}");
    }

    #[test]
    fn texts_of_a_key_begin_alike_and_texts_of_others_do_not() {
        let stick = yardstick(4, 11);
        let (short, long) = (stick.text(1, &KEY, 100), stick.text(1, &KEY, 1000));
        assert!(long.starts_with(&short));
        let beginnings: std::collections::BTreeSet<String> =
            (0..2000).map(|stream| stick.text(1, &PromptKey { stream, ..KEY }, 24)).collect();
        assert_eq!(beginnings.len(), 2000);
    }

    #[test]
    fn a_group_shares_its_beginning() {
        let stick = yardstick(4, 11);
        let group = PromptKey { kind: PromptKind::Group, ..KEY };
        let prompt = |stream| stick.grouped(1, &group, 600, &PromptKey { stream, ..KEY }, 800);
        let beginning = stick.text(1, &group, 600);
        assert!(prompt(1).starts_with(&beginning) && prompt(2).starts_with(&beginning));
        assert_ne!(prompt(1), prompt(2));
        assert_eq!(count(&prompt(1), 4, 11), 800);
        // One that is shorter than the beginning is a part of it.
        assert!(beginning.starts_with(&stick.grouped(1, &group, 600, &KEY, 50)));
    }

    proptest! {
        #[test]
        fn a_length_is_met_exactly_where_short_words_are_tokens(
            piece in 3usize..9, template in 0u64..60, length in 70u64..9000, stream: u64,
        ) {
            let stick = yardstick(piece, template);
            let text = stick.text(7, &PromptKey { stream, ..KEY }, length);
            prop_assert_eq!(count(&text, piece, template), length);
        }

        #[test]
        fn a_length_is_met_within_a_filler_where_they_are_not(
            piece in 1usize..3, template in 0u64..60, length in 70u64..9000, stream: u64,
        ) {
            let stick = yardstick(piece, template);
            let text = stick.text(7, &PromptKey { stream, ..KEY }, length);
            prop_assert!(count(&text, piece, template).abs_diff(length) <= 2);
        }
    }
}
