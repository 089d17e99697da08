//! `tokgate calibrate`: a suite is measured against itself, every cell in so many fresh launches, and how
//! much these differ is kept in its noise file.
//!
//! Each variant is calibrated by itself. What the launches come to is decided in `record::calibration`, what
//! the file holds in `record::noise`. No limit is judged meanwhile: one that fails although nothing changed
//! is named in the end, and is no failure of the calibration.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::engine::supervise as process;
use crate::hardware;
use crate::matrix::Plan;
use crate::record::RunRecord;
use crate::record::baseline::{BaselineError, Kept};
use crate::record::calibration::{Calibration, calibration};
use crate::record::noise::NoiseFile;
use crate::record::run_record::PlannedCellRecord;
use crate::report::{calibration as words, json};
use crate::run::Parent;
use crate::suite::Suite;
use crate::suite::model::{EngineSource, TimeLimit, UnjudgedPolicy};

use super::annotate::Annotations;
use super::baseline::{begin_anew, can_keep, keep};
use super::directory::JOURNAL;
use super::exit::Exit;
use super::header::{self, HeaderInput};
use super::limit::{self, Limits};
use super::list::Format;
use super::reference;
use super::resume::{self, Resume};
use super::run::{self, Ready};
use super::shape::{self, Choice, Overlay, Planned};
use super::shard::{Sharding, default_directory};
use super::share::Shares;
use super::{Global, say};

/// Arguments of `tokgate calibrate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The suite file
    suite: PathBuf,
    /// In how many fresh launches each cell is measured
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    launches: u32,
    /// The noise file [default: `noise` of the suite's [baseline]]
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    overlay: Overlay,
    /// Seed of prompts and of the simulated engine [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write what is measured to DIR [default: tokgate-out/<suite>.calibration]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the unfinished calibration in DIR; auto: with the one in the output directory if there is
    /// one and it is the same, else begin anew
    #[arg(long, value_name = "DIR|auto", value_parser = |text: &str| Ok::<_, String>(Resume::from(text)))]
    resume: Option<Resume>,
    /// End after this time, like 90m, or auto: before the Slurm job does
    #[arg(long, value_name = "TIME", value_parser = limit::time_limit)]
    time_limit: Option<TimeLimit>,
    /// Text for people, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Args {
    /// As the arguments of a run.
    fn of_run(&self, out: Option<PathBuf>) -> run::Args {
        run::Args {
            suites: vec![self.suite.clone()],
            choice: self.choice.clone(),
            overlay: self.overlay.clone(),
            sharding: Sharding::default(),
            seed: self.seed,
            out,
            resume: self.resume.clone(),
            junit: Default::default(),
            annotations: Annotations::None,
            deny_warnings: false,
            fail_fast: false,
            max_fail: None,
            time_limit: self.time_limit,
            calibration: Some(self.launches),
        }
    }
}

/// Measures, prints what it comes to, and writes the file.
///
/// [`Exit::Pass`] where every cell was calibrated; else what a run exits with, and the cells that were are
/// written all the same.
pub fn run(args: &Args, global: &Global) -> Exit {
    match calibrate(args, global) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn calibrate(args: &Args, global: &Global) -> Result<Exit, Exit> {
    let parent = Parent::now();
    let machine = hardware::probe();
    if let Some(Resume::Dir(dir)) = &args.resume {
        if args.out.as_ref().is_some_and(|out| out != dir) {
            say("error: --resume and --out name two directories");
            say("  help: leave --out away: a calibration goes on where it began");
            return Err(Exit::Suite);
        }
        resume::holds_a_run(dir)?;
    }
    let planned = shape::plan(&args.suite, &args.overlay, &args.choice, global.color_stderr())?;
    let own = planned.plan.clone();
    let mut plan = shape::again(&planned, &args.choice, |suite| alone(suite, args.launches))?;
    plan.hash = hash(&plan.hash, args.launches);
    let planned = Planned { plan, ..planned };
    let first = args.of_run(None);
    let ready = run::prepare_planned(&args.suite, planned, &first, global, &machine, true)?;
    let Some(file) = file(args, &own) else {
        say(&format!("error: {} names no noise file to write", args.suite.display()));
        say(
            "  help: write `noise = \"baselines/NAME.noise.jsonl\"` in [baseline], or give --write",
        );
        return Err(Exit::Suite);
    };
    let before = existing(&own, &ready, &file)?;
    can_keep(&file)?;
    let asked = asked(&own, &ready)?;
    if own.suite.settings.iter().any(|it| matches!(it.engine.source, EngineSource::Url(_))) {
        say(
            "warning: an engine that runs already is not launched anew: what is told of its launches is how its rounds differ",
        );
    }
    let mut shares = Shares::begin(Limits::begin(args.time_limit, None), parent);
    let out = match &args.resume {
        Some(Resume::Dir(dir)) => dir.clone(),
        Some(Resume::Auto) | None => args
            .out
            .clone()
            .unwrap_or_else(|| default_directory(&format!("{}.calibration", own.suite.name), None)),
    };
    let exit = run::carry_out(&ready, &args.of_run(Some(out.clone())), global, &mut shares);
    for survivor in process::reap_strays() {
        say(&format!("warning: still there: {survivor}"));
    }
    if matches!(exit, Exit::Signal(_)) || !out.join(JOURNAL).is_file() {
        return Ok(exit);
    }
    let record = match json::read(&out.join("record.json")) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("error: {error}"));
            return Err(exit.or(Exit::Unwritten));
        }
    };
    let told = calibration(&record, &asked);
    Ok(exit.or(tell(args, global, before, &record, told, &file)))
}

