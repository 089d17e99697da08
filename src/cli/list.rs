//! `tokgate list`: what a suite comes to: its launches with their commands, its cells with their
//! binding limits and how long they may take.
//!
//! It starts nothing. As JSON it writes one line for each launch, one for each cell and a summary
//! last, so that a million cells need no memory.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::engine::{Kind, LaunchSpec};
use crate::judge::{Severity, Side};
use crate::matrix::{Cell, CellBound, Plan};
use crate::quantity::{print_duration, print_number};
use crate::suite::model::{EngineSource, Limits, Place, Reference};
use crate::template::TemplateError;

use super::exit::Exit;
use super::shape::{self, Choice, Overlay, Planned};
use super::shard::{Sharding, Split};
use super::{Global, voice};

/// Arguments of `tokgate list`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The suite file
    pub suite: PathBuf,
    /// Text for people, or JSON Lines: launches, cells, a summary last
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Say only where the value of a key comes from, such as engine.version
    #[arg(long, value_name = "KEY")]
    pub explain: Option<String>,
    #[command(flatten)]
    pub(super) choice: Choice,
    #[command(flatten)]
    pub(super) overlay: Overlay,
    #[command(flatten)]
    pub(super) sharding: Sharding,
}

/// How the list is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// JSON Lines
    Json,
}

/// Why a list was not written.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The output does not take it.
    #[error("the list can't be written: {0}")]
    Output(#[from] io::Error),
    /// A launch can't be rendered.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// Lists a suite on stdout, or says who set a value of it.
pub fn run(args: &Args, global: &Global) -> Exit {
    let color = global.color_stderr();
    let planned = match shape::plan(&args.suite, &args.overlay, &args.choice, color) {
        Ok(planned) => planned,
        Err(wrong) => return wrong,
    };
    if let Some(key) = &args.explain {
        return explain(&planned, key);
    }
    if !planned.warnings.is_empty() && !global.quiet {
        super::say_as_is(&planned.warnings.render(color));
    }
    if planned.plan.cells.is_empty() {
        return shape::nothing(&args.suite);
    }
    let split = match args.sharding.split(&planned.plan) {
        Ok(split) => split,
        Err(wrong) => return wrong,
    };
    let part = split.as_ref().map(Split::part);
    let plan = part.as_ref().unwrap_or(&planned.plan);
    let mut out = voice::Veil::new(io::stdout().lock());
    let written = write(args.format, plan, split.as_ref(), &mut out);
    match written.and_then(|()| Ok(out.close()?)) {
        Ok(()) => Exit::Pass,
        // A reader that closes early, `| head`, has what it wants.
        Err(ListError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Pass,
        Err(error @ ListError::Output(_)) => {
            super::say(&format!("error: {error}"));
            Exit::Unwritten
        }
        Err(error @ ListError::Template(_)) => {
            super::say(&format!("error: {error}"));
            Exit::Suite
        }
    }
}

fn explain(planned: &Planned, key: &str) -> Exit {
    match planned.loaded.explain.key(key, &planned.loaded.source) {
        Ok(text) => super::print(&text),
        Err(error) => {
            super::say(&format!("error: {error}"));
            if let Some(help) = error.help {
                super::say(&format!("  help: {help}"));
            }
            Exit::Suite
        }
    }
}

/// Writes the list of a plan, or of the part of it that a shard is.
///
/// # Errors
/// The output does not take it, or a launch can't be rendered any more.
fn write(
    format: Format,
    plan: &Plan,
    split: Option<&Split>,
    out: impl Write,
) -> Result<(), ListError> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    match format {
        Format::Text => text(plan, split, &mut out)?,
        Format::Json => json(plan, split, &mut out)?,
    }
    out.flush()?;
    Ok(())
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "kebab-case")]
enum Line<'a> {
    Launch {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        variant: Option<&'a str>,
        engine: Kind,
        /// Program and arguments; absent where nothing is started.
        #[serde(skip_serializing_if = "Option::is_none")]
        argv: Option<&'a [String]>,
        url: &'a str,
        /// Names only: values may be nobody's business.
        env: Vec<&'a str>,
        cells: usize,
        /// How often its engine is started; 0 of one that runs already.
        starts: u64,
    },
    Cell {
        id: &'a str,
        classname: &'a str,
        test: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        variant: Option<&'a str>,
        launch: &'a str,
        /// How many fresh launches measure it.
        launches: u32,
        /// Seconds, of all launches together.
        estimate: f64,
        bounds: Vec<BoundLine>,
        #[serde(skip_serializing_if = "Option::is_none")]
        quarantine: Option<QuarantineLine<'a>>,
    },
    Summary {
        suite: &'a str,
        launches: usize,
        cells: usize,
        /// Cells that nothing is expected of.
        unjudged: usize,
        /// Engine starts in all, restarts aside.
        starts: u64,
        /// Seconds at the pace of the limits, of all launches together, engine starts aside.
        estimate: f64,
        /// Seconds that the engine starts are taken to need besides.
        estimate_of_starts: f64,
        plan: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        shard: Option<ShardLine>,
    },
}

