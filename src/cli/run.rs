//! `tokgate run SUITE…`: check every suite, then run one after another.
//!
//! Nothing is launched before every suite has been checked and the output directory can be written. A run
//! that goes on after an interruption differs from a new one in where it begins, and in nothing else.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::engine::redact::{Redactor, check_secret};
use crate::engine::supervise as process;
use crate::hardware;
use crate::hardware::need::OnMismatch;
use crate::load::socket::make_room_for;
use crate::matrix::Plan;
use crate::record::journal::Journal;
use crate::record::run_record::RunHeader;
use crate::record::{Earlier, Event, RunRecord};
use crate::report;
use crate::report::junit::Dialect;
use crate::report::progress::Progress;
use crate::run::{Conduct, Unfit, conduct, in_virtual_time, listen, pair};
use crate::suite::model::SecretSource;

use super::directory::{Directory, DirectoryError};
use super::exit::{self, Exit};
use super::header::{self, HeaderInput};
use super::onlooker::{Onlooker, Seen};
use super::resume::{self, Course, Resume, Unfinished};
use super::shape::{self, Choice, Overlay, Planned};
use super::shard::{Sharding, Split, default_directory};
use super::{Global, say};

/// Room that results and logs of a small run need, in bytes.
const ROOM: usize = 256 * 1024;

/// Arguments of `tokgate run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Suite files
    #[arg(required = true, value_name = "SUITE")]
    suites: Vec<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    overlay: Overlay,
    #[command(flatten)]
    sharding: Sharding,
    /// Seed of prompts and of the simulated engine [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write results to DIR [default: tokgate-out/<suite>, of a shard tokgate-out/<suite>.shard-m-of-n]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the unfinished run in DIR; auto: with the one in the output directory if there is one
    /// and it has the same plan, else begin anew
    #[arg(long, value_name = "DIR|auto", value_parser = |text: &str| Ok::<_, String>(Resume::from(text)))]
    resume: Option<Resume>,
    /// The dialect of junit.xml: rich, or strict for Jenkins' junit-10.xsd
    #[arg(
        long,
        value_enum,
        default_value_t = Dialect::Rich,
        value_name = "DIALECT",
        hide_possible_values = true
    )]
    junit_dialect: Dialect,
    /// Exit 11 when there are warnings
    #[arg(long)]
    deny_warnings: bool,
    /// End after the first failed cell
    #[arg(long, conflicts_with = "max_fail")]
    fail_fast: bool,
    /// End after N failed cells
    #[arg(long, value_name = "N")]
    max_fail: Option<std::num::NonZeroUsize>,
    /// End after this time, like 90m; cells that have not run by then are errors
    #[arg(long, value_name = "TIME", value_parser = duration)]
    time_limit: Option<Duration>,
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::quantity::parse_duration(text).map_err(|error| {
        error
            .help
            .map_or_else(|| error.message.clone(), |help| format!("{}; {help}", error.message))
    })
}

