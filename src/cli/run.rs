//! `tokgate run SUITE…`: check every suite, then run one after another.
//!
//! Nothing is launched before every suite has been checked and the output directory can be written. A run
//! that goes on after an interruption differs from a new one in where it begins, and in nothing else.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use crate::engine::redact::Redactor;
use crate::engine::supervise as process;
use crate::hardware;
use crate::matrix::Plan;
use crate::record::event::StopReason;
use crate::record::journal::Journal;
use crate::record::provenance::Provenance;
use crate::record::run_record::{CellOutcome, CellState, RunHeader};
use crate::record::{Earlier, Event, RunRecord, slowdown};
use crate::report;
use crate::report::files::Room;
use crate::report::junit::Order;
use crate::report::outlet;
use crate::run::{Cause, Conduct, Given, Halter, Parent, conduct, in_virtual_time};
use crate::suite::model::TimeLimit;
use crate::transport::Delay;

use super::annotate::Annotations;
use super::directory::{Directory, shown};
use super::exit::{self, Exit};
use super::fence::Fence;
use super::flags::{flags, selection, session_flags};
use super::header::{self, HeaderInput};
use super::hindrance;
use super::junit::Junit;
use super::limit::{self, Limits};
use super::onlooker::{Onlooker, Seen, Trouble, failures, guess};
use super::preflight::{self, Site};
use super::provenance;
use super::reference::{self, References};
use super::resume::{self, Course, Resume, Unfinished};
use super::shape::{self, Choice, Overlay, Planned};
use super::shard::{Sharding, Split, default_directory};
use super::share::Shares;
use super::{Global, say, secrecy, step_summary};

/// Room that is held back for the end of a run, in bytes: what the results of a small one need.
pub(super) const ROOM: usize = 256 * 1024;
/// What did not happen where there is no output directory.
const LAUNCHED_NOTHING: &str = "nothing was launched";
/// How long the end of engines is waited for when this program broke.
const ENDING: Duration = Duration::from_secs(6);

/// Arguments of `tokgate run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suite files
    #[arg(required = true, value_name = "SUITE")]
    pub(super) suites: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) choice: Choice,
    #[command(flatten)]
    pub(super) overlay: Overlay,
    #[command(flatten)]
    pub(super) sharding: Sharding,
    /// Seed of prompts and of the simulated engine [default: random]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Write results to DIR [default: tokgate-out/<suite>, of a shard tokgate-out/<suite>.shard-m-of-n]
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Go on with the unfinished run in DIR; auto: with the one in the output directory if there is one
    /// and it has the same plan, else begin anew
    #[arg(long, value_name = "DIR|auto", value_parser = |text: &str| Ok::<_, String>(Resume::from(text)))]
    pub(super) resume: Option<Resume>,
    #[command(flatten)]
    pub(super) junit: Junit,
    /// Have the worst cells shown on their lines of the suite: auto (on GitHub Actions), github or none
    #[arg(long, value_enum, default_value_t, value_name = "WHERE", hide_possible_values = true)]
    pub(super) annotations: Annotations,
    /// Exit 11 when there are warnings
    #[arg(long)]
    pub(super) deny_warnings: bool,
    /// End after the first failed cell
    #[arg(long, conflicts_with = "max_fail")]
    pub(super) fail_fast: bool,
    /// End after N failed cells
    #[arg(long, value_name = "N", value_parser = limit::max_fail)]
    pub(super) max_fail: Option<std::num::NonZeroUsize>,
    /// End after this time, like 90m, or auto: before the Slurm job does; cells that have not run by then
    /// are errors
    #[arg(long, value_name = "TIME", value_parser = limit::time_limit)]
    pub(super) time_limit: Option<TimeLimit>,
    /// Of a calibration in how many launches each cell is measured; its page is another one.
    #[arg(skip)]
    pub(super) calibration: Option<u32>,
}

