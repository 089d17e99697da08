//! Pooling: the observations of several launches of one cell as if one launch had made them.
//!
//! What is shown of a cell that was measured more than once: its mean, its charts. No interval is made
//! of it, since launches differ by more than what happens within one.

use std::collections::BTreeMap;

use super::Observations;

/// Observations of the same metric in several launches, joined; `None` of none. Where two are of
/// different kinds (one grew beyond what is kept as samples) they are joined as counted values.
pub fn pool(all: &[&Observations]) -> Option<Observations> {
    let (first, rest) = all.split_first()?;
    let joined = rest.iter().fold((*first).clone(), |sum, next| join(sum, next));
    Some(averaged(joined, all))
}

/// Joins two. Rates and readings are averaged by [`averaged`] at the end.
fn join(sum: Observations, next: &Observations) -> Observations {
    match (sum, next) {
        (
            Observations::Batches { rate, mut means, floor },
            Observations::Batches { means: more, floor: other, .. },
        ) => {
            means.extend(more);
            Observations::Batches { rate, means, floor: floor.max(*other) }
        }
        (Observations::Samples(mut samples), Observations::Samples(more)) => {
            samples.extend(more);
            Observations::Samples(samples)
        }
        (Observations::Waves(mut waves), Observations::Waves(more)) => {
            waves.extend(more.iter().cloned());
            Observations::Waves(waves)
        }
        (Observations::Told(mut told), Observations::Told(more)) => {
            for (stat, values) in more {
                told.entry(*stat).or_default().extend(values);
            }
            Observations::Told(told)
        }
        (Observations::Exact(value), Observations::Exact(_)) => Observations::Exact(value),
        // Single observations of several launches are samples.
        (Observations::Point(value), Observations::Point(other)) => {
            Observations::Samples(vec![value, *other])
        }
        (Observations::Samples(mut samples), Observations::Point(value)) => {
            samples.push(*value);
            Observations::Samples(samples)
        }
        (sum, next) => match (counted(&sum), counted(next)) {
            (Some(mut one), Some(two)) => {
                one.extend(two);
                Observations::Histogram(merged(one))
            }
            (_, _) => sum,
        },
    }
}

/// The rate over all windows and the mean of readings: each launch has the same weight.
fn averaged(sum: Observations, all: &[&Observations]) -> Observations {
    let mean = |of: fn(&Observations) -> Option<f64>| {
        let values: Vec<f64> = all.iter().filter_map(|one| of(one)).collect();
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    match sum {
        Observations::Batches { means, floor, .. } => {
            let rate = mean(|one| match one {
                Observations::Batches { rate, .. } => Some(*rate),
                Observations::Samples(_)
                | Observations::Histogram(_)
                | Observations::Waves(_)
                | Observations::Told(_)
                | Observations::Exact(_)
                | Observations::Point(_) => None,
            });
            Observations::Batches { rate, means, floor }
        }
        Observations::Exact(_) => Observations::Exact(mean(|one| match one {
            Observations::Exact(value) => Some(*value),
            Observations::Batches { .. }
            | Observations::Samples(_)
            | Observations::Histogram(_)
            | Observations::Waves(_)
            | Observations::Told(_)
            | Observations::Point(_) => None,
        })),
        sum @ (Observations::Samples(_)
        | Observations::Histogram(_)
        | Observations::Waves(_)
        | Observations::Told(_)
        | Observations::Point(_)) => sum,
    }
}

/// Values with their counts, of what has values.
fn counted(observations: &Observations) -> Option<Vec<(f64, u64)>> {
    match observations {
        Observations::Samples(samples) => Some(samples.iter().map(|value| (*value, 1)).collect()),
        Observations::Histogram(buckets) => Some(buckets.clone()),
        Observations::Waves(waves) => Some(waves.iter().flatten().map(|v| (*v, 1)).collect()),
        Observations::Batches { .. }
        | Observations::Told(_)
        | Observations::Exact(_)
        | Observations::Point(_) => None,
    }
}

/// In rising order, equal values together.
fn merged(mut counted: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    counted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, u64)> = Vec::with_capacity(counted.len());
    for (value, count) in counted {
        match merged.last_mut() {
            Some((last, sum)) if *last == value => *sum += count,
            Some(_) | None => merged.push((value, count)),
        }
    }
    merged
}

/// By metric, those that every launch observed.
pub fn pool_all<K: Ord + Copy>(all: &[&BTreeMap<K, Observations>]) -> BTreeMap<K, Observations> {
    let Some((first, rest)) = all.split_first() else { return BTreeMap::new() };
    let everywhere = first.keys().filter(|key| rest.iter().all(|one| one.contains_key(key)));
    everywhere
        .filter_map(|key| {
            let of_all: Vec<&Observations> = all.iter().filter_map(|one| one.get(key)).collect();
            pool(&of_all).map(|pooled| (*key, pooled))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(rate: f64, means: &[f64]) -> Observations {
        Observations::Batches { rate, means: means.to_vec(), floor: 0.1 }
    }

    #[test]
    fn launches_have_the_same_weight() {
        let (one, two) = (batches(10.0, &[9.0, 11.0]), batches(20.0, &[20.0, 20.0, 20.0]));
        assert_eq!(pool(&[&one, &two]), Some(batches(15.0, &[9.0, 11.0, 20.0, 20.0, 20.0])));
        let (one, two) = (Observations::Exact(4.0), Observations::Exact(5.0));
        assert_eq!(pool(&[&one, &two]), Some(Observations::Exact(4.5)));
        assert_eq!(pool(&[]), None);
    }

    #[test]
    fn single_observations_become_samples() {
        let points = [1.0, 2.0, 4.0].map(Observations::Point);
        let pooled = pool(&points.iter().collect::<Vec<_>>());
        assert_eq!(pooled, Some(Observations::Samples(vec![1.0, 2.0, 4.0])));
    }

    #[test]
    fn samples_and_counts_are_counted_together() {
        let samples = Observations::Samples(vec![2.0, 1.0, 2.0]);
        let counts = Observations::Histogram(vec![(1.0, 3), (5.0, 1)]);
        let pooled = pool(&[&samples, &counts]);
        assert_eq!(pooled, Some(Observations::Histogram(vec![(1.0, 4), (2.0, 2), (5.0, 1)])));
    }

    #[test]
    fn what_a_launch_lacks_is_left_out() {
        let one = BTreeMap::from([(1, Observations::Exact(1.0)), (2, Observations::Exact(1.0))]);
        let two = BTreeMap::from([(2, Observations::Exact(3.0))]);
        let pooled = pool_all(&[&one, &two]);
        assert_eq!(pooled, BTreeMap::from([(2, Observations::Exact(2.0))]));
    }
}
