//! Order statistics of samples, exact.
//!
//! Percentiles are by nearest rank: the p-th percentile of n samples is the one of rank ⌈n·p/100⌉,
//! counted in integers, so that "at most so many samples lie above" is a statement about a count.
//! The one exception is [`median`], for medians that are an observation themselves.

use std::collections::BTreeMap;

use super::Observations;

/// Samples beyond this number are kept as counts.
pub const KEPT: u64 = 4096;

/// Rank, from 1, of the `percent`-th percentile among `n` samples; 0 where there is none.
pub fn rank(n: u64, percent: u32) -> u64 {
    let rank = (u128::from(n) * u128::from(percent)).div_ceil(100);
    // At most n, hence no loss.
    u64::try_from(rank).unwrap_or(n).clamp(n.min(1), n)
}

/// Samples in rising order, each with its count.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ordered {
    values: Vec<(f64, u64)>,
    total: u64,
}

impl Ordered {
    /// Sorts plain samples.
    pub fn of(samples: &[f64]) -> Ordered {
        Ordered::counted(samples.iter().map(|value| (*value, 1)).collect())
    }

    /// Sorts samples that stand for several.
    pub fn counted(mut values: Vec<(f64, u64)>) -> Ordered {
        values.retain(|(_, count)| *count > 0);
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total = values.iter().map(|(_, count)| count).sum();
        Ordered { values, total }
    }

    /// How many samples there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The sample of a rank, from 1.
    pub fn at(&self, rank: u64) -> Option<f64> {
        if rank == 0 {
            return None;
        }
        let mut seen = 0;
        self.values.iter().find_map(|(value, count)| {
            seen += count;
            (seen >= rank).then_some(*value)
        })
    }

    /// The `percent`-th percentile by nearest rank.
    pub fn percentile(&self, percent: u32) -> Option<f64> {
        self.at(rank(self.total, percent))
    }

    /// The greatest sample.
    pub fn max(&self) -> Option<f64> {
        self.values.last().map(|(value, _)| *value)
    }

    /// The mean.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.values.iter().map(|(value, count)| value * *count as f64).sum();
        (self.total > 0).then(|| sum / self.total as f64)
    }

    /// The standard deviation with divisor n − 1.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 =
            self.values.iter().map(|(value, count)| (value - mean).powi(2) * *count as f64).sum();
        (self.total > 1).then(|| (squares / (self.total - 1) as f64).sqrt())
    }

    /// Whether every sample is a finite number.
    pub fn finite(&self) -> bool {
        self.values.iter().all(|(value, _)| value.is_finite())
    }
}

/// The middle value, or the mean of the two middle ones; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = *sorted.get(half)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[half - 1] + upper) / 2.0 })
}

/// The value that stands for `value` in a histogram: at most 0.05 % away, so 3 digits are kept.
///
/// Buckets are the leading ten bits behind the point of the binary number: the same on every
/// machine, and neighbours at any scale are alike in relative width.
pub fn bucket(value: f64) -> f64 {
    const DROPPED: u32 = 42;
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    f64::from_bits((value.to_bits() >> DROPPED << DROPPED) | (1 << (DROPPED - 1)))
}

/// Gathers samples as they come: one by one up to [`KEPT`], as a histogram beyond.
///
/// Its memory stays bounded however long the window. Samples are not negative.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    kept: Vec<(f64, u64)>,
    // By the bits of the bucket's value: they order like the values, which are not negative.
    buckets: BTreeMap<u64, u64>,
    total: u64,
}

impl Tally {
    /// Adds a sample that stands for `count`.
    pub fn add(&mut self, value: f64, count: u64) {
        self.total += count;
        if self.total <= KEPT {
            self.kept.push((value, count));
            return;
        }
        for (value, count) in self.kept.drain(..).chain([(value, count)]) {
            *self.buckets.entry(bucket(value.max(0.0)).to_bits()).or_default() += count;
        }
    }

    /// How many samples there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The samples as observations; `None` where there is none.
    pub fn finish(self) -> Option<Observations> {
        if self.total == 0 {
            return None;
        }
        if self.total > KEPT {
            let buckets = self.buckets.into_iter().filter(|(_, count)| *count > 0);
            return Some(Observations::Histogram(
                buckets.map(|(bits, count)| (f64::from_bits(bits), count)).collect(),
            ));
        }
        let repeated = self.kept.into_iter().flat_map(|(value, count)| {
            std::iter::repeat_n(value, usize::try_from(count).unwrap_or(0))
        });
        Some(Observations::Samples(repeated.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_are_counted_in_integers() {
        // (1 − 0.9) × 10 is a little below 1 in floating point; the rank must be 9 all the same.
        assert_eq!(rank(10, 90), 9);
        assert_eq!(rank(100, 99), 99);
        assert_eq!(rank(101, 99), 100);
        assert_eq!(rank(3, 50), 2);
        assert_eq!(rank(1, 1), 1);
        assert_eq!(rank(0, 50), 0);
    }

    #[test]
    fn percentiles_are_samples() {
        let samples = Ordered::of(&[50.0, 20.0, 40.0, 10.0, 30.0]);
        assert_eq!(samples.percentile(50), Some(30.0));
        assert_eq!(samples.percentile(90), Some(50.0));
        assert_eq!(samples.max(), Some(50.0));
        assert_eq!(samples.mean(), Some(30.0));
        assert_eq!(Ordered::of(&[]).percentile(50), None);
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn many_samples_become_a_histogram_that_keeps_three_digits() {
        let many: Vec<_> = (1..=5000).map(|i| (f64::from(i) * 0.0137, 2)).collect();
        let mut tally = Tally::default();
        many.iter().for_each(|(value, count)| tally.add(*value, *count));
        let exact = Ordered::counted(many);
        let Some(Observations::Histogram(buckets)) = tally.finish() else {
            panic!("10 000 samples are more than are kept")
        };
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
        assert!(buckets.len() < 5000);
        let kept = Ordered::counted(buckets);
        assert_eq!(kept.total(), 10_000);
        for percent in [1, 50, 90, 99, 100] {
            let (got, want) =
                (kept.percentile(percent).unwrap(), exact.percentile(percent).unwrap());
            assert!((got / want - 1.0).abs() <= 0.0005, "{got} for {want}");
        }
    }

    proptest! {
        #[test]
        fn a_percentile_leaves_at_most_its_share_above(
            samples in prop::collection::vec(0.0f64..1e3, 1..200), percent in 1u32..=100
        ) {
            let value = Ordered::of(&samples).percentile(percent).unwrap();
            let above = samples.iter().filter(|sample| **sample > value).count();
            prop_assert!(above * 100 <= samples.len() * (100 - percent as usize));
        }

        #[test]
        fn buckets_keep_the_order(a in 1e-6f64..1e6, b in 1e-6f64..1e6) {
            prop_assert!((bucket(a) / a - 1.0).abs() <= 0.0005);
            prop_assert_eq!(a <= b && bucket(a) > bucket(b), false);
        }
    }
}