/// Runs the suites.
pub fn run(args: &Args, global: &Global) -> ExitCode {
    let parent = Parent::now();
    let most = if args.fail_fast { Some(1) } else { args.max_fail.map(Into::into) };
    let limits = Limits::begin(args.time_limit, most);
    let mut prepared = Vec::new();
    let mut exit = Exit::Pass;
    let machine = hardware::probe();
    for path in &args.suites {
        match prepare(path, args, global, &machine, false) {
            Ok(ready) => prepared.push(ready),
            Err(wrong) => exit = exit.or(wrong),
        }
    }
    if prepared.len() < args.suites.len() {
        return exit.into();
    }
    if args.out.is_some() && prepared.len() > 1 {
        say(&format!(
            "error: --out names one directory, and {} suites are to be run",
            prepared.len()
        ));
        say("  help: run them one by one, or leave --out away: each suite has its own");
        return Exit::Suite.into();
    }
    if args.junit.path.is_some() && prepared.len() > 1 {
        say(&format!("error: --junit names one file, and {} suites are to be run", prepared.len()));
        say("  help: run them one by one, or leave --junit away: each suite has its own junit.xml");
        return Exit::Suite.into();
    }
    if let Err(exit) = args.junit.check() {
        return exit.into();
    }
    if let Some(Resume::Dir(dir)) = &args.resume {
        if prepared.len() > 1 {
            say(&format!(
                "error: --resume names one directory, and {} suites are to be run",
                prepared.len()
            ));
            say(
                "  help: resume them one by one, or write --resume auto: each suite has its own directory",
            );
            return Exit::Suite.into();
        }
        if args.out.as_ref().is_some_and(|out| out != dir) {
            say("error: --resume and --out name two directories");
            say("  help: leave --out away: a run goes on where it began");
            return Exit::Suite.into();
        }
        if let Err(exit) = resume::holds_a_run(dir) {
            return exit.into();
        }
    }
    let mut shares = Shares::begin(limits, parent);
    for ready in &prepared {
        // A suite whose turn does not come has reports that say so, and not those of the day before.
        exit = exit.or(carry_out(ready, args, global, &mut shares));
    }
    for survivor in process::reap_strays() {
        say(&format!("warning: still there: {survivor}"));
    }
    if let Some(signal) = shares.signals.first() {
        exit = exit.or(Exit::Signal(signal));
    }
    exit.into()
}

/// A suite ready to run.
pub(super) struct Ready {
    /// The plan, of a shard its part.
    pub(super) plan: Plan,
    split: Option<Split>,
    pub(super) provenance: Provenance,
    /// Where its launches are to run.
    pub(super) site: Site,
    references: References,
    /// How much longer everything is to take, in a self-test.
    pub(super) slow: Option<Delay>,
    /// Whether suite or plan gave warnings.
    warned: bool,
    secrets: Vec<(String, String)>,
    pub(super) redactor: Redactor,
}

/// Loads, checks and expands a suite, and finds its secrets and what it is held against; says every
/// problem. `recording`: it is to be recorded, and held against nothing.
pub(super) fn prepare(
    path: &Path,
    args: &Args,
    global: &Global,
    machine: &hardware::Facts,
    recording: bool,
) -> Result<Ready, Exit> {
    let planned = shape::plan(path, &args.overlay, &args.choice, global.color_stderr())?;
    prepare_planned(path, planned, args, global, machine, recording)
}

/// As [`prepare`], of a suite that is expanded already.
pub(super) fn prepare_planned(
    path: &Path,
    mut planned: Planned,
    args: &Args,
    global: &Global,
    machine: &hardware::Facts,
    recording: bool,
) -> Result<Ready, Exit> {
    let split = args.sharding.split(&planned.plan)?;
    if let Some(split) = &split {
        planned.plan = split.part();
    }
    let missing = shape::missing_data(&planned);
    if !missing.is_empty() {
        super::say_as_is(&missing.render(global.color_stderr()));
        return Err(Exit::Suite);
    }
    let Planned { plan, warnings, .. } = planned;
    let warned = !warnings.is_empty();
    if warned && !global.quiet {
        super::say_as_is(&warnings.render(global.color_stderr()));
    }
    if plan.cells.is_empty() && split.is_none() {
        return Err(shape::nothing(path));
    }
    expired(&plan)?;
    // What other shards run is checked and hidden here too: one plan, one outcome, whatever the shard.
    let all = split.as_ref().map_or(&plan, |split| &split.whole);
    let (secrets, redactor) = secrecy::of_run(all)?;
    // Hidden before anything is held against it: a baseline has it hidden too.
    let site = preflight::look(all, machine, &secrets, &redactor)?;
    let provenance = provenance::of(all, &site.there).hidden(&redactor);
    let whole = args.choice.is_empty() && plan.suite.select.is_empty();
    // Where nothing will be launched it is the machine that is wrong, and no baseline of another one.
    let idle = recording || preflight::is_unlike(all, &site);
    let references = reference::resolve(all, &provenance, idle, whole)?;
    Ok(Ready { plan, split, provenance, site, references, slow: None, warned, secrets, redactor })
}

