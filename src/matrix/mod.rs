//! The matrix: a suite expanded into a plan of launches and cells.
//!
//! It decides which cells there are, which share a launch, in which order they run and which limits
//! bind each. It starts nothing and measures nothing.

pub mod cell;
pub mod expand;
pub mod launch;
pub mod select;

use std::ops::Range;
use std::sync::Arc;

use crate::judge::{Bound, Severity};
use crate::measure::Metric;
use crate::suite::model::{Place, Suite};

/// What a run will do: a pure function of suite and selection.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The suite.
    pub suite: Arc<Suite>,
    /// Engine starts, in order.
    pub launches: Vec<PlannedLaunch>,
    /// Selected cells in run order; those of a launch stand together.
    pub cells: Vec<Cell>,
    /// Hash of suite tree and selection.
    pub hash: String,
}

/// One engine start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLaunch {
    /// The axis values that tell it from the others, else `engine`.
    pub name: String,
    /// Index into `suite.settings`.
    pub setting: u32,
    /// Its cells, as a range of `Plan::cells`.
    pub cells: Range<usize>,
}

/// One test at one point of its axes. Small, since a plan may hold a million.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Index into `suite.tests`.
    pub test: u32,
    /// Index into `suite.settings`.
    pub setting: u32,
    /// Index into `Plan::launches`.
    pub launch: u32,
    /// For each axis of the test, the index of its value.
    pub point: Box<[u16]>,
}

/// One bound on one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellBound {
    /// Index into `suite.expectations`.
    pub expectation: usize,
    /// The metric.
    pub metric: Metric,
    /// What is asked; `None` is `"over"`: the cell must be over capacity.
    pub bound: Option<Bound>,
    /// Slack as a fraction.
    pub slack: f64,
    /// How much it matters.
    pub severity: Severity,
    /// Where the number stands.
    pub place: Place,
}
