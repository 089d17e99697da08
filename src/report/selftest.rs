//! The self-test of a gate, rendered: which limits notice which loss, and which can't fail.
//!
//! What is noticed is found by `record::sensitivity`; here are the words.

use std::fmt::Write as _;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::message;
use super::sanitise::line;
use crate::judge::{Bound, Side};
use crate::record::RunRecord;
use crate::record::run_record::CellState;
use crate::record::sensitivity::{Blindness, Limit, MeanLimit, Notice, Sight, Watched};
use crate::record::wording::number;

/// The limits that should fail at some loss and would not.
pub fn unable(limits: &[Limit]) -> Vec<&Limit> {
    limits.iter().filter(|limit| !limit.notices() && !limit.is_excused()).collect()
}

/// The table and, below it, each limit that can't fail with the reason. `losses` are fractions, those
/// that `limits` were asked about.
pub fn text(
    record: &RunRecord,
    limits: &[Limit],
    mean: Option<&MeanLimit>,
    losses: &[f64],
) -> String {
    let mut out = String::new();
    let asked: Vec<String> = losses.iter().map(|loss| percent(*loss)).collect();
    let _ = writeln!(
        out,
        "In how many of their cells limits would fail, were the metric worse by {}:\n",
        asked.join(", ")
    );
    let names: Vec<String> = limits.iter().map(name).collect();
    let of_mean = mean.map(mean_name);
    let width =
        names.iter().chain(&of_mean).map(|name| name.width()).max().unwrap_or(0).max("limit".len());
    let _ = write!(out, "limit{}  cells", " ".repeat(width - "limit".len()));
    asked.iter().for_each(|loss| out.push_str(&format!("{loss:>8}")));
    out.push('\n');
    for (limit, name) in limits.iter().zip(&names) {
        let pad = " ".repeat(width - name.width());
        let _ = write!(out, "{name}{pad}  {:>5}", limit.cells.len());
        (0..losses.len()).for_each(|loss| out.push_str(&format!("{:>8}", limit.failing(loss))));
        if limit.is_excused() {
            out.push_str("  quarantined");
        } else if !limit.notices() {
            out.push_str("  can't fail");
        }
        out.push('\n');
    }
    if let (Some(limit), Some(name)) = (mean, &of_mean) {
        let pad = " ".repeat(width - name.width());
        let _ = write!(out, "{name}{pad}  {:>5}", 1);
        for notice in says(&limit.sight) {
            let _ = write!(out, "{:>8}", usize::from(notice == "fails"));
        }
        out.push_str(if limit.notices() { "\n" } else { "  can't fail\n" });
    }
    let unable = unable(limits);
    let mean = mean.filter(|limit| !limit.notices());
    if !unable.is_empty() || mean.is_some() {
        let most = losses.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(out, "\nLimits that would not notice a loss of {}:", percent(most));
        for limit in unable {
            let _ = writeln!(out, "  {}\n    {}", name(limit), why(record, limit));
        }
        if let Some(limit) = mean {
            let why = match &limit.sight {
                Sight::Open { from: Some(from), .. } => {
                    format!("{}: fails from {} on", mean_standing(limit), percent(*from))
                }
                Sight::Open { from: None, .. } => {
                    format!("{}: fails at no loss", mean_standing(limit))
                }
                Sight::Blind(why) => blind(why),
            };
            let _ = writeln!(out, "  {}\n    {why}", mean_name(limit));
        }
    }
    out
}

/// What was found in one sentence, the last thing said.
pub fn sentence(
    record: &RunRecord,
    limits: &[Limit],
    mean: Option<&MeanLimit>,
    losses: &[f64],
) -> String {
    let most = percent(losses.iter().copied().fold(0.0, f64::max));
    let not_run = record.cells.iter().filter(|c| matches!(c.state, CellState::NotRun { .. }));
    let not_run = match not_run.count() {
        0 => String::new(),
        1 => " (1 cell has not run)".to_owned(),
        count => format!(" ({count} cells have not run)"),
    };
    let blind = unable(limits).len() + usize::from(mean.is_some_and(|it| !it.notices()));
    match (limits.len() + usize::from(mean.is_some()), blind) {
        (0, _) => format!("no cell has a limit that can fail it{not_run}"),
        (1, 0) => format!("the one limit notices a loss of {most}{not_run}"),
        (all, 0) => format!("each of {all} limits notices a loss of {most}{not_run}"),
        (all, some) => {
            format!("{some} of {all} limits can't fail at a loss of {most}{not_run}")
        }
    }
}

/// The same for programs.
pub fn json(
    record: &RunRecord,
    limits: &[Limit],
    mean: Option<&MeanLimit>,
    losses: &[f64],
) -> String {
    let limits: Vec<Value> = limits.iter().map(|limit| of_limit(record, limit, losses)).collect();
    let whole = json!({
        "suite": record.header.suite,
        "run-id": record.header.run_id,
        "losses": losses,
        "limits": limits,
        "mean-ratio": mean.map(of_mean),
    });
    format!("{whole:#}\n")
}

