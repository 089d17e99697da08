//! What a suite can see and what it takes to see more, rendered: a table and what to write.
//!
//! What is seen is found by `record::prospect`; here are the words, and which limits are told together.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::count::plural;
use super::sanitise::line;
use crate::judge::Side;
use crate::matrix::Plan;
use crate::matrix::effort::Effort;
use crate::quantity::print_number;
use crate::record::prospect::{Asked, MOST, MeanProspect, Need, Prospect, Teller, View, Way};

/// Rows of a table that are printed; JSON has all.
const ROWS: usize = 40;

/// What is told.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What was asked.
    pub asked: Asked,
    /// Each limit that can fail a cell.
    pub limits: &'a [Prospect],
    /// The mean ratio.
    pub mean: Option<&'a MeanProspect>,
    /// Who told the noise, in words.
    pub noise: &'a str,
    /// Who tells it when the run is judged: a file, if any.
    pub judged: Option<&'a str>,
}

/// What it takes, and what to write for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// `pairs` of `[compare]`.
    pub pairs: Option<u64>,
    /// `launches` of tests, by their index.
    pub launches: BTreeMap<u32, u64>,
    /// What all of that takes.
    pub effort: Effort,
    /// Whether some limit sees the loss with no number.
    pub lacks: bool,
}

/// What the whole suite needs, so that every limit sees the loss that can.
pub fn advice(told: Told<'_>) -> Advice {
    let (mut pairs, mut launches, mut lacks) = (None, BTreeMap::new(), false);
    for limit in told.limits {
        match (limit.view.needs, limit.way) {
            (Need::Enough(n), Way::Pairs(_)) => pairs = pairs.max(Some(n)),
            (Need::Enough(n), Way::Variants(_) | Way::Runs { .. } | Way::Launches(_)) => {
                let test = told.plan.cells[limit.cell].test;
                let most = launches.entry(test).or_insert(n);
                *most = n.max(*most);
            }
            (Need::Tolerated | Need::TooMany | Need::Unknown, _) => lacks = true,
        }
    }
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let rounds = launches.iter().map(|(test, n)| (*test, number(*n))).collect();
    let effort = told.plan.with_rounds(pairs.map(number), &rounds).effort();
    Advice { pairs, launches, effort, lacks }
}

/// The table, what it rests on, and what to write.
pub fn text(told: Told<'_>) -> String {
    let mut out = String::new();
    let Told { plan, asked, .. } = told;
    let (loss, surely) = (percent(asked.loss), percent(asked.surely));
    let _ = writeln!(
        out,
        "{}: a loss of {loss} is to be seen with probability {surely}\n",
        plan.suite.name
    );
    let _ = writeln!(out, "noise    {}", told.noise);
    let judged = match told.judged {
        Some(file) => {
            format!("by the noise of {file}, where it has the cell; else by the run's own spread")
        }
        None => "by the run's own spread".to_owned(),
    };
    let _ = writeln!(out, "judged   {judged}");
    let comparisons = plan.comparisons();
    if comparisons > 0 {
        let halves = told.mean.is_some();
        let each = plan.suite.policy.alpha / comparisons as f64;
        let shared = comparisons / if halves { 2 } else { 1 };
        let half = if halves { "half of " } else { "" };
        let _ = writeln!(
            out,
            "level    {half}alpha {} for {}, {} each",
            plan.suite.policy.alpha,
            plural(shared as usize, "comparison"),
            print_number(each, 6)
        );
    }
    out.push('\n');
    table(told, &mut out);
    for words in hints(told) {
        let _ = writeln!(out, "\n{words}");
    }
    let _ = writeln!(out, "\n{}", sentence(told));
    out
}

/// Limits that are told in one row: alike in all but the cell.
fn grouped(told: Told<'_>) -> Vec<(Prospect, usize)> {
    let mut rows: Vec<(Prospect, usize)> = Vec::new();
    for limit in told.limits {
        let test = |limit: &Prospect| told.plan.cells[limit.cell].test;
        let same = |(row, _): &(Prospect, usize)| {
            test(row) == test(limit)
                && (row.metric, row.way, row.view) == (limit.metric, limit.way, limit.view)
                && row.place.file == limit.place.file
                && told.plan.cells[row.cell].setting == told.plan.cells[limit.cell].setting
        };
        match rows.iter_mut().rev().take(ROWS).find(|row| same(row)) {
            Some((_, cells)) => *cells += 1,
            None => rows.push((limit.clone(), 1)),
        }
    }
    rows
}

