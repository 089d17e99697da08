//! `tokgate selftest SUITE --slow PERCENT`: the suite is run while everything takes longer, and has to go
//! red.
//!
//! It is a run like any other but for the delay; its results lie beside those of the suite and are held
//! against nothing later.

use std::path::{Path, PathBuf};

use crate::engine::supervise as process;
use crate::hardware;
use crate::judge::Verdict;
use crate::record::RunRecord;
use crate::record::slowdown::Findings;
use crate::report::{json, slowdown};
use crate::run::Parent;
use crate::suite::model::TimeLimit;
use crate::transport::Delay;

use super::super::annotate::Annotations;
use super::super::exit::{self, Exit};
use super::super::limit::{self, Limits};
use super::super::list::Format;
use super::super::run;
use super::super::shape::{Choice, Overlay};
use super::super::shard::Sharding;
use super::super::share::Shares;
use super::super::{Global, print, say};

/// Flags of `run` that shape a slowed one.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "With --slow")]
pub(super) struct Flags {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    overlay: Overlay,
    /// Seed of prompts and of the simulated engine [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write results to DIR [default: tokgate-out/<suite>.selftest]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// End after this time, like 90m, or auto: before the Slurm job does
    #[arg(long, value_name = "TIME", value_parser = limit::time_limit)]
    time_limit: Option<TimeLimit>,
}

impl Flags {
    /// One that was given.
    pub(super) fn first(&self) -> Option<&'static str> {
        let Flags { choice, overlay, seed, out, time_limit } = self;
        let given = [
            (!choice.select.is_empty(), "-E"),
            (!choice.skip.is_empty(), "--skip"),
            (overlay.profile.is_some(), "--profile"),
            (!overlay.set.is_empty(), "--set"),
            (overlay.url.is_some(), "--url"),
            (seed.is_some(), "--seed"),
            (out.is_some(), "--out"),
            (time_limit.is_some(), "--time-limit"),
        ];
        given.into_iter().find_map(|(given, flag)| given.then_some(flag))
    }

    fn of_run(&self, suite: &Path) -> run::Args {
        run::Args {
            suites: vec![suite.to_owned()],
            choice: self.choice.clone(),
            overlay: self.overlay.clone(),
            sharding: Sharding::default(),
            seed: self.seed,
            out: self.out.clone(),
            resume: None,
            junit: Default::default(),
            annotations: Annotations::None,
            deny_warnings: false,
            fail_fast: false,
            max_fail: None,
            time_limit: self.time_limit,
            calibration: None,
        }
    }
}

/// Runs the suite slowed and tells which limits noticed.
pub(super) fn run(args: &super::Args, delay: Delay, global: &Global) -> Exit {
    let parent = Parent::now();
    let suite = &args.run;
    if suite.is_dir() || suite.extension().is_some_and(|extension| extension == "json") {
        let path = suite.display();
        say(&format!("error: --slow runs a suite, and {path} is none"));
        say("  help: give the suite file; without --slow a finished run is judged again");
        return Exit::Suite;
    }
    let limits = Limits::begin(args.live.time_limit, None);
    let machine = hardware::probe();
    let mut asked = args.live.of_run(suite);
    let mut ready = match run::prepare(suite, &asked, global, &machine, false) {
        Ok(ready) => ready,
        Err(exit) => return exit,
    };
    ready.slow = Some(delay);
    let out = asked.out.get_or_insert_with(|| {
        Path::new("tokgate-out").join(format!("{}.selftest", ready.plan.suite.name))
    });
    let out = out.clone();
    let mut shares = Shares::begin(limits, parent);
    let ran = run::carry_out(&ready, &asked, global, &mut shares);
    for survivor in process::reap_strays() {
        say(&format!("warning: still there: {survivor}"));
    }
    let signal = shares.signals.first().map_or(Exit::Pass, Exit::Signal);
    // What it came to is read from its record, where there is one.
    match ran {
        Exit::Unwritten | Exit::Signal(_) => return ran.or(signal),
        Exit::Pass
        | Exit::Suite
        | Exit::Baseline
        | Exit::Limit
        | Exit::Doubt
        | Exit::NothingSelected
        | Exit::Mismatch
        | Exit::Engine
        | Exit::Invalid
        | Exit::TimeLimit => {}
    }
    let told = match json::read(&out.join("record.json")) {
        Ok(record) => tell(&record, delay.share(), args.format),
        Err(error) => {
            say(&format!("error: {error}"));
            Exit::Unwritten
        }
    };
    told.or(signal)
}

/// Prints which limits of a slowed run noticed, and what that comes to.
pub(super) fn tell(record: &RunRecord, share: f64, format: Format) -> Exit {
    let findings = Findings::of(record);
    let text = match format {
        Format::Text => slowdown::text(record, &findings, share),
        Format::Json => slowdown::json(record, &findings, share),
    };
    let printed = print(&text);
    say(&format!("selftest: {}", slowdown::sentence(&findings, share)));
    let found = if findings.let_pass() { Exit::Suite } else { Exit::Pass };
    printed.or(found).or(hindered(record))
}

/// What kept cells of a run from being judged; that some failed is what was asked for.
fn hindered(record: &RunRecord) -> Exit {
    let mut record = record.clone();
    for cell in &mut record.cells {
        if matches!(cell.judgement.verdict, Verdict::Fail | Verdict::Inconclusive) {
            cell.judgement.verdict = Verdict::Pass;
        }
    }
    if let Some(mean) = &mut record.compare
        && matches!(mean.judgement.verdict, Verdict::Fail | Verdict::Inconclusive)
    {
        mean.judgement.verdict = Verdict::Pass;
    }
    exit::of(&record, exit::Flags::default())
}
