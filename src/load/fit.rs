//! The search for a text of a given length in tokens, by asking the server what it counts.
//!
//! For servers that take no token ids, and for chat, whose template adds tokens of its own. A pure
//! machine: it proposes a text, is told the prompt tokens that the server counted for it, and
//! proposes a better one, until the length is within the tolerance or the tries are used up.

use std::sync::Arc;

use super::prompt::{PromptKey, SAMPLE};
use super::yardstick::WORDS;

/// Proposals at most.
const TRIES: u32 = 16;

/// Tokens a word before anything is known: common tokenizers need 1.2 to 1.5 for English.
const FIRST_GUESS: f64 = 1.35;

/// A word that is one token in every common tokenizer, to fill up to the exact length.
const FILLER: &str = " the";

/// Below this distance single fillers are surer than more words.
const FILLED: u64 = 8;

/// What to do after an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask the server again, with the new text.
    Ask,
    /// The text has the length.
    Fits,
    /// The tries are used up, or no text can be as short; the text is the nearest one found.
    GaveUp {
        /// The length that the server counted for it.
        tokens: u64,
    },
}

/// The size of a text: random words, then fillers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    words: u64,
    fillers: u64,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Fit {
    seed: u64,
    key: PromptKey,
    common: Arc<str>,
    target: u64,
    tolerance: u64,
    size: Size,
    /// Whether its words are short ones, since one of any length was too long.
    brief: bool,
    /// The longest text known to be too short, the shortest known to be too long: words, tokens.
    short: Option<(u64, u64)>,
    long: Option<(u64, u64)>,
    nearest: Option<(Size, u64)>,
    tries: u32,
    tokens_per_word: f64,
}

impl Fit {
    /// A search for the key's text of `target` tokens, give or take `tolerance`.
    pub fn new(seed: u64, key: PromptKey, target: u64, tolerance: u64) -> Fit {
        let fit = Fit {
            seed,
            key,
            common: "".into(),
            target,
            tolerance,
            size: Size { words: 1, fillers: 0 },
            brief: false,
            short: None,
            long: None,
            nearest: None,
            tries: 0,
            tokens_per_word: FIRST_GUESS,
        };
        fit.with_tokens_per_word(FIRST_GUESS)
    }

    /// Begins from what an earlier search has found out about the tokenizer.
    pub fn with_tokens_per_word(mut self, tokens_per_word: f64) -> Fit {
        self.tokens_per_word = tokens_per_word.clamp(0.25, 8.0);
        self.size.words = ((self.target as f64 / self.tokens_per_word).round() as u64).max(1);
        self
    }

    /// Lets the text begin with one that it shares with others.
    pub fn with_beginning(mut self, common: Arc<str>) -> Fit {
        self.common = common;
        self
    }

    /// Tokens a word as far as they are known, for the next search.
    pub fn tokens_per_word(&self) -> f64 {
        self.tokens_per_word
    }

    /// The text proposed now.
    pub fn text(&self) -> String {
        self.spelt(&self.common, &self.words())
    }

    /// The words of the text in the key's own order, behind another beginning.
    ///
    /// It is as long in tokens, as far as words are tokenized apart, and the server has not seen
    /// it: asking for the length of a text puts it into the prefix cache. The first and the last word
    /// stay: they touch what is before and behind the text, a chat template for instance, and may be
    /// tokenized together with it.
    pub fn arranged(&self, beginning: &str, key: &PromptKey) -> String {
        let mut words = self.words();
        let mut numbers = key.numbers(self.seed);
        for last in (2..words.len().saturating_sub(1)).rev() {
            words.swap(last, 1 + numbers.below(last));
        }
        self.spelt(beginning, &words)
    }