fn of_limit(record: &RunRecord, limit: &Limit, losses: &[f64]) -> Value {
    let cells = limit.cells.iter().map(|watched| {
        let planned = &record.header.cells[watched.cell];
        match &watched.sight {
            Sight::Open { from, .. } => json!({
                "test": planned.test, "id": planned.id, "variant": planned.variant,
                "says": says(&watched.sight), "fails-from": from,
            }),
            Sight::Blind(why) => json!({
                "test": planned.test, "id": planned.id, "variant": planned.variant,
                "blind": blind(why),
            }),
        }
    });
    json!({
        "file": limit.place.file,
        "line": limit.place.line,
        "name": limit.name,
        "metric": limit.metric.to_string(),
        "can-fail": limit.notices(),
        "quarantined": limit.is_excused(),
        "failing-cells": (0..losses.len()).map(|loss| limit.failing(loss)).collect::<Vec<_>>(),
        "cells": cells.collect::<Vec<_>>(),
    })
}

fn of_mean(limit: &MeanLimit) -> Value {
    let mut told = json!({
        "file": limit.place.file,
        "line": limit.place.line,
        "can-fail": limit.notices(),
    });
    match &limit.sight {
        Sight::Open { from, .. } => {
            told["says"] = says(&limit.sight).into();
            told["fails-from"] = json!(from);
        }
        Sight::Blind(why) => told["blind"] = blind(why).into(),
    }
    told
}

fn says(sight: &Sight) -> Vec<&'static str> {
    let word = |notice: &Notice| match notice {
        Notice::Fails => "fails",
        Notice::Doubts => "doubts",
        Notice::Holds => "holds",
    };
    match sight {
        Sight::Open { notices, .. } => notices.iter().map(word).collect(),
        Sight::Blind(_) => Vec::new(),
    }
}

/// `suite.toml:33 mean ratio`.
pub(super) fn mean_name(limit: &MeanLimit) -> String {
    line(&format!("{} mean ratio", limit.place))
}

/// What the mean ratio is, and what is asked.
pub(super) fn mean_standing(limit: &MeanLimit) -> String {
    let value = limit.value.map_or("?".to_owned(), number);
    format!("the mean ratio is {value} where at least {} is asked", number(limit.limit))
}

/// `suite.toml:58 floors output-throughput`.
pub(super) fn name(limit: &Limit) -> String {
    let named = limit.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    line(&format!("{}{named} {}", limit.place, limit.metric))
}

/// Why a limit notices nothing, in the words that help to mend it.
fn why(record: &RunRecord, limit: &Limit) -> String {
    if let Some((watched, from)) = limit.nearest() {
        let told = standing(record, watched);
        let rest = match limit.cells.len() {
            1 => String::new(),
            cells => format!("; the nearest of {cells} cells"),
        };
        return format!("{told}: fails from {} on{rest}", percent(from));
    }
    let open = limit.cells.iter().find(|watched| matches!(watched.sight, Sight::Open { .. }));
    if let Some(watched) = open {
        return format!(
            "{}: fails at no loss, its noise is too great or its samples are too few",
            standing(record, watched)
        );
    }
    reasons(limit)
}

/// Why a limit sees nothing, by how many cells.
pub(super) fn reasons(limit: &Limit) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for watched in &limit.cells {
        if let Sight::Blind(why) = &watched.sight {
            let why = blind(why);
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, count)) => *count += 1,
                None => reasons.push((why, 1)),
            }
        }
    }
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told = reasons.iter().take(3).map(|(why, count)| match count {
        1 => format!("1 cell: {why}"),
        count => format!("{count} cells: {why}"),
    });
    let more = reasons.len().saturating_sub(3);
    let rest = if more > 0 { format!("; {more} more reasons") } else { String::new() };
    format!("{}{rest}", told.collect::<Vec<_>>().join("; "))
}

/// `decode context=8K: 135 tok/s, limit 1`.
pub(super) fn standing(record: &RunRecord, watched: &Watched) -> String {
    let planned = &record.header.cells[watched.cell];
    let judged = record.cells[watched.cell].judgement.bounds.get(watched.bound);
    let value = judged.and_then(|judged| judged.estimate).map(|estimate| estimate.value);
    let rule = &planned.bounds[watched.bound];
    let limit = rule.bound.as_ref().map(|Bound { side, limit, .. }| {
        let sign = match side {
            Side::Min => "at least",
            Side::Max => "at most",
        };
        format!("{sign} {}", number(*limit))
    });
    let value = value.map_or("?".to_owned(), number);
    // Of a ratio the value is a share, which has no unit.
    let has = match &rule.relative {
        Some(relative) => match &relative.variant {
            Some(variant) => format!("is {value} of {}'s", variant.name),
            None => format!("is {value} of the baseline's"),
        },
        None => {
            let unit = rule.metric.base.entry().unit;
            let blank = if unit.is_empty() { "" } else { " " };
            format!("has {value}{blank}{unit}")
        }
    };
    format!("{} {has} where {} is asked", message::name(planned), limit.unwrap_or_default())
}

pub(super) fn blind(why: &Blindness) -> String {
    match why {
        Blindness::Unmeasured(words) if words.is_empty() => "no figures".to_owned(),
        Blindness::Unmeasured(words) => message::one_line(words),
        Blindness::Unobserved(words) => format!("not observed: {}", message::one_line(words)),
        Blindness::Invalid(words) => {
            format!("the measurement is invalid: {}", message::one_line(words))
        }
        Blindness::Exempt => "expected to be over capacity".to_owned(),
        Blindness::Quarantined => "quarantined".to_owned(),
        Blindness::NotSlowed(words) => words.clone(),
    }
}

/// `5 %`, `0.5 %`, `1 330 %`.
fn percent(fraction: f64) -> String {
    format!("{} %", number((fraction * 1e5).round() / 1e3).trim_end_matches(".0"))
}