fn table(told: Told<'_>, out: &mut String) {
    let (loss, surely) = (percent(told.asked.loss), percent(told.asked.surely));
    let mut rows = vec![[
        "limit".to_owned(),
        "noise".to_owned(),
        "declared".to_owned(),
        format!("sees {loss}"),
        format!("{surely} from"),
        "needs".to_owned(),
    ]];
    let mut groups = grouped(told);
    let left = groups.len().saturating_sub(ROWS);
    if left > 0 {
        // What needs most is what counts.
        groups.sort_by_key(|(row, _)| std::cmp::Reverse(rank(row.view.needs)));
        groups.truncate(ROWS);
    }
    // What a line of the suite says of its cells stands together.
    groups.sort_by_key(|(row, _)| (row.place.file.clone(), row.place.line));
    rows.extend(
        groups
            .iter()
            .map(|(row, cells)| row_of(name(told.plan, row, *cells), row.way, row.view, false)),
    );
    if let Some(mean) = told.mean {
        let cells = plural(mean.cells, "cell");
        let name =
            format!("mean ratio of {cells} ≥ {} ({})", print_number(mean.limit, 6), mean.place);
        rows.push(row_of(name, Way::Pairs(mean.pairs), mean.view, true));
    }
    let widths: Vec<usize> =
        (0..6).map(|at| rows.iter().map(|row| row[at].width()).max().unwrap_or(0)).collect();
    for row in &rows {
        let mut said = String::new();
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.width());
            // Figures to the right, words to the left.
            let figure = matches!(at, 1 | 3 | 4);
            let _ =
                if figure { write!(said, "{pad}{cell}  ") } else { write!(said, "{cell}{pad}  ") };
        }
        let _ = writeln!(out, "{}", said.trim_end());
    }
    if left > 0 {
        let _ =
            writeln!(out, "and {} that need no more; --format json has all", plural(left, "limit"));
    }
}

fn rank(need: Need) -> u64 {
    match need {
        Need::Enough(n) => n,
        Need::Unknown => MOST + 1,
        Need::Tolerated => MOST + 2,
        Need::TooMany => MOST + 3,
    }
}

fn row_of(name: String, way: Way, view: View, everywhere: bool) -> [String; 6] {
    let unknown = || "–".to_owned();
    let needs = match view.needs {
        Need::Enough(n) if everywhere => {
            format!("{}, if every cell loses as much", counted(way.with(n)))
        }
        Need::Enough(n) => counted(way.with(n)),
        Need::Tolerated => format!("another limit: it tolerates {}", percent(view.tolerated)),
        Need::TooMany => match way {
            Way::Runs { .. } => "more recorded runs".to_owned(),
            Way::Pairs(_) | Way::Variants(_) | Way::Launches(_) => {
                "another limit, or less noise".to_owned()
            }
        },
        Need::Unknown => "a noise to reckon with".to_owned(),
    };
    [
        line(&name),
        view.noise.map_or_else(unknown, |(sd, _)| percent(sd)),
        counted(way),
        view.chance.map_or_else(unknown, chance),
        view.sees.map_or_else(unknown, percent),
        needs,
    ]
}

/// `0.72`; nothing is seen for sure.
fn chance(chance: f64) -> String {
    if chance > 0.999 { "> 0.999".to_owned() } else { print_number(chance, 3) }
}

/// `4 pairs`, `1 launch`, `3 launches to 5 runs`.
fn counted(way: Way) -> String {
    let launches = |n: u64| plural(n as usize, "launch");
    match way {
        Way::Pairs(n) => plural(n as usize, "pair"),
        Way::Variants(n) => format!("{} each", launches(n)),
        Way::Runs { recorded, launches: n } => {
            format!("{} to {}", launches(n), plural(recorded as usize, "run"))
        }
        Way::Launches(n) => launches(n),
    }
}

