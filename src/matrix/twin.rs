//! Twins: the cells of other variants that cells are held against.
//!
//! It says what a suite holds against a variant in vain: cells that the variant does not have, launches
//! that show no noise, and a comparison that nothing is judged by.

use std::collections::{BTreeMap, HashSet};

use super::bound::Index;
use super::schedule::rounds;
use super::{Cell, CellBound, Trouble};
use crate::suite::model::{Against, Limits, Reference, Suite};

/// Cells that a message names.
const NAMED: usize = 3;

/// A ratio to a variant: expectation, setting that is judged, setting that it is held against, line.
type Ratio = (usize, u32, u32, crate::suite::model::Place);

/// What is wrong with what the cells of a suite are held against, of all variants.
pub(super) fn whole(suite: &Suite, index: &Index, cells: &[Cell]) -> Vec<Trouble> {
    if !index.has_variants() && suite.compare.is_none() {
        return Vec::new();
    }
    let known: HashSet<(u32, u32, &[u16])> =
        cells.iter().map(|cell| (cell.setting, cell.test, &*cell.point)).collect();
    let mut missing: BTreeMap<Ratio, Vec<&Cell>> = BTreeMap::new();
    let mut noiseless: BTreeMap<Ratio, Vec<&Cell>> = BTreeMap::new();
    let mut compared = false;
    for cell in cells {
        for bound in index.bounds(suite, cell) {
            let Some(Against { reference: Reference::Variant(other), .. }) = bound.against else {
                continue;
            };
            let CellBound { expectation, place, .. } = bound;
            let ratio = (expectation, cell.setting, other, place);
            if !known.contains(&(other, cell.test, &*cell.point)) {
                missing.entry(ratio).or_default().push(cell);
                continue;
            }
            let paired = suite
                .compare
                .as_ref()
                .is_some_and(|it| (it.baseline, it.candidate) == (other, cell.setting));
            compared |= paired;
            let launches = rounds(suite, cell.test, other);
            if !paired && launches < 2 && suite.baseline.noise.is_none() {
                noiseless.entry(ratio).or_default().push(cell);
            }
        }
    }
    let mut troubles = Vec::new();
    for (ratio, cells) in &missing {
        let help = "an `exclude` takes them out there: take them out here too, or let `where` or `except` of the expectation do it";
        let what = |judged: &str, other: &str| {
            format!(
                "{} of `{judged}` can't be held against `{other}`, which does not measure {}: {}",
                counted(cells.len()),
                if cells.len() == 1 { "it" } else { "them" },
                told(suite, cells)
            )
        };
        troubles.push(trouble(suite, ratio, "no-twin", what).help(help));
    }
    for (ratio, cells) in &noiseless {
        let test = &suite.tests[cells[0].test as usize].name;
        let help = format!(
            "write `launches = 3` or more in test `{test}`, or compare the two in pairs by [compare]; a file of `tokgate calibrate` (`noise` in [baseline]) tells the noise beforehand"
        );
        let what = |judged: &str, other: &str| {
            format!("one launch of `{other}` shows no noise that `{judged}` could be judged by")
        };
        troubles.push(trouble(suite, ratio, "needs-launches", what).help(help));
    }
    if let Some(compare) = &suite.compare
        && !compared
        && missing.is_empty()
    {
        let (baseline, candidate) = (name(suite, compare.baseline), name(suite, compare.candidate));
        let message =
            format!("nothing is judged by it: no ratio holds `{candidate}` against `{baseline}`");
        let help = format!(
            "write at least one for cells of `{candidate}`, like:\n[[expect]]\nmetric = \"output-throughput\"\nmin-ratio = 0.97"
        );
        let place = Some(compare.place.clone());
        let trouble = Trouble::new("compare-without-ratio", message).at(place).help(help);
        // Where nothing at all is expected, figures are all that is asked for.
        let warning = suite.expectations.is_empty() && compare.min_mean_ratio.is_none();
        troubles.push(Trouble { span: Some(compare.span.clone()), warning, ..trouble });
    }
    troubles
}

/// Trouble with a ratio, at where its number stands.
fn trouble(
    suite: &Suite,
    (expectation, judged, other, line): &Ratio,
    code: &'static str,
    what: impl Fn(&str, &str) -> String,
) -> Trouble {
    let spans =
        suite.expectations[*expectation].bounds.iter().filter_map(|(_, limits)| match limits {
            Limits::Ratio { place, span, .. } if place == line => Some(span.clone()),
            Limits::Ratio { .. } | Limits::Scalar { .. } | Limits::Grid(_) => None,
        });
    let message = what(name(suite, *judged), name(suite, *other));
    let trouble = Trouble::new(code, message).at(Some(line.clone()));
    Trouble { span: spans.into_iter().next(), ..trouble }
}

fn name(suite: &Suite, setting: u32) -> &str {
    suite.settings[setting as usize].variant.as_deref().unwrap_or_default()
}

fn counted(cells: usize) -> String {
    if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") }
}

/// `decode context=8K,concurrency=1, decode …`: the first few of some cells.
fn told(suite: &Suite, cells: &[&Cell]) -> String {
    let named = cells.iter().take(NAMED).map(|cell| {
        let test = &suite.tests[cell.test as usize];
        let values = test.axes.iter().zip(&cell.point);
        let values: Vec<String> = values
            .map(|(axis, value)| format!("{}={}", axis.name, axis.values[usize::from(*value)]))
            .collect();
        format!("{} {}", test.name, values.join(",")).trim_end().to_owned()
    });
    let more = if cells.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", named.collect::<Vec<_>>().join(", "))
}
