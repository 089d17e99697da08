//! The matrix: a suite expanded into a plan of launches and cells.
//!
//! It decides which cells there are, which share a launch, in which order they run and which limits
//! bind each. It starts nothing and measures nothing.

pub mod bound;
pub mod cell;
pub mod effort;
pub mod expand;
pub mod launch;
pub mod naming;
mod probe;
pub mod scene;
pub mod schedule;
pub mod select;
pub mod shard;
mod sighting;
pub mod spec;
pub mod tool;
mod twin;
mod verify;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

pub use expand::expand;
pub use shard::Shard;
pub use spec::{RenderedRequest, Runtime};
pub use tool::CommandSpec;

use crate::judge::{Bound, Severity};
use crate::measure::Metric;
use crate::suite::model::{Against, Place, Selector, Suite};

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
    /// What is worth a word and stops nothing, such as an engine that nothing tells its port.
    pub warnings: Vec<Trouble>,
    /// Where the bounds and quarantines of a cell are looked up.
    index: Arc<bound::Index>,
    /// What templates see, one for each setting of the suite.
    scenes: Arc<Vec<scene::Scene>>,
}

/// One engine start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedLaunch {
    /// The axis values that tell it from the others, else `engine`.
    pub name: String,
    /// Its number among all launches of the suite, whatever is selected: prompts and `launch.id` follow
    /// from it.
    pub number: u32,
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
    /// What it is a share of: `bound` is then one of the ratio, whose target is 1.
    pub against: Option<Against>,
    /// Slack as a fraction.
    pub slack: f64,
    /// How much it matters.
    pub severity: Severity,
    /// Where the number stands.
    pub place: Place,
    /// Its byte span in the source map.
    pub span: Range<usize>,
}

/// Which cells of the suite are asked for, beside what its profile selects.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Alternatives (`-E`); empty means all.
    pub alternatives: Vec<Selector>,
    /// What is left out (`--skip`).
    pub skip: Vec<Selector>,
}

/// Something wrong with the suite that shows only in its cells.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Trouble {
    /// What kind of trouble, stable and in kebab case.
    pub code: &'static str,
    /// Bytes of the source map that are to blame.
    pub span: Option<Range<usize>>,
    /// The line to blame, where no bytes are known.
    pub place: Option<Place>,
    /// The dotted key to blame, such as `engine.env.A`, where neither says enough.
    pub key: Option<String>,
    /// A template in the blamed text, and its bytes that are to blame.
    pub part: Option<(Box<str>, Range<usize>)>,
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Whether it is only worth a word.
    pub warning: bool,
}

impl Trouble {
    fn new(code: &'static str, message: impl Into<String>) -> Trouble {
        Trouble {
            code,
            span: None,
            place: None,
            key: None,
            part: None,
            message: message.into(),
            help: None,
            warning: false,
        }
    }

    fn at(mut self, place: Option<Place>) -> Trouble {
        self.place = place;
        self
    }

    fn help(mut self, help: impl Into<String>) -> Trouble {
        self.help = Some(help.into());
        self
    }
}
