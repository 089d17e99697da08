//! `tokgate baseline floors`: the numbers of a suite's own bounds, computed from recorded runs and written into
//! its files.
//!
//! Which number becomes which is decided in `record::baseline`, how a file keeps its looks in
//! `suite::revise`; here runs are read, the table is printed and files are replaced.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::judge::Side;
use crate::judge::tolerance::{CONFIDENCE, COVERAGE};
use crate::matrix::{Plan, Selection, expand};
use crate::quantity::{parse_percent, print_number};
use crate::record::baseline::{
    Baseline, Floor, Floors, Key, LEAST_RUNS, Left, Number, POWER, Promise, floors, numbers,
};
use crate::report::count::plural;
use crate::suite::model::{Limits, Suite};
use crate::suite::revise::{Edit, revise};
use crate::suite::source::SourceFile;

use super::super::exit::Exit;
use super::super::shape::{self, Choice, Overlay, Planned};
use super::super::{Global, print, say};
use super::rewrite::{Rewrite, rewrite};
use super::{NAMED, record, refuse, sources};
use crate::report::columns::columns;

/// Arguments of `tokgate baseline floors`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The suite file
    suite: PathBuf,
    /// Recorded runs: baseline files, or output directories of finished runs [default: the file of the suite's
    /// [baseline]]
    #[arg(long, value_name = "FILE|DIR", num_args = 1..)]
    from: Vec<PathBuf>,
    /// Change the numbers in the suite's files
    #[arg(long)]
    write: bool,
    /// With --write: why a number may ask for less than it did
    #[arg(long, value_name = "TEXT", requires = "write")]
    reason: Option<String>,
    /// The share of runs of an unchanged engine that a limit lets pass
    #[arg(long, value_name = "SHARE", default_value_t = COVERAGE, value_parser = share)]
    coverage: f64,
    /// How surely it is that share
    #[arg(long, value_name = "SHARE", default_value_t = CONFIDENCE, value_parser = share)]
    confidence: f64,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    overlay: Overlay,
}

/// A share as `0.99` or `99%`.
fn share(text: &str) -> Result<f64, String> {
    let share = if text.contains('%') { parse_percent(text).ok() } else { text.parse().ok() };
    share
        .filter(|share| (0.5..=0.999_999).contains(share))
        .ok_or_else(|| "write a share from 0.5 to 0.999999, like 0.99".to_owned())
}

