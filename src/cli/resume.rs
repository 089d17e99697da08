//! `run --resume`: whether the run in a directory goes on, is finished, or a new one begins; and the
//! command that goes on with a run.
//!
//! A run goes on only as what it was: with the same plan and seed, on the same machine, by the same
//! version of tokgate. Otherwise one record would tell figures of two.

use std::path::{Path, PathBuf};

use crate::record::journal::{self, ReadError};
use crate::record::run_record::{CellOutcome, CellState, RunHeader};
use crate::record::{History, slowdown};
use crate::report::count::plural;
use crate::report::message;

use super::directory::{Directory, JOURNAL};
use super::exit::Exit;
use super::{say, shard};

/// Cells that a message names.
const NAMED: usize = 3;

/// What `--resume` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// Go on where that can be, else begin anew.
    Auto,
    /// Go on with the run in this directory.
    Dir(PathBuf),
}

impl From<&str> for Resume {
    fn from(text: &str) -> Resume {
        if text == "auto" { Resume::Auto } else { Resume::Dir(text.into()) }
    }
}

/// What comes of it.
pub enum Course {
    /// A run begins anew.
    New,
    /// An unfinished run goes on.
    Resume(Box<Unfinished>),
    /// The run is finished already.
    Finished(Box<History>),
}

/// A run that can go on.
pub struct Unfinished {
    /// What it has come to.
    pub history: History,
    /// Bytes of its journal's whole lines.
    pub whole: u64,
}

/// Refuses a directory in which no run can be resumed, before anything is made or locked there.
///
/// # Errors
/// [`Exit::Suite`]: it holds no journal.
pub fn holds_a_run(dir: &Path) -> Result<(), Exit> {
    if dir.join(JOURNAL).exists() {
        return Ok(());
    }
    let why = if dir.is_dir() { "has no journal.jsonl" } else { "is no directory" };
    say(&format!("error: --resume: {} {why}, so that there is no run to resume", dir.display()));
    say(
        "  help: give the output directory of a run, or --resume auto, which begins one if need be",
    );
    Err(Exit::Suite)
}

/// Why an unfinished run can't go on, with the lines that say how it differs.
enum Obstacle {
    /// The journal can't be read.
    Damaged(ReadError),
    /// Suite, selection, flags, seed or tokgate are others.
    Plan(Vec<String>),
    /// The machine is another one.
    Machine(Vec<String>),
}

/// Decides what to do with the run in a directory, given the header that a new run would have, and
/// says it. `seed` is the one asked for.
///
/// # Errors
/// [`Exit::Suite`] and [`Exit::Mismatch`], where going on was asked for and can't be;
/// [`Exit::Unwritten`] where the journal can't be read.
pub fn decide(
    asked: &Resume,
    directory: &Directory,
    planned: &RunHeader,
    seed: Option<u64>,
    shown: &Path,
) -> Result<Course, Exit> {
    let dir = shown.display();
    let journal = directory.journal();
    let anew = |why: &str| {
        say(&format!("a new run begins: {why}"));
        Ok(Course::New)
    };
    if !journal.exists() {
        return anew(&format!("there is none in {dir}"));
    }
    let contents = match journal::read(&journal) {
        Ok(contents) => contents,
        Err(error) => return hindered(asked, &Obstacle::Damaged(error), shown),
    };
    let Some(history) = History::of(&contents.events) else {
        // Nothing was launched before the first line was whole, and there is nothing to keep.
        if let Err(error) = std::fs::remove_file(&journal) {
            say(&format!("error: cannot remove {}: {error}", journal.display()));
            return Err(Exit::Unwritten);
        }
        return anew(&format!("the one in {dir} was interrupted before it began"));
    };
    let header = &history.record.header;
    let auto = *asked == Resume::Auto;
    let others = other_plan(header, planned, seed);
    if history.ended && auto {
        return anew(&format!("the one in {dir} is finished"));
    }
    if !others.is_empty() {
        return hindered(asked, &Obstacle::Plan(others), shown);
    }
    if history.ended {
        say(&format!("nothing to resume: the run in {dir} is finished"));
        return Ok(Course::Finished(Box::new(history)));
    }
    let others = header.machine.differences(&planned.machine);
    if !others.is_empty() {
        return hindered(asked, &Obstacle::Machine(others), shown);
    }
    if contents.torn > 0 {
        say(&format!(
            "the last line of {dir}/{JOURNAL} was cut short: its {} are dropped, and what it told is done again",
            plural(contents.torn as usize, "byte")
        ));
    }
    say(&format!("resumes the run in {dir}: {}", progress(&history)));
    Ok(Course::Resume(Box::new(Unfinished { history, whole: contents.whole })))
}

