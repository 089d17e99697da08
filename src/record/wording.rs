//! Wording: judged numbers as one line that people read, the same in every report.
//!
//! It formats what was decided and decides nothing.

use super::run_record::{BoundRecord, CompareRecord, QuarantineRecord, RelativeRecord};
use crate::judge::{Bound, BoundVerdict, Estimate, Method, Side, limit};
use crate::quantity::print_number;

/// One line on a judged bound:
/// `output-throughput 6 871 tok/s < 6 936.9 (−5.9 % of 7 302, in this launch, suite.toml:58)`.
///
/// `by_point`: policy let the estimate decide, which the line says.
pub fn bound(
    record: &BoundRecord,
    bound: &Bound,
    estimate: &Estimate,
    verdict: BoundVerdict,
    by_point: bool,
) -> String {
    let value = estimate.value;
    let beyond = limit::beyond(value, bound);
    let sign = match (bound.side, beyond) {
        (Side::Min, true) => "<",
        (Side::Min, false) => "≥",
        (Side::Max, true) => ">",
        (Side::Max, false) => "≤",
    };
    let (shown, limit) = apart(value, bound.limit);
    let mut notes = vec![change(value, bound.target)];
    match verdict {
        BoundVerdict::Clear if estimate.method != Method::Exact => notes.push("clear".to_owned()),
        BoundVerdict::Close if estimate.method != Method::Point => notes.push("close".to_owned()),
        BoundVerdict::Inconclusive => notes.push(doubt(estimate, bound)),
        BoundVerdict::Clear | BoundVerdict::Close | BoundVerdict::Fail | BoundVerdict::NoData => {}
    }
    if by_point {
        notes.push("by the point estimate".to_owned());
    } else if estimate.method == Method::Point {
        notes.push("point".to_owned());
    }
    match estimate.method {
        Method::Launches => notes.push(match (estimate.n, &record.noise) {
            (1, Some(noise)) => format!("1 launch, noise of {}", noise.file),
            (n, Some(noise)) => format!("{n} launches, noise of {}", noise.file),
            (n, None) => format!("{n} launches"),
        }),
        Method::BatchMeans
        | Method::StudentT
        | Method::Binomial
        | Method::Exact
        | Method::Point
        | Method::Baseline
        | Method::Paired => notes.push("in this launch".to_owned()),
    }
    notes.push(record.place.to_string());
    let unit = record.metric.base.entry().unit;
    let blank = if unit.is_empty() { "" } else { " " };
    format!("{} {shown}{blank}{unit} {sign} {limit} ({})", record.metric, notes.join(", "))
}

/// One line on a judged ratio:
/// `output-throughput 6 871 tok/s is 0.941 of the baseline's 7 302 [0.925, 0.957] < 0.97 (5 runs, …)`.
///
/// `figure` is what was measured; `compared` what became of it. The line says the
/// smallest loss that these runs let it see, so that a pass is not taken for more than it is.
pub fn ratio(
    record: &BoundRecord,
    relative: &RelativeRecord,
    figure: f64,
    bound: &Bound,
    compared: &Compared,
    verdict: BoundVerdict,
    by_point: bool,
) -> String {
    let Compared { ratio, whose, middle, by, sees, origin } = compared;
    let sign = match (bound.side, limit::beyond(ratio.value, bound)) {
        (Side::Min, true) => "<",
        (Side::Min, false) => "≥",
        (Side::Max, true) => ">",
        (Side::Max, false) => "≤",
    };
    let (value, limit) = shares(ratio.value, bound.limit);
    let interval = match (ratio.lower, ratio.upper) {
        (Some(lower), Some(upper)) => format!(" [{}, {}]", share(lower), share(upper)),
        (_, _) => String::new(),
    };
    let mut notes = vec![by.clone()];
    if let Some(noise) = &record.noise {
        notes.push(format!("noise of {}", noise.file));
    }
    match verdict {
        BoundVerdict::Clear => notes.push("clear".to_owned()),
        BoundVerdict::Close => notes.push("close".to_owned()),
        BoundVerdict::Inconclusive => notes.push("within their noise".to_owned()),
        BoundVerdict::Fail | BoundVerdict::NoData => {}
    }
    if by_point {
        notes.push("by the point estimate".to_owned());
    }
    if let Some(sees) = sees {
        notes.push(sight(bound.side, *sees));
    }
    let comparisons = relative.comparisons / if relative.halved { 2 } else { 1 };
    if comparisons > 1 {
        notes.push(format!("one of {comparisons} comparisons"));
    }
    notes.extend(origin.clone());
    notes.push(record.place.to_string());
    let unit = record.metric.base.entry().unit;
    let blank = if unit.is_empty() { "" } else { " " };
    let middle = middle.map_or_else(String::new, number);
    format!(
        "{} {}{blank}{unit} is {value} of {whose}'s {middle}{interval} {sign} {limit} ({})",
        record.metric,
        number(figure),
        notes.join(", ")
    )
}