/// Which shard is listed, and what the whole plan has.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ShardLine {
    index: u32,
    of: u32,
    launches_in_all: usize,
    cells_in_all: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct BoundLine {
    metric: String,
    /// What the cell must reach, slack taken off.
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<f64>,
    /// What the cell must stay below, slack added.
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<f64>,
    /// The number as written, where slack makes it another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<f64>,
    /// At least this share of what it is held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_ratio: Option<f64>,
    /// At most this share of what it is held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_ratio: Option<f64>,
    /// The file of recorded runs, `REVISION:FILE` of git, or `variant NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<String>,
    /// How many pairs of launches it is judged by, where the two variants are compared in pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pairs: Option<u32>,
    /// Whether the cell must be over capacity.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    over: bool,
    severity: Severity,
    /// File and line.
    #[serde(serialize_with = "as_text")]
    at: Place,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct QuarantineLine<'a> {
    reason: &'a str,
    #[serde(serialize_with = "as_text")]
    expires: jiff::civil::Date,
    #[serde(serialize_with = "as_text")]
    at: &'a Place,
}

fn as_text<S: serde::Serializer>(
    value: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl BoundLine {
    fn new(plan: &Plan, cell: &Cell, bound: CellBound) -> BoundLine {
        let relative = bound.against.is_some();
        let limit = |side: Side, ratio: bool| {
            bound.bound.filter(|b| b.side == side && ratio == relative).map(|b| b.limit)
        };
        BoundLine {
            metric: bound.metric.to_string(),
            min: limit(Side::Min, false),
            max: limit(Side::Max, false),
            target: bound.bound.filter(|b| b.target != b.limit && !relative).map(|b| b.target),
            min_ratio: limit(Side::Min, true),
            max_ratio: limit(Side::Max, true),
            pairs: bound.against.as_ref().and_then(|against| plan.pairs_of(cell, against)),
            against: bound.against.map(|against| plan.reference(&against)),
            over: bound.bound.is_none(),
            severity: bound.severity,
            at: bound.place,
        }
    }
}

fn json(plan: &Plan, split: Option<&Split>, out: &mut impl Write) -> Result<(), ListError> {
    for (index, launch) in plan.launches.iter().enumerate() {
        let spec = plan.preview(index)?;
        let line = Line::Launch {
            name: &launch.name,
            variant: plan.suite.settings[launch.setting as usize].variant.as_deref(),
            engine: spec.kind,
            argv: spec.command.as_ref().map(|command| command.argv.as_slice()),
            url: &spec.url,
            env: spec.env.iter().map(|(name, _)| name.as_str()).collect(),
            cells: launch.cells.len(),
            starts: plan.starts_of(index),
        };
        write_line(out, &line)?;
    }
    let mut total = Duration::ZERO;
    let mut unjudged = 0;
    let mut id = String::new();
    // The class changes with test and setting only.
    let mut class = (u32::MAX, u32::MAX, String::new());
    for cell in &plan.cells {
        id.clear();
        plan.write_cell_id(cell, &mut id);
        if (class.0, class.1) != (cell.test, cell.setting) {
            class = (cell.test, cell.setting, plan.classname(cell));
        }
        let bounds = plan.bounds(cell);
        let launches = plan.rounds(cell);
        let estimate = plan.estimate_with(cell, &bounds).saturating_mul(launches);
        total = total.saturating_add(estimate);
        unjudged += usize::from(idle(plan, cell, &bounds));
        let line = Line::Cell {
            id: &id,
            classname: &class.2,
            test: &plan.test(cell).name,
            variant: plan.variant(cell),
            launch: &plan.launches[cell.launch as usize].name,
            launches,
            estimate: tenths(estimate),
            bounds: bounds.into_iter().map(|bound| BoundLine::new(plan, cell, bound)).collect(),
            quarantine: plan.quarantine(cell).map(|quarantine| QuarantineLine {
                reason: &quarantine.reason,
                expires: quarantine.expires,
                at: &quarantine.place,
            }),
        };
        write_line(out, &line)?;
    }
    let summary = Line::Summary {
        suite: &plan.suite.name,
        launches: plan.launches.len(),
        cells: plan.cells.len(),
        unjudged,
        starts: plan.engines(),
        estimate: tenths(total),
        estimate_of_starts: tenths(starting(plan)),
        plan: &plan.hash,
        shard: split.map(|split| ShardLine {
            index: split.shard.index,
            of: split.shard.of,
            launches_in_all: split.whole.launches.len(),
            cells_in_all: split.whole.cells.len(),
        }),
    };
    write_line(out, &summary)?;
    Ok(())
}

fn write_line(out: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Seconds, rounded to a tenth: an estimate is no better than that.
fn tenths(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10.0).round() / 10.0
}

fn text(plan: &Plan, split: Option<&Split>, out: &mut impl Write) -> Result<(), ListError> {
    let mut total = Duration::ZERO;
    let mut unjudged = 0;
    for (index, launch) in plan.launches.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        launch_text(plan, index, &plan.preview(index)?, out)?;
        let cells = &plan.cells[launch.cells.clone()];
        let width = cells.iter().take(10_000).map(|cell| plan.cell_id(cell).len()).max();
        let width = width.unwrap_or(0).min(60);
        let time = |cell: &Cell| time_text(plan, cell, plan.estimate(cell)).chars().count();
        let time = cells.iter().take(10_000).map(time).max().unwrap_or(0).max(6);
        let mut test = None;
        for cell in cells {
            if test != Some(cell.test) {
                test = Some(cell.test);
                writeln!(out, "  {}", plan.classname(cell))?;
            }
            let bounds = plan.bounds(cell);
            let estimate = plan.estimate_with(cell, &bounds);
            total = total.saturating_add(estimate.saturating_mul(plan.rounds(cell)));
            unjudged += usize::from(idle(plan, cell, &bounds));
            cell_text(plan, cell, estimate, &bounds, (width, time), out)?;
        }
    }
    if !plan.launches.is_empty() {
        writeln!(out)?;
    }
    write!(out, "{}: ", plan.suite.name)?;
    let (cells, launches) = (plan.cells.len(), plan.launches.len());
    match split {
        None => {
            let launches = counted(launches, "launch", "launches");
            write!(out, "{} in {launches}", counted(cells, "cell", "cells"))?;
        }
        Some(Split { whole, shard, .. }) => write!(
            out,
            "shard {} of {}: {cells} of {} in {launches} of {}",
            shard.index,
            shard.of,
            counted(whole.cells.len(), "cell", "cells"),
            counted(whole.launches.len(), "launch", "launches"),
        )?,
    }
    let starts = plan.engines();
    if starts > launches as u64 {
        write!(out, " ({} engine starts)", print_number(starts as f64, 0))?;
    }
    let starting = starting(plan);
    let time = rough(total);
    write!(out, ", about {time} at the pace of the limits")?;
    if starting.is_zero() {
        write!(out, ", engine starts aside")?;
    } else {
        write!(out, " and {} for engine starts", rough(starting))?;
    }
    if let Some(compare) = &plan.suite.compare
        && let Some((limit, place)) = &compare.min_mean_ratio
    {
        let limit = print_number(*limit, 6);
        let merged = if split.is_some() { " when merged" } else { "" };
        write!(out, "; mean ratio of {} pairs ≥ {limit}{merged} ({place})", compare.pairs)?;
    }
    if unjudged > 0 {
        write!(out, "; nothing is expected of {}", counted(unjudged, "cell", "cells"))?;
    }
    writeln!(out)?;
    Ok(())
}