fn name(plan: &Plan, row: &Prospect, cells: usize) -> String {
    let cell = &plan.cells[row.cell];
    let test = &plan.test(cell).name;
    let whose = match cells {
        1 if plan.test(cell).axes.is_empty() => test.clone(),
        1 => format!("{test} {}", plan.cell_id(cell)),
        n => format!("{test}, {n} cells,"),
    };
    let (sign, word, slack) = match row.bound.side {
        Side::Min => ("≥", "min", "−"),
        Side::Max => ("≤", "max", "+"),
    };
    // Floors of a grid are told together, each with its own number.
    let limit = match (row.way, row.bound.target == row.bound.limit) {
        (Way::Launches(_), true) => word.to_owned(),
        (Way::Launches(_), false) => format!("{word} {slack} {}", percent(row.view.tolerated)),
        (Way::Pairs(_) | Way::Variants(_) | Way::Runs { .. }, _) => {
            print_number(row.bound.limit, 4)
        }
    };
    format!("{whose} {} {sign} {limit} ({})", row.metric, row.place)
}

/// What stands in the way, and what does something about it.
fn hints(told: Told<'_>) -> Vec<String> {
    let mut hints = Vec::new();
    let loss = told.asked.loss;
    let tolerated = told.limits.iter().filter(|limit| limit.view.needs == Need::Tolerated);
    let mut said: Vec<(String, String)> = Vec::new();
    for limit in tolerated {
        let place = limit.place.to_string();
        let write = match (limit.way, limit.bound.side) {
            (Way::Launches(_), _) => {
                format!("`slack = \"{}\"`", percent(loss / 2.0).replace(' ', ""))
            }
            (_, Side::Min) => format!("`min-ratio = {}`", print_number(1.0 - loss / 2.0, 4)),
            (_, Side::Max) => {
                format!("`max-ratio = {}`", print_number(1.0 / (1.0 - loss / 2.0), 4))
            }
        };
        if !said.iter().any(|(known, _)| *known == place) {
            said.push((place, write));
        }
    }
    for (place, write) in said {
        hints.push(format!(
            "No number of launches shows what {place} tolerates. {write} there would be half of the loss, and see it."
        ));
    }
    if told
        .limits
        .iter()
        .any(|it| it.view.needs == Need::TooMany && matches!(it.way, Way::Runs { .. }))
    {
        hints.push("Recorded runs have noise of their own, which no launch takes away: `tokgate baseline record` adds runs.".to_owned());
    }
    let absolute = |it: &Prospect| matches!(it.way, Way::Launches(_)) && it.view.noise.is_some();
    if told.limits.iter().any(absolute) {
        hints.push("Of a `min` or `max` the loss is one from the number as written: an engine that does better first loses what lies between (`tokgate selftest` tells how much).".to_owned());
    }
    let own = |it: &&Prospect| {
        it.way == Way::Launches(1) && it.view.sees.is_none() && it.view.noise.is_some()
    };
    if told.limits.iter().any(|it| own(&it)) {
        hints.push("One launch does not show how launches differ: its limits are judged by what happens within it, whatever the next start brings.".to_owned());
    }
    if told.mean.is_some_and(|mean| mean.view.noise.is_some()) {
        hints.push("Of the mean ratio the noise is taken to be common to all cells, as of engines that start faster or slower: what each cell has for itself averages out, and more is seen than said.".to_owned());
    }
    hints
}

/// What to write, the last thing said.
pub fn sentence(told: Told<'_>) -> String {
    let advice = advice(told);
    let declared: BTreeMap<u32, u64> = told
        .plan
        .suite
        .tests
        .iter()
        .zip(0..)
        .map(|(test, at)| (at, test.launches.into()))
        .collect();
    let compare = told.plan.suite.compare.as_ref();
    let mut write = Vec::new();
    if let (Some(pairs), Some(compare)) = (advice.pairs, compare) {
        write.push((format!("`pairs = {pairs}` in [compare]"), u64::from(compare.pairs) == pairs));
    }
    for (test, launches) in &advice.launches {
        let name = &told.plan.suite.tests[*test as usize].name;
        let same = declared.get(test) == Some(launches);
        write.push((format!("`launches = {launches}` in test {name}"), same));
    }
    let Effort { starts, time } = advice.effort;
    let takes = match starts {
        0 => format!("no engine start, about {}", minutes(time)),
        starts => format!("{}, about {}", plural(starts, "start"), minutes(time)),
    };
    if write.is_empty() {
        let unknown = told.limits.iter().any(|it| it.view.needs == Need::Unknown);
        return match (told.limits.is_empty(), unknown) {
            (true, _) => "no limit of this suite depends on noise".to_owned(),
            (false, true) => "what it takes follows from the noise, which nobody tells".to_owned(),
            (false, false) => "no limit of this suite can see it as things are".to_owned(),
        };
    }
    let rest = if advice.lacks { "; other limits can't see it as they are" } else { "" };
    if write.iter().all(|(_, same)| *same) {
        return format!("what is declared is just enough: {takes}{rest}");
    }
    let words: Vec<String> = write.into_iter().map(|(words, _)| words).collect();
    format!("write {}: {takes}{rest}", words.join(" and "))
}

