//! The self-test of a gate by a delay, rendered: which limits noticed it, and which cells stayed green.
//!
//! What counts as noticed is decided in `record::slowdown`; here are the words.

use std::fmt::Write as _;

use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::count::plural;
use super::message;
use super::selftest::{blind, mean_name, mean_standing, name, reasons, standing};
use crate::record::RunRecord;
use crate::record::sensitivity::{Limit, MeanLimit, Notice, Sight};
use crate::record::slowdown::{Findings, Response, list, percent, spared};

/// Cells that are named of a limit or of those that stayed green.
const NAMED: usize = 5;

/// The table, below it each limit that let the delay pass with what it saw, and the cells that stayed green.
pub fn text(record: &RunRecord, findings: &Findings, share: f64) -> String {
    let mut out = String::new();
    if findings.limits.is_empty() {
        return out;
    }
    let spared = spared(&record.header);
    let but = match spared.is_empty() {
        true => String::new(),
        false => format!(" but {}", list(&spared)),
    };
    let _ = writeln!(
        out,
        "In how many of their cells limits failed while everything{but} took {} longer:\n",
        percent(share)
    );
    let names: Vec<String> = findings.limits.iter().map(|(limit, _)| name(limit)).collect();
    let mean = findings.mean.as_ref().map(|(limit, _)| mean_name(limit));
    let width =
        names.iter().chain(&mean).map(|name| name.width()).max().unwrap_or(0).max("limit".len());
    let pad = " ".repeat(width - "limit".len());
    let _ = writeln!(out, "limit{pad}  cells  failed  doubted  held");
    for ((limit, response), name) in findings.limits.iter().zip(&names) {
        let pad = " ".repeat(width - name.width());
        let [failed, doubted, held] =
            [Notice::Fails, Notice::Doubts, Notice::Holds].map(|notice| saying(limit, notice));
        let _ = write!(
            out,
            "{name}{pad}  {:>5}  {failed:>6}  {doubted:>7}  {held:>4}",
            limit.cells.len()
        );
        let word = match response {
            Response::Noticed => "noticed".to_owned(),
            Response::Overlooked => "did not notice".to_owned(),
            Response::Unproven => "could not be judged".to_owned(),
            Response::Excused => reasons(limit),
        };
        let _ = writeln!(out, "  {word}");
    }
    if let (Some((limit, response)), Some(name)) = (&findings.mean, &mean) {
        let pad = " ".repeat(width - name.width());
        let [failed, doubted, held] = [Notice::Fails, Notice::Doubts, Notice::Holds]
            .map(|notice| usize::from(says_mean(limit).contains(&notice)));
        let word = match response {
            Response::Noticed => "noticed",
            Response::Overlooked => "did not notice",
            Response::Unproven | Response::Excused => "could not be judged",
        };
        let _ =
            writeln!(out, "{name}{pad}  {:>5}  {failed:>6}  {doubted:>7}  {held:>4}  {word}", 1);
    }
    let with = |wanted: Response| {
        findings.limits.iter().filter(move |(_, became)| *became == wanted).map(|(limit, _)| limit)
    };
    if findings.count(Response::Overlooked) > 0 {
        out.push_str("\nLimits that did not notice:\n");
        with(Response::Overlooked).for_each(|limit| tell(&mut out, record, limit));
        if let Some((limit, Response::Overlooked)) = &findings.mean {
            let _ = writeln!(out, "  {}\n    {}", mean_name(limit), mean_standing(limit));
        }
    }
    if findings.count(Response::Unproven) > 0 {
        out.push_str("\nLimits that had nothing to judge:\n");
        with(Response::Unproven).for_each(|limit| {
            let _ = writeln!(out, "  {}\n    {}", name(limit), reasons(limit));
        });
        if let Some((limit, Response::Unproven)) = &findings.mean
            && let Sight::Blind(why) = &limit.sight
        {
            let _ = writeln!(out, "  {}\n    {}", mean_name(limit), blind(why));
        }
    }
    if !findings.green.is_empty() {
        out.push_str("\nCells that no limit failed:\n");
        for cell in findings.green.iter().take(NAMED) {
            let planned = &record.header.cells[*cell];
            let _ = writeln!(out, "  {} ({})", message::name(planned), planned.place);
        }
        more(&mut out, "  ", findings.green.len());
    }
    out
}

