//! A calibration rendered: the noise of each cell, which limits fail although nothing changed, and what
//! each limit can see.
//!
//! What it comes to is found by `record::calibration`; here are the words.

use std::fmt::Write as _;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::count::plural;
use super::sanitise::line;
use crate::judge::Side;
use crate::measure::quantile::median;
use crate::quantity::print_number;
use crate::record::baseline::Key;
use crate::record::calibration::{Calibration, Gate, Judged, MOST_LAG};
use crate::record::wording::number;

/// Lines of a list of what is odd.
const MOST_TOLD: usize = 40;

/// Two tables, of noise and of limits, and below them what is odd.
pub fn text(calibration: &Calibration) -> String {
    let mut out = String::new();
    let spread = |value: Option<f64>| value.map_or("–".to_owned(), percent);
    let mut rows =
        vec![["value", "n", "median", "sd", "within", "between", "lag"].map(str::to_owned)];
    rows.extend(calibration.lines.iter().map(|it| {
        [
            line(&it.key().to_string()),
            it.values.len().to_string(),
            format!("{} {}", number(median(&it.values).unwrap_or_default()), it.unit)
                .trim_end()
                .to_owned(),
            percent(it.sd),
            spread(it.within),
            spread(it.between),
            it.lag.map_or("–".to_owned(), |lag| decimal(lag, 2)),
        ]
    }));
    out.push_str(
        "Noise of one launch: sd over fresh launches, of it within a launch and between launches\n\n",
    );
    table(&mut out, &rows);
    if !calibration.gates.is_empty() {
        let mut rows =
            vec![["limit", "judges", "false alarms", "sees by this noise"].map(str::to_owned)];
        rows.extend(
            calibration
                .gates
                .iter()
                .map(|gate| [name(gate), judged(gate.judged), alarms(gate), sees(gate)]),
        );
        out.push_str("\nLimits: false alarms of unchanged launches, and the smallest loss that fails 19 times out of 20\n\n");
        table(&mut out, &rows);
    }
    let odd = odd(calibration);
    if !odd.is_empty() {
        out.push('\n');
        odd.iter().take(MOST_TOLD).for_each(|words| out.push_str(&format!("{words}\n")));
        if odd.len() > MOST_TOLD {
            let _ = writeln!(out, "and {} more", odd.len() - MOST_TOLD);
        }
    }
    out
}

/// What deserves a word: limits that fail although nothing changed, batches that are too short, cells that
/// tell nothing.
pub fn odd(calibration: &Calibration) -> Vec<String> {
    let mut found = Vec::new();
    for gate in calibration.gates.iter().filter(|gate| gate.failed > 0) {
        let what = match gate.judged {
            Judged::Launches(_) => "unchanged launches",
            Judged::Against(_) => "unchanged launches held against the others",
            Judged::Pairs(_) => "comparisons of unchanged launches",
        };
        let one = format!("{} fails in {} of {} {what}", name(gate), gate.failed, gate.tried);
        found.push(if gate.sees == Some(0.0) {
            format!("{one}: it lies beyond what is measured, and fails as things are")
        } else {
            format!("{one}: it is a flaky gate; give it room, or more launches")
        });
    }
    for it in calibration.lines.iter().filter(|it| it.lag.is_some_and(|lag| lag > MOST_LAG)) {
        found.push(format!(
            "{}: successive batches are correlated by {} (more than {MOST_LAG}): they are too short, so that one launch alone is surer of itself than it should be; lengthen its `duration`",
            line(&it.key().to_string()),
            decimal(it.lag.unwrap_or(0.0), 2),
        ));
    }
    found.extend(calibration.uncounted.iter().map(|it| format!("not calibrated: {}", line(it))));
    found
}

/// The same for programs.
pub fn json(calibration: &Calibration) -> String {
    let noise: Vec<Value> =
        calibration.lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect();
    let gates: Vec<Value> = calibration
        .gates
        .iter()
        .map(|gate| {
            let (judges, of) = match gate.judged {
                Judged::Launches(n) => ("launches", n),
                Judged::Against(n) => ("launches-against", n),
                Judged::Pairs(n) => ("pairs", n),
            };
            json!({
                "test": gate.key.test,
                "variant": gate.key.variant,
                "cell": gate.key.cell,
                "metric": gate.key.metric,
                "bound": gate.bound.bound,
                "relative": gate.bound.relative.is_some(),
                "file": gate.bound.place.file,
                "line": gate.bound.place.line,
                "judges": judges,
                "of": of,
                "tried": gate.tried,
                "failed": gate.failed,
                "inconclusive": gate.doubtful,
                "sees": gate.sees,
            })
        })
        .collect();
    let value = json!({
        "run": calibration.run.id,
        "noise": noise,
        "limits": gates,
        "uncounted": calibration.uncounted,
    });
    let mut text = serde_json::to_string_pretty(&value).unwrap_or_default();
    text.push('\n');
    text
}