fn launch_text(
    plan: &Plan,
    index: usize,
    spec: &LaunchSpec,
    out: &mut impl Write,
) -> io::Result<()> {
    let launch = &plan.launches[index];
    let setting = &plan.suite.settings[launch.setting as usize];
    write!(out, "launch {}", launch.name)?;
    if let Some(variant) = &setting.variant
        && *variant != launch.name
    {
        write!(out, " (variant {variant})")?;
    }
    write!(out, ": {}", counted(launch.cells.len(), "cell", "cells"))?;
    if plan.starts_of(index) > 1 {
        write!(out, ", started {} times", plan.starts_of(index))?;
    }
    writeln!(out)?;
    match (&spec.command, &setting.engine.source) {
        (Some(command), _) => writeln!(out, "  $ {}", shell_words::join(&command.argv))?,
        (None, EngineSource::Sim { .. }) => writeln!(out, "  the simulated engine, in process")?,
        (None, EngineSource::Command(_) | EngineSource::Url(_)) => {
            writeln!(out, "  running at {}", spec.url)?;
        }
    }
    if !spec.env.is_empty() {
        let names: Vec<&str> = spec.env.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(out, "  env {}", names.join(" "))?;
    }
    Ok(())
}

fn cell_text(
    plan: &Plan,
    cell: &Cell,
    estimate: Duration,
    bounds: &[CellBound],
    (width, most): (usize, usize),
    out: &mut impl Write,
) -> io::Result<()> {
    let mut words: Vec<String> = bounds.iter().map(|it| bound_text(plan, cell, it)).collect();
    if let Some(quarantine) = plan.quarantine(cell) {
        words.push(format!(
            "quarantined until {}: {} ({})",
            quarantine.expires, quarantine.reason, quarantine.place
        ));
    }
    let time = time_text(plan, cell, estimate);
    let line = format!("    {:width$}  {time:>most$}  {}", plan.cell_id(cell), words.join("; "));
    writeln!(out, "{}", line.trim_end())
}

