//! `tokgate baseline record`: a suite is run some times and its values are kept.

use std::path::{Path, PathBuf};

use crate::hardware;
use crate::matrix::Plan;
use crate::record::baseline::{Baseline, BaselineError, Collected, Kept, collect};
use crate::report::count::plural;
use crate::report::json;
use crate::run::Parent;

use super::super::annotate::Annotations;
use super::super::exit::Exit;
use super::super::limit::Limits;
use super::super::run::{self, Ready};
use super::super::shape::{Choice, Overlay};
use super::super::shard::Sharding;
use super::super::share::Shares;
use super::super::{Global, say};
use super::{begin_anew, can_keep, other_engine, refuse, store, unless_lowered};

/// Arguments of `tokgate baseline record`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The suite file
    suite: PathBuf,
    /// How many runs; their spread is the noise that later runs are judged by
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    overlay: Overlay,
    /// The file [default: that of the suite's [baseline]]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// In place of what the file has of the same cells, not beside it
    #[arg(long)]
    replace: bool,
    /// With --replace: why a value may get worse; the file keeps it
    #[arg(long, value_name = "TEXT", requires = "replace")]
    reason: Option<String>,
    /// Seed of the first run; each further one has the next [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the runs' results below DIR [default: tokgate-out/<suite>-baseline]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Args {
    /// The arguments of one of the runs.
    fn of_run(&self, number: u32, out: Option<PathBuf>) -> run::Args {
        run::Args {
            suites: vec![self.suite.clone()],
            choice: self.choice.clone(),
            overlay: self.overlay.clone(),
            sharding: Sharding::default(),
            seed: self.seed.map(|seed| seed.wrapping_add(u64::from(number - 1))),
            out,
            resume: None,
            junit: Default::default(),
            annotations: Annotations::None,
            deny_warnings: false,
            fail_fast: false,
            max_fail: None,
            time_limit: None,
            calibration: None,
        }
    }
}

/// Runs the suite and writes the file.
pub fn run(args: &Args, global: &Global) -> Exit {
    let parent = Parent::now();
    let machine = hardware::probe();
    let first = args.of_run(1, None);
    let ready = match run::prepare(&args.suite, &first, global, &machine, true) {
        Ok(ready) => ready,
        Err(exit) => return exit,
    };
    let Some(file) = args.file.clone().or_else(|| named(&ready.plan)) else {
        say(&format!("error: {} names no baseline to write", args.suite.display()));
        if against_variants(&ready.plan) {
            say(
                "  help: its ratios are held against variants, which are measured in the run itself: `tokgate run` judges them; to record all the same, give --file",
            );
        } else {
            say("  help: write `file = \"baselines/NAME.jsonl\"` in [baseline], or give --file");
        }
        return Exit::Suite;
    };
    if let Some(compare) = &ready.plan.suite.compare {
        say(&format!(
            "note: each run launches both variants of [compare] {} times, and each launch is a recorded value",
            compare.pairs
        ));
    }
    let before = match existing(args, &ready, &file) {
        Ok(baseline) => baseline,
        Err(exit) => return exit,
    };
    if let Err(exit) = can_keep(&file) {
        return exit;
    }
    let mut shares = Shares::begin(Limits::begin(None, None), parent);
    match record(args, global, &ready, &file, &before, &mut shares) {
        Ok(()) => Exit::Pass,
        Err(exit) => exit,
    }
}

/// The file that a suite names: that of `[baseline]`, else the one that its expectations name.
pub(super) fn named(plan: &Plan) -> Option<PathBuf> {
    use crate::suite::model::{Limits, Reference};
    if let Some(against) = &plan.suite.baseline.file {
        return Some(against.file.clone());
    }
    let bounds = plan.suite.expectations.iter().flat_map(|expectation| &expectation.bounds);
    let mut files: Vec<&PathBuf> = bounds
        .filter_map(|(_, limits)| match limits {
            Limits::Ratio { against, .. } => match &against.reference {
                Reference::File(file) | Reference::Git { file, .. } => Some(file),
                Reference::Variant(_) => None,
            },
            Limits::Scalar { .. } | Limits::Grid(_) => None,
        })
        .collect();
    files.sort();
    files.dedup();
    match files[..] {
        [one] => Some(one.clone()),
        _ => None,
    }
}