/// The same for programs.
pub fn json(told: Told<'_>) -> String {
    let advice = advice(told);
    let limits = told.limits.iter().map(|limit| {
        let cell = &told.plan.cells[limit.cell];
        let mut value = json!({
            "test": told.plan.test(cell).name,
            "id": told.plan.cell_id(cell),
            "variant": told.plan.variant(cell),
            "metric": limit.metric.to_string(),
            "file": limit.place.file,
            "line": limit.place.line,
        });
        extend(&mut value, of_view(limit.way, limit.view));
        value
    });
    let mean = told.mean.map(|mean| {
        let mut value = json!({ "limit": mean.limit, "cells": mean.cells });
        extend(&mut value, of_view(Way::Pairs(mean.pairs), mean.view));
        value
    });
    let names = advice.launches.iter().map(|(test, launches)| {
        (told.plan.suite.tests[*test as usize].name.clone(), json!(launches))
    });
    let effort =
        |effort: Effort| json!({ "starts": effort.starts, "seconds": effort.time.as_secs() });
    let whole = json!({
        "suite": told.plan.suite.name,
        "loss": told.asked.loss,
        "power": told.asked.surely,
        "alpha": told.plan.suite.policy.alpha,
        "comparisons": told.plan.comparisons(),
        "limits": limits.collect::<Vec<_>>(),
        "mean-ratio": mean,
        "declared": effort(told.plan.effort()),
        "needed": {
            "pairs": advice.pairs,
            "launches": names.collect::<serde_json::Map<_, _>>(),
            "effort": effort(advice.effort),
            "all": !advice.lacks,
        },
    });
    format!("{whole:#}\n")
}

fn extend(value: &mut Value, more: Value) {
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
    }
}

fn of_view(way: Way, view: View) -> Value {
    let (kind, recorded) = match way {
        Way::Pairs(_) => ("pairs", None),
        Way::Variants(_) => ("launches-of-variants", None),
        Way::Runs { recorded, .. } => ("launches-against-runs", Some(recorded)),
        Way::Launches(_) => ("launches", None),
    };
    let teller = view.noise.map(|(_, teller)| match teller {
        Teller::Stated => "stated",
        Teller::File => "noise-file",
        Teller::Runs => "recorded-runs",
    });
    let (needs, why) = match view.needs {
        Need::Enough(n) => (Some(n), None),
        Need::Tolerated => (None, Some("the limit tolerates the loss")),
        Need::TooMany => (None, Some("no number is enough")),
        Need::Unknown => (None, Some("the noise is unknown")),
    };
    json!({
        "by": kind,
        "recorded-runs": recorded,
        "declared": way.declared(),
        "level": view.level,
        "tolerates": view.tolerated,
        "noise": view.noise.map(|(sd, _)| sd),
        "noise-of": teller,
        "sees-from": view.sees,
        "chance": view.chance,
        "needs": needs,
        "needs-else": why,
    })
}

/// `5 %`, `1.25 %`.
fn percent(share: f64) -> String {
    format!("{} %", print_number(share * 100.0, 2))
}

/// `43 min`, from two hours on `2 h 10 min`.
fn minutes(time: Duration) -> String {
    let whole = (time.as_secs() + 30) / 60;
    match whole {
        0 => format!("{} s", time.as_secs()),
        1..120 => format!("{whole} min"),
        _ => format!("{} h {} min", whole / 60, whole % 60),
    }
}
