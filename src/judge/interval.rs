//! Intervals: an estimate of a metric, and how far the noise lets the truth lie from it.
//!
//! Both bounds are one-sided, each at the level asked for. How an interval is made follows from
//! what was observed: batch means and samples by Student's t, percentiles by exact binomial counts,
//! counts and single readings not at all. What a limit makes of it is decided in `limit`.

use std::collections::BTreeMap;

use super::{Estimate, Method};
use crate::measure::distribution::{exceedances, t_critical};
use crate::measure::quantile::{Ordered, median};
use crate::measure::{Observations, Stat};

/// Waves from which on their percentiles other than the median carry an interval.
const WAVES_FOR_PERCENTILES: usize = 30;

/// Observations that no estimate can be made of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoData(pub String);

/// The level at which a cell that may be extended once, to twice its observations, is judged, the
/// first time and the second, so that `alpha` holds over both.
///
/// `n` is the number of observations at the first judgement. The levels are by simulation for the
/// usual `alpha`; any other, and every percentile (`counts`), gets half of it, which holds always.
pub fn level(alpha: f64, n: u64, counts: bool) -> f64 {
    // Rising with n, so that a row serves every n from its own on.
    const LEVELS: [(f64, u64, f64); 8] = [
        (0.05, 3, 0.0283),
        (0.05, 5, 0.0291),
        (0.05, 10, 0.0298),
        (0.025, 10, 0.0143),
        (0.01, 3, 0.0053),
        (0.01, 10, 0.0055),
        (0.005, 10, 0.0027),
        (0.001, 10, 0.000525),
    ];
    let known = LEVELS
        .iter()
        .rev()
        .find(|(of, least, _)| (of - alpha).abs() < 1e-12 && n >= *least && !counts);
    known.map_or(alpha / 2.0, |(_, _, level)| *level)
}

/// [`level`] for what was observed: at the first judgement, or with `extended` at the second.
pub fn levels(observed: &Observations, stat: Option<Stat>, alpha: f64, extended: bool) -> f64 {
    let (n, counts) = match observed {
        Observations::Batches { means, .. } => (means.len(), false),
        Observations::Samples(samples) => {
            (samples.len(), stat.is_some_and(|stat| stat != Stat::Mean))
        }
        Observations::Histogram(_) => (usize::MAX, stat != Some(Stat::Mean)),
        Observations::Waves(waves) => {
            (waves.len(), !matches!(stat, None | Some(Stat::Mean | Stat::P50)))
        }
        Observations::Told(_) => (observed.count() as usize, false),
        Observations::Exact(_) | Observations::Point(_) => return alpha,
    };
    level(alpha, if extended { n as u64 / 2 } else { n as u64 }, counts)
}

/// Estimates a metric, each bound one-sided at `alpha`. `stat` is the suffix of a latency; metrics
/// without one are estimated by their mean.
///
/// # Errors
/// Nothing was observed, or what was observed is no number.
pub fn estimate(
    observed: &Observations,
    stat: Option<Stat>,
    alpha: f64,
) -> Result<Estimate, NoData> {
    estimate_shared(observed, stat, alpha, 1.0)
}

/// Like [`estimate`], of samples of which so many each are one independent observation.
///
/// Streams of one batch emit together, and the tokens of one event came together: 128 streams
/// whose steps are slow are late 128 times at once. Counting them as 128 witnesses would make
/// every interval 11 times too narrow. `shared` ≥ 1 is how many samples one step makes.
///
/// # Errors
/// Nothing was observed, or what was observed is no number.
pub fn estimate_shared(
    observed: &Observations,
    stat: Option<Stat>,
    alpha: f64,
    shared: f64,
) -> Result<Estimate, NoData> {
    let found = match observed {
        Observations::Batches { rate, means, floor } => batches(*rate, means, *floor, alpha),
        Observations::Samples(values) => {
            samples(&Ordered::of(values), stat.unwrap_or(Stat::Mean), alpha, shared)?
        }
        Observations::Histogram(values) => {
            samples(&Ordered::counted(values.clone()), stat.unwrap_or(Stat::Mean), alpha, shared)?
        }
        Observations::Waves(waves) => self::waves(waves, stat.unwrap_or(Stat::Mean), alpha)?,
        Observations::Told(values) => told(values, stat, alpha)?,
        Observations::Exact(value) => Estimate {
            value: *value,
            lower: Some(*value),
            upper: Some(*value),
            n: 1,
            method: Method::Exact,
        },
        Observations::Point(value) => point(*value, 1),
    };
    let numbers = [Some(found.value), found.lower, found.upper];
    if numbers.iter().flatten().all(|number| number.is_finite()) {
        Ok(found)
    } else {
        Err(NoData("what was observed is no number".to_owned()))
    }
}

