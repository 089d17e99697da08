//! A cell seen from its plan: its name, its values, its bounds, how long it may take.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Cell, CellBound, Plan};
use crate::judge::Side;
use crate::measure::{Base, Stat};
use crate::suite::model::{AxisValue, DecodeSetting, Prefix, Quarantine, Test, TestSetting};

/// Prompt tokens a second that an estimate assumes where no bound says more.
const PREFILL_RATE: f64 = 10_000.0;
/// Tokens a second of one stream that an estimate assumes where no bound says more.
const STREAM_RATE: f64 = 30.0;
/// Seconds to the first token of a warm prompt that an estimate assumes where no bound says more.
const WARM_TTFT: f64 = 0.3;

impl Plan {
    /// The test of a cell.
    pub fn test(&self, cell: &Cell) -> &Test {
        &self.suite.tests[cell.test as usize]
    }

    /// The variant of a cell, where variants are declared.
    pub fn variant(&self, cell: &Cell) -> Option<&str> {
        self.suite.settings[cell.setting as usize].variant.as_deref()
    }

    /// `context=8K,concurrency=128`: the test's axes in the order of the suite's model, values in
    /// canonical spelling. A test without axes: its name.
    pub fn cell_id(&self, cell: &Cell) -> String {
        let mut id = String::new();
        self.write_cell_id(cell, &mut id);
        id
    }