/// Says why a run does not go on; with `auto` that is no error.
fn hindered(asked: &Resume, obstacle: &Obstacle, shown: &Path) -> Result<Course, Exit> {
    let dir = shown.display();
    let (what, lines, exit) = match obstacle {
        Obstacle::Damaged(error) => (error.to_string(), &[][..], Exit::Suite),
        Obstacle::Plan(lines) => {
            (format!("the run in {dir} is another one"), &lines[..], Exit::Suite)
        }
        Obstacle::Machine(lines) => {
            (format!("the run in {dir} began on another machine"), &lines[..], Exit::Mismatch)
        }
    };
    match asked {
        Resume::Auto => say(&format!("a new run begins: {what}")),
        Resume::Dir(_) => say(&format!("error: --resume: {what}")),
    }
    for line in lines {
        say(&format!("  – {line}"));
    }
    match (asked, obstacle) {
        (Resume::Auto, _) => Ok(Course::New),
        (Resume::Dir(_), Obstacle::Damaged(_)) => {
            say("  help: begin anew, without --resume; what is there moves aside");
            Err(exit)
        }
        (Resume::Dir(_), Obstacle::Plan(_)) => {
            say(
                "  help: go on with the suite and the flags that it began with, or begin anew, without --resume",
            );
            Err(exit)
        }
        (Resume::Dir(_), Obstacle::Machine(_)) => {
            say("  help: go on where it began, or begin anew, without --resume");
            Err(exit)
        }
    }
}

/// `5 of 8 cells finished`; where cells are measured in several launches, also how many times they were.
fn progress(history: &History) -> String {
    let cells = &history.record.cells;
    let whole = cells.iter().filter(|cell| !matches!(cell.state, CellState::NotRun { .. })).count();
    let mut said = format!("{whole} of {} finished", plural(cells.len(), "cell"));
    let rounds = |cell: &CellOutcome| cell.rounds.len().max(1);
    let all: usize = cells.iter().map(rounds).sum();
    if all > cells.len() {
        let done = history.earlier.finished.len();
        said.push_str(&format!(", {done} of {}", plural(all, "measurement")));
    }
    said
}

/// In which ways the run that began is not the one that is asked for now; empty where it is.
fn other_plan(began: &RunHeader, now: &RunHeader, seed: Option<u64>) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(seed) = seed.filter(|seed| *seed != began.seed) {
        found.push(format!("--seed was {}, is {seed}", began.seed));
    }
    if began.tokgate != now.tokgate {
        found.push(format!("it began with tokgate {}, this is {}", began.tokgate, now.tokgate));
    }
    if let Some(share) = began.slowed {
        let percent = slowdown::percent(share);
        found.push(format!("it is a self-test, `tokgate selftest --slow {percent}`"));
    }
    found.extend(shard::other(began, now));
    let same_cells = began.launches.len() == now.launches.len()
        && began.cells.len() == now.cells.len()
        && began.cells.iter().zip(&now.cells).all(|(was, is)| {
            (&was.id, &was.classname, was.launch) == (&is.id, &is.classname, is.launch)
        });
    // Variables of the environment are no part of the hash, and may part cells into other launches.
    if began.plan_hash == now.plan_hash && same_cells {
        return found;
    }
    let before = found.len();
    let mut compare = |what: &str, was: &str, is: &str| {
        let or_none =
            |text: &str| if text.is_empty() { "none".into() } else { format!("`{text}`") };
        if was != is {
            found.push(format!("{what} was {}, is {}", or_none(was), or_none(is)));
        }
    };
    compare("the suite", &began.suite, &now.suite);
    compare(
        "the selection",
        &shell_words::join(&began.selection),
        &shell_words::join(&now.selection),
    );
    let flags = |header: &RunHeader| shell_words::join(shaping(&header.flags));
    compare("flags", &flags(began), &flags(now));
    let engine = |header: &RunHeader| header.declared.engine.clone();
    compare("the engine", &engine(began), &engine(now));
    found.extend(other_cells(began, now));
    if began.policy != now.policy {
        found.push("the policy differs".to_owned());
    }
    if found.len() == before {
        found.push(
            "something in the suite differs that neither cells, limits, policy nor flags show, such as a \
             command, a duration or the profile of a simulated engine"
                .to_owned(),
        );
    }
    found
}