/// Like [`estimate`], of the times per token of a window's requests, where `rates` are the batches
/// of the rate of one request.
///
/// All requests of a window were slow in the same steps, so their number says nothing of how slow
/// the next window will be: the spread of the batches does. What the requests differ in among
/// themselves is counted, and the window's own noise comes on top. Median and mean differ from the
/// rate by their unit alone and have its interval alone.
///
/// # Errors
/// Nothing was observed, or what was observed is no number.
pub fn estimate_in_window(
    observed: &Observations,
    stat: Option<Stat>,
    rates: &Observations,
    alpha: f64,
) -> Result<Estimate, NoData> {
    let counted = estimate(observed, stat, alpha)?;
    let rate = estimate(rates, None, alpha)?;
    // The time is the rate's inverse, hence the bounds change sides.
    let longer = rate.lower.filter(|lower| *lower > 0.0).map(|lower| rate.value / lower);
    let shorter = rate.upper.map(|upper| rate.value / upper);
    let scaled = |bound: Option<f64>, by: Option<f64>| bound.zip(by).map(|(bound, by)| bound * by);
    let value = Some(counted.value);
    Ok(match stat.unwrap_or(Stat::Mean) {
        Stat::Mean | Stat::P50 => Estimate {
            value: counted.value,
            lower: scaled(value, shorter),
            upper: scaled(value, longer),
            ..rate
        },
        Stat::P90 | Stat::P95 | Stat::P99 => Estimate {
            lower: scaled(counted.lower, shorter),
            upper: scaled(counted.upper, longer),
            ..counted
        },
        Stat::Max => counted,
    })
}

fn point(value: f64, n: u64) -> Estimate {
    Estimate { value, lower: None, upper: None, n, method: Method::Point }
}

/// An estimate with a t interval around `center`, widened where need be to hold the estimate.
/// `deviation` is that of one observation.
fn around(value: f64, center: f64, deviation: f64, n: f64, alpha: f64, method: Method) -> Estimate {
    let bounds = (n >= 2.0).then(|| {
        let half = t_critical(alpha, n - 1.0) * deviation / n.sqrt();
        ((center - half).min(value), (center + half).max(value))
    });
    Estimate {
        value,
        lower: bounds.map(|(lower, _)| lower),
        upper: bounds.map(|(_, upper)| upper),
        n: n as u64,
        method,
    }
}

/// Batches without spread are no proof of a rate without noise: one token more or less in each
/// would not show, so that much is assumed at least.
fn batches(rate: f64, means: &[f64], floor: f64, alpha: f64) -> Estimate {
    let deviation = Ordered::of(means).deviation().unwrap_or(0.0).max(floor);
    around(rate, rate, deviation, means.len() as f64, alpha, Method::BatchMeans)
}

fn samples(ordered: &Ordered, stat: Stat, alpha: f64, shared: f64) -> Result<Estimate, NoData> {
    let nothing = || NoData("no sample".to_owned());
    let mean = ordered.mean().ok_or_else(nothing)?;
    if !ordered.finite() {
        return Err(NoData("a sample is no number".to_owned()));
    }
    let witnesses = (ordered.total() as f64 / shared.max(1.0)).floor().max(1.0);
    let deviation = ordered.deviation().unwrap_or(0.0);
    let by_t = |value| around(value, mean, deviation, witnesses, alpha, Method::StudentT);
    let Some(percent) = stat.percent() else {
        return match stat {
            // The greatest value seen is a fact of this window, without an interval.
            Stat::Max => Ok(point(ordered.max().ok_or_else(nothing)?, ordered.total())),
            Stat::Mean | Stat::P50 | Stat::P90 | Stat::P95 | Stat::P99 => Ok(by_t(mean)),
        };
    };
    let counted = by_counts(ordered, percent, alpha, witnesses as u64).ok_or_else(nothing)?;
    if stat == Stat::P50 && (counted.lower.is_none() || counted.upper.is_none()) {
        // Fewer samples than a median can be proven with (5 at .05): the noise of a prefill is
        // taken to be symmetric, where the interval of the mean is one of the median.
        return Ok(by_t(counted.value));
    }
    Ok(counted)
}

