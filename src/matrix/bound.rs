//! The bounds of cells: expectations and quarantines indexed by test, so that a cell finds its own
//! without reading the others'.

use std::collections::HashMap;

use super::select::{Sieve, Sieves};
use super::{Cell, CellBound};
use crate::judge::{Bound, Side};
use crate::suite::model::{Against, Grid, GridLimit, Limits, Place, Quarantine, Reference, Suite};

/// Where the bounds and quarantines of a cell are looked up.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    /// For each test the bounds that may hold for its cells, in order of writing.
    pub(super) bounds: Vec<Vec<TestBound>>,
    quarantines: Sieves,
    /// For each test where its axes with a meaning stand.
    pub(super) known_axes: Vec<KnownAxes>,
    /// Whether any bound is a share of what a variant had.
    variants: bool,
}

/// The positions of those axes of a test that have a meaning.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownAxes {
    pub(super) context: Option<usize>,
    pub(super) input: Option<usize>,
    pub(super) output: Option<usize>,
    pub(super) concurrency: Option<usize>,
    pub(super) request_rate: Option<usize>,
}

/// One bound of an expectation, as one test sees it.
#[derive(Debug, Clone)]
pub(super) struct TestBound {
    /// Index into `suite.expectations`.
    pub(super) expectation: usize,
    /// Index into the expectation's `bounds`.
    pub(super) bound: usize,
    filter: Sieve,
    except: Option<Sieve>,
    grid: Option<TestGrid>,
}

/// A grid as one test sees it.
#[derive(Debug, Clone)]
struct TestGrid {
    rows: GridAxis,
    columns: Option<GridAxis>,
    /// From the indices of row and column value to the index of the entry.
    entries: HashMap<(u16, u16), u32>,
}

/// What a grid's rows or columns go by.
#[derive(Debug, Clone, Copy)]
enum GridAxis {
    /// The axis at that position of the test.
    Axis(usize),
    /// The variant.
    Variant,
}

impl GridAxis {
    fn new(name: &str, suite: &Suite, test: usize) -> Option<GridAxis> {
        if name == "variant" {
            return Some(GridAxis::Variant);
        }
        let axes = &suite.tests[test].axes;
        axes.iter().position(|axis| axis.name == name).map(GridAxis::Axis)
    }

    /// The canonical spellings of its values, with their index.
    fn values(self, suite: &Suite, test: usize) -> HashMap<String, u16> {
        let names: Vec<String> = match self {
            GridAxis::Axis(position) => {
                suite.tests[test].axes[position].values.iter().map(ToString::to_string).collect()
            }
            GridAxis::Variant => {
                suite.settings.iter().map(|s| s.variant.clone().unwrap_or_default()).collect()
            }
        };
        (0u16..).zip(names).map(|(index, name)| (name, index)).collect()
    }

    fn of(self, cell: &Cell) -> u16 {
        match self {
            GridAxis::Axis(position) => cell.point[position],
            GridAxis::Variant => u16::try_from(cell.setting).unwrap_or(u16::MAX),
        }
    }
}

impl TestGrid {
    /// `None` where the test lacks an axis of the grid.
    fn new(grid: &Grid, suite: &Suite, test: usize) -> Option<TestGrid> {
        let rows = GridAxis::new(&grid.rows, suite, test)?;
        let columns = match &grid.columns {
            Some(name) => Some(GridAxis::new(name, suite, test)?),
            None => None,
        };
        let row_values = rows.values(suite, test);
        let column_values = columns.map(|axis| axis.values(suite, test)).unwrap_or_default();
        let mut entries = HashMap::with_capacity(grid.entries.len());
        for (index, entry) in (0u32..).zip(&grid.entries) {
            let Some(row) = row_values.get(&entry.row) else { continue };
            let column = match &entry.column {
                None => Some(&0),
                Some(name) => column_values.get(name),
            };
            if let Some(column) = column {
                entries.insert((*row, *column), index);
            }
        }
        Some(TestGrid { rows, columns, entries })
    }

    fn entry(&self, cell: &Cell) -> Option<usize> {
        let column = self.columns.map_or(0, |columns| columns.of(cell));
        self.entries.get(&(self.rows.of(cell), column)).map(|index| *index as usize)
    }
}

/// What a bound asks of a cell.
pub(super) enum Asked<'a> {
    /// A number.
    Number(f64, &'a Place),
    /// A share of what recorded runs or a variant had.
    Ratio(f64, &'a Against, &'a Place),
    /// To be over capacity.
    Over(&'a Place),
}

impl TestBound {
    /// What it asks of a cell, and the index of the grid's entry, where it holds for the cell.
    pub(super) fn asked<'a>(
        &self,
        suite: &'a Suite,
        cell: &Cell,
    ) -> Option<(Asked<'a>, Option<usize>)> {
        if !self.filter.passes(cell.setting, &cell.point)
            || self.except.as_ref().is_some_and(|sieve| sieve.passes(cell.setting, &cell.point))
        {
            return None;
        }
        let (_, limits) = &suite.expectations[self.expectation].bounds[self.bound];
        match (limits, &self.grid) {
            (Limits::Scalar { value, place, .. }, _) => Some((Asked::Number(*value, place), None)),
            (Limits::Ratio { value, against, place, .. }, _) => {
                Some((Asked::Ratio(*value, against, place), None))
            }
            (Limits::Grid(_), None) => None,
            (Limits::Grid(grid), Some(index)) => {
                let at = index.entry(cell)?;
                let entry = &grid.entries[at];
                match entry.limit {
                    GridLimit::None => None,
                    GridLimit::Over => Some((Asked::Over(&entry.place), Some(at))),
                    GridLimit::Value(value) => Some((Asked::Number(value, &entry.place), Some(at))),
                }
            }
        }
    }
}