/// `45s`, `8 × 45s`.
fn time_text(plan: &Plan, cell: &Cell, estimate: Duration) -> String {
    match plan.rounds(cell) {
        0 | 1 => rough(estimate),
        launches => format!("{launches} × {}", rough(estimate)),
    }
}

/// Whether a cell is there for nothing: no bound is on it, and no cell is held against its variant.
fn idle(plan: &Plan, cell: &Cell, bounds: &[CellBound]) -> bool {
    let against = |(_, limits): &(Side, Limits)| match limits {
        Limits::Ratio { against, .. } => against.reference == Reference::Variant(cell.setting),
        Limits::Scalar { .. } | Limits::Grid(_) => false,
    };
    bounds.is_empty() && !plan.suite.expectations.iter().any(|it| it.bounds.iter().any(against))
}

/// What engine starts are taken to need in all.
fn starting(plan: &Plan) -> Duration {
    let one = |(index, launch)| {
        let starts = u32::try_from(plan.starts_of(index)).unwrap_or(u32::MAX);
        plan.start_of(launch).saturating_mul(starts)
    };
    plan.launches.iter().enumerate().map(one).fold(Duration::ZERO, Duration::saturating_add)
}

fn bound_text(plan: &Plan, cell: &Cell, bound: &CellBound) -> String {
    let severity = match bound.severity {
        Severity::Fail => "",
        Severity::Warn => ", warn only",
        Severity::Report => ", report only",
    };
    let Some(asked) = bound.bound else {
        return format!("over capacity ({})", bound.place);
    };
    let sign = match asked.side {
        Side::Min => "≥",
        Side::Max => "≤",
    };
    if let Some(against) = &bound.against {
        let pairs = plan.pairs_of(cell, against).map(|pairs| format!(" in {pairs} pairs"));
        return format!(
            "{} {sign} {} × {}{} ({}{severity})",
            bound.metric,
            print_number(asked.limit, 6),
            plan.reference(against),
            pairs.unwrap_or_default(),
            bound.place
        );
    }
    let unit = bound.metric.base.entry().unit;
    let blank = if unit.is_empty() { "" } else { " " };
    format!(
        "{} {sign} {}{blank}{unit} ({}{severity})",
        bound.metric,
        print_number(asked.limit, 1),
        bound.place
    )
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", print_number(count as f64, 0), if count == 1 { one } else { many })
}

/// A duration to the second, or to the minute beyond an hour.
fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", (seconds + 30) / 60),
        _ => print_duration(Duration::from_secs((seconds + 1800) / 3600 * 3600)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::matrix::sample::{self, Sample};
    use crate::matrix::{Selection, expand};

    fn listed(sample: &Sample, format: Format) -> String {
        let plan = expand(Arc::new(sample.suite()), &Selection::default()).unwrap();
        let mut out = Vec::new();
        write(format, &plan, None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn example() -> Sample {
        Sample::new("serve {{ model.name }} --tp {{ axis.layout.tp }} --port {{ port }} {{ secret.api_key }}")
            .model("org/model")
            .secret("api_key")
            .env("A_B", "x")
            .test(sample::prefill("prefill").axis(sample::tokens("context", &[8192, 16384])).axis(
                sample::tables("layout", &[("tp8", 8), ("tp4", 4)]),
            ))
            .test(
                sample::decode("decode")
                    .axis(sample::tokens("context", &[8192]))
                    .axis(sample::counts("concurrency", &[1, 128]))
                    .axis(sample::tables("layout", &[("tp8", 8), ("tp4", 4)])),
            )
            .floor("decode", "output-throughput", 100.0, 0.05, "concurrency=128")
            .quarantine("test=prefill context=16K layout=tp4")
            .over("decode", "context", "8K", "layout", "tp4")
    }

    #[test]
    fn text_shows_launches_cells_and_limits() {
        insta::assert_snapshot!(listed(&example(), Format::Text));
    }

    #[test]
    fn json_is_a_line_each_and_a_summary_last() {
        insta::assert_snapshot!(listed(&example(), Format::Json));
    }

    #[test]
    fn secrets_are_redacted_and_environment_values_left_out() {
        let text = listed(&example(), Format::Json) + &listed(&example(), Format::Text);
        assert!(text.contains("<redacted:api_key>"));
        assert!(!text.contains("\"x\""));
    }
}
