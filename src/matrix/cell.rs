//! A cell seen from its plan: its name, its values, its bounds, how long it may take.

use std::fmt::Write as _;
use std::time::Duration;

use super::bound::KnownAxes;
use super::{Cell, CellBound, Plan};
use crate::judge::{Severity, Side};
use crate::load::{Arrival, Length};
use crate::measure::{Base, Stat};
use crate::suite::model::{
    Against, Amount, AxisValue, DecodeSetting, LengthSetting, Limits, Prefix, Quarantine,
    Reference, ServeSetting, Test, TestSetting,
};

/// Prompt tokens a second that an estimate assumes where no bound says more.
const PREFILL_RATE: f64 = 10_000.0;
/// Tokens a second of one stream that an estimate assumes where no bound says more.
const STREAM_RATE: f64 = 30.0;
/// Seconds to the first token of a warm prompt that an estimate assumes where no bound says more.
const WARM_TTFT: f64 = 0.3;
/// Seconds that an estimate assumes of an external tool, of which nothing is known.
const TOOL: f64 = 60.0;

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

    /// What a ratio is held against, in words: a file, `REVISION:FILE`, `variant NAME`.
    pub fn reference(&self, against: &Against) -> String {
        match &against.reference {
            Reference::File(file) => file.display().to_string(),
            Reference::Git { revision, file } => format!("{revision}:{}", file.display()),
            Reference::Variant(setting) => {
                let setting = self.suite.settings.get(*setting as usize);
                let name = setting.and_then(|setting| setting.variant.as_deref());
                format!("variant {}", name.unwrap_or_default())
            }
        }
    }

    /// How many comparisons can fail this plan: the family that shares `policy.alpha`. It follows from
    /// suite and selection alone. Where the mean ratio of all cells has a limit too, that takes half of
    /// `policy.alpha`, so that each of the others has half of its share.
    pub fn comparisons(&self) -> u64 {
        let ratios = |limits: &(Side, Limits)| matches!(limits.1, Limits::Ratio { .. });
        if !self.suite.expectations.iter().any(|it| it.bounds.iter().any(ratios)) {
            return 0;
        }
        let of = |cell| {
            let bounds = self.bounds(cell);
            let judged =
                |bound: &&CellBound| bound.against.is_some() && bound.severity == Severity::Fail;
            bounds.iter().filter(judged).count() as u64
        };
        self.cells.iter().map(of).sum::<u64>() * if self.halves() { 2 } else { 1 }
    }

    /// Whether the mean ratio of all cells has a limit, and half of `policy.alpha` for it.
    pub fn halves(&self) -> bool {
        self.suite.compare.as_ref().is_some_and(|it| it.min_mean_ratio.is_some())
    }

    /// The quarantine that holds for a cell, the first where there are several.
    pub fn quarantine(&self, cell: &Cell) -> Option<&Quarantine> {
        self.index.quarantine(&self.suite, cell)
    }

    fn known_axes(&self, cell: &Cell) -> &KnownAxes {
        &self.index.known_axes[cell.test as usize]
    }

    /// Prompt length in tokens, of a serve test the greatest that is possible. 0 for a startup test, and
    /// where the prompts come out of a file that nothing limits.
    pub fn context_tokens(&self, cell: &Cell) -> u64 {
        context_tokens(self.test(cell), self.known_axes(cell), &cell.point)
    }

    /// Streams at once: of a decode test and of a closed loop; 1 for the others that have no axis
    /// `concurrency`.
    pub fn concurrency(&self, cell: &Cell) -> u64 {
        concurrency(self.test(cell), self.known_axes(cell), &cell.point)
    }

    /// Requests a second of an open loop; `None` where the test has no axis `request_rate`.
    pub fn request_rate(&self, cell: &Cell) -> Option<f64> {
        request_rate(self.test(cell), self.known_axes(cell), &cell.point)
    }

    /// Lengths of the cell's prompts in tokens: of a serve test as its axis and its `input` say, with the
    /// jitter around the axis' value. A serve test with a data set takes its prompts from there instead.
    pub fn input_length(&self, cell: &Cell) -> Length {
        input_length(self.test(cell), self.known_axes(cell), &cell.point)
    }

    /// Lengths of the cell's outputs in tokens, likewise. With a data set they are for the entries that
    /// don't say their own.
    pub fn output_length(&self, cell: &Cell) -> Length {
        output_length(self.test(cell), self.known_axes(cell), &cell.point)
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
                .filter(|bound| bound.against.is_none())
                .filter(|bound| stat.is_none() || bound.metric.stat == stat)
                .filter_map(|bound| bound.bound)
                .find(|bound| bound.side == side && bound.target > 0.0)
                .map(|bound| bound.target)
        };
        let seconds = match &self.test(cell).kind {
            TestSetting::Startup => 0.0,
            TestSetting::Command(setting) => {
                TOOL.min(setting.timeout.as_secs_f64()) * f64::from(setting.repeat)
            }
            TestSetting::Serve(setting) => {
                let total = target(Base::OutputThroughput, None, Side::Min);
                let ttft = target(Base::Ttft, Some(Stat::P50), Side::Max).map(|ms| ms / 1e3);
                self.serve_seconds(cell, setting, total, ttft)
            }
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

    /// Seconds of a serve cell, given what its bounds ask of the engine: tokens a second in all, and
    /// seconds to the first token.
    fn serve_seconds(
        &self,
        cell: &Cell,
        setting: &ServeSetting,
        total: Option<f64>,
        ttft: Option<f64>,
    ) -> f64 {
        let output = middle(self.output_length(cell));
        let prefill = middle(self.input_length(cell)) / PREFILL_RATE;
        let one = |streams: f64| {
            let rate = total.map_or(STREAM_RATE, |total| total / streams);
            ttft.unwrap_or(prefill) + output / rate
        };
        let warmup = f64::from(setting.warmup_per_stream);
        let once = match (setting.arrival, setting.amount) {
            (Arrival::Closed | Arrival::Burst, Amount::Duration(window)) => {
                window.as_secs_f64() + warmup * one(self.concurrency(cell) as f64)
            }
            (Arrival::Closed, Amount::Requests(requests)) => {
                let streams = self.concurrency(cell) as f64;
                ((requests as f64 / streams).ceil() + warmup) * one(streams)
            }
            (Arrival::Closed, Amount::PerStream(requests)) => {
                (requests as f64 + warmup) * one(self.concurrency(cell) as f64)
            }
            (Arrival::Burst, Amount::Requests(requests) | Amount::PerStream(requests)) => {
                // All prompts are waiting at once, and the engine reads them one after the other.
                let requests = requests as f64;
                requests * prefill + one(requests)
            }
            (Arrival::Constant | Arrival::Poisson, amount) => {
                let rate = self.request_rate(cell).unwrap_or(1.0);
                let window = match amount {
                    Amount::Duration(window) => window.as_secs_f64(),
                    Amount::Requests(requests) | Amount::PerStream(requests) => {
                        requests as f64 / rate
                    }
                };
                window + (warmup + 1.0) * one(1.0)
            }
        };
        1.0 + once * f64::from(setting.repeat)
    }

    /// Prompts that no cell of the same context and fewer streams has warmed.
    fn prompts_to_warm(&self, cell: &Cell, setting: &DecodeSetting) -> f64 {
        let streams = self.concurrency(cell);
        let smaller = self.known_axes(cell).concurrency.and_then(|position| {
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

/// The value of an axis at a point, given where the axis stands.
fn at<'t>(test: &'t Test, position: Option<usize>, point: &[u16]) -> Option<&'t AxisValue> {
    let position = position?;
    test.axes[position].values.get(usize::from(point[position]))
}

/// Prompt length of a point of a test, of several the greatest.
pub(super) fn context_tokens(test: &Test, known: &KnownAxes, point: &[u16]) -> u64 {
    if let Some(value) = at(test, known.context, point) {
        return count(value);
    }
    match &test.kind {
        TestSetting::Prefill { context, .. } => *context,
        TestSetting::Decode(setting) => setting.context,
        TestSetting::Serve(setting) => match &setting.dataset {
            Some(dataset) => dataset.input.1.or(dataset.total).unwrap_or(0),
            None => input_length(test, known, point).greatest(),
        },
        TestSetting::Startup | TestSetting::Command(_) => {
            at(test, known.input, point).map_or(0, count)
        }
    }
}

/// Streams of a point of a test.
pub(super) fn concurrency(test: &Test, known: &KnownAxes, point: &[u16]) -> u64 {
    if let Some(value) = at(test, known.concurrency, point) {
        return count(value);
    }
    match &test.kind {
        TestSetting::Decode(setting) => setting.concurrency,
        TestSetting::Serve(setting) => setting.concurrency,
        TestSetting::Prefill { .. } | TestSetting::Startup | TestSetting::Command(_) => 1,
    }
}

/// Requests a second of a point of a test.
pub(super) fn request_rate(test: &Test, known: &KnownAxes, point: &[u16]) -> Option<f64> {
    at(test, known.request_rate, point)?.number()
}

/// Prompt lengths of a point of a test.
pub(super) fn input_length(test: &Test, known: &KnownAxes, point: &[u16]) -> Length {
    match &test.kind {
        TestSetting::Serve(setting) => length(setting.input, at(test, known.input, point)),
        TestSetting::Prefill { .. }
        | TestSetting::Decode(_)
        | TestSetting::Startup
        | TestSetting::Command(_) => Length::Fixed(context_tokens(test, known, point)),
    }
}

/// Output lengths of a point of a test.
pub(super) fn output_length(test: &Test, known: &KnownAxes, point: &[u16]) -> Length {
    let axis = at(test, known.output, point);
    match &test.kind {
        TestSetting::Serve(setting) => length(setting.output, axis),
        TestSetting::Decode(setting) => Length::Fixed(setting.max_output),
        TestSetting::Prefill { .. } => Length::Fixed(1),
        TestSetting::Startup | TestSetting::Command(_) => Length::Fixed(axis.map_or(0, count)),
    }
}

/// Lengths as a setting tells them, around the value of an axis where there is one.
pub(super) fn length(setting: LengthSetting, axis: Option<&AxisValue>) -> Length {
    match (setting, axis.map(count)) {
        (LengthSetting::Plain(length), None) => length,
        (LengthSetting::Plain(_), Some(tokens)) => Length::Fixed(tokens),
        (LengthSetting::Jitter { around, share }, tokens) => {
            let middle = tokens.unwrap_or(around) as f64;
            let end = |sign: f64| (middle * (1.0 + sign * share)).round().max(1.0) as u64;
            Length::Uniform(end(-1.0), end(1.0))
        }
    }
}

/// The mean length.
fn middle(length: Length) -> f64 {
    match length {
        Length::Fixed(tokens) => tokens as f64,
        Length::Uniform(least, most) => (least as f64 + most as f64) / 2.0,
        Length::Normal { mean, .. } => mean,
    }
}

/// The whole number of a value of an axis of counts.
fn count(value: &AxisValue) -> u64 {
    match value {
        AxisValue::Tokens(tokens) => *tokens,
        AxisValue::Integer(whole) => u64::try_from(*whole).unwrap_or(0),
        AxisValue::Float(number) => *number as u64,
        AxisValue::Text(_) | AxisValue::Bool(_) | AxisValue::Table { .. } => 0,
    }
}
