//! Arrivals: when the requests of a `serve` test go out.
//!
//! A pure function of seed, rate and ordinal. It sends nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::prompt::Numbers;

/// How requests arrive.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// So many streams, each sending its next request when the one before has ended.
    #[default]
    Closed,
    /// All at once.
    Burst,
    /// At a steady pace, whether or not those before have ended.
    Constant,
    /// At random, so many a second on average, whether or not those before have ended.
    Poisson,
}

impl Arrival {
    /// Whether requests are due at a time of their own, whatever the engine does.
    pub fn is_open(self) -> bool {
        match self {
            Arrival::Closed | Arrival::Burst => false,
            Arrival::Constant | Arrival::Poisson => true,
        }
    }
}

/// The due times of an open loop, one after the other and without end, counted from the first.
///
/// They are absolute: a request that goes out late delays none after it.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Seconds from one to the next, on average.
    gap: f64,
    /// Where gaps are drawn from; absent: all are alike.
    numbers: Option<Numbers>,
    ordinal: u64,
    /// Seconds from the first one to the one that comes next.
    at: f64,
}

impl Schedule {
    /// Requests a second at a steady pace.
    pub fn constant(rate: f64) -> Schedule {
        Schedule { gap: 1.0 / rate, numbers: None, ordinal: 0, at: 0.0 }
    }

    /// A Poisson process of so many requests a second on average: gaps are exponential. The same
    /// seed and lane give the same times.
    pub fn poisson(rate: f64, seed: u64, lane: u64) -> Schedule {
        let numbers = Numbers::of("tokgate arrival 1", &[seed, lane]);
        Schedule { gap: 1.0 / rate, numbers: Some(numbers), ordinal: 0, at: 0.0 }
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let due = Duration::try_from_secs_f64(self.at).ok()?;
        self.ordinal += 1;
        self.at = match &mut self.numbers {
            // By multiplication, so that no rounding adds up.
            None => self.gap * self.ordinal as f64,
            Some(numbers) => self.at - numbers.share().ln() * self.gap,
        };
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn gaps(schedule: Schedule, count: usize) -> Vec<f64> {
        let due: Vec<f64> = schedule.take(count + 1).map(|due| due.as_secs_f64()).collect();
        due.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn a_steady_pace_does_not_drift() {
        let due: Vec<Duration> = Schedule::constant(3.0).take(30_001).collect();
        assert_eq!((due[0], due[3]), (Duration::ZERO, Duration::from_secs(1)));
        assert_eq!(due[30_000], Duration::from_secs(10_000));
    }

    #[test]
    fn gaps_of_a_poisson_process_are_exponential() {
        let gaps = gaps(Schedule::poisson(50.0, 7, 0), 20_000);
        let n = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / n;
        // The mean of n exponentials strays by 1/√n of itself.
        assert!((mean * 50.0 - 1.0).abs() < 4.0 / n.sqrt(), "{mean}");
        // So does the share of gaps beyond any multiple of the mean from e^-multiple.
        for multiple in [0.1, 0.5, 1.0, 2.0, 4.0f64] {
            let beyond = gaps.iter().filter(|gap| **gap * 50.0 > multiple).count() as f64 / n;
            let share = (-multiple).exp();
            let error = (share * (1.0 - share) / n).sqrt();
            assert!((beyond - share).abs() < 4.0 * error, "{multiple}: {beyond} for {share}");
        }
        // No gap tells of the one before it.
        let deviation = |gap: f64| gap - mean;
        let together: f64 = gaps.windows(2).map(|w| deviation(w[0]) * deviation(w[1])).sum();
        let alone: f64 = gaps.iter().map(|gap| deviation(*gap).powi(2)).sum();
        assert!((together / alone).abs() < 4.0 / n.sqrt());
    }

    proptest! {
        #[test]
        fn the_same_seed_gives_the_same_times_and_another_gives_others(
            seed: u64, lane: u64, rate in 0.01f64..1e4,
        ) {
            let times = |seed, lane| -> Vec<Duration> {
                Schedule::poisson(rate, seed, lane).take(20).collect()
            };
            let due = times(seed, lane);
            prop_assert_eq!(&due, &times(seed, lane));
            prop_assert!(due.is_sorted() && due[0] == Duration::ZERO);
            prop_assert_ne!(&due, &times(seed.wrapping_add(1), lane));
            prop_assert_ne!(&due, &times(seed, lane.wrapping_add(1)));
        }
    }
}
