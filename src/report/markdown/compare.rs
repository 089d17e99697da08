//! Variants that are compared, and other ratios, as Markdown.

use std::fmt::Write;

use crate::record::RunRecord;
use crate::report::grid::{Block, Tone};
use crate::report::ratio::{self, Table};
use crate::report::sanitise::markdown;
use crate::report::worst::{self, Need, Which};
use crate::report::{message, overall};

use super::{Budget, code};

/// The mean ratio among what needs an eye.
pub(super) fn broken(record: &RunRecord) -> Option<String> {
    let overall = overall::of(record)?;
    let (_, need) =
        worst::cases(record).into_iter().find(|(which, _)| *which == Which::MeanRatio)?;
    if !need.fails() || need == Need::NotRun {
        return None;
    }
    let mut piece =
        format!("- **{}** {}: {}\n", overall::NAME, overall.mark().word, markdown(&overall.said()));
    for warning in &overall.judgement().warnings {
        let _ = writeln!(piece, "  - warning: {}", markdown(&message::one_line(warning)));
    }
    let _ = writeln!(piece, "  - at {}", markdown(&overall.compare.place.to_string()));
    let _ = writeln!(piece, "  - rerun: {}", code(&message::rerun_all(record)));
    Some(piece)
}

/// What the mean ratio comes to, and its pairs.
pub(super) fn overall(record: &RunRecord, out: &mut Budget) {
    let Some(overall) = overall::of(record) else { return };
    out.push(&format!("\n## {}\n\n", markdown(&overall.heading())));
    let mark = match overall.mark() {
        mark if mark.tone == Tone::Bad => format!("**{mark}**"),
        mark => mark.to_string(),
    };
    out.push(&format!("{mark}: {}\n", markdown(&overall.behind_mark())));
    if overall.outcome.ratios.is_empty() {
        return;
    }
    out.push("\n| pair | first | mean ratio |\n|---:|---|---:|\n");
    for (at, (order, ratio)) in (1..).zip(overall.pairs()) {
        out.push(&format!("| {at} | {} | {ratio:.4} |\n", markdown(overall.compare.first(order))));
    }
}

/// The ratios of each test: value, interval, verdict and what it could have seen.
pub(super) fn ratios(record: &RunRecord, out: &mut Budget) {
    for table in ratio::tables(record) {
        out.push(&format!("\n## {}\n", markdown(&table.title())));
        for block in &table.blocks {
            if !block.heading.is_empty() {
                out.push(&format!("\n### {}\n", markdown(&block.heading)));
            }
            out.push(&format!("\n{}", of_block(record, &table, block)));
        }
    }
}

fn of_block(record: &RunRecord, table: &Table, block: &Block) -> String {
    let axis = block.row_axis.as_deref().unwrap_or("");
    let corner = match &block.column_axis {
        Some(column) => format!("{axis} \\ {column}"),
        None => axis.to_owned(),
    };
    let mut out = format!("| {} |", markdown(&corner));
    for column in &block.columns {
        let name = if block.column_axis.is_some() { column.as_str() } else { "ratio" };
        let _ = write!(out, " {} |", markdown(name));
    }
    let _ = writeln!(out, "\n|---|{}", "---:|".repeat(block.columns.len()));
    for (row, cells) in block.rows.iter().zip(&block.cells) {
        let _ = write!(out, "| {} |", markdown(row));
        for cell in cells {
            let ratio = cell.and_then(|cell| table.ratio(record, cell));
            let text = ratio.map(|ratio| {
                let mark = ratio.mark();
                let bad = if mark.tone == Tone::Bad { "**" } else { "" };
                let figure = [ratio.value(), ratio.interval()];
                let figure = figure.into_iter().flatten().collect::<Vec<_>>().join(" ");
                let sees = ratio.sees().map(|sees| format!(" {sees}")).unwrap_or_default();
                let gap = if figure.is_empty() { "" } else { "<br>" };
                format!("{}{gap}{bad}{mark}{bad}{sees}", markdown(&figure))
            });
            let _ = write!(out, " {} |", text.unwrap_or_default());
        }
        out.push('\n');
    }
    out
}
