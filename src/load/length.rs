//! Lengths: how many tokens the prompts and outputs of a `serve` test have.
//!
//! A pure function of seed and ordinal.

use serde::{Deserialize, Serialize};

use super::prompt::Numbers;

/// How lengths are distributed, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// All alike.
    Fixed(u64),
    /// Evenly between both, ends included.
    Uniform(u64, u64),
    /// By a normal distribution, cut off at 1 token and at four deviations.
    Normal {
        /// The middle.
        mean: f64,
        /// The standard deviation.
        sd: f64,
    },
}

/// A normal distribution is cut off at so many deviations.
const DEVIATIONS: f64 = 4.0;

/// Draws from a normal distribution until one is not cut off.
const DRAWS: u32 = 1000;

/// Which lengths are drawn: two for the same ordinal have nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Of prompts.
    Input,
    /// Of outputs.
    Output,
}

impl Length {
    /// The length of the request of this ordinal: the same for the same seed, lane and side.
    pub fn draw(&self, side: Side, seed: u64, lane: u64, ordinal: u64) -> u64 {
        let side = match side {
            Side::Input => 0,
            Side::Output => 1,
        };
        let mut numbers = Numbers::of("tokgate length 1", &[seed, lane, side, ordinal]);
        match *self {
            Length::Fixed(tokens) => tokens,
            Length::Uniform(least, most) => {
                let span = usize::try_from(most.saturating_sub(least)).unwrap_or(usize::MAX - 1);
                least + numbers.below(span + 1) as u64
            }
            Length::Normal { mean, sd } => {
                let drawn = std::iter::repeat_with(|| mean + sd * normal(&mut numbers))
                    .take(DRAWS as usize)
                    .map(f64::round)
                    .find(|tokens| *tokens >= 1.0 && (tokens - mean).abs() <= DEVIATIONS * sd);
                drawn.unwrap_or(mean.round().max(1.0)) as u64
            }
        }
    }

    /// The greatest length that can be drawn.
    pub fn greatest(&self) -> u64 {
        match *self {
            Length::Fixed(tokens) | Length::Uniform(_, tokens) => tokens,
            Length::Normal { mean, sd } => (mean + DEVIATIONS * sd).floor().max(1.0) as u64,
        }
    }
}

/// A number of the standard normal distribution, by Box and Muller.
fn normal(numbers: &mut Numbers) -> f64 {
    let (radius, angle) = (numbers.share(), numbers.share());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn many(length: Length, count: u64) -> Vec<f64> {
        (0..count).map(|ordinal| length.draw(Side::Input, 7, 0, ordinal) as f64).collect()
    }

    fn mean_and_sd(drawn: &[f64]) -> (f64, f64) {
        let n = drawn.len() as f64;
        let mean = drawn.iter().sum::<f64>() / n;
        let squares: f64 = drawn.iter().map(|tokens| (tokens - mean).powi(2)).sum();
        (mean, (squares / (n - 1.0)).sqrt())
    }

    #[test]
    fn uniform_lengths_reach_both_ends_evenly() {
        let drawn = many(Length::Uniform(10, 19), 10_000);
        for tokens in 10..20 {
            let share = drawn.iter().filter(|drawn| **drawn == f64::from(tokens)).count();
            // A tenth each, give or take four standard errors.
            assert!((share as f64 - 1000.0).abs() < 120.0, "{tokens}: {share}");
        }
    }

    #[test]
    fn normal_lengths_have_their_mean_and_deviation() {
        let (mean, sd) = mean_and_sd(&many(Length::Normal { mean: 1000.0, sd: 100.0 }, 10_000));
        assert!((mean - 1000.0).abs() < 4.0, "{mean}");
        assert!((sd - 100.0).abs() < 4.0, "{sd}");
    }

    #[test]
    fn a_distribution_that_reaches_below_one_is_cut_off_there() {
        let length = Length::Normal { mean: 2.0, sd: 10.0 };
        let drawn = many(length, 2_000);
        assert!(drawn.iter().all(|tokens| *tokens >= 1.0));
        assert!(drawn.iter().filter(|tokens| **tokens == 1.0).count() < 200, "not piled up there");
        assert_eq!(Length::Normal { mean: 5.0, sd: 0.0 }.draw(Side::Input, 1, 0, 0), 5);
    }

    #[test]
    fn inputs_and_outputs_of_a_request_are_drawn_apart() {
        let length = Length::Uniform(0, 1_000_000);
        let pairs = |side| -> Vec<u64> { (0..4).map(|i| length.draw(side, 1, 0, i)).collect() };
        assert_ne!(pairs(Side::Input), pairs(Side::Output));
    }

    proptest! {
        #[test]
        fn a_length_is_within_its_distribution_and_always_the_same(
            seed: u64, lane: u64, ordinal: u64, least in 1u64..5000, span in 0u64..5000,
            mean in 1.0f64..5000.0, sd in 0.0f64..1000.0,
        ) {
            for length in [
                Length::Fixed(least),
                Length::Uniform(least, least + span),
                Length::Normal { mean, sd },
            ] {
                let drawn = length.draw(Side::Output, seed, lane, ordinal);
                prop_assert!(drawn >= 1 && drawn <= length.greatest().max(mean.round() as u64));
                prop_assert_eq!(drawn, length.draw(Side::Output, seed, lane, ordinal));
            }
            let drawn = Length::Uniform(least, least + span).draw(Side::Input, seed, lane, ordinal);
            prop_assert!((least..=least + span).contains(&drawn));
        }
    }
}
