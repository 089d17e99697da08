//! Sightings: which selectors, excludes, quarantines and grid entries have met a cell, watched while
//! the suite is expanded.
//!
//! Whoever has met no cell at the end is a mistake in the suite.

use std::collections::BTreeSet;

use super::bound::Index;
use super::select::Sieves;
use super::verify::{grid_cell, misnamed, no_axis, no_value};
use super::{Cell, Trouble};
use crate::judge::Side;
use crate::suite::model::{
    Against, AxisValue, Expectation, GridLimit, Key, Limits, Place, Predicate, Reference, Selector,
    Suite,
};

/// Grid entries without a cell that are told one by one.
const TOLD: usize = 10;

/// Which selectors, excludes, quarantines and grid entries have met a cell.
pub(super) struct Sightings<'s> {
    suite: &'s Suite,
    index: &'s Index,
    tests: Vec<bool>,
    excludes: Vec<Vec<bool>>,
    filters: Watch,
    excepts: Watch,
    selects: Watch,
    quarantines: Vec<bool>,
    quarantines_left: usize,
    /// For each expectation and bound: whether it binds a cell, and for grids which entries do.
    bounds: Vec<Vec<BoundSighting>>,
    /// Bounds that have not met all that they can, by test: positions in the index.
    pending: Vec<Vec<usize>>,
}

struct BoundSighting {
    met: bool,
    entries: Vec<bool>,
    left: usize,
}

/// Selectors of one sort and which of them have met a cell.
struct Watch {
    sieves: Sieves,
    met: Vec<bool>,
    left: usize,
}

impl Watch {
    fn new(selectors: &[&Selector], suite: &Suite) -> Watch {
        Watch {
            sieves: Sieves::new(selectors.iter().copied(), suite),
            met: vec![false; selectors.len()],
            left: selectors.len(),
        }
    }

    fn seen(&mut self, cell: &Cell) {
        if self.left == 0 {
            return;
        }
        for index in self.sieves.passed(cell.test, cell.setting, &cell.point) {
            if !self.met[index] {
                self.met[index] = true;
                self.left -= 1;
            }
        }
    }
}