/// A percentile by exact binomial counts, of samples worth `witnesses` independent ones.
fn by_counts(ordered: &Ordered, percent: u32, alpha: f64, witnesses: u64) -> Option<Estimate> {
    let n = ordered.total();
    let counts = exceedances(witnesses, percent, alpha);
    // Ranks among the witnesses become ranks among the samples, rounded outwards.
    let scaled = |rank: u64, up: bool| {
        let product = u128::from(rank) * u128::from(n);
        let witnesses = u128::from(witnesses.max(1));
        u64::try_from(if up { product.div_ceil(witnesses) } else { product / witnesses }).ok()
    };
    // At most s samples lie above the sample of rank n − s; at least s lie at or above that of
    // rank n − s + 1.
    let upper = counts.proven_below.and_then(|s| scaled(witnesses - s, true));
    let lower = counts.proven_above.and_then(|s| scaled(witnesses - s, false)).map(|rank| rank + 1);
    Some(Estimate {
        value: ordered.percentile(percent)?,
        lower: lower.and_then(|rank| ordered.at(rank)),
        upper: upper.and_then(|rank| ordered.at(rank)),
        n: witnesses,
        method: Method::Binomial,
    })
}

/// The requests of a wave share their steps, so a wave is one observation.
fn waves(waves: &[Vec<f64>], stat: Stat, alpha: f64) -> Result<Estimate, NoData> {
    let told: Vec<Ordered> =
        waves.iter().filter(|wave| !wave.is_empty()).map(|wave| Ordered::of(wave)).collect();
    let all = Ordered::of(&waves.concat());
    let nothing = || NoData("no wave of requests had a first token".to_owned());
    if !all.finite() {
        return Err(NoData("a sample is no number".to_owned()));
    }
    let n = told.len() as f64;
    let over_waves = |value: f64, of: Vec<f64>| {
        let of = Ordered::of(&of);
        let center = of.mean().unwrap_or(value);
        around(value, center, of.deviation().unwrap_or(0.0), n, alpha, Method::StudentT)
    };
    match stat {
        Stat::P50 => {
            let medians = waves.iter().filter_map(|wave| median(wave)).collect();
            Ok(over_waves(all.percentile(50).ok_or_else(nothing)?, medians))
        }
        Stat::Mean => {
            let means = told.iter().filter_map(Ordered::mean).collect();
            Ok(over_waves(all.mean().ok_or_else(nothing)?, means))
        }
        Stat::Max => Ok(point(all.max().ok_or_else(nothing)?, told.len() as u64)),
        Stat::P90 | Stat::P95 | Stat::P99 => {
            let percent = stat.percent().unwrap_or(100);
            let counted = by_counts(&all, percent, alpha, told.len() as u64).ok_or_else(nothing)?;
            // Few waves can't carry a tail: the value is shown, and without an interval it never
            // proves a failure.
            let carried = told.len() >= WAVES_FOR_PERCENTILES;
            Ok(if carried { counted } else { Estimate { lower: None, upper: None, ..counted } })
        }
    }
}

/// Each repeat is one observation: one alone is judged by its value.
fn told(
    values: &BTreeMap<Stat, Vec<f64>>,
    stat: Option<Stat>,
    alpha: f64,
) -> Result<Estimate, NoData> {
    let stat = stat.unwrap_or(Stat::Mean);
    let values = values.get(&stat).filter(|values| !values.is_empty());
    let values = values.ok_or_else(|| NoData(format!("no {} was told", stat.name())))?;
    match values[..] {
        [value] => Ok(point(value, 1)),
        _ => samples(&Ordered::of(values), Stat::Mean, alpha, 1.0),
    }
}