/// How cells and their limits differ.
fn other_cells(began: &RunHeader, now: &RunHeader) -> Vec<String> {
    let key = |cell: &crate::record::run_record::PlannedCellRecord| {
        (cell.classname.clone(), cell.id.clone())
    };
    let index = |header: &RunHeader| -> std::collections::BTreeMap<_, _> {
        header.cells.iter().enumerate().map(|(at, cell)| (key(cell), at)).collect()
    };
    let (was, is) = (index(began), index(now));
    let mut found = Vec::new();
    let mut tell = |what: &str, header: &RunHeader, cells: Vec<usize>| {
        if cells.is_empty() {
            return;
        }
        let named = cells.iter().take(NAMED).map(|cell| message::name(&header.cells[*cell]));
        let more = if cells.len() > NAMED { ", …" } else { "" };
        let named = named.collect::<Vec<_>>().join(", ");
        found.push(format!("{} {what}: {named}{more}", plural(cells.len(), "cell")));
    };
    let only = |one: &std::collections::BTreeMap<_, usize>,
                other: &std::collections::BTreeMap<_, usize>| {
        one.iter().filter(|(key, _)| !other.contains_key(*key)).map(|(_, at)| *at).collect()
    };
    tell("less", began, only(&was, &is));
    tell("more", now, only(&is, &was));
    let limits = |header: &RunHeader, at: usize| {
        let cell = &header.cells[at];
        let bounds = cell.bounds.iter().map(|it| (it.metric, it.bound, it.slack, it.severity));
        let excused = cell.quarantine.as_ref().map(|it| (it.expires.clone(), it.max_loss));
        (bounds.collect::<Vec<_>>(), excused)
    };
    let both = is.iter().filter_map(|(key, at)| was.get(key).map(|before| (*before, *at)));
    let changed = both.filter(|(was, is)| limits(began, *was) != limits(now, *is));
    tell("with other limits", now, changed.map(|(_, at)| at).collect());
    found
}

/// The flags of a header that shape its plan, without those that a resumed run has from its journal.
fn shaping(flags: &[String]) -> Vec<String> {
    // Each flag stands there with its value.
    let pairs = flags.chunks(2).filter(|pair| pair[0] != "--seed" && pair[0] != "--out");
    pairs.flatten().cloned().collect()
}

/// The command that goes on with the run in a directory. `more` are flags that shape no plan.
pub fn command(header: &RunHeader, more: &[String], dir: &Path) -> String {
    let mut words = vec!["tokgate".to_owned(), header.subcommand().to_owned(), header.path.clone()];
    words.extend(header.selection.iter().cloned());
    words.extend(shaping(&header.flags));
    words.extend(shard::flags(header));
    words.extend(more.iter().cloned());
    words.extend(["--resume".to_owned(), dir.to_string_lossy().into_owned()]);
    crate::report::sanitise::line(&shell_words::join(words))
}

/// What to say of an earlier run that moved out of the way: where it went, and how to go on with it if
/// it is unfinished.
pub fn farewell(previous: &Path, shown: &Path) -> Vec<String> {
    let mut said = vec![format!("the earlier run went to {}", shown.display())];
    let contents = journal::read(&previous.join(JOURNAL)).ok();
    let history = contents.and_then(|contents| History::of(&contents.events));
    // A self-test does not go on.
    let whole = |history: &History| history.ended || history.record.header.slowed.is_some();
    if let Some(history) = history.filter(|history| !whole(history)) {
        said.push(format!(
            "it is unfinished ({}); to go on with it: {}",
            progress(&history),
            command(&history.record.header, &[], shown)
        ));
    }
    said
}