/// The calibration in one sentence.
pub fn sentence(calibration: &Calibration) -> String {
    let flaky = calibration.gates.iter().filter(|gate| gate.failed > 0).count();
    let cells: std::collections::BTreeSet<Key> =
        calibration.lines.iter().map(|line| Key { metric: String::new(), ..line.key() }).collect();
    let worst = calibration.lines.iter().max_by(|a, b| a.sd.total_cmp(&b.sd));
    let worst = worst.map_or_else(String::new, |it| {
        format!("; the noisiest is {} with {}", line(&it.key().to_string()), percent(it.sd))
    });
    let gates = match (calibration.gates.len(), flaky) {
        (0, _) => String::new(),
        (_, 0) => "; no limit failed".to_owned(),
        (_, flaky) => format!("; {} failed although nothing changed", plural(flaky, "limit")),
    };
    format!("{} calibrated{worst}{gates}", plural(cells.len(), "cell"))
}

/// `decode context=8K output-throughput ≥ 6 936.9 (suite.toml:58)`.
fn name(gate: &Gate) -> String {
    let bound = gate.bound.bound.as_ref();
    let asked = bound.map_or_else(String::new, |bound| {
        let sign = match bound.side {
            Side::Min => "≥",
            Side::Max => "≤",
        };
        let of = gate.bound.relative.as_ref().map(|relative| match &relative.variant {
            Some(variant) => format!(" of {}", variant.name),
            None => " of the baseline".to_owned(),
        });
        let limit = match of {
            Some(_) => print_number(bound.limit, 6),
            None => number(bound.limit),
        };
        format!(" {sign} {limit}{}", of.unwrap_or_default())
    });
    line(&format!("{}{asked} ({})", gate.key, gate.bound.place))
}

fn judged(judged: Judged) -> String {
    match judged {
        Judged::Launches(n) => plural(n as usize, "launch"),
        Judged::Against(n) => format!("{} against others", plural(n as usize, "launch")),
        Judged::Pairs(n) => plural(n as usize, "pair"),
    }
}

fn alarms(gate: &Gate) -> String {
    match (gate.tried, gate.doubtful) {
        (0, _) => "–".to_owned(),
        (tried, 0) => format!("{} of {tried}", gate.failed),
        (tried, doubtful) => format!("{} of {tried} ({doubtful} in doubt)", gate.failed),
    }
}

fn sees(gate: &Gate) -> String {
    let side = gate.bound.bound.as_ref().map(|bound| bound.side);
    match (gate.sees, side) {
        (None, _) | (_, None) => "–".to_owned(),
        (Some(0.0), _) => "fails as things are".to_owned(),
        (Some(loss), _) if loss >= 0.9995 => "next to nothing".to_owned(),
        (Some(loss), Some(Side::Min)) => format!("losses from {}", percent(loss)),
        (Some(loss), Some(Side::Max)) => {
            format!("rises from {}", percent(1.0 / (1.0 - loss) - 1.0))
        }
    }
}

/// A share with as many digits as tell it from 0.
fn percent(share: f64) -> String {
    let digits = match share.abs() {
        size if size < 0.001 => 3,
        size if size < 0.1 => 2,
        size if size < 1.0 => 1,
        _ => 0,
    };
    format!("{} %", print_number(share * 100.0, digits))
}

fn decimal(value: f64, digits: usize) -> String {
    let size = print_number(value.abs(), digits);
    if value < 0.0 && size != "0" { format!("−{size}") } else { size }
}

/// Columns side by side: the first to the left, the others to the right.
fn table<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let widths: Vec<usize> =
        (0..N).map(|at| rows.iter().map(|row| row[at].width()).max().unwrap_or(0)).collect();
    for row in rows {
        let mut text = String::new();
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at] - cell.width());
            match at {
                0 => text.push_str(&format!("{cell}{pad}")),
                _ => text.push_str(&format!("  {pad}{cell}")),
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests;