/// Runs the suites.
pub fn run(args: &Args, global: &Global) -> ExitCode {
    let mut prepared = Vec::new();
    let mut exit = Exit::Pass;
    for path in &args.suites {
        match prepare(path, args, global) {
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
    process::become_subreaper();
    for ready in &prepared {
        exit = exit.or(carry_out(ready, args, global));
        if matches!(exit, Exit::Signal(_)) {
            break;
        }
    }
    for survivor in process::reap_strays() {
        say(&format!("warning: still there: {survivor}"));
    }
    exit.into()
}

/// A suite ready to run.
struct Ready {
    /// The plan, of a shard its part.
    plan: Plan,
    split: Option<Split>,
    /// Whether suite or plan gave warnings.
    warned: bool,
    secrets: Vec<(String, String)>,
    redactor: Redactor,
}

/// Loads, checks and expands a suite, and finds its secrets; says every problem.
fn prepare(path: &Path, args: &Args, global: &Global) -> Result<Ready, Exit> {
    let mut planned = shape::plan(path, &args.overlay, &args.choice, global.color_stderr())?;
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
    let secrets = secrets(&plan)?;
    let redactor =
        Redactor::new(&secrets.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>());
    Ok(Ready { plan, split, warned, secrets, redactor })
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

fn secrets(plan: &Plan) -> Result<Vec<(String, String)>, Exit> {
    let mut values = Vec::new();
    let mut found = Ok(());
    // A variant can't override a secret, so that the first setting speaks for all.
    for (name, source) in plan.suite.settings.iter().take(1).flat_map(|setting| &setting.secrets) {
        let value = match source {
            SecretSource::Generate => format!("{:032x}", rand::random::<u128>()),
            SecretSource::Env(variable) => match std::env::var(variable) {
                Ok(value) if !value.is_empty() => value,
                Ok(_) | Err(_) => {
                    say(&format!(
                        "error: secret {name}: the environment variable {variable} is not set"
                    ));
                    found = Err(Exit::Suite);
                    continue;
                }
            },
        };
        if let Err(error) = check_secret(name, &value) {
            say(&format!("error: {error}"));
            found = Err(Exit::Suite);
        }
        values.push((name.clone(), value));
    }
    found.map(|()| values)
}

fn carry_out(ready: &Ready, args: &Args, global: &Global) -> Exit {
    let suite = &ready.plan.suite;
    let resumed = match &args.resume {
        Some(Resume::Dir(dir)) => Some(dir.clone()),
        Some(Resume::Auto) | None => args.out.clone(),
    };
    let out = resumed.unwrap_or_else(|| default_directory(&suite.name, args.sharding.shard));
    let directory = match Directory::open(&out) {
        Ok(directory) => directory,
        Err(error) => return unwritten(&error),
    };
    let machine = hardware::probe();
    let header = header::make(&HeaderInput {
        plan: &ready.plan,
        split: ready.split.as_ref(),
        seed: args.seed.unwrap_or_else(|| rand::random::<u32>().into()),
        machine: &machine,
        flags: flags(args),
        selection: selection(args),
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
                    said.iter().for_each(|line| say(&ready.redactor.text(line)));
                }
                begin(&directory, header, args.junit_dialect)
            }
            Err(error) => return unwritten(&error),
        },
        Ok(Course::Resume(unfinished)) => go_on(&directory, *unfinished, args.junit_dialect),
        Ok(Course::Finished(history)) => {
            let record = history.record;
            let written = report::write_all(&directory.path, &record, args.junit_dialect);
            let unwritten = written.err().map(|error| error.to_string());
            return conclude(ready, args, global, &directory, &Seen { record, unwritten });
        }
        Err(exit) => return exit,
    };
    match begun {
        Ok(opening) => {
            let seen = watch(ready, args, global, &directory, opening, &machine);
            conclude(ready, args, global, &directory, &seen)
        }
        Err(error) => {
            say(&format!("error: {error}"));
            say("  help: nothing was launched; make room there, or give another --out");
            Exit::Unwritten
        }
    }
}

fn unwritten(error: &DirectoryError) -> Exit {
    say(&format!("error: {error}"));
    Exit::Unwritten
}

/// A session of a run, on disk before anything is launched.
struct Opening {
    journal: Journal,
    record: RunRecord,
    /// How it begins.
    event: Event,
    earlier: Earlier,
}

/// Begins the journal and writes the reports of a run in which nothing has run yet: whatever ends
/// it, they are there; and a disk that can't hold them is told before anything is launched.
fn begin(
    directory: &Directory,
    header: RunHeader,
    dialect: Dialect,
) -> Result<Opening, Box<dyn std::error::Error>> {
    report::files::try_out(&directory.path, ROOM)?;
    let mut journal = Journal::create(&directory.journal())?;
    let record = RunRecord::new(header.clone());
    let event = Event::RunStarted(Box::new(header));
    journal.append(&event)?;
    report::write_all(&directory.path, &record, dialect)?;
    Ok(Opening { journal, record, event, earlier: Earlier::default() })
}

/// As [`begin`], for a run that goes on: its journal gets a line that says so.
fn go_on(
    directory: &Directory,
    unfinished: Unfinished,
    dialect: Dialect,
) -> Result<Opening, Box<dyn std::error::Error>> {
    let Unfinished { history, whole } = unfinished;
    report::files::try_out(&directory.path, ROOM)?;
    let mut journal = Journal::resume(&directory.journal(), whole)?;
    let event = Event::RunResumed {
        session: history.earlier.sessions,
        started: header::now(),
        after: history.seconds,
    };
    journal.append(&event)?;
    let mut record = history.record;
    record.apply(&event);
    report::write_all(&directory.path, &record, dialect)?;
    Ok(Opening { journal, record, event, earlier: history.earlier })
}

/// Runs conductor and onlooker side by side until both have ended.
fn watch(
    ready: &Ready,
    args: &Args,
    global: &Global,
    directory: &Directory,
    opening: Opening,
    machine: &hardware::Facts,
) -> Seen {
    let Opening { journal, record, event, earlier } = opening;
    let header = record.header.clone();
    let (halter, halt) = pair();
    let (sender, receiver) = std::sync::mpsc::channel();
    let unfit = unfit(&ready.plan, machine, &sender);
    let onlooker = Onlooker {
        record,
        opening: event,
        journal,
        out: &directory.path,
        dialect: args.junit_dialect,
        progress: Progress::start(global.progress_style(), global.verbose),
        halter: halter.clone(),
        max_fail: if args.fail_fast { Some(1) } else { args.max_fail.map(Into::into) },
    };
    let conduct_input = Conduct {
        plan: &ready.plan,
        header: &header,
        out: &directory.path,
        executable: std::env::current_exe().unwrap_or_else(|_| "tokgate".into()),
        secrets: ready.secrets.clone(),
        redactor: &ready.redactor,
        time_limit: args.time_limit.or(ready.plan.suite.policy.time_limit),
        unfit,
        earlier,
    };
    std::thread::scope(|scope| {
        let watching = scope.spawn(move || onlooker.watch(receiver));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(in_virtual_time(&ready.plan))
            .build();
        match runtime {
            Ok(runtime) => {
                let local = tokio::task::LocalSet::new();
                runtime.block_on(local.run_until(async {
                    if let Err(error) = listen(&halter) {
                        say(&format!("warning: signals are not caught: {error}"));
                    }
                    conduct(&conduct_input, sender, halt).await;
                }));
            }
            Err(error) => {
                say(&format!("error: no runtime: {error}"));
                drop(sender);
            }
        }
        watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Why nothing can be launched on this machine: it can't hold as many connections as a cell has
/// streams, or is not what `[hardware]` declares. A mismatch that only warns is sent as an event.
fn unfit(
    plan: &Plan,
    machine: &hardware::Facts,
    events: &std::sync::mpsc::Sender<Event>,
) -> Option<Unfit> {
    let streams = plan.cells.iter().map(|cell| plan.concurrency(cell)).max().unwrap_or(0);
    if !in_virtual_time(plan)
        && let Err(error) = make_room_for(streams)
    {
        return Some(Unfit { message: error.to_string(), skip: false });
    }
    let need = plan.suite.hardware.as_ref()?;
    let problems = need.problems(machine);
    if problems.is_empty() {
        return None;
    }
    let message = format!("hardware is not as declared: {}", problems.join("; "));
    match need.on_mismatch {
        OnMismatch::Error => Some(Unfit { message, skip: false }),
        OnMismatch::Skip => Some(Unfit { message, skip: true }),
        OnMismatch::Warn => {
            let _ = events.send(Event::Warning { message });
            None
        }
    }
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
    let page = console::render(&seen.record, width, global.color_stdout(), extent);
    let printed = super::print(&page);
    if let Some(error) = &seen.unwritten {
        say(&format!("error: results could not be written: {error}"));
    } else if !global.quiet {
        say(&format!("results in {}", shown(&directory.path).display()));
    }
    if seen.record.stopped.is_some() || seen.unwritten.is_some() {
        let dir = shown(&directory.path);
        let command = resume::command(&seen.record.header, &session_flags(args), &dir);
        say(&format!("to go on: {}", ready.redactor.text(&command)));
    }
    let flags =
        exit::Flags { deny_warnings: args.deny_warnings, unwritten: seen.unwritten.is_some() };
    let mut exit = exit::of(&seen.record, flags).or(printed);
    if args.deny_warnings && ready.warned {
        exit = exit.or(Exit::Doubt);
    }
    say(&console::last_line(&seen.record));
    exit
}

/// A path as short as the working directory allows.
fn shown(path: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(|dir| dir.canonicalize());
    here.ok()
        .and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned))
        .unwrap_or(path.to_owned())
}

/// The flags that selected cells.
fn selection(args: &Args) -> Vec<String> {
    let selected = args.choice.select.iter().flat_map(|it| ["-E".to_owned(), it.clone()]);
    let skipped = args.choice.skip.iter().flat_map(|it| ["--skip".to_owned(), it.clone()]);
    selected.chain(skipped).collect()
}

/// The flags that shape no plan and what a run comes to all the same.
fn session_flags(args: &Args) -> Vec<String> {
    let mut flags = Vec::new();
    match args.junit_dialect {
        Dialect::Rich => {}
        Dialect::Strict => flags.extend(["--junit-dialect".to_owned(), "strict".to_owned()]),
    }
    if args.deny_warnings {
        flags.push("--deny-warnings".to_owned());
    }
    flags
}

/// The flags that shaped the run, as a rerun command repeats them; the selection is not among them.
fn flags(args: &Args) -> Vec<String> {
    let overlay = &args.overlay;
    let mut flags = Vec::new();
    let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
    if let Some(profile) = &overlay.profile {
        add("--profile", profile);
    }
    for set in &overlay.set {
        add("--set", set);
    }
    if let Some(url) = &overlay.url {
        add("--url", url);
    }
    if let Some(seed) = args.seed {
        add("--seed", &seed.to_string());
    }
    if let Some(out) = &args.out {
        add("--out", &out.to_string_lossy());
    }
    flags
}