/// The suite as it is calibrated: every cell in so many launches, and none is held against anything.
fn alone(suite: &mut Suite, launches: u32) {
    suite.compare = None;
    suite.expectations.clear();
    suite.quarantines.clear();
    for test in &mut suite.tests {
        test.launches = launches;
    }
    suite.policy.unjudged = UnjudgedPolicy::Allow;
    // It is that of one run.
    suite.policy.time_limit = None;
}

/// A calibration is another plan than a run of the suite, and than one in more launches.
fn hash(plan: &str, launches: u32) -> String {
    let digest = Sha256::digest(format!("{plan} calibrated in {launches} launches"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file(args: &Args, own: &Plan) -> Option<PathBuf> {
    let named = || own.suite.baseline.noise.as_ref().map(|named| named.file.clone());
    args.write.clone().or_else(named)
}

/// What the file holds, if it is of the same; else one that begins anew, with a word.
///
/// # Errors
/// It is something else, which would be lost.
fn existing(own: &Plan, ready: &Ready, file: &Path) -> Result<NoiseFile, Exit> {
    let suite = &own.suite.name;
    let anew = || NoiseFile::new(suite, &ready.provenance);
    let known = match NoiseFile::read(file) {
        Ok(known) => known,
        Err(BaselineError::Absent { kind: Kept::Noise | Kept::Baseline, .. }) => return Ok(anew()),
        Err(error) => return begin_anew(file, Kept::Noise, &error).map(|()| anew()),
    };
    let tests = own.suite.tests.iter().map(|test| test.name.as_str());
    Ok(match known.misfits(suite, &ready.provenance, tests).first() {
        None => known,
        Some(misfit) => {
            say(&format!("warning: {} does not fit and begins anew: {misfit}", file.display()));
            anew()
        }
    })
}

/// The cells of the suite as its runs have them, with their bounds.
fn asked(own: &Plan, ready: &Ready) -> Result<Vec<PlannedCellRecord>, Exit> {
    let references = reference::resolve(own, &ready.provenance, true, false)?;
    let header = header::make(&HeaderInput {
        plan: own,
        split: None,
        seed: 0,
        machine: &ready.site.machine,
        flags: Vec::new(),
        selection: Vec::new(),
        provenance: ready.provenance.clone(),
        references: &references,
        slow: None,
        redactor: &ready.redactor,
    });
    Ok(header.cells)
}

/// Prints what a calibration told and writes its file.
fn tell(
    args: &Args,
    global: &Global,
    mut file: NoiseFile,
    record: &RunRecord,
    told: Calibration,
    path: &Path,
) -> Exit {
    let text = match args.format {
        Format::Text => words::text(&told),
        Format::Json => words::json(&told),
    };
    let mut exit = if told.lines.is_empty() { Exit::Pass } else { super::print(&text) };
    if args.format == Format::Json {
        words::odd(&told).iter().for_each(|odd| say(&format!("warning: {odd}")));
    }
    if told.lines.is_empty() {
        say(&format!("error: {} has nothing to calibrate by", record.header.suite));
        told.uncounted.iter().for_each(|cell| say(&format!("  – {cell}")));
        // Where nothing broke, nothing could be measured.
        return exit.or(Exit::Invalid);
    }
    let sentence = words::sentence(&told);
    let Calibration { run, tests, lines, .. } = told;
    file.add(run, tests, lines);
    match keep(path, &file.render()) {
        Ok(()) if !global.quiet => say(&format!("noise in {}", path.display())),
        Ok(()) => {}
        Err(unwritten) => exit = exit.or(unwritten),
    }
    say(&format!("calibrate: {sentence}"));
    exit
}