/// A ratio to what a cell is held against, with what is to be said of it.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The ratio with its interval.
    pub ratio: Estimate,
    /// Whose figure it is held against: `the baseline`, or a variant's name.
    pub whose: String,
    /// That figure.
    pub middle: Option<f64>,
    /// What tells its noise: `5 runs`, `4 pairs`.
    pub by: String,
    /// The smallest loss, as a fraction, that would have failed 19 times out of 20.
    pub sees: Option<f64>,
    /// Where the figure comes from, if not from this run.
    pub origin: Option<String>,
}

/// One line on the mean ratio of all cells:
/// `mean ratio 0.981 of old over 36 cells [0.974, 0.988] < 0.99 (8 pairs, sees losses from 1.4 %, …)`;
/// `chosen`: some cells of the suite were selected.
pub fn mean_ratio(
    compare: &CompareRecord,
    (cells, chosen): (usize, bool),
    ratio: &Estimate,
    bound: &Bound,
    verdict: BoundVerdict,
    sees: f64,
) -> String {
    let (value, limit) = shares(ratio.value, bound.limit);
    let interval = match (ratio.lower, ratio.upper) {
        (Some(lower), Some(upper)) => format!(" [{}, {}]", share(lower), share(upper)),
        (_, _) => String::new(),
    };
    let sign = if limit::beyond(ratio.value, bound) { "<" } else { "≥" };
    let limit = match compare.min_mean_ratio {
        Some(_) => format!(" {sign} {limit}"),
        None => String::new(),
    };
    let mut notes = vec![format!("{} pairs", compare.pairs)];
    match verdict {
        BoundVerdict::Clear if compare.min_mean_ratio.is_some() => notes.push("clear".to_owned()),
        BoundVerdict::Close if compare.min_mean_ratio.is_some() => notes.push("close".to_owned()),
        BoundVerdict::Inconclusive => notes.push("within their noise".to_owned()),
        BoundVerdict::Clear | BoundVerdict::Close | BoundVerdict::Fail | BoundVerdict::NoData => {}
    }
    notes.push(sight(Side::Min, sees));
    notes.push(compare.place.to_string());
    // Of a run of some cells it is not the mean that the whole suite has.
    let selected = if chosen { "selected " } else { "" };
    let cells = format!("{cells} {selected}cell{}", if cells == 1 { "" } else { "s" });
    format!(
        "mean ratio {value} of {} over {cells}{interval}{limit} ({})",
        compare.baseline,
        notes.join(", ")
    )
}

/// What recorded runs and launches tell the noise: `5 runs`, `5 runs, 3 launches`.
pub fn runs(recorded: usize, launches: usize) -> String {
    match launches {
        1 => format!("{recorded} runs"),
        launches => format!("{recorded} runs, {launches} launches"),
    }
}

/// `4 launches against 4`.
pub fn launches_against(own: usize, theirs: usize) -> String {
    let launches = if own == 1 { "launch" } else { "launches" };
    format!("{own} {launches} against {theirs}")
}