/// A quarantine past its day is no excuse any more.
fn expired(plan: &Plan) -> Result<(), Exit> {
    let mut found = Ok(());
    for quarantine in shape::expired(plan) {
        say(&format!(
            "error: the quarantine of {} expired on {} ({}): {}",
            quarantine.filter.text, quarantine.expires, quarantine.place, quarantine.reason
        ));
        say("  help: remove it, or give it a later day with a reason that still holds");
        found = Err(Exit::Baseline);
    }
    found
}

/// An engine that is up, and the runtime that started it.
pub(super) struct Up {
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) given: Given,
}

/// Carries out a run in a directory of its own.
pub(super) fn carry_out(ready: &Ready, args: &Args, global: &Global, shares: &mut Shares) -> Exit {
    let suite = &ready.plan.suite;
    let resumed = match &args.resume {
        Some(Resume::Dir(dir)) => Some(dir.clone()),
        Some(Resume::Auto) | None => args.out.clone(),
    };
    let out = resumed.unwrap_or_else(|| default_directory(&suite.name, args.sharding.shard));
    let command = ready.redactor.text(&format!("tokgate run {}", suite.path));
    match Directory::open(&out, &command) {
        Ok(directory) => carry_out_in(directory, ready, args, global, (shares, None)),
        Err(error) => {
            hindrance::unopened(&error, &out, LAUNCHED_NOTHING);
            Exit::Unwritten
        }
    }
}

/// As [`carry_out`], in an open directory, and with an engine that may be up already.
pub(super) fn carry_out_in(
    directory: Directory,
    ready: &Ready,
    args: &Args,
    global: &Global,
    (shares, up): (&mut Shares, Option<Up>),
) -> Exit {
    let order = args.junit.order(&directory.path);
    let header = header::make(&HeaderInput {
        plan: &ready.plan,
        split: ready.split.as_ref(),
        seed: args.seed.unwrap_or_else(|| rand::random::<u32>().into()),
        machine: &ready.site.machine,
        flags: flags(args),
        selection: selection(args),
        provenance: ready.provenance.clone(),
        references: &ready.references,
        slow: ready.slow,
        redactor: &ready.redactor,
    });
    let course = match &args.resume {
        Some(asked) => {
            resume::decide(asked, &directory, &header, args.seed, &shown(&directory.path))
        }
        None => Ok(Course::New),
    };
    let begun = match course {
        Ok(Course::New) => match directory.clear() {
            Ok(previous) => {
                if let (Some(previous), false) = (previous, global.quiet) {
                    let said = resume::farewell(&previous, &shown(&previous));
                    said.iter().for_each(|line| say(line));
                }
                begin(&directory, header, &order)
            }
            Err(error) => {
                hindrance::unmoved(&error, &directory, LAUNCHED_NOTHING);
                return Exit::Unwritten;
            }
        },
        Ok(Course::Resume(unfinished)) => go_on(&directory, *unfinished, &order),
        Ok(Course::Finished(history)) => {
            let record = history.record;
            let written = report::write_all(&directory.path, &record, &order);
            let unwritten = written.err().map(Trouble::from);
            shares.limits.failed(failures(&record));
            let seen = Seen { record, unwritten, cut: None };
            return conclude(ready, args, global, &directory, &seen);
        }
        Err(exit) => {
            // Another machine may be one of which nothing is known.
            ready.site.unknown().for_each(|why| say(&format!("  – {why}")));
            return exit;
        }
    };
    match begun {
        Ok(opening) => {
            let with = (&*shares, up);
            let (seen, broken) = watch(ready, args, global, &directory, opening, with);
            let exit = match &seen {
                Some(seen) => {
                    shares.limits.failed(failures(&seen.record));
                    // Who told it to end, or set a limit, does not wait for its last words.
                    let stopped = seen.record.stopped.map(|_| Duration::ZERO);
                    if let Some(left) = stopped.or_else(|| shares.limits.time_left(None)) {
                        outlet::hurry(left);
                    }
                    conclude(ready, args, global, &directory, seen)
                        .or(super::baseline::supplement(&seen.record))
                }
                None => Exit::Unwritten,
            };
            let Some(words) = broken else { return exit };
            say(&format!("error: tokgate itself broke, which is a bug: {words}"));
            say("  help: what was finished is kept: go on with --resume, and report the bug");
            // No verdict on the whole, where nothing else is worse. Without a record it is unwritten.
            if seen.is_some() { exit.or(Exit::Engine) } else { exit }
        }
        Err(Trouble { said, help }) => {
            say(&format!("error: {said}"));
            say(&format!("  help: {LAUNCHED_NOTHING}; {help}"));
            Exit::Unwritten
        }
    }
}