    /// Appends what [`Plan::cell_id`] returns.
    pub fn write_cell_id(&self, cell: &Cell, into: &mut String) {
        let test = self.test(cell);
        if test.axes.is_empty() {
            into.push_str(&test.name);
            return;
        }
        for (index, (axis, value)) in test.axes.iter().zip(&cell.point).enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(into, "{comma}{}={}", axis.name, axis.values[usize::from(*value)]);
        }
    }

    /// `<suite>[.<variant>].<test>`.
    pub fn classname(&self, cell: &Cell) -> String {
        let test = &self.test(cell).name;
        match self.variant(cell) {
            Some(variant) => format!("{}.{variant}.{test}", self.suite.name),
            None => format!("{}.{test}", self.suite.name),
        }
    }

    /// The value of one axis; `None` where the test has no such axis.
    pub fn axis(&self, cell: &Cell, name: &str) -> Option<&AxisValue> {
        let axes = &self.test(cell).axes;
        let position = axes.iter().position(|axis| axis.name == name)?;
        axes[position].values.get(usize::from(cell.point[position]))
    }

    /// All axes with their values, in the order of the cell's id.
    pub fn axes(&self, cell: &Cell) -> Vec<(String, AxisValue)> {
        self.test(cell)
            .axes
            .iter()
            .zip(&cell.point)
            .map(|(axis, value)| (axis.name.clone(), axis.values[usize::from(*value)].clone()))
            .collect()
    }

    /// All bounds that hold for a cell, in order of writing. An `"over"` exempts it from every
    /// other bound.
    pub fn bounds(&self, cell: &Cell) -> Vec<CellBound> {
        self.index.bounds(&self.suite, cell)
    }

    /// The quarantine that holds for a cell, the first where there are several.
    pub fn quarantine(&self, cell: &Cell) -> Option<&Quarantine> {
        self.index.quarantine(&self.suite, cell)
    }

    /// Prompt length in tokens; 0 for a startup test.
    pub fn context_tokens(&self, cell: &Cell) -> u64 {
        let test = self.test(cell);
        let position = self.index.known_axes[cell.test as usize].0;
        context_tokens(test, position, &cell.point)
    }

    /// Streams at once; 1 for prefill and startup tests.
    pub fn concurrency(&self, cell: &Cell) -> u64 {
        let test = self.test(cell);
        let position = self.index.known_axes[cell.test as usize].1;
        concurrency(test, position, &cell.point)
    }

    /// How long the cell may take, engine start aside: a first guess, from its settings and what its
    /// bounds expect of the engine.
    pub fn estimate(&self, cell: &Cell) -> Duration {
        self.estimate_with(cell, &self.bounds(cell))
    }

    /// As [`Plan::estimate`], for callers that hold the cell's bounds already.
    pub fn estimate_with(&self, cell: &Cell, bounds: &[CellBound]) -> Duration {
        if bounds.iter().any(|bound| bound.bound.is_none()) {
            return Duration::ZERO;
        }
        let context = self.context_tokens(cell) as f64;
        let target = |base: Base, stat: Option<Stat>, side: Side| {
            bounds
                .iter()
                .filter(|bound| bound.metric.base == base && !bound.metric.per_gpu)
                .filter(|bound| stat.is_none() || bound.metric.stat == stat)
                .filter_map(|bound| bound.bound)
                .find(|bound| bound.side == side && bound.target > 0.0)
                .map(|bound| bound.target)
        };
        let seconds = match &self.test(cell).kind {
            TestSetting::Startup | TestSetting::Serve(_) | TestSetting::Command(_) => 0.0,
            TestSetting::Prefill { samples, .. } => {
                let rate = target(Base::PrefillThroughput, None, Side::Min).unwrap_or(PREFILL_RATE);
                1.0 + f64::from(*samples) * context / rate
            }
            TestSetting::Decode(setting) => {
                let streams = self.concurrency(cell) as f64;
                let rate = target(Base::OutputThroughput, None, Side::Min)
                    .map_or(STREAM_RATE, |total| total / streams);
                let ttft =
                    target(Base::Ttft, Some(Stat::P50), Side::Max).map_or(WARM_TTFT, |ms| ms / 1e3);
                let waves = (f64::from(setting.ttft_samples) / streams).ceil().max(3.0);
                let window =
                    setting.duration.as_secs_f64().max(f64::from(setting.min_tokens) / rate);
                1.0 + self.prompts_to_warm(cell, setting) * context / PREFILL_RATE
                    + waves * ttft
                    + window
            }
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Prompts that no cell of the same context and fewer streams has warmed.
    fn prompts_to_warm(&self, cell: &Cell, setting: &DecodeSetting) -> f64 {
        let streams = self.concurrency(cell);
        let smaller = self.index.known_axes[cell.test as usize].1.and_then(|position| {
            let values = &self.test(cell).axes[position].values;
            values.iter().map(count).filter(|other| *other < streams).max()
        });
        match setting.prefix {
            Prefix::Shared => u64::from(smaller.is_none()) as f64,
            Prefix::Groups { groups, .. } => f64::from(groups),
            Prefix::Unique => (streams - smaller.unwrap_or(0)) as f64,
            // Cold prompts are prefilled in the waves instead.
            Prefix::Cold => streams as f64,
        }
    }
}

/// Prompt length of a point of a test, given where its axis `context` stands.
pub(super) fn context_tokens(test: &Test, position: Option<usize>, point: &[u16]) -> u64 {
    match position {
        Some(position) => count(&test.axes[position].values[usize::from(point[position])]),
        None => match &test.kind {
            TestSetting::Prefill { context, .. } => *context,
            TestSetting::Decode(setting) => setting.context,
            TestSetting::Serve(_) | TestSetting::Startup | TestSetting::Command(_) => 0,
        },
    }
}

/// Streams of a point of a test, given where its axis `concurrency` stands.
pub(super) fn concurrency(test: &Test, position: Option<usize>, point: &[u16]) -> u64 {
    match position {
        Some(position) => count(&test.axes[position].values[usize::from(point[position])]),
        None => match &test.kind {
            TestSetting::Decode(setting) => setting.concurrency,
            TestSetting::Serve(setting) => setting.concurrency,
            TestSetting::Prefill { .. } | TestSetting::Startup | TestSetting::Command(_) => 1,
        },
    }
}

/// The whole number of a value of `context` or `concurrency`.
fn count(value: &AxisValue) -> u64 {
    match value {
        AxisValue::Tokens(tokens) => *tokens,
        AxisValue::Integer(whole) => u64::try_from(*whole).unwrap_or(0),
        AxisValue::Float(number) => *number as u64,
        AxisValue::Text(_) | AxisValue::Bool(_) | AxisValue::Table { .. } => 0,
    }
}