/// Whether all ratios of a suite are held against variants.
fn against_variants(plan: &Plan) -> bool {
    use crate::suite::model::{Limits, Reference};
    let bounds = plan.suite.expectations.iter().flat_map(|expectation| &expectation.bounds);
    let mut ratios = bounds.filter_map(|(_, limits)| match limits {
        Limits::Ratio { against, .. } => Some(&against.reference),
        Limits::Scalar { .. } | Limits::Grid(_) => None,
    });
    plan.suite.compare.is_some()
        || ratios.next().is_some_and(|first| {
            let variant = |it: &Reference| matches!(it, Reference::Variant(_));
            variant(first) && ratios.all(variant)
        })
}

/// What the file holds, if it is of the same.
fn existing(args: &Args, ready: &Ready, file: &Path) -> Result<Baseline, Exit> {
    let suite = &ready.plan.suite.name;
    let anew = || Baseline::new(suite, ready.provenance.identity());
    let baseline = match Baseline::read(file) {
        Ok(baseline) => baseline,
        Err(BaselineError::Absent { .. }) => return Ok(anew()),
        Err(error) if args.replace => {
            return begin_anew(file, Kept::Baseline, &error).map(|()| anew());
        }
        Err(error) => return Err(refuse(&error.to_string(), error.help())),
    };
    let tests = ready.plan.suite.tests.iter().map(|test| test.name.as_str());
    match baseline.misfits(suite, &ready.provenance, tests).first() {
        None => Ok(baseline),
        Some(misfit) if args.replace => {
            say(&format!("warning: {} does not fit and begins anew: {misfit}", file.display()));
            Ok(anew())
        }
        Some(misfit) => {
            let what = format!("{} can't be added to: {misfit}", file.display());
            Err(refuse(&what, "name another file, or begin this one anew with --replace"))
        }
    }
}

fn record(
    args: &Args,
    global: &Global,
    ready: &Ready,
    file: &Path,
    before: &Baseline,
    shares: &mut Shares,
) -> Result<(), Exit> {
    let folder = args.out.clone().unwrap_or_else(|| {
        Path::new("tokgate-out").join(format!("{}-baseline", ready.plan.suite.name))
    });
    let mut runs: Vec<Collected> = Vec::new();
    for number in 1..=args.runs {
        let out = folder.join(format!("run-{number}"));
        say(&format!("run {number} of {} for {}", args.runs, file.display()));
        let quiet = Global { quiet: true, ..global.clone() };
        let one = args.of_run(number, Some(out.clone()));
        let exit = run::carry_out(ready, &one, &quiet, shares);
        // Limits are no business of what is recorded, and what else went wrong its cells tell.
        if matches!(exit, Exit::Signal(_)) {
            return Err(exit);
        }
        let collected = match json::read(&out.join("record.json")) {
            Ok(record) => collect(&record).map_err(|why| why.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut collected = match collected {
            Ok(collected) => collected,
            Err(why) => {
                say(&format!("error: run {number} of {} is not recorded: {why}", args.runs));
                let worse = matches!(exit, Exit::Pass | Exit::Limit | Exit::Doubt);
                return Err(if worse { Exit::Invalid } else { exit });
            }
        };
        let other = (!args.replace).then(|| other_engine(before, &collected)).flatten();
        if let Some(other) = other {
            let what = format!("{} can't be added to: {other}", file.display());
            let help = "name another file, or begin this one anew with --replace";
            return Err(refuse(&what, help));
        }
        collected.runs.iter_mut().for_each(|one| one.reason = args.reason.clone());
        runs.push(collected);
        // Runs that are added are kept as they come; what replaces others does so as a whole.
        if !args.replace {
            let mut after = before.clone();
            after.add(&runs, false);
            store(file, &after)?;
        }
    }
    let mut after = before.clone();
    after.add(&runs, args.replace);
    unless_lowered_here(args, before, &after, file, &folder)?;
    store(file, &after)?;
    let values = runs.first().map_or(0, |run| run.cells.len());
    say(&format!(
        "recorded {} of {} in {}",
        plural(runs.len(), "run"),
        plural(values, "value"),
        file.display()
    ));
    Ok(())
}

/// Runs that stand in place of others may lower a value for a reason alone.
fn unless_lowered_here(
    args: &Args,
    before: &Baseline,
    after: &Baseline,
    file: &Path,
    folder: &Path,
) -> Result<(), Exit> {
    if !args.replace {
        return Ok(());
    }
    unless_lowered(before, after, args.reason.as_ref(), file).inspect_err(|_| {
        say(&format!(
            "  the runs are kept: tokgate baseline promote {}/run-* --reason 'TEXT'",
            folder.display()
        ));
    })
}