/// What a comparison can see: `sees losses from 4.1 %`, of what is better when less
/// `sees rises from 4.3 %`.
fn sight(side: Side, loss: f64) -> String {
    match (side, seen(side, loss)) {
        (Side::Min, Some(least)) => format!("sees losses from {least}"),
        (Side::Max, Some(least)) => format!("sees rises from {least}"),
        (Side::Min | Side::Max, None) => "sees next to nothing".to_owned(),
    }
}

/// The smallest loss that a comparison sees, of what is better when less the smallest rise: `4.1 %`. None
/// where it sees next to nothing.
pub fn seen(side: Side, loss: f64) -> Option<String> {
    let percent = |share: f64| format!("{} %", print_number(share * 100.0, 1));
    match side {
        Side::Min if loss < 0.9995 => Some(percent(loss)),
        Side::Max if loss < 0.9995 => Some(percent(1.0 / (1.0 - loss) - 1.0)),
        Side::Min | Side::Max => None,
    }
}

/// A ratio with three digits behind the point.
pub fn share(value: f64) -> String {
    format!("{value:.3}")
}

/// A ratio with as many digits as it takes to tell it from its limit.
pub fn shares(value: f64, limit: f64) -> (String, String) {
    let of_limit = print_number(limit, 6);
    let digits = (3..9).find(|digits| {
        let rounded: f64 = format!("{value:.*}", *digits).parse().unwrap_or(value);
        value == limit || (rounded - limit).abs() > 1e-12
    });
    (format!("{value:.*}", digits.unwrap_or(3)), of_limit)
}

/// Why a value beyond its limit proves nothing.
fn doubt(estimate: &Estimate, bound: &Bound) -> String {
    let best = match bound.side {
        Side::Min => estimate.upper,
        Side::Max => estimate.lower,
    };
    match best {
        Some(best) => format!("noise reaches {}", number(best)),
        None => format!("too few observations ({}) for an interval", estimate.n),
    }
}

/// One line on a bound that there is nothing to judge by.
pub fn no_data(record: &BoundRecord, bound: &Bound, why: &str) -> String {
    let sign = match bound.side {
        Side::Min => "≥",
        Side::Max => "≤",
    };
    let limit = match &record.relative {
        Some(relative) => {
            let whose = relative.variant.as_ref().map_or("the baseline", |it| it.name.as_str());
            format!("{} of {whose}", print_number(bound.limit, 6))
        }
        None => number(bound.limit),
    };
    format!("{} {sign} {limit}: {why} ({})", record.metric, record.place)
}

/// One line for several: `2 of 3 limits: …`, or the one alone.
pub fn several(broken: &[String], limits: usize) -> String {
    match broken {
        [one] => one.clone(),
        _ => format!("{} of {limits} limits: {}", broken.len(), broken.join("; ")),
    }
}

/// Why a cell is in quarantine.
pub fn quarantine(record: &QuarantineRecord) -> String {
    let issue = record.issue.as_ref().map(|issue| format!(", {issue}")).unwrap_or_default();
    format!("quarantined until {}: {}{issue}", record.expires, record.reason)
}

/// `hardware was suspect: GPU 3 throttled by heat in 62 % of the time`.
pub fn suspect(what: &str) -> String {
    format!("hardware was suspect: {what}")
}

/// As [`suspect`], of a comparison with the sides that had it alone:
/// `hardware was suspect of new alone in pair 2 of 4: GPU 3 throttled by heat in 62 % of the time`.
pub fn suspect_of(own: Option<&str>, sides: &[String]) -> String {
    let own = own.map(suspect);
    let sides = sides.iter().map(|side| format!("hardware was suspect of {side}"));
    own.into_iter().chain(sides).collect::<Vec<_>>().join("; ")
}

/// A cell that hardware spoilt, with what it would have come to.
pub fn spoilt(said: &str, otherwise: Option<&str>) -> String {
    let otherwise = otherwise.map(|otherwise| format!("; {otherwise}")).unwrap_or_default();
    format!("{said} (an error by policy.hardware-fault){otherwise}")
}