/// A session of a run, on disk before anything is launched.
struct Opening {
    journal: Journal,
    room: Room,
    record: RunRecord,
    /// How it begins.
    event: Event,
    earlier: Earlier,
}

/// Begins the journal and writes the reports of a run in which nothing has run yet: whatever ends
/// it, they are there; and a disk that can't hold them is told before anything is launched.
fn begin(directory: &Directory, header: RunHeader, order: &Order) -> Result<Opening, Trouble> {
    let room = Room::hold(&directory.path, ROOM)?;
    let mut journal = Journal::create(&directory.journal())?;
    let record = RunRecord::new(header.clone());
    let event = Event::RunStarted(Box::new(header));
    journal.append(&event)?;
    report::write_all(&directory.path, &record, order)?;
    Ok(Opening { journal, room, record, event, earlier: Earlier::default() })
}

/// As [`begin`], for a run that goes on: its journal gets a line that says so.
fn go_on(directory: &Directory, unfinished: Unfinished, order: &Order) -> Result<Opening, Trouble> {
    let Unfinished { history, whole } = unfinished;
    let room = Room::hold(&directory.path, ROOM)?;
    let mut journal = Journal::resume(&directory.journal(), whole)?;
    let event = Event::RunResumed {
        session: history.earlier.sessions,
        started: header::now(),
        after: history.seconds,
    };
    journal.append(&event)?;
    let mut record = history.record;
    record.apply(&event);
    report::write_all(&directory.path, &record, order)?;
    Ok(Opening { journal, room, record, event, earlier: history.earlier })
}