/// The value of a metric alone, for tables.
pub fn value(observed: &Observations, stat: Option<Stat>) -> Option<f64> {
    let ordered = match observed {
        Observations::Batches { rate, .. } => return Some(*rate),
        Observations::Exact(value) | Observations::Point(value) => return Some(*value),
        Observations::Samples(values) => Ordered::of(values),
        Observations::Histogram(values) => Ordered::counted(values.clone()),
        Observations::Waves(waves) => Ordered::of(&waves.concat()),
        Observations::Told(values) => {
            return Ordered::of(values.get(&stat.unwrap_or(Stat::Mean))?).mean();
        }
    };
    match stat.unwrap_or(Stat::Mean) {
        Stat::Mean => ordered.mean(),
        Stat::Max => ordered.max(),
        stat @ (Stat::P50 | Stat::P90 | Stat::P95 | Stat::P99) => {
            stat.percent().and_then(|percent| ordered.percentile(percent))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::golden::{cases, numbers};
    use crate::judge::{Bound, BoundVerdict, Side, limit};

    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-8 * want.abs(), "{got} is not {want}");
    }

    #[test]
    fn batch_mean_intervals_are_those_of_forty_digits() {
        let mut verdicts = 0;
        for case in cases("batch_mean_intervals") {
            let number = |key: &str| case[key].as_f64().unwrap();
            let series = numbers(&case, "series");
            let size = case["bins_per_batch"].as_u64().unwrap() as usize;
            let dropped = case["dropped_from_front"].as_u64().unwrap() as usize;
            let means: Vec<f64> = series[dropped..]
                .chunks(size)
                .map(|bins| bins.iter().sum::<f64>() / size as f64)
                .collect();
            let rate = Ordered::of(&means).mean().unwrap();
            close(rate, number("mean"));
            let observed = Observations::Batches { rate, means, floor: 0.0 };
            let found = estimate(&observed, None, number("alpha_one_sided")).unwrap();
            // The golden half-widths carry an inflation for autocorrelation that is not built.
            let inflation = number("inflation");
            close((found.upper.unwrap() - rate) * inflation, number("half_width"));
            close((rate - found.lower.unwrap()) * inflation, number("half_width"));
            if inflation == 1.0 {
                let at = number("limit");
                let side = if case["better"] == "higher" { Side::Min } else { Side::Max };
                let proven = match limit::judge(&found, &Bound { side, target: at, limit: at }) {
                    BoundVerdict::Clear => "pass",
                    BoundVerdict::Fail => "fail",
                    BoundVerdict::Close | BoundVerdict::Inconclusive => "inconclusive",
                    BoundVerdict::NoData => "no data",
                };
                assert_eq!(proven, case["verdict"], "{at}");
                verdicts += 1;
            }
        }
        assert_eq!(verdicts, 3);
    }

    #[test]
    fn levels_of_one_extension_are_those_of_the_simulation() {
        for case in cases("extension_once") {
            let alpha = case["alpha_one_sided"].as_f64().unwrap();
            assert_eq!(Some(level(alpha, 10, false)), case["level_20_batches"].as_f64());
        }
        assert_eq!(level(0.05, 3, false), 0.0283);
        assert_eq!(level(0.05, 5, false), 0.0291);
        assert_eq!(level(0.05, 2, false), 0.025);
        assert_eq!(level(0.01, 3, false), 0.0053);
        assert_eq!(level(0.05, 1000, true), 0.025);
        assert_eq!(level(0.02, 10, false), 0.01);
    }

    #[test]
    fn both_looks_of_a_cell_have_the_same_level() {
        let batches =
            |n: usize| Observations::Batches { rate: 1.0, means: vec![1.0; n], floor: 0.1 };
        assert_eq!(levels(&batches(10), None, 0.05, false), 0.0298);
        assert_eq!(levels(&batches(20), None, 0.05, true), 0.0298);
        let samples = |n: usize| Observations::Samples(vec![1.0; n]);
        assert_eq!(levels(&samples(3), None, 0.05, false), 0.0283);
        assert_eq!(levels(&samples(6), None, 0.05, true), 0.0283);
        assert_eq!(levels(&samples(3), Some(Stat::P50), 0.05, false), 0.025);
        assert_eq!(levels(&Observations::Point(1.0), None, 0.05, false), 0.05);
    }

    #[test]
    fn batches_without_spread_keep_a_token_of_doubt() {
        let observed = Observations::Batches { rate: 4.0, means: vec![4.0; 10], floor: 0.3 };
        let found = estimate(&observed, None, 0.05).unwrap();
        close(found.upper.unwrap() - 4.0, 1.833_112_932_656_237_2 * 0.3 / 10f64.sqrt());
    }

    #[test]
    fn rates_of_samples_are_means() {
        let found = estimate(&Observations::Samples(vec![90.0, 100.0, 110.0]), None, 0.05).unwrap();
        assert_eq!((found.value, found.n, found.method), (100.0, 3, Method::StudentT));
        close(found.lower.unwrap(), 100.0 - 2.919_985_580_353_725_6 * 10.0 / 3f64.sqrt());
        let one = estimate(&Observations::Samples(vec![90.0]), None, 0.05).unwrap();
        assert_eq!((one.lower, one.upper), (None, None));
    }

    #[test]
    fn percentiles_have_bounds_that_are_samples() {
        // 1000 samples: 4 above prove p99 below, 16 above prove it above.
        let observed = Observations::Samples((1..=1000).map(f64::from).collect());
        let found = estimate(&observed, Some(Stat::P99), 0.05).unwrap();
        assert_eq!(found.value, 990.0);
        assert_eq!((found.lower, found.upper), (Some(985.0), Some(996.0)));
        assert_eq!(found.method, Method::Binomial);
    }

    #[test]
    fn a_histogram_is_judged_like_its_samples() {
        let plain = Observations::Samples((1..=1000).map(f64::from).collect());
        let counted = Observations::Histogram((1..=1000).map(|i| (f64::from(i), 1)).collect());
        for stat in Stat::ALL {
            let of = |observed| estimate(observed, Some(stat), 0.05).unwrap();
            assert_eq!(of(&plain), of(&counted));
        }
    }

    #[test]
    fn a_tail_that_the_samples_cannot_carry_has_no_upper_bound() {
        let observed = Observations::Samples((1..=298).map(f64::from).collect());
        let found = estimate(&observed, Some(Stat::P99), 0.05).unwrap();
        assert_eq!((found.value, found.upper), (296.0, None));
        assert!(found.lower.is_some());
    }

    #[test]
    fn shared_samples_widen_the_interval() {
        let observed = Observations::Samples((1..=1600).map(f64::from).collect());
        let alone = estimate(&observed, Some(Stat::P50), 0.05).unwrap();
        let shared = estimate_shared(&observed, Some(Stat::P50), 0.05, 16.0).unwrap();
        assert_eq!((alone.n, shared.n), (1600, 100));
        assert_eq!(alone.value, shared.value);
        assert!(shared.lower.unwrap() < alone.lower.unwrap() - 40.0);
        assert!(shared.upper.unwrap() > alone.upper.unwrap() + 40.0);
        // Of a hundred, 41 above prove the median below and 59 prove it above. Where a witness is
        // 10.01 samples, ranks are rounded outwards: 590.59 up, 410.41 down.
        let observed = Observations::Samples((1..=1001).map(f64::from).collect());
        let shared = estimate_shared(&observed, Some(Stat::P50), 0.05, 10.0).unwrap();
        assert_eq!((shared.lower, shared.upper), (Some(411.0), Some(591.0)));
    }

    #[test]
    fn a_tail_of_waves_has_an_interval_from_thirty_on() {
        let bounds = |n: u32| {
            let waves = (1..=n).map(|i| vec![f64::from(i)]).collect();
            let found = estimate(&Observations::Waves(waves), Some(Stat::P90), 0.05).unwrap();
            (found.lower, found.upper)
        };
        assert_eq!(bounds(29), (None, None));
        let (lower, upper) = bounds(30);
        assert!(lower.is_some() && upper == Some(30.0), "{lower:?} {upper:?}");
    }

    #[test]
    fn the_median_of_few_samples_has_an_interval_by_t() {
        let observed = Observations::Samples(vec![10.0, 11.0, 15.0]);
        let found = estimate(&observed, Some(Stat::P50), 0.05).unwrap();
        assert_eq!((found.value, found.method), (11.0, Method::StudentT));
        let half = 2.919_985_580_353_725_6 * 7f64.sqrt() / 3f64.sqrt();
        close(found.lower.unwrap(), 12.0 - half);
        close(found.upper.unwrap(), 12.0 + half);
    }

    #[test]
    fn a_wave_is_one_observation() {
        let observed =
            Observations::Waves(vec![vec![10.0, 12.0], vec![20.0, 22.0], vec![30.0, 32.0]]);
        let found = estimate(&observed, Some(Stat::P50), 0.05).unwrap();
        assert_eq!((found.value, found.n, found.method), (20.0, 3, Method::StudentT));
        close(found.upper.unwrap(), 21.0 + 2.919_985_580_353_725_6 * 10.0 / 3f64.sqrt());
        let mean = estimate(&observed, Some(Stat::Mean), 0.05).unwrap();
        assert_eq!(mean.value, 21.0);
        let max = estimate(&observed, Some(Stat::Max), 0.05).unwrap();
        assert_eq!((max.value, max.lower, max.method), (32.0, None, Method::Point));
        let tail = estimate(&observed, Some(Stat::P99), 0.05).unwrap();
        assert_eq!((tail.value, tail.lower, tail.upper), (32.0, None, None));
        assert_eq!(tail.method, Method::Binomial);
    }

    #[test]
    fn times_of_one_window_are_as_sure_as_its_rate() {
        // 128 streams in lockstep: their times per token do not differ, the batches do.
        let times = Observations::Samples(vec![10.0; 128]);
        let means: Vec<f64> = (0..10).map(|i| if i % 2 == 0 { 98.0 } else { 102.0 }).collect();
        let rates = Observations::Batches { rate: 100.0, means, floor: 0.1 };
        let rate = estimate(&rates, None, 0.05).unwrap();
        for stat in [Stat::P50, Stat::Mean] {
            let found = estimate_in_window(&times, Some(stat), &rates, 0.05).unwrap();
            assert_eq!((found.value, found.n, found.method), (10.0, 10, Method::BatchMeans));
            close(found.lower.unwrap(), 1000.0 / rate.upper.unwrap());
            close(found.upper.unwrap(), 1000.0 / rate.lower.unwrap());
        }
        let tail = estimate_in_window(&times, Some(Stat::P95), &rates, 0.05).unwrap();
        assert_eq!(tail.method, Method::Binomial);
        close(tail.upper.unwrap(), 1000.0 / rate.lower.unwrap());
        // Ten requests carry no 99th percentile, whatever the batches say.
        let few = Observations::Samples(vec![10.0; 10]);
        let tail = estimate_in_window(&few, Some(Stat::P99), &rates, 0.05).unwrap();
        assert_eq!(tail.upper, None);
        // A rate that may be nothing leaves the time without an end.
        let wild = Observations::Batches { rate: 1.0, means: vec![-9.0, 11.0], floor: 0.1 };
        assert_eq!(estimate_in_window(&times, None, &wild, 0.05).unwrap().upper, None);
    }

    #[test]
    fn no_observation_is_no_data() {
        assert!(estimate(&Observations::Samples(vec![]), None, 0.05).is_err());
        assert!(estimate(&Observations::Samples(vec![f64::NAN]), Some(Stat::P50), 0.05).is_err());
        assert!(estimate(&Observations::Waves(vec![vec![]]), Some(Stat::P50), 0.05).is_err());
        assert!(estimate(&Observations::Exact(f64::INFINITY), None, 0.05).is_err());
        let rate = f64::NAN;
        assert!(
            estimate(&Observations::Batches { rate, means: vec![], floor: 1.0 }, None, 0.05)
                .is_err()
        );
    }

    #[test]
    fn table_values_agree_with_estimates() {
        for observed in [
            Observations::Batches { rate: 5.0, means: vec![4.0, 6.0], floor: 1.0 },
            Observations::Samples(vec![3.0, 1.0, 2.0, 7.0]),
            Observations::Waves(vec![vec![1.0, 2.0], vec![5.0]]),
            Observations::Exact(3.0),
            Observations::Point(3.0),
        ] {
            for stat in Stat::ALL.map(Some).into_iter().chain([None]) {
                let judged = estimate(&observed, stat, 0.05).unwrap().value;
                assert_eq!(value(&observed, stat), Some(judged), "{stat:?} of {observed:?}");
            }
        }
    }
}