/// `in pair 2 of 4`; of several what the words behind it are about: `in pairs 2, 3 and 4 of 4, first`.
pub fn of_several(what: &str, at: &[usize], of: usize) -> String {
    match at {
        [one] => format!("in {what} {} of {of}", one + 1),
        at => {
            let plural = if what.ends_with("ch") { "es" } else { "s" };
            let all: Vec<String> = at.iter().map(|at| (at + 1).to_string()).collect();
            let (last, before) = all.split_last().map_or(("", &[][..]), |(l, b)| (l.as_str(), b));
            format!("in {what}{plural} {} and {last} of {of}, first", before.join(", "))
        }
    }
}

/// Change against the target: `−5.9 % of 7 302`, `+0.3 over 0`.
fn change(value: f64, target: f64) -> String {
    let (change, unit, of) = if target == 0.0 {
        (value, "", "over")
    } else {
        ((value - target) / target.abs() * 100.0, " %", "of")
    };
    // As many digits as it takes to see that there is a change.
    let digits = (1..=3).find(|d| change.abs() >= 0.5 * 0.1f64.powi(*d)).unwrap_or(1);
    let size = print_number(change.abs(), digits as usize);
    let sign = match (size.as_str(), change < 0.0) {
        ("0", _) => "±",
        (_, true) => "−",
        (_, false) => "+",
    };
    format!("{sign}{size}{unit} {of} {}", number(target))
}

/// A number with the digits that its size deserves.
pub fn number(value: f64) -> String {
    signed(value, digits(value))
}

fn digits(value: f64) -> usize {
    match value.abs() {
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 4,
    }
}

/// Two numbers with digits enough to tell them apart, where they differ.
pub fn apart(a: f64, b: f64) -> (String, String) {
    let at = |more: usize| (signed(a, digits(a) + more), signed(b, digits(b) + more));
    (0..9).map(at).find(|(a_text, b_text)| a_text != b_text || a == b).unwrap_or_else(|| at(0))
}