/// Runs conductor and onlooker side by side until both have ended. Should this program break, what it
/// said; no record where that was the onlooker.
fn watch(
    ready: &Ready,
    args: &Args,
    global: &Global,
    directory: &Directory,
    opening: Opening,
    (shares, up): (&Shares, Option<Up>),
) -> (Option<Seen>, Option<String>) {
    let Opening { journal, room, record, event, earlier } = opening;
    let header = record.header.clone();
    let halter = Halter::default();
    shares.signals.tell(&halter);
    let max_fail = shares.limits.failures_left();
    // Failures of earlier sessions count, and so do those of the suites before.
    if max_fail.is_some_and(|most| failures(&record) >= most) {
        halter.halt(Cause::MaxFail);
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let (teller, counted) = std::sync::mpsc::channel();
    let preflight::Judged { unfit, warnings } = preflight::judge(&ready.plan, &ready.site);
    let slowed = ready.slow.map(|delay| slowdown::words(&header, delay.share()));
    for note in warnings.iter().chain(&ready.references.notes).chain(&slowed) {
        // The onlooker, which reads it, is not there yet, but the channel is.
        let _ = sender.send(Event::Warning { message: note.clone() });
    }
    let onlooker = Onlooker {
        record,
        opening: event,
        journal,
        room,
        out: &directory.path,
        order: args.junit.order(&directory.path),
        progress: global.progress(guess(&ready.plan)),
        halter: halter.clone(),
        max_fail,
        counted: max_fail.map(|_| teller),
    };
    let (runtime, given) = up.map(|up| (up.runtime, up.given)).unzip();
    let conduct_input = Conduct {
        plan: &ready.plan,
        header: &header,
        out: &directory.path,
        executable: std::env::current_exe().unwrap_or_else(|_| "tokgate".into()),
        secrets: ready.secrets.clone(),
        redactor: &ready.redactor,
        time_limit: shares.limits.time_left(ready.plan.suite.policy.time_limit),
        counted: max_fail.map(|_| Mutex::new(counted)),
        unfit,
        earlier,
        slow: ready.slow,
        given: Mutex::new(given),
    };
    let fence = Fence::raise(&halter);
    let seen = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("onlooker".into());
        let watching = match thread.spawn_scoped(scope, move || onlooker.watch(receiver)) {
            Ok(watching) => watching,
            Err(error) => {
                say(&format!("error: no thread can be started: {error}"));
                say(
                    "  help: nothing was launched; raise the limit of processes (`ulimit -u`, or that of the container)",
                );
                return None;
            }
        };
        let new = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(in_virtual_time(&ready.plan))
                .build()
        };
        match runtime.map_or_else(new, Ok) {
            Ok(runtime) => {
                let local = tokio::task::LocalSet::new();
                let conducted = Fence::hold(|| {
                    runtime.block_on(local.run_until(conduct(&conduct_input, sender, &halter)));
                });
                if conducted.is_none() {
                    // Its launches were dropped, and their supervisors are ending them.
                    runtime.block_on(process::all_gone(ENDING));
                }
            }
            Err(error) => {
                say(&format!("error: no runtime: {error}"));
                drop(sender);
            }
        }
        watching.join().ok()
    });
    (seen, fence.lower())
}

/// Says what came of the run: the table on stdout, the counts last on stderr.
fn conclude(
    ready: &Ready,
    args: &Args,
    global: &Global,
    directory: &Directory,
    seen: &Seen,
) -> Exit {
    use crate::report::console::{self, Extent};
    let width = super::report::terminal_width();
    global.gap();
    let extent = if global.quiet { Extent::Troubles } else { Extent::Whole };
    // What was said before stands above it.
    outlet::settle();
    // A self-test and a calibration have words of their own.
    let printed = if ready.slow.is_some() || args.calibration.is_some() {
        Exit::Pass
    } else {
        let page = console::render(&seen.record, width, global.color_stdout(), extent);
        step_summary::add(&seen.record);
        super::print(&page).or(args.annotations.print(&seen.record))
    };
    let early = seen.record.stopped == Some(StopReason::Unwritable);
    // Somebody may have removed it, or put something else in its place.
    let goes_on = directory.journal().is_file();
    if let Some(Trouble { said, help }) = &seen.unwritten {
        say(&format!("error: results could not be written: {said}"));
        if goes_on {
            say(&format!("  help: {help}; then go on with the run, which writes what is missing"));
        } else {
            say(&format!("  help: {help}, and begin anew: without its journal no run goes on"));
        }
    } else {
        if let (Some(Trouble { said, help }), true) = (&seen.cut, early) {
            say(&format!("error: the run ended early: {said}; what it had measured is written"));
            say(&format!("  help: {help}"));
        }
        if !global.quiet {
            say(&format!("results in {}", shown(&directory.path).display()));
        }
    }
    let is_left = |cell: &CellOutcome| matches!(cell.state, CellState::NotRun { .. });
    let cut = seen.record.stopped.is_some() && seen.record.cells.iter().any(is_left);
    if goes_on && ready.slow.is_none() && (cut || seen.unwritten.is_some()) {
        let dir = shown(&directory.path);
        let command = resume::command(&seen.record.header, &session_flags(args), &dir);
        say(&format!("to go on: {command}"));
    }
    let flags =
        exit::Flags { deny_warnings: args.deny_warnings, unwritten: seen.unwritten.is_some() };
    let mut exit = exit::of(&seen.record, flags).or(printed);
    if args.deny_warnings && ready.warned {
        exit = exit.or(Exit::Doubt);
    }
    if ready.slow.is_none() {
        global.say_folded(&console::last_line(&seen.record));
    }
    exit
}
