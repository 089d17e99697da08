//! What tools told, as observations: a figure each time that a tool was run.
//!
//! It decides which of them are counts, which are latencies, and that one alone has no interval.

use std::collections::BTreeMap;

use super::{Base, Metric, Observations};

/// Observations of figures that a tool told in each of some repeats, by metric. A metric that not
/// every repeat told is left out.
pub fn observations(repeats: &[BTreeMap<Metric, f64>]) -> BTreeMap<Base, Observations> {
    let mut out: BTreeMap<Base, Observations> = BTreeMap::new();
    let Some(first) = repeats.first() else { return out };
    for metric in first.keys() {
        let values: Vec<f64> =
            repeats.iter().filter_map(|told| told.get(metric).copied()).collect();
        if values.len() < repeats.len() {
            continue;
        }
        match metric.stat {
            Some(stat) => {
                let told =
                    out.entry(metric.base).or_insert_with(|| Observations::Told(BTreeMap::new()));
                if let Observations::Told(by_stat) = told {
                    by_stat.insert(stat, values);
                }
            }
            None => {
                out.insert(metric.base, scalar(metric.base, values));
            }
        }
    }
    out
}

fn scalar(base: Base, values: Vec<f64>) -> Observations {
    let counted = matches!(base, Base::CompletedRequests | Base::OutputTokens | Base::ErrorRate);
    match values[..] {
        [value, ..] if counted && values.iter().all(|other| *other == value) => {
            Observations::Exact(value)
        }
        [value] => Observations::Point(value),
        _ => Observations::Samples(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Direction, Stat, UserMetric};

    #[test]
    fn a_figure_a_repeat() {
        let told = |rate: f64, ttft: f64, share: f64| {
            let metric = |text: &str| text.parse::<Metric>().unwrap();
            let mut told = BTreeMap::from([
                (metric("output-throughput"), rate),
                (metric("ttft.p50"), ttft),
                (metric("ttft.p99"), 2.0 * ttft),
                (metric("completed-requests"), 12.0),
            ]);
            told.insert(UserMetric::new("share", "", Direction::Higher).into(), share);
            told
        };
        let share = Base::User(UserMetric::new("share", "", Direction::Higher));
        let once = observations(&[told(100.0, 5.0, 0.9)]);
        assert_eq!(once[&Base::OutputThroughput], Observations::Point(100.0));
        assert_eq!(once[&share], Observations::Point(0.9));
        assert_eq!(once[&Base::CompletedRequests], Observations::Exact(12.0));
        let by_stat = BTreeMap::from([(Stat::P50, vec![5.0]), (Stat::P99, vec![10.0])]);
        assert_eq!(once[&Base::Ttft], Observations::Told(by_stat));

        let mut second = told(104.0, 6.0, 0.8);
        second.remove(&"ttft.p99".parse().unwrap());
        let twice = observations(&[told(100.0, 5.0, 0.9), second]);
        assert_eq!(twice[&Base::OutputThroughput], Observations::Samples(vec![100.0, 104.0]));
        assert_eq!(twice[&share], Observations::Samples(vec![0.9, 0.8]));
        assert_eq!(twice[&Base::CompletedRequests], Observations::Exact(12.0));
        let by_stat = BTreeMap::from([(Stat::P50, vec![5.0, 6.0])]);
        assert_eq!(twice[&Base::Ttft], Observations::Told(by_stat));
        assert!(observations(&[]).is_empty());
    }
}
