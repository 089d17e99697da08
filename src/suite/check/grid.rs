//! Grids of limits: `rows`, `columns`, `at`, `grid`.

use std::collections::HashMap;
use std::ops::Range;

use super::filter::Scope;
use super::{Checker, axes_of, hint, named};
use crate::judge::Side;
use crate::measure::Metric;
use crate::suite::file::{At, GridTable, Scalar};
use crate::suite::model::{Capacity, Grid, GridEntry, GridLimit, TestSetting};
use crate::suite::problem::Problem;

impl Checker<'_> {
    pub(super) fn grid(
        &mut self,
        table: &GridTable,
        span: &Range<usize>,
        metric: Metric,
        side: Side,
        scope: &Scope<'_>,
    ) -> Option<Grid> {
        const SHAPE: &str = "write min.rows = \"context\", min.columns = \"concurrency\", min.at = [1, 2] and min.grid = [[\"8K\", 100, 200]]";
        let Some(rows) = &table.rows else {
            self.missing("rows", span.clone(), "the grid has no `rows`", SHAPE);
            return None;
        };
        let Some(grid) = &table.grid else {
            self.missing("grid", span.clone(), "the grid has no `grid`", SHAPE);
            return None;
        };
        match (&table.columns, &table.at) {
            (Some(columns), None) => {
                self.missing(
                    "at",
                    columns.span.clone(),
                    "the grid has `columns` without `at`",
                    "write the columns' values, like `at = [1, 2, 4]`",
                );
                return None;
            }
            (None, Some(at)) => {
                self.missing(
                    "columns",
                    at.span.clone(),
                    "the grid has `at` without `columns`",
                    "name the columns' axis, like `columns = \"concurrency\"`",
                );
                return None;
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
        let row_axis = self.grid_axis(rows, scope);
        let column_axis = table.columns.as_ref().map(|columns| self.grid_axis(columns, scope));
        if let Some(columns) = &table.columns
            && columns.value == rows.value
        {
            self.say(
                Problem::at(
                    "grid-shape",
                    columns.span.clone(),
                    "rows and columns are the same axis",
                )
                .also(rows.span.clone(), "rows")
                .help("leave `columns` and `at` out for a grid of one axis"),
            );
            return None;
        }
        if !row_axis || column_axis == Some(false) {
            return None;
        }
        let columns: Vec<Option<String>> = match (&table.columns, &table.at) {
            (Some(axis), Some(at)) => self
                .grid_values(&axis.value, at.value.iter(), "column", scope)
                .into_iter()
                .map(|value| value.map(|(value, _)| value))
                .collect(),
            (_, _) => vec![None],
        };
        let width = columns.len();
        let one_axis = table.columns.is_none();
        let heads = grid.value.iter().filter_map(|row| row.value.first());
        let heads: Vec<_> = self.grid_values(&rows.value, heads, "row", scope);
        let mut heads = heads.into_iter();
        let mut entries = Vec::new();
        for row in &grid.value {
            let Some((_, cells)) = row.value.split_first() else {
                self.say(
                    Problem::at("grid-shape", row.span.clone(), "an empty row")
                        .help(format!("write a value of `{}` and then the limits", rows.value)),
                );
                continue;
            };
            let head = heads.next().flatten();
            if cells.len() != width {
                let problem = Problem::at(
                    "grid-shape",
                    row.span.clone(),
                    if one_axis {
                        format!(
                            "this row has {}, and a grid without columns has one a row",
                            limits(cells.len())
                        )
                    } else {
                        format!("this row has {} for {width} columns", limits(cells.len()))
                    },
                )
                .help("write \"-\" where there is no limit");
                self.say(match &table.at {
                    Some(at) => problem.also(at.span.clone(), "the columns"),
                    None => problem,
                });
                continue;
            }
            for (cell, column) in cells.iter().zip(&columns) {
                let limit = self.grid_limit(cell, metric, side, scope);
                // A row or column without a readable value has been spoken of.
                let (Some(limit), Some((row, _))) = (limit, &head) else { continue };
                if !one_axis && column.is_none() {
                    continue;
                }
                entries.push(GridEntry {
                    row: row.clone(),
                    column: column.clone(),
                    limit,
                    place: self.place(&cell.span),
                    span: cell.span.clone(),
                });
            }
        }
        if grid.value.is_empty() {
            self.say(
                Problem::at("grid-shape", grid.span.clone(), "a grid without rows")
                    .help("write at least one row, like [\"8K\", 100]"),
            );
        } else if !entries.is_empty() && entries.iter().all(|entry| entry.limit == GridLimit::None)
        {
            self.say(
                Problem::at("empty-bound", grid.span.clone(), "this grid has no limit at all")
                    .help("write a number for at least one cell, or leave the expectation out")
                    .warning(),
            );
        }
        Some(Grid {
            rows: rows.value.clone(),
            columns: table.columns.as_ref().map(|columns| columns.value.clone()),
            entries,
        })
    }

    /// Whether the axis of a grid is one that the bounded tests have.
    fn grid_axis(&mut self, at: &At<String>, scope: &Scope<'_>) -> bool {
        let axes = axes_of(named(scope.tests, &scope.of));
        if axes.contains(&at.value.as_str()) {
            return true;
        }
        if !self.broken_axes.contains(&at.value) {
            let tests: Vec<&str> =
                named(scope.tests, &scope.of).map(|test| test.name.as_str()).collect();
            self.say(
                Problem::at(
                    "unknown-axis",
                    at.span.clone(),
                    format!("{} has no axis `{}`", tests.join(" and "), at.value),
                )
                .help(hint(&at.value, &axes, "axes are")),
            );
        }
        false
    }

    /// Canonical values of a grid's row or column heads, `None` where one can't be read.
    fn grid_values<'v>(
        &mut self,
        axis: &str,
        values: impl Iterator<Item = &'v At<Scalar>>,
        what: &str,
        scope: &Scope<'_>,
    ) -> Vec<Option<(String, Range<usize>)>> {
        let kind = self.axis_kind(axis);
        let mut seen: HashMap<String, Range<usize>> = HashMap::new();
        let mut out = Vec::new();
        for at in values {
            let value = self
                .axis_scalar(kind, axis, &at.value, &at.span)
                .map(|value| value.to_string())
                .filter(|value| self.known_value(axis, value, &at.span, scope));
            if let Some(value) = &value {
                if let Some(first) = seen.get(value) {
                    self.say(
                        Problem::at(
                            "grid-shape",
                            at.span.clone(),
                            format!("two {what}s for {axis} {value}"),
                        )
                        .label("second")
                        .also(first.clone(), "first")
                        .help("keep one of them"),
                    );
                } else {
                    seen.insert(value.clone(), at.span.clone());
                }
            }
            out.push(value.map(|value| (value, at.span.clone())));
        }
        out
    }

    fn grid_limit(
        &mut self,
        cell: &At<Scalar>,
        metric: Metric,
        side: Side,
        scope: &Scope<'_>,
    ) -> Option<GridLimit> {
        match &cell.value {
            Scalar::Integer(n) => {
                self.positive(metric, *n as f64, side, &cell.span).map(GridLimit::Value)
            }
            Scalar::Float(n) => self.positive(metric, *n, side, &cell.span).map(GridLimit::Value),
            Scalar::Text(text) if text == "-" => Some(GridLimit::None),
            Scalar::Text(text) if text == "over" => {
                let reckoned = named(scope.tests, &scope.of).any(|test| match &test.kind {
                    TestSetting::Decode(decode) => decode.capacity != Capacity::Off,
                    TestSetting::Prefill { .. }
                    | TestSetting::Serve(_)
                    | TestSetting::Startup
                    | TestSetting::Command(_) => false,
                });
                if !reckoned {
                    self.say(
                        Problem::at(
                            "grid-limit",
                            cell.span.clone(),
                            "none of these tests reckons KV capacity, so nothing can be over it",
                        )
                        .help("\"over\" is for decode tests whose `capacity` is reserve or share"),
                    );
                    return None;
                }
                Some(GridLimit::Over)
            }
            Scalar::Text(text) => match super::expect::quantity(metric, text) {
                Ok(number) => self.positive(metric, number, side, &cell.span).map(GridLimit::Value),
                Err(refused) => {
                    self.say(Problem::at("grid-limit", cell.span.clone(), refused.message).help(
                        format!(
                            "{}; \"-\" for no limit, \"over\" for over capacity",
                            refused.help.unwrap_or_default()
                        ),
                    ));
                    None
                }
            },
            Scalar::Bool(b) => {
                self.say(
                    Problem::at("grid-limit", cell.span.clone(), format!("`{b}` is not a limit"))
                        .help("write a number, \"-\" for no limit, or \"over\" for over capacity"),
                );
                None
            }
        }
    }
}

fn limits(n: usize) -> String {
    if n == 1 { "1 limit".to_owned() } else { format!("{n} limits") }
}