    fn words(&self) -> Vec<&'static str> {
        let vocabulary: Vec<&str> =
            if self.brief { WORDS.to_vec() } else { SAMPLE.split_whitespace().collect() };
        let mut numbers = self.key.numbers(self.seed);
        (0..self.size.words).map(|_| vocabulary[numbers.below(vocabulary.len())]).collect()
    }

    fn spelt(&self, beginning: &str, words: &[&str]) -> String {
        let mut text = String::from(beginning);
        for word in words {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(word);
        }
        for _ in 0..self.size.fillers {
            text.push_str(FILLER);
        }
        text
    }

    /// Takes the length that the server counted for the text proposed.
    pub fn observe(&mut self, tokens: u64) -> Step {
        self.tries += 1;
        let distance = tokens.abs_diff(self.target);
        if self.nearest.is_none_or(|(_, known)| distance < known.abs_diff(self.target)) {
            self.nearest = Some((self.size, tokens));
        }
        if distance <= self.tolerance {
            return Step::Fits;
        }
        let next = if self.size.fillers > 0 { self.refill(tokens) } else { self.resize(tokens) };
        let next = next.or_else(|| self.abridge());
        match next {
            Some(next) if self.tries < TRIES => {
                self.size = next;
                Step::Ask
            }
            Some(_) | None => {
                let (size, tokens) = self.nearest.unwrap_or((self.size, tokens));
                self.size = size;
                Step::GaveUp { tokens }
            }
        }
    }

    /// Another number of words. `None`: one word is too long already.
    fn resize(&mut self, tokens: u64) -> Option<Size> {
        let words = self.size.words;
        if tokens < self.target {
            self.short = Some((words, tokens));
        } else {
            self.long = Some((words, tokens));
        }
        match (self.short, self.long) {
            (Some((w0, t0)), Some((w1, t1))) if w1 > w0 && t1 > t0 => {
                self.tokens_per_word = (t1 - t0) as f64 / (w1 - w0) as f64;
            }
            // The share of the template is unknown; for long texts it does not matter.
            _ if words >= 64 => self.tokens_per_word = (tokens as f64 / words as f64).max(0.25),
            _ => {}
        }
        if let Some((words, tokens)) = self.short
            && (self.target - tokens <= FILLED
                || self.long.is_some_and(|(long, _)| long <= words + 1))
        {
            return Some(Size { words, fillers: self.target - tokens });
        }
        let step = self.target.abs_diff(tokens) as f64 / self.tokens_per_word;
        let step = (step.round() as u64).max(1);
        let wished = if tokens < self.target {
            words.saturating_add(step)
        } else {
            words.saturating_sub(step)
        };
        let least = self.short.map_or(1, |(words, _)| words + 1);
        let most = self.long.map_or(u64::MAX, |(words, _)| words.saturating_sub(1));
        (least <= most).then(|| Size { words: wished.clamp(least, most), fillers: 0 })
    }

    /// Begins anew with short words. `None`: that was done, or shorter words would not help.
    fn abridge(&mut self) -> Option<Size> {
        let too_long = self.long.is_some_and(|(words, _)| words == 1);
        if self.brief || !too_long {
            return None;
        }
        self.brief = true;
        (self.short, self.long, self.nearest) = (None, None, None);
        Some(Size { words: 1, fillers: 0 })
    }

    /// Another number of fillers behind the same words, by what one was found to cost. Where that
    /// leads nowhere (the first filler parts the last word from a template that it had merged with),
    /// one word less leaves more to be filled; `None` where there is none.
    fn refill(&mut self, tokens: u64) -> Option<Size> {
        let Size { words, fillers } = self.size;
        let (_, base) = self.short.filter(|(short, _)| *short == words)?;
        let cost = tokens.saturating_sub(base).max(1) as f64 / fillers as f64;
        let wished = ((self.target - base) as f64 / cost).round().max(1.0) as u64;
        if wished != fillers {
            return Some(Size { words, fillers: wished });
        }
        self.short = None;
        (words > 1).then_some(Size { words: words - 1, fillers: 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::PromptKind;

    const KEY: PromptKey =
        PromptKey { kind: PromptKind::Warm, stream: 3, context: 0, launch: 0, salt: 0 };

    /// A tokenizer: one token for each `piece` letters begun of a word, and a template around.
    fn count(text: &str, piece: usize, template: u64) -> u64 {
        let words = text.split_whitespace();
        words.map(|word| word.len().div_ceil(piece) as u64).sum::<u64>() + template
    }

    fn search(mut fit: Fit, count: impl Fn(&str) -> u64) -> (Step, Fit, u32) {
        for asked in 1.. {
            let step = fit.observe(count(&fit.text()));
            if step != Step::Ask {
                return (step, fit, asked);
            }
        }
        unreachable!()
    }

    #[test]
    fn an_exact_length_is_found_in_a_few_tries() {
        for target in [20, 100, 1000, 8192] {
            let (step, fit, asked) = search(Fit::new(1, KEY, target, 0), |text| count(text, 4, 11));
            assert_eq!(step, Step::Fits, "{target}");
            assert_eq!(count(&fit.text(), 4, 11), target);
            assert!(asked <= 6, "{target}: {asked} tries");
        }
    }

    #[test]
    fn what_one_search_learnt_helps_the_next() {
        let counted = |text: &str| count(text, 4, 11);
        let (_, first, _) = search(Fit::new(1, KEY, 8192, 40), counted);
        let next = Fit::new(1, PromptKey { stream: 4, ..KEY }, 8192, 80)
            .with_tokens_per_word(first.tokens_per_word());
        let (step, _, asked) = search(next, counted);
        assert_eq!((step, asked), (Step::Fits, 1));
    }

    #[test]
    fn a_length_below_the_template_is_given_up_with_the_shortest_text() {
        let (step, fit, _) = search(Fit::new(1, KEY, 8, 1), |text| count(text, 4, 30));
        assert!(matches!(step, Step::GaveUp { tokens: 31.. }), "{step:?}");
        assert_eq!(fit.text().split_whitespace().count(), 1);
    }

    #[test]
    fn a_server_that_does_not_count_ends_the_search() {
        let (step, _, asked) = search(Fit::new(1, KEY, 100, 1), |_| 5);
        assert_eq!(step, Step::GaveUp { tokens: 5 });
        assert!(asked <= TRIES);
    }

    #[test]
    fn texts_of_different_keys_begin_differently_and_a_common_beginning_is_kept() {
        let fit = |stream| Fit::new(1, PromptKey { stream, ..KEY }, 100, 1);
        let beginning = |text: &str| text.chars().take(12).collect::<String>();
        assert_ne!(beginning(&fit(1).text()), beginning(&fit(2).text()));
        assert!(fit(1).with_beginning("One and the same.".into()).text().starts_with("One and"));
    }

    #[test]
    fn the_words_in_another_order_are_as_long_and_begin_differently() {
        let (_, fit, _) = search(Fit::new(1, KEY, 1000, 0), |text| count(text, 4, 11));
        let arranged = |stream| fit.arranged("", &PromptKey { stream, ..KEY });
        let mut beginnings = vec![fit.text()[..60].to_owned()];
        for stream in 0..200 {
            assert_eq!(count(&arranged(stream), 4, 11), 1000);
            beginnings.push(arranged(stream)[..60].to_owned());
        }
        beginnings.sort();
        beginnings.dedup();
        assert_eq!(beginnings.len(), 201);
        assert_eq!(arranged(7), arranged(7));
        assert!(fit.arranged("One and", &KEY).starts_with("One and "));
        let ends = |text: &str| {
            let words: Vec<_> = text.split(' ').collect();
            (words[0].to_owned(), words[words.len() - 1].to_owned())
        };
        assert_eq!(ends(&arranged(7)), ends(&fit.text()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_template_that_merges_with_the_last_word_is_fitted_exactly(
            template in 1u64..60, target in 100u64..3000, seed: u64,
        ) {
            let merged = |text: &str| count(text, 4, template) - u64::from(text.ends_with(['.', ',']));
            let (step, fit, _) = search(Fit::new(seed, KEY, target, 0), merged);
            prop_assert_eq!(step, Step::Fits);
            prop_assert_eq!(merged(&fit.text()), target);
        }

        #[test]
        fn a_text_of_a_few_tokens_is_fitted_however_long_words_are(
            piece in 2usize..9, template in 0u64..60, own in 2u64..12, seed: u64,
        ) {
            let target = template + own;
            let (step, fit, _) = search(Fit::new(seed, KEY, target, 1), |text| count(text, piece, template));
            prop_assert_eq!(step, Step::Fits);
            prop_assert!(count(&fit.text(), piece, template).abs_diff(target) <= 1);
        }

        #[test]
        fn any_plain_tokenizer_is_fitted_within_a_token(
            piece in 2usize..9, template in 0u64..60, target in 64u64..3000, seed: u64,
        ) {
            let (step, fit, _) = search(Fit::new(seed, KEY, target, 1), |text| count(text, piece, template));
            prop_assert_eq!(step, Step::Fits);
            prop_assert!(count(&fit.text(), piece, template).abs_diff(target) <= 1);
        }
    }
}