impl Index {
    /// Whether any bound is a share of what a variant had.
    pub(super) fn has_variants(&self) -> bool {
        self.variants
    }

    pub(crate) fn new(suite: &Suite) -> Index {
        let mut bounds: Vec<Vec<TestBound>> = vec![Vec::new(); suite.tests.len()];
        for (expectation, asked) in suite.expectations.iter().enumerate() {
            for &test in &asked.tests {
                if !suite.tests[test].kind.produces(asked.metric) {
                    continue;
                }
                let Some(filter) = Sieve::new(&asked.filter, suite, test) else { continue };
                let except =
                    asked.except.as_ref().and_then(|except| Sieve::new(except, suite, test));
                for (bound, (_, limits)) in asked.bounds.iter().enumerate() {
                    let grid = match limits {
                        Limits::Scalar { .. } | Limits::Ratio { .. } => None,
                        Limits::Grid(grid) => match TestGrid::new(grid, suite, test) {
                            Some(grid) => Some(grid),
                            None => continue,
                        },
                    };
                    bounds[test].push(TestBound {
                        expectation,
                        bound,
                        filter: filter.clone(),
                        except: except.clone(),
                        grid,
                    });
                }
            }
        }
        let known_axes = suite
            .tests
            .iter()
            .map(|test| {
                let position = |name| test.axes.iter().position(|axis| axis.name == name);
                KnownAxes {
                    context: position("context"),
                    input: position("input"),
                    output: position("output"),
                    concurrency: position("concurrency"),
                    request_rate: position("request_rate"),
                }
            })
            .collect();
        let quarantines = Sieves::new(suite.quarantines.iter().map(|q| &q.filter), suite);
        let of_variant = |(_, limits): &(Side, Limits)| {
            matches!(limits, Limits::Ratio { against, .. }
                if matches!(against.reference, Reference::Variant(_)))
        };
        let variants = suite.expectations.iter().any(|it| it.bounds.iter().any(of_variant));
        Index { bounds, quarantines, known_axes, variants }
    }

    /// All bounds on a cell, in order of writing; where one is `"over"`, those alone.
    pub(crate) fn bounds(&self, suite: &Suite, cell: &Cell) -> Vec<CellBound> {
        let mut found = Vec::new();
        let mut over = false;
        for bound in &self.bounds[cell.test as usize] {
            let Some((asked, _)) = bound.asked(suite, cell) else { continue };
            let expectation = &suite.expectations[bound.expectation];
            if let Asked::Ratio(_, against, _) = &asked
                && against.reference == Reference::Variant(cell.setting)
            {
                // What the others are held against is not held against itself.
                continue;
            }
            let side = expectation.bounds[bound.bound].0;
            let (bound_asked, place, against) = match asked {
                Asked::Number(target, place) => {
                    (Some(with_slack(side, target, expectation.slack)), place, None)
                }
                Asked::Ratio(limit, against, place) => {
                    (Some(Bound { side, target: 1.0, limit }), place, Some(against))
                }
                Asked::Over(place) => (None, place, None),
            };
            over |= bound_asked.is_none();
            found.push(CellBound {
                expectation: bound.expectation,
                metric: expectation.metric,
                bound: bound_asked,
                against: against.cloned(),
                slack: if against.is_some() { 0.0 } else { expectation.slack },
                severity: expectation.severity,
                place: place.clone(),
            });
        }
        if over {
            found.retain(|bound| bound.bound.is_none());
        }
        found
    }

    /// The first quarantine that holds for a cell.
    pub(crate) fn quarantine<'a>(&self, suite: &'a Suite, cell: &Cell) -> Option<&'a Quarantine> {
        let index = self.quarantined(cell).next()?;
        suite.quarantines.get(index)
    }

    /// The indices of the quarantines that hold for a cell.
    pub(super) fn quarantined<'a>(&'a self, cell: &'a Cell) -> impl Iterator<Item = usize> + 'a {
        self.quarantines.passed(cell.test, cell.setting, &cell.point)
    }
}

/// A bound with its limit: the number less (min) or more (max) the slack.
fn with_slack(side: Side, target: f64, slack: f64) -> Bound {
    let limit = match side {
        Side::Min => target * (1.0 - slack),
        Side::Max => target * (1.0 + slack),
    };
    Bound { side, target, limit }
}