/// Computes the numbers, prints them, and writes them where that is asked for.
pub fn run(args: &Args, global: &Global) -> Exit {
    match carry_out(args, global) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn carry_out(args: &Args, global: &Global) -> Result<Exit, Exit> {
    let planned = shape::plan(&args.suite, &args.overlay, &args.choice, global.color_stderr())?;
    let whole = whole(&planned.plan)?;
    let chosen = chosen(&planned.plan);
    let mut numbers = numbers(&whole);
    if numbers.is_empty() {
        say(&format!("error: {} has no `min` or `max` to compute", args.suite.display()));
        say("  help: write one with a guess, like `min = 1`; ratios need none");
        return Err(Exit::Suite);
    }
    // A number that holds for a selected cell and for others is still that of all of them.
    let limited = !args.choice.is_empty() || !planned.plan.suite.select.is_empty();
    numbers.retain(|number| !limited || number.keys.iter().any(|key| chosen.contains(&cell(key))));
    if numbers.is_empty() {
        say("error: no number of the suite bounds the selected cells");
        say(&format!("  help: `tokgate list {}` shows which do", args.suite.display()));
        return Err(Exit::Suite);
    }
    let from = match &args.from[..] {
        [] => vec![record::named(&whole).ok_or_else(|| {
            say(&format!("error: {} names no baseline", args.suite.display()));
            say("  help: give runs by --from, or write `file = \"baselines/NAME.jsonl\"` in [baseline]");
            Exit::Suite
        })?],
        from => from.to_vec(),
    };
    let shown = from.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let baseline = sources::gather(&from, &whole)?;
    let promise = Promise { coverage: args.coverage, confidence: args.confidence };
    let found = floors(&numbers, &baseline, &planned.loaded.source, promise);
    usable(&found, &numbers, &baseline, &shown)?;
    let mut exit = Exit::Pass;
    if !global.quiet {
        exit = print(&render(&found, promise));
    }
    if !args.write {
        return Ok(exit);
    }
    unless_loosened(&found, args.reason.as_ref())?;
    Ok(exit.or(write(&planned, &found, args, global)?))
}

/// The plan of a suite with all its cells.
fn whole(plan: &Plan) -> Result<Plan, Exit> {
    let suite = Suite { select: Vec::new(), ..Suite::clone(&plan.suite) };
    expand(Arc::new(suite), &Selection::default()).map_err(|troubles| {
        for trouble in troubles {
            say(&format!("error: {trouble}"));
        }
        Exit::Suite
    })
}

/// A cell without its metric.
type CellName = (String, Option<String>, String);

fn cell(key: &Key) -> CellName {
    (key.test.clone(), key.variant.clone(), key.cell.clone())
}

/// The cells of a plan.
fn chosen(plan: &Plan) -> HashSet<CellName> {
    let name = |cell| {
        let variant = plan.variant(cell).map(str::to_owned);
        (plan.test(cell).name.clone(), variant, plan.cell_id(cell))
    };
    plan.cells.iter().map(name).collect()
}

/// Says what is wrong with runs that give no floors.
fn usable(
    found: &Floors<'_>,
    numbers: &[Number],
    baseline: &Baseline,
    from: &str,
) -> Result<(), Exit> {
    let mut tests = BTreeSet::new();
    for key in numbers.iter().flat_map(|number| &number.keys) {
        if tests.insert(&key.test)
            && let Some(misfit) = baseline.other_axes(&key.test, &key.cell)
        {
            let what = format!("the baseline {from} does not fit: {misfit}");
            return Err(refuse(&what, misfit.help()));
        }
    }
    if !found.few.is_empty() {
        let named: Vec<String> = found.few.iter().take(NAMED).map(ToString::to_string).collect();
        let more = if found.few.len() > NAMED { ", …" } else { "" };
        let what = format!(
            "the baseline {from} has fewer than {LEAST_RUNS} runs of {}: {}{more}: one run shows no noise",
            plural(found.few.len(), "value"),
            named.join(", ")
        );
        let help = "`tokgate baseline record` adds runs; five are a good number";
        return Err(refuse(&what, help));
    }
    if found.computed.is_empty() && found.left.iter().all(|(_, why)| *why <= Left::Unrecorded) {
        let what = format!("the baseline {from} has no runs of any cell that a number bounds");
        return Err(refuse(&what, "`tokgate baseline record` measures what is missing"));
    }
    Ok(())
}

/// The table, and what is not in it.
fn render(found: &Floors<'_>, promise: Promise) -> String {
    let mut rows =
        vec![["bounds", "metric", "place", "old", "new", "runs", "sees", ""].map(str::to_owned)];
    rows.extend(found.computed.iter().map(row));
    let mut out = columns(&rows, 3..7);
    let percent = |share: f64| print_number(share * 100.0, 4);
    out.push_str(&format!(
        "\nEach limit lets at least {} % of the runs of an unchanged engine pass, at {} % confidence. `sees` is the\n\
         smallest loss (of what is better when less: rise) that takes {} % of runs beyond the limit, with the noise that these show.\n",
        percent(promise.coverage),
        percent(promise.confidence),
        percent(POWER)
    ));
    for floor in &found.computed {
        if !floor.unrecorded.is_empty() {
            out.push_str(&format!(
                "note: {} holds for {} without recorded runs too: {}\n",
                floor.number.place,
                plural(floor.unrecorded.len(), "cell"),
                some(&floor.unrecorded)
            ));
        }
    }
    for (number, why) in &found.left {
        let of = match &number.keys[..] {
            [] => String::new(),
            keys => format!(" ({})", some(keys)),
        };
        out.push_str(&format!("unchanged: {} {}{of}: {why}\n", number.place, number.metric));
    }
    out
}

/// The first of some cells, in words.
fn some(keys: &[Key]) -> String {
    let named: Vec<String> = keys.iter().take(3).map(bounded).collect();
    let more = if keys.len() > 3 { ", …" } else { "" };
    format!("{}{more}", named.join(", "))
}

/// A cell, without the metric.
fn bounded(key: &Key) -> String {
    let variant = key.variant.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    format!("{variant}{} {}", key.test, key.cell).trim_end().to_owned()
}

fn row(floor: &Floor<'_>) -> [String; 8] {
    let loosest = bounded(&floor.loosest);
    let span = |(least, most): (String, String)| {
        if least == most { least } else { format!("{least}–{most}") }
    };
    let percent = |share: f64| {
        if share.is_finite() { print_number(share * 100.0, 1) } else { "–".to_owned() }
    };
    let (least, most) = floor.sees;
    [
        match floor.cells {
            1 => loosest,
            cells => format!("{loosest} (loosest of {cells})"),
        },
        floor.number.metric.to_string(),
        floor.number.place.to_string(),
        floor.before.clone(),
        floor.after.clone(),
        span((floor.runs.0.to_string(), floor.runs.1.to_string())),
        format!("{} %", span((percent(least), percent(most)))),
        match floor.loosened() {
            by if by > 0.0 => "looser",
            by if by < 0.0 => "tighter",
            _ => "",
        }
        .to_owned(),
    ]
}

/// Says that numbers would ask for less, unless there is a reason.
fn unless_loosened(found: &Floors<'_>, reason: Option<&String>) -> Result<(), Exit> {
    let mut worse: Vec<&Floor<'_>> =
        found.computed.iter().filter(|floor| floor.loosened() > 0.0).collect();
    if worse.is_empty() || reason.is_some_and(|reason| !reason.trim().is_empty()) {
        return Ok(());
    }
    worse.sort_by(|a, b| b.loosened().total_cmp(&a.loosened()));
    say(&format!("error: this would loosen {}:", plural(worse.len(), "number")));
    for floor in worse.iter().take(NAMED) {
        let way = match floor.number.side {
            Side::Min => "lower",
            Side::Max => "higher",
        };
        let by = print_number(floor.loosened() * 100.0, 1);
        say(&format!(
            "  {} {} {}: {} → {} ({by} % {way})",
            floor.number.place,
            bounded(&floor.loosest),
            floor.number.metric,
            floor.before,
            floor.after
        ));
    }
    if worse.len() > NAMED {
        say(&format!("  and {} more", worse.len() - NAMED));
    }
    say("  help: looser numbers let losses pass: say why with --reason 'TEXT', and in the commit");
    Err(Exit::Baseline)
}

/// Writes the numbers into the files that they stand in.
fn write(
    planned: &Planned,
    found: &Floors<'_>,
    args: &Args,
    global: &Global,
) -> Result<Exit, Exit> {
    let source = &planned.loaded.source;
    let mut edits: BTreeMap<usize, (&SourceFile, Vec<Edit>)> = BTreeMap::new();
    for floor in found.computed.iter().filter(|floor| floor.is_news()) {
        // Numbers that stand in no file were left out.
        let Some(file) = source.file(floor.number.span.start) else { continue };
        let edit = Edit { span: file.local(&floor.number.span), text: floor.after.clone() };
        edits.entry(file.start).or_insert_with(|| (file, Vec::new())).1.push(edit);
    }
    let mut files = Vec::new();
    for (file, edits) in edits.values() {
        let grids = grids(&planned.plan.suite, file);
        let after = revise(&file.text, &grids, edits).map_err(|error| {
            say(&format!("error: {} is not written: {error}", file.name));
            say("  help: nothing is changed; write the numbers of the table by hand");
            Exit::Suite
        })?;
        files.push(Rewrite { path: PathBuf::from(&file.name), before: file.text.clone(), after });
    }
    rewrite(&files).map_err(|error| {
        say(&format!("error: {error}"));
        say(&format!("  help: {}", error.help()));
        Exit::Unwritten
    })?;
    if !global.quiet {
        for (file, edits) in edits.values() {
            say(&format!("wrote {} in {}", plural(edits.len(), "number"), file.name));
        }
        if files.is_empty() {
            say("every number is as it should be; nothing is written");
        }
        if let Some(reason) = args.reason.as_ref().filter(|_| !files.is_empty()) {
            say(&format!("for the commit: {reason}"));
        }
    }
    Ok(Exit::Pass)
}

/// Where the entries of each grid stand that is written in a file.
fn grids(suite: &Suite, file: &SourceFile) -> Vec<Vec<std::ops::Range<usize>>> {
    let bounds = suite.expectations.iter().flat_map(|expectation| &expectation.bounds);
    let grids = bounds.filter_map(|(_, limits)| match limits {
        Limits::Grid(grid) => Some(grid),
        Limits::Scalar { .. } | Limits::Ratio { .. } => None,
    });
    let here = file.start..file.start + file.text.len();
    let spans = grids.map(|grid| {
        let entries = grid.entries.iter().filter(|entry| here.contains(&entry.span.start));
        entries.map(|entry| file.local(&entry.span)).collect::<Vec<_>>()
    });
    spans.filter(|entries| !entries.is_empty()).collect()
}