/// A limit that let the delay pass, and what its cells had.
fn tell(out: &mut String, record: &RunRecord, limit: &Limit) {
    let _ = writeln!(out, "  {}", name(limit));
    let mut open = 0;
    for watched in &limit.cells {
        match &watched.sight {
            Sight::Open { notices, .. } => {
                open += 1;
                if open <= NAMED {
                    let word = if notices.contains(&Notice::Doubts) { ": in doubt" } else { "" };
                    let _ = writeln!(out, "    {}{word}", standing(record, watched));
                }
            }
            Sight::Blind(_) => {}
        }
    }
    more(out, "    ", open);
    if open < limit.cells.len() {
        let _ = writeln!(out, "    {}", reasons(limit));
    }
}

fn more(out: &mut String, indent: &str, all: usize) {
    if all > NAMED {
        let _ = writeln!(out, "{indent}and {} more", all - NAMED);
    }
}

fn says_mean(limit: &MeanLimit) -> &[Notice] {
    match &limit.sight {
        Sight::Open { notices, .. } => notices,
        Sight::Blind(_) => &[],
    }
}

/// In how many cells a limit said this.
fn saying(limit: &Limit, wanted: Notice) -> usize {
    let says = |sight: &Sight| match sight {
        Sight::Open { notices, .. } => notices.contains(&wanted),
        Sight::Blind(_) => false,
    };
    limit.cells.iter().filter(|watched| says(&watched.sight)).count()
}

/// What was found in one sentence, the last thing said.
pub fn sentence(findings: &Findings, share: f64) -> String {
    let share = percent(share);
    let [noticed, overlooked, unproven] =
        [Response::Noticed, Response::Overlooked, Response::Unproven]
            .map(|response| findings.count(response));
    let mut found = if noticed + overlooked + unproven == 0 {
        format!("no cell has a limit that could notice that everything took {share} longer")
    } else if overlooked == 0 && unproven == 0 {
        let all = if noticed == 1 {
            "the one limit".to_owned()
        } else {
            format!("each of {noticed} limits")
        };
        format!("{all} noticed that everything took {share} longer")
    } else {
        let all = plural(noticed + overlooked + unproven, "limit");
        format!("{noticed} of {all} noticed that everything took {share} longer")
    };
    if unproven > 0 {
        found.push_str(&format!("; {unproven} could not be judged"));
    }
    if !findings.green.is_empty() {
        let cells = plural(findings.green.len(), "cell");
        found.push_str(&format!("; {cells} stayed green"));
    }
    found
}

/// The same for programs.
pub fn json(record: &RunRecord, findings: &Findings, share: f64) -> String {
    let word = |response: Response| match response {
        Response::Noticed => "noticed",
        Response::Overlooked => "did-not-notice",
        Response::Unproven => "could-not-be-judged",
        Response::Excused => "excused",
    };
    let limits = findings.limits.iter().map(|(limit, response)| {
        let response = word(*response);
        json!({
            "file": limit.place.file,
            "line": limit.place.line,
            "name": limit.name,
            "metric": limit.metric.to_string(),
            "response": response,
            "cells": limit.cells.iter().map(|watched| {
                let (key, said) = match &watched.sight {
                    Sight::Open { notices, .. } => ("says", says(notices)),
                    Sight::Blind(why) => ("blind", blind(why)),
                };
                let mut cell = of_cell(record, watched.cell);
                cell[key] = said.into();
                cell
            }).collect::<Vec<Value>>(),
        })
    });
    let mean = findings.mean.as_ref().map(|(limit, became)| {
        json!({
            "file": limit.place.file,
            "line": limit.place.line,
            "response": word(*became),
        })
    });
    let whole = json!({
        "suite": record.header.suite,
        "run-id": record.header.run_id,
        "slow": share,
        "mean-ratio": mean,
        "limits": limits.collect::<Vec<Value>>(),
        "green-cells": findings.green.iter().map(|cell| of_cell(record, *cell)).collect::<Vec<_>>(),
    });
    format!("{whole:#}\n")
}

fn says(notices: &[Notice]) -> String {
    let word = |notice: &Notice| match notice {
        Notice::Fails => "fails",
        Notice::Doubts => "doubts",
        Notice::Holds => "holds",
    };
    notices.first().map_or("holds", word).to_owned()
}

fn of_cell(record: &RunRecord, cell: usize) -> Value {
    let planned = &record.header.cells[cell];
    json!({ "test": planned.test, "id": planned.id, "variant": planned.variant })
}