impl<'s> Sightings<'s> {
    pub(super) fn new(suite: &'s Suite, index: &'s Index) -> Sightings<'s> {
        // A selector of an expectation counts for the expectation's tests only.
        let within = |expectation: &Expectation, selector: &Selector| {
            let names = expectation.tests.iter().map(|test| suite.tests[*test].name.clone());
            let mut selector = selector.clone();
            selector.predicates.push((Key::Test, Predicate::OneOf(names.collect())));
            selector
        };
        let filters: Vec<Selector> =
            suite.expectations.iter().map(|e| within(e, &e.filter)).collect();
        let excepts: Vec<Selector> = suite
            .expectations
            .iter()
            .map(|e| within(e, e.except.as_ref().unwrap_or(&Selector::default())))
            .collect();
        let bounds = suite
            .expectations
            .iter()
            .map(|expectation| {
                let sighting = |(_, limits): &(Side, Limits)| match limits {
                    Limits::Scalar { .. } | Limits::Ratio { .. } => {
                        BoundSighting { met: false, entries: Vec::new(), left: 1 }
                    }
                    Limits::Grid(grid) => {
                        let entries: Vec<bool> =
                            grid.entries.iter().map(|e| e.limit == GridLimit::None).collect();
                        let left = entries.iter().filter(|met| !**met).count();
                        BoundSighting { met: false, entries, left }
                    }
                };
                expectation.bounds.iter().map(sighting).collect()
            })
            .collect();
        Sightings {
            suite,
            index,
            tests: vec![false; suite.tests.len()],
            excludes: suite.tests.iter().map(|test| vec![false; test.exclude.len()]).collect(),
            filters: Watch::new(&filters.iter().collect::<Vec<_>>(), suite),
            excepts: Watch::new(&excepts.iter().collect::<Vec<_>>(), suite),
            selects: Watch::new(&suite.select.iter().collect::<Vec<_>>(), suite),
            quarantines: vec![false; suite.quarantines.len()],
            quarantines_left: suite.quarantines.len(),
            bounds,
            pending: index.bounds.iter().map(|bounds| (0..bounds.len()).collect()).collect(),
        }
    }

    /// A point that an exclude takes out.
    pub(super) fn excluded(&mut self, test: u32, exclude: usize) {
        self.excludes[test as usize][exclude] = true;
    }

    /// A cell.
    pub(super) fn seen(&mut self, cell: &Cell) {
        let test = cell.test as usize;
        self.tests[test] = true;
        self.filters.seen(cell);
        self.excepts.seen(cell);
        self.selects.seen(cell);
        if self.quarantines_left > 0 {
            for index in self.index.quarantined(cell) {
                if !self.quarantines[index] {
                    self.quarantines[index] = true;
                    self.quarantines_left -= 1;
                }
            }
        }
        let (suite, index, bounds) = (self.suite, self.index, &mut self.bounds);
        self.pending[test].retain(|position| {
            let bound = &index.bounds[test][*position];
            let sighting = &mut bounds[bound.expectation][bound.bound];
            if sighting.left > 0
                && let Some((_, entry)) = bound.asked(suite, cell)
            {
                sighting.met = true;
                match entry {
                    None => sighting.left = 0,
                    Some(entry) if !sighting.entries[entry] => {
                        sighting.entries[entry] = true;
                        sighting.left -= 1;
                    }
                    Some(_) => {}
                }
            }
            sighting.left > 0
        });
    }

    /// What has met no cell.
    pub(super) fn into_troubles(self) -> Vec<Trouble> {
        let suite = self.suite;
        let mut troubles = Vec::new();
        let mut unmet =
            |selector: &Selector, what: &str, tests: &[usize], place: Option<&Place>| {
                let named = misnamed(suite, selector, tests, place);
                if named.is_empty() {
                    let at = selector.place.clone().or_else(|| place.cloned());
                    let message = format!("{what} `{}` matches no cell", spelled(selector));
                    troubles.push(Trouble {
                        span: selector.span.clone(),
                        ..Trouble::new("selector-without-cell", message)
                            .at(at)
                            .help(reach(suite, selector, tests))
                    });
                } else {
                    troubles.extend(named);
                }
            };
        let all: Vec<usize> = (0..suite.tests.len()).collect();
        for (index, (test, met)) in suite.tests.iter().zip(&self.excludes).enumerate() {
            for (exclude, met) in test.exclude.iter().zip(met) {
                if !met {
                    unmet(exclude, "exclude", &[index], Some(&test.place));
                }
            }
        }
        for (index, expectation) in suite.expectations.iter().enumerate() {
            let place = Some(&expectation.place);
            if !self.filters.met[index] && !expectation.filter.predicates.is_empty() {
                unmet(&expectation.filter, "where", &expectation.tests, place);
            }
            if let Some(except) = &expectation.except
                && !self.excepts.met[index]
            {
                unmet(except, "except", &expectation.tests, place);
            }
        }
        for (quarantine, met) in suite.quarantines.iter().zip(&self.quarantines) {
            if !met {
                unmet(&quarantine.filter, "quarantine", &all, Some(&quarantine.place));
            }
        }
        for (selector, met) in suite.select.iter().zip(&self.selects.met) {
            if !met {
                unmet(selector, "select", &all, None);
            }
        }
        for (test, met) in suite.tests.iter().zip(&self.tests) {
            if !met {
                troubles.push(
                    Trouble::new("test-without-cell", format!("test `{}` has no cell", test.name))
                        .at(Some(test.place.clone()))
                        .help("its excludes take out all: remove one of them, or the test"),
                );
            }
        }
        for (index, expectation) in suite.expectations.iter().enumerate() {
            if self.filters.met[index] {
                for (bound, sighting) in self.bounds[index].iter().enumerate() {
                    unbound(suite, expectation, bound, sighting, &mut troubles);
                }
            }
        }
        troubles
    }
}

/// What a bound has not met, although its `where` has met cells.
fn unbound(
    suite: &Suite,
    expectation: &Expectation,
    bound: usize,
    sighting: &BoundSighting,
    troubles: &mut Vec<Trouble>,
) {
    let grid = match &expectation.bounds[bound].1 {
        Limits::Grid(grid) => grid,
        Limits::Ratio { against: Against { reference: Reference::Variant(_), .. }, .. }
            if !sighting.met =>
        {
            troubles.extend(held_against_itself(suite, expectation, bound));
            return;
        }
        Limits::Scalar { place, .. } | Limits::Ratio { place, .. } => {
            if !sighting.met {
                troubles.push(
                    Trouble::new(
                        "bound-without-cell",
                        format!("the bound on `{}` holds for no cell", expectation.metric),
                    )
                    .at(Some(place.clone()))
                    .help("`except` takes out all that `where` leaves, or no test measures it"),
                );
            }
            return;
        }
    };
    let before = troubles.len();
    let tests = &expectation.tests;
    let mut unknown_rows = BTreeSet::new();
    let mut unknown_columns = BTreeSet::new();
    let rows: Vec<(&str, &Place)> =
        grid.entries.iter().map(|entry| (entry.row.as_str(), &entry.place)).collect();
    misspelled(suite, tests, &grid.rows, &rows, &mut unknown_rows, troubles);
    if let Some(columns) = &grid.columns {
        let names: Vec<(&str, &Place)> = grid
            .entries
            .iter()
            .filter_map(|entry| Some((entry.column.as_deref()?, &entry.place)))
            .collect();
        misspelled(suite, tests, columns, &names, &mut unknown_columns, troubles);
    }
    if troubles.len() > before && unknown_rows.is_empty() && unknown_columns.is_empty() {
        return;
    }
    let unmet: Vec<_> = grid
        .entries
        .iter()
        .zip(&sighting.entries)
        .filter(|(entry, met)| {
            !**met
                && !unknown_rows.contains(entry.row.as_str())
                && !entry.column.as_deref().is_some_and(|c| unknown_columns.contains(c))
        })
        .map(|(entry, _)| entry)
        .collect();
    for entry in unmet.iter().take(TOLD) {
        troubles.push(
            Trouble::new(
                "grid-entry-without-cell",
                format!(
                    "the grid's {} matches no cell",
                    grid_cell(&entry.row, entry.column.as_deref())
                ),
            )
            .at(Some(entry.place.clone()))
            .help("write \"-\" where there is no cell: exclude, where or except take it out"),
        );
    }
    if unmet.len() > TOLD {
        troubles.push(
            Trouble::new(
                "grid-entry-without-cell",
                format!("{} more entries of the grid match no cell", unmet.len() - TOLD),
            )
            .at(Some(expectation.place.clone())),
        );
    }
}