fn signed(value: f64, digits: usize) -> String {
    let size = print_number(value.abs(), digits);
    if value < 0.0 && size != "0" { format!("−{size}") } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Severity;
    use crate::suite::model::Place;

    fn line(metric: &str, value: f64, half: Option<f64>, target: f64, limit: f64) -> String {
        let metric: crate::measure::Metric = metric.parse().unwrap();
        let side = match metric.base.entry().better {
            crate::measure::Direction::Higher => Side::Min,
            crate::measure::Direction::Lower => Side::Max,
        };
        let limits = Bound { side, target, limit };
        let record = BoundRecord {
            noise: None,
            name: None,
            metric,
            bound: Some(limits),
            relative: None,
            slack: 0.05,
            severity: Severity::Fail,
            place: Place { file: "suite.toml".into(), line: 58 },
        };
        let estimate = Estimate {
            value,
            lower: half.map(|half| value - half),
            upper: half.map(|half| value + half),
            n: 10,
            method: if half.is_some() { Method::BatchMeans } else { Method::Point },
        };
        bound(&record, &limits, &estimate, limit::judge(&estimate, &limits), false)
    }

    #[test]
    fn the_line_says_value_limit_margin_and_place() {
        assert_eq!(
            line("output-throughput", 6871.0, Some(20.0), 7302.0, 6936.9),
            "output-throughput 6 871 tok/s < 6 936.9 (−5.9 % of 7 302, in this launch, suite.toml:58)"
        );
        assert_eq!(
            line("ttft.p50", 412.3, Some(3.0), 350.0, 350.0),
            "ttft.p50 412.3 ms > 350 (+17.8 % of 350, in this launch, suite.toml:58)"
        );
    }

    #[test]
    fn the_line_says_how_sure_it_is() {
        assert_eq!(
            line("output-throughput", 6871.0, Some(500.0), 7302.0, 6936.9),
            "output-throughput 6 871 tok/s < 6 936.9 (−5.9 % of 7 302, noise reaches 7 371, \
             in this launch, suite.toml:58)"
        );
        assert_eq!(
            line("output-throughput", 7302.0, Some(1.0), 7302.0, 6936.9),
            "output-throughput 7 302 tok/s ≥ 6 936.9 (±0 % of 7 302, clear, in this launch, suite.toml:58)"
        );
        assert_eq!(
            line("ready-time", 65.4, None, 60.0, 60.0),
            "ready-time 65.4 s > 60 (+9 % of 60, point, in this launch, suite.toml:58)"
        );
    }

    fn ratio_line(metric: &str, figure: f64, ratios: [f64; 3], limit: f64) -> String {
        let metric: crate::measure::Metric = metric.parse().unwrap();
        let side = if limit > 1.0 { Side::Max } else { Side::Min };
        let relative = RelativeRecord {
            variant: None,
            file: "baselines/h200.jsonl".into(),
            git: None,
            runs: vec![7302.0, 7302.0, 7302.0],
            comparisons: 36,
            halved: false,
            recorded: false,
            sees: Some(0.0412),
        };
        let limits = Bound { side, target: 1.0, limit };
        let record = BoundRecord {
            noise: None,
            name: None,
            metric,
            bound: Some(limits),
            relative: Some(relative.clone()),
            slack: 0.0,
            severity: Severity::Fail,
            place: Place { file: "suite.toml".into(), line: 58 },
        };
        let [lower, value, upper] = ratios;
        let estimate = Estimate {
            value,
            lower: Some(lower),
            upper: Some(upper),
            n: 1,
            method: Method::Baseline,
        };
        let verdict = limit::judge(&estimate, &limits);
        let compared = super::Compared {
            ratio: estimate,
            whose: "the baseline".to_owned(),
            middle: crate::record::baseline::middle(&relative.runs),
            by: super::runs(relative.runs.len(), 1),
            sees: relative.sees,
            origin: Some(relative.file.clone()),
        };
        super::ratio(&record, &relative, figure, &limits, &compared, verdict, false)
    }

    #[test]
    fn a_ratio_says_what_it_is_of_and_what_it_could_see() {
        assert_eq!(
            ratio_line("output-throughput", 6871.0, [0.925, 0.941, 0.957], 0.97),
            "output-throughput 6 871 tok/s is 0.941 of the baseline's 7 302 [0.925, 0.957] < 0.97 \
             (3 runs, sees losses from 4.1 %, one of 36 comparisons, baselines/h200.jsonl, suite.toml:58)"
        );
        assert_eq!(
            ratio_line("ttft.p50", 7600.0, [0.99, 1.0408, 1.09], 1.03),
            "ttft.p50 7 600 ms is 1.041 of the baseline's 7 302 [0.990, 1.090] > 1.03 \
             (3 runs, within their noise, sees rises from 4.3 %, one of 36 comparisons, \
             baselines/h200.jsonl, suite.toml:58)"
        );
        let apart = ratio_line("output-throughput", 7082.0, [0.96, 0.96997, 0.98], 0.97);
        assert!(apart.contains("is 0.96997 of") && apart.contains("< 0.97 "), "{apart}");
        let pass = ratio_line("output-throughput", 7302.0, [0.98, 1.0, 1.02], 0.97);
        assert!(pass.contains("≥ 0.97 (3 runs, clear, sees"), "{pass}");
    }

    #[test]
    fn numbers_that_differ_print_apart() {
        assert_eq!(
            line("output-throughput", 6936.89, Some(0.001), 6936.9, 6936.9),
            "output-throughput 6 936.89 tok/s < 6 936.9 (±0 % of 6 936.9, in this launch, suite.toml:58)"
        );
    }

    #[test]
    fn several_broken_limits_are_counted() {
        let broken = ["a".to_owned(), "b".to_owned()];
        assert_eq!(several(&broken, 3), "2 of 3 limits: a; b");
        assert_eq!(several(&broken[..1], 3), "a");
    }
}