/// A ratio to a variant of which no cell of another one is left.
fn held_against_itself(suite: &Suite, expectation: &Expectation, bound: usize) -> Option<Trouble> {
    let Limits::Ratio { against, span, place, .. } = &expectation.bounds[bound].1 else {
        return None;
    };
    let Reference::Variant(setting) = against.reference else { return None };
    let name = suite.settings[setting as usize].variant.as_deref().unwrap_or_default();
    let (metric, only) = (expectation.metric, suite.settings.len() == 1);
    let help = if only {
        format!("declare the variant that is judged beside [variant.{name}]")
    } else {
        "let `where` and `except` leave cells of the variant that is judged".to_owned()
    };
    let message = format!(
        "the ratio of `{metric}` holds for no cell: what it leaves is of variant `{name}`, which is not held against itself"
    );
    let trouble = Trouble::new("bound-without-cell", message).at(Some(place.clone())).help(help);
    Some(Trouble { span: Some(span.clone()), ..trouble })
}

/// Rows or columns of a grid that are no values of their axis, each told once.
fn misspelled<'g>(
    suite: &Suite,
    tests: &[usize],
    axis: &str,
    names: &[(&'g str, &Place)],
    unknown: &mut BTreeSet<&'g str>,
    troubles: &mut Vec<Trouble>,
) {
    let variants: Vec<AxisValue> = if axis == "variant" {
        suite.settings.iter().filter_map(|s| s.variant.clone()).map(AxisValue::Text).collect()
    } else {
        Vec::new()
    };
    let values: Vec<&AxisValue> = tests
        .iter()
        .flat_map(|index| &suite.tests[*index].axes)
        .filter(|own| own.name == axis)
        .flat_map(|own| &own.values)
        .chain(&variants)
        .collect();
    if values.is_empty() {
        let place = names.first().map(|(_, place)| (*place).clone());
        troubles.push(no_axis(suite, tests, axis).at(place));
        return;
    }
    let spelled: BTreeSet<String> = values.iter().map(ToString::to_string).collect();
    for (name, place) in names {
        if !spelled.contains(*name) && unknown.insert(name) {
            troubles.push(no_value(axis, name, &values).at(Some((*place).clone())));
        }
    }
}

/// What the axes of a selector that matches nothing do have.
fn reach(suite: &Suite, selector: &Selector, tests: &[usize]) -> String {
    let axes = selector.predicates.iter().filter_map(|(key, _)| match key {
        Key::Axis(name) => Some(name),
        Key::Test | Key::Variant => None,
    });
    let mut said = Vec::new();
    for name in axes {
        let ends = tests
            .iter()
            .flat_map(|test| &suite.tests[*test].axes)
            .filter(|axis| axis.name == *name)
            .flat_map(|axis| &axis.values)
            .filter_map(|value| Some((value.number()?, value.to_string())));
        let (low, high) = (
            ends.clone().min_by(|a, b| a.0.total_cmp(&b.0)),
            ends.max_by(|a, b| a.0.total_cmp(&b.0)),
        );
        if let (Some((_, low)), Some((_, high))) = (low, high) {
            said.push(format!("`{name}` goes from {low} to {high}"));
        }
    }
    said.push("`tokgate list` shows the cells".to_owned());
    said.join("; ")
}

/// A selector as its author wrote it, where that is known.
fn spelled(selector: &Selector) -> String {
    if selector.text.is_empty() { selector.to_string() } else { selector.text.clone() }
}
