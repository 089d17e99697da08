//! The run told in lines, for logs and other places that are no terminal: what becomes of each
//! launch and each cell, if wanted each step on the way, and a sign of life in every minute without
//! a line.
//!
//! Pure: events and elapsed time in, lines out. It also keeps the tally that the live display shows.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::judge::Verdict;
use crate::measure::TestKind;
use crate::record::run_record::{CellOutcome, CellState, Round};
use crate::record::{Event, RunRecord};

use super::count::{elapsed, plural};
use super::figure;
use super::grid;
use super::message;
use super::part;
use super::sanitise::line;

/// Longest silence.
const SILENCE: Duration = Duration::from_secs(60);

/// How far the run is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    /// Planned cells.
    pub cells: usize,
    /// Planned measurements: each cell as often as it is measured.
    pub total: usize,
    /// Measurements that are finished, or that a cell which broke does without.
    pub done: usize,
    /// Measurements that won't be, since a launch failed.
    pub lost: usize,
    /// Cells that failed or could not be judged.
    pub bad: usize,
    /// Measurements that sent requests: what was skipped says nothing about the rest.
    pub timed: usize,
    /// Time that passed from the first cell's start to the last one's end, without that of engines to
    /// start. Not the sum of their own times, which on a simulated engine may have passed on another clock.
    pub spent: Duration,
    /// Starts of engines that are still to come.
    pub starts_left: usize,
    /// Starts so far, and the time from each to a ready engine.
    pub started: usize,
    /// That time.
    pub starting: Duration,
}

impl Tally {
    /// How long the rest will take if it goes on like this: measurements and starts of engines.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total.saturating_sub(self.done + self.lost);
        let each = |whole: Duration, n: usize, left: usize| match n {
            0 => Duration::ZERO,
            n => whole.mul_f64(left as f64 / n as f64),
        };
        let starts = each(self.starting, self.started, self.starts_left);
        (self.timed > 0).then(|| each(self.spent, self.timed, rest) + starts)
    }

    /// What is counted: `cells`, or `measurements` where cells have several.
    pub fn unit(&self) -> &'static str {
        if self.total == self.cells { "cells" } else { "measurements" }
    }
}

/// Tells a run in lines.
#[derive(Debug, Default)]
pub struct Narrator {
    tally: Tally,
    /// Cells and rounds that are finished.
    finished: HashSet<(usize, u32)>,
    /// Cells that are told as bad, each with its verdict.
    bad: HashMap<usize, Verdict>,
    /// Launches and rounds that have been started, and launches that failed with what they took along.
    started: HashSet<(usize, u32)>,
    lost: HashMap<usize, (usize, usize)>,
    /// When the engine that is being started was started.
    starting: Option<Duration>,
    /// Whether each step of a launch and each phase of a cell is told.
    verbose: bool,
    /// What is going on, and since when.
    doing: String,
    since: Duration,
    /// When the first cell began.
    first: Option<Duration>,
    /// When the last line was told.
    spoke: Duration,
}

impl Narrator {
    /// A narrator that tells each step of a launch and each phase of a cell if `verbose`.
    pub fn new(verbose: bool) -> Narrator {
        Narrator { verbose, ..Narrator::default() }
    }

    /// How far the run is.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What is going on, in a few words.
    pub fn doing(&self) -> &str {
        &self.doing
    }

    /// Takes an event that `record` has already taken in; `now` counts from the start of the run.
    /// Returns the line to tell, if the event deserves one.
    pub fn see(&mut self, event: &Event, record: &RunRecord, now: Duration) -> Option<String> {
        let told = self.tell(event, record, now);
        if told.is_some() {
            self.spoke = now;
        }
        told
    }

    /// A sign of life, where the last line is a minute old.
    pub fn tick(&mut self, now: Duration) -> Option<String> {
        if self.doing.is_empty() || now.saturating_sub(self.spoke) < SILENCE {
            return None;
        }
        self.spoke = now;
        let waited = elapsed(now.saturating_sub(self.since).as_secs_f64());
        let (Tally { done, total, .. }, unit) = (&self.tally, self.tally.unit());
        Some(format!("… {} for {waited}, {done} of {total} {unit} done", self.doing))
    }

    fn tell(&mut self, event: &Event, record: &RunRecord, now: Duration) -> Option<String> {
        let launch_name = |launch: usize| {
            let planned = record.header.launches.get(launch);
            line(planned.map_or("?", |planned| planned.name.as_str()))
        };
        match event {
            Event::RunStarted(header) => {
                self.count(record, false);
                self.begin(format!("suite {}", line(&header.suite)), now);
                let what = part::words(record).unwrap_or_else(|| {
                    let launches = plural(header.launches.len(), "launch");
                    format!("{} in {launches}", plural(header.cells.len(), "cell"))
                });
                let often = match self.tally.total == self.tally.cells {
                    true => String::new(),
                    false => format!(
                        ", {} with {}",
                        plural(self.tally.total, "measurement"),
                        plural(self.tally.starts_left, "engine start")
                    ),
                };
                Some(format!("suite {}: {what}{often}", line(&header.suite)))
            }
            Event::RunResumed { .. } => {
                self.count(record, true);
                let suite = line(&record.header.suite);
                self.begin(format!("suite {suite}"), now);
                let Tally { done, total, .. } = self.tally;
                let unit = self.tally.unit().trim_end_matches('s');
                Some(format!("suite {suite}: {} of {total} left", plural(total - done, unit)))
            }
            Event::LaunchStarted { launch, log, round, .. } => {
                let mut name = launch_name(*launch);
                let rounds = record.rounds_of(*launch);
                if rounds > 1 {
                    name.push_str(&format!(" ({} of {rounds})", round + 1));
                }
                self.start(*launch, *round, now);
                self.begin(format!("launch {name}"), now);
                let log = log.as_ref().map(|log| format!(" (log {})", line(log)));
                Some(format!("launch {name}: start{}", log.unwrap_or_default()))
            }
            Event::LaunchStep { launch, step, .. } => {
                let said = format!("launch {}: {}", launch_name(*launch), line(step));
                self.begin(said.clone(), now);
                self.verbose.then_some(said)
            }
            Event::LaunchReady { launch, ready_time, .. } => {
                self.ready(now);
                let name = launch_name(*launch);
                Some(format!("launch {name}: ready after {}", elapsed(*ready_time)))
            }
            Event::LaunchFailed { launch, failure } => {
                self.ready(now);
                self.lose(*launch, record);
                let which = record.which_start(*launch).map(|which| format!(" in its {which},"));
                Some(format!(
                    "launch {}: FAILED{} in step {}: {}",
                    launch_name(*launch),
                    which.unwrap_or_default(),
                    line(&failure.step),
                    message::one_line(&failure.message)
                ))
            }
            Event::LaunchStopped { launch, .. } => {
                Some(format!("launch {}: stopped", launch_name(*launch)))
            }
            Event::CellStarted { cell, .. } => {
                let planned = record.header.cells.get(*cell)?;
                self.begin(message::name(planned), now);
                self.first.get_or_insert(now);
                None
            }
            Event::CellPhase { cell, phase, .. } => {
                let planned = record.header.cells.get(*cell)?;
                let said = format!("{}: {}", message::name(planned), line(phase));
                let news = self.doing != said;
                // The wait is counted from the start of the cell, not of the phase.
                self.doing = said.clone();
                (self.verbose && news).then_some(said)
            }
            Event::CellFinished { cell, round, seconds, .. } => {
                self.take(*cell, *round, record, now);
                match part_of(record, *cell, *round) {
                    Some(round) => Some(self.finish_round(*cell, round, record)),
                    None => self.finish(*cell, *seconds, record),
                }
            }
            Event::Warning { message } => Some(format!("warning: {}", message::one_line(message))),
            Event::RunFinished { .. } => {
                self.doing.clear();
                None
            }
        }
    }

    fn begin(&mut self, doing: String, now: Duration) {
        self.doing = doing;
        self.since = now;
    }

    /// Counts what is planned, and of a run that goes on what ran before: its verdicts count, its time says
    /// nothing of this session.
    fn count(&mut self, record: &RunRecord, goes_on: bool) {
        let cells = record.header.cells.iter().zip(&record.cells).enumerate();
        self.tally.cells = record.cells.len();
        self.tally.total = 0;
        let mut rounds = vec![0; record.launches.len()];
        for (at, (planned, outcome)) in cells {
            self.tally.total += planned.rounds.max(1) as usize;
            if let Some(most) = rounds.get_mut(planned.launch) {
                *most = planned.rounds.max(*most);
            }
            if !goes_on {
                continue;
            }
            if !matches!(outcome.state, CellState::NotRun { .. }) {
                self.settle(at, record);
                self.weigh(at, record);
                continue;
            }
            for (round, part) in (0..).zip(&outcome.rounds) {
                if !matches!(part.state, CellState::NotRun { .. }) {
                    self.finished.insert((at, round));
                }
            }
        }
        self.tally.done = self.finished.len();
        for (launch, most) in rounds.into_iter().enumerate() {
            let left = (0..most).filter(|round| self.is_left(launch, *round, record));
            self.tally.starts_left += left.count();
        }
    }

    /// Whether a launch has something to measure in that round.
    fn is_left(&self, launch: usize, round: u32, record: &RunRecord) -> bool {
        let mut own = record.header.cells.iter().enumerate().filter(|(_, it)| it.launch == launch);
        own.any(|(at, it)| round < it.rounds.max(1) && !self.finished.contains(&(at, round)))
    }

    /// An engine is started. Once more for the same round costs time, and is no other start.
    fn start(&mut self, launch: usize, round: u32, now: Duration) {
        self.starting = Some(now);
        if let Some((parts, starts)) = self.lost.remove(&launch) {
            self.tally.lost -= parts;
            self.tally.starts_left += starts;
        }
        if self.started.insert((launch, round)) {
            self.tally.starts_left = self.tally.starts_left.saturating_sub(1);
        }
    }

    /// An engine is ready, or has failed to be.
    fn ready(&mut self, now: Duration) {
        let Some(began) = self.starting.take() else { return };
        let took = now.saturating_sub(began);
        self.tally.started += 1;
        self.tally.starting += took;
        // The time of cells goes on behind it.
        self.first = self.first.map(|first| first + took);
    }

    /// What a failed launch takes along.
    fn lose(&mut self, launch: usize, record: &RunRecord) {
        let own = record.header.cells.iter().enumerate().filter(|(_, it)| it.launch == launch);
        let parts = own
            .flat_map(|(at, it)| (0..it.rounds.max(1)).map(move |round| (at, round)))
            .filter(|part| !self.finished.contains(part))
            .count();
        let starts = (0..record.rounds_of(launch))
            .filter(|round| !self.started.contains(&(launch, *round)))
            .filter(|round| self.is_left(launch, *round, record))
            .count();
        if self.lost.insert(launch, (parts, starts)).is_none() {
            self.tally.lost += parts;
            self.tally.starts_left = self.tally.starts_left.saturating_sub(starts);
        }
    }

    /// All rounds of a cell are over.
    fn settle(&mut self, cell: usize, record: &RunRecord) {
        let rounds = record.header.cells.get(cell).map_or(1, |planned| planned.rounds.max(1));
        self.finished.extend((0..rounds).map(|round| (cell, round)));
    }

    /// Counts a measurement that is finished.
    fn take(&mut self, cell: usize, round: u32, record: &RunRecord, now: Duration) {
        let Some(outcome) = record.cells.get(cell) else { return };
        if self.finished.insert((cell, round)) {
            let kind = record.header.cells[cell].kind;
            let state = outcome.rounds.get(round as usize).map_or(&outcome.state, |it| &it.state);
            let measured = matches!(state, CellState::Measured(_));
            self.tally.timed += usize::from(measured && kind != TestKind::Startup);
            self.tally.spent = now.saturating_sub(self.first.unwrap_or(now));
        }
        match outcome.state {
            CellState::NotRun { .. } => {}
            CellState::Measured(_) | CellState::Unfit { .. } | CellState::Broken { .. } => {
                self.settle(cell, record);
                self.weigh(cell, record);
            }
        }
        self.tally.done = self.finished.len();
    }

    /// Counts a cell that is whole as bad, if it is.
    fn weigh(&mut self, cell: usize, record: &RunRecord) {
        let verdict = record.cells[cell].judgement.verdict;
        match verdict {
            Verdict::Fail | Verdict::Error => self.bad.insert(cell, verdict),
            Verdict::Pass
            | Verdict::Inconclusive
            | Verdict::Measured
            | Verdict::Skip
            | Verdict::Xfail
            | Verdict::Xpass => self.bad.remove(&cell),
        };
        self.tally.bad = self.bad.keys().filter(|cell| !record.waits(**cell)).count();
    }

    /// `[ 3/48] `.
    fn counter(&self) -> String {
        let total = self.tally.total.to_string();
        format!("[{:>1$}/{total}] ", self.tally.done, total.len())
    }

    /// A cell that is to be measured in more launches has no verdict yet.
    fn finish_round(&self, cell: usize, (at, round): (u32, &Round), record: &RunRecord) -> String {
        let planned = &record.header.cells[cell];
        let (part, name) = (format!("{} of {}", at + 1, planned.rounds), message::name(planned));
        let mut said = format!("{}{part:<10}  {name}", self.counter());
        // A launch by itself is shown as a cell of one.
        let judgement = record.cells[cell].judgement.clone();
        let (state, seconds) = (round.state.clone(), round.seconds);
        let one = CellOutcome { state, rounds: Vec::new(), judgement, seconds };
        let shown = figure::headline(planned.kind, std::iter::once((planned, &one)));
        if let Some(figure) = figure::one(planned, &one, shown.first) {
            said.push_str(&format!("  {} {}", figure.metric, figure.text()));
        }
        said.push_str(&format!("  ({})", elapsed(seconds)));
        said
    }

    fn finish(&mut self, cell: usize, seconds: f64, record: &RunRecord) -> Option<String> {
        let mut said = self.verdict(cell, seconds, record)?;
        // Cells that waited for this one are judged now.
        let mut judged: Vec<usize> = Vec::new();
        for (other, before) in &self.bad {
            let (name, outcome) = (&record.header.cells[cell].variant, &record.cells[*other]);
            let held = name.as_ref().is_some_and(|name| {
                let planned = &record.header.cells[*other];
                record.twin(planned, name) == Some(cell) && *other != cell
            });
            if held && outcome.judgement.verdict != *before {
                judged.push(*other);
            }
        }
        judged.sort_unstable();
        for other in judged {
            self.weigh(other, record);
            if let Some(told) = self.verdict(other, record.cells[other].seconds, record) {
                said.push_str(&format!("\n{told}"));
            }
        }
        Some(said)
    }

    fn verdict(&self, cell: usize, seconds: f64, record: &RunRecord) -> Option<String> {
        let (planned, outcome) = (record.header.cells.get(cell)?, record.cells.get(cell)?);
        let shown = figure::headline(planned.kind, std::iter::once((planned, outcome)));
        let figures: Vec<String> = match figure::measurement(outcome) {
            Some(_) => std::iter::once(shown.first)
                .chain(shown.second)
                .filter_map(|metric| figure::one(planned, outcome, metric))
                .map(|figure| format!("{} {}", figure.metric, figure.text()))
                .collect(),
            None => vec![],
        };
        let waits = figure::measurement(outcome).is_some() && record.waits(cell);
        let mark = if waits { "… waits".to_owned() } else { grid::mark(outcome).to_string() };
        let mut said = format!("{}{mark:<10}  {}", self.counter(), message::name(planned));
        if !figures.is_empty() {
            said.push_str(&format!("  {}  ({})", figures.join(", "), elapsed(seconds)));
        }
        let worth = match outcome.judgement.verdict {
            Verdict::Fail | Verdict::Error | Verdict::Inconclusive | Verdict::Skip => true,
            Verdict::Pass | Verdict::Measured | Verdict::Xfail | Verdict::Xpass => false,
        };
        if worth && let Some(message) = message::of_cell(outcome) {
            said.push_str(&format!("  {message}"));
        }
        Some(said)
    }
}

/// The round of a cell that has more of them to come; none of one that is whole.
pub(super) fn part_of(record: &RunRecord, cell: usize, round: u32) -> Option<(u32, &Round)> {
    let outcome = record.cells.get(cell)?;
    let part = outcome.rounds.get(round as usize)?;
    matches!(outcome.state, CellState::NotRun { .. }).then_some((round, part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn events(record: &RunRecord) -> Vec<(u64, Event)> {
        let finished = |cell: usize| Event::CellFinished {
            round: 0,
            cell,
            state: record.cells[cell].state.clone(),
            seconds: record.cells[cell].seconds,
        };
        let failure = record.launches[1].failure.clone().unwrap();
        vec![
            (0, Event::RunStarted(Box::new(record.header.clone()))),
            (
                0,
                Event::LaunchStarted {
                    round: 0,
                    launch: 0,
                    command: vec![],
                    log: Some("a.log".into()),
                    ordinal: 0,
                    at: 0.0,
                },
            ),
            (1, Event::LaunchStep { launch: 0, step: "health".into(), at: 1.0 }),
            (
                90,
                Event::LaunchReady {
                    launch: 0,
                    ready_time: 90.0,
                    facts: Default::default(),
                    warnings: vec![],
                },
            ),
            (90, Event::CellStarted { round: 0, cell: 0, at: 90.0 }),
            (91, Event::CellPhase { cell: 0, phase: "window".into(), note: "12 tokens".into() }),
            (95, finished(0)),
            (99, finished(1)),
            (100, Event::LaunchFailed { launch: 1, failure }),
            (101, finished(8)),
            (102, Event::Warning { message: "odd\u{1b}[31m".into() }),
            (103, Event::RunFinished { signal: None, stopped: None, at: 103.0 }),
        ]
    }

    #[test]
    fn a_line_for_each_launch_and_finished_cell_and_for_steps_if_asked() {
        let record = fixture::every_verdict();
        let mut narrator = Narrator::default();
        let told: Vec<String> = events(&record)
            .iter()
            .filter_map(|(at, event)| narrator.see(event, &record, S(*at)))
            .collect();
        insta::assert_snapshot!(told.join("\n"));
        let mut verbose = Narrator::new(true);
        let more: Vec<String> = events(&record)
            .iter()
            .filter_map(|(at, event)| verbose.see(event, &record, S(*at)))
            .filter(|line| !told.contains(line))
            .collect();
        assert_eq!(more, ["launch layout=tp8: health", "decode concurrency=1 layout=tp8: window"]);
        assert!(told.iter().all(|line| !line.contains(char::is_control)));
    }

    #[test]
    fn a_sign_of_life_a_minute_and_no_more() {
        let record = fixture::every_verdict();
        let mut narrator = Narrator::default();
        assert_eq!(narrator.tick(S(500)), None, "nothing has begun");
        for (at, event) in &events(&record)[..3] {
            narrator.see(event, &record, S(*at));
        }
        let signs: Vec<u64> = (1..=200).filter(|now| narrator.tick(S(*now)).is_some()).collect();
        assert_eq!(signs, [60, 120, 180]);
        assert_eq!(
            narrator.tick(S(250)).unwrap(),
            "… launch layout=tp8: health for 4m09s, 0 of 12 cells done"
        );
    }

    #[test]
    fn a_run_that_goes_on_counts_what_is_done() {
        let record = fixture::every_verdict();
        let mut narrator = Narrator::default();
        let event =
            Event::RunResumed { session: 1, started: "2026-01-01T00:00:00Z".into(), after: 9.0 };
        let told = narrator.see(&event, &record, S(0)).unwrap();
        assert!(told.ends_with(": 2 cells of 12 left"), "{told}");
        assert_eq!((narrator.tally().done, narrator.tally().left()), (10, None));
    }

    #[test]
    fn rounds_are_counted_and_told() {
        let before = fixture::planned_compare(Some(0.98));
        let after = fixture::compare();
        let mut record = before.clone();
        let mut narrator = Narrator::default();
        let mut see = |event: Event, at: u64| {
            record.apply(&event);
            narrator.see(&event, &record, S(at)).unwrap_or_default()
        };
        let told = see(Event::RunStarted(Box::new(before.header.clone())), 0);
        assert_eq!(
            told,
            "suite upgrade: 12 cells in 2 launches, 48 measurements with 8 engine starts"
        );
        let start = |launch, round| Event::LaunchStarted {
            launch,
            command: vec![],
            log: None,
            round,
            ordinal: 0,
            at: 0.0,
        };
        let ready = |launch| Event::LaunchReady {
            launch,
            ready_time: 50.0,
            facts: Default::default(),
            warnings: vec![],
        };
        let finished = |cell: usize, round: u32| {
            let Round { state, seconds } = after.cells[cell].rounds[round as usize].clone();
            Event::CellFinished { cell, round, state, seconds }
        };
        assert_eq!(see(start(1, 0), 0), "launch new (1 of 4): start");
        see(ready(1), 50);
        let mut now = 50;
        for cell in 6..12 {
            see(Event::CellStarted { cell, round: 0, at: 0.0 }, now);
            now += 30;
            let told = see(finished(cell, 0), now);
            let count = cell - 5;
            assert!(
                told.starts_with(&format!("[ {count}/48] 1 of 4      decode variant=new ")),
                "{told}"
            );
            assert!(told.contains(" tok/s") && told.ends_with("(30.0s)"), "{told}");
        }
        // Two launches' worth of starts and 42 measurements are left.
        assert_eq!(narrator.tally().left(), Some(S(42 * 30 + 7 * 50)));
        assert_eq!(
            narrator.tick(S(now + 90)).unwrap(),
            "… decode variant=new context=32K concurrency=16 for 2m00s, 6 of 48 measurements done"
        );
    }

    #[test]
    fn what_a_failed_launch_takes_along_is_not_waited_for() {
        let record = fixture::compare_cut_short();
        let mut narrator = Narrator::default();
        let event = Event::RunResumed { session: 1, started: String::new(), after: 9.0 };
        let told = narrator.see(&event, &record, S(0)).unwrap();
        assert_eq!(told, "suite upgrade: 24 measurements of 48 left");
        let failure = record.launches[1].failure.clone().unwrap();
        let told =
            narrator.see(&Event::LaunchFailed { launch: 1, failure }, &record, S(1)).unwrap();
        assert!(
            told.starts_with("launch new: FAILED in its launch 2 of 4, in step process: "),
            "{told}"
        );
        let Tally { lost, starts_left, .. } = narrator.tally();
        assert_eq!((*lost, *starts_left), (18, 1));
    }

    #[test]
    fn a_cell_that_waits_for_another_is_judged_when_that_is_there() {
        let after = fixture::compare();
        let mut record = fixture::planned_compare(None);
        let mut narrator = Narrator::default();
        narrator.see(&Event::RunStarted(Box::new(record.header.clone())), &record, S(0));
        let mut told = Vec::new();
        // All of the candidate's launches, then all of what it is held against.
        for cell in [6, 0] {
            for round in 0..fixture::PAIRS {
                let state = after.cells[cell].rounds[round as usize].state.clone();
                let event = Event::CellFinished { cell, round, state, seconds: 1.0 };
                record.apply(&event);
                told.push(narrator.see(&event, &record, S(1)).unwrap());
            }
            assert_eq!(narrator.tally().bad, 0);
        }
        assert!(told[3].starts_with("[ 4/48] … waits"), "{}", told[3]);
        let last: Vec<&str> = told[7].lines().collect();
        assert!(last[0].contains("○ measured  decode variant=old"), "{last:?}");
        assert!(last[1].contains("✓ pass      decode variant=new"), "{last:?}");
    }

    #[test]
    fn the_rest_is_reckoned_by_what_was() {
        let tally = Tally { total: 10, done: 4, timed: 2, spent: S(20), ..Tally::default() };
        assert_eq!(tally.left(), Some(S(60)), "two that were skipped are no measure");
        let lost = Tally { lost: 4, ..tally.clone() };
        assert_eq!(lost.left(), Some(S(20)), "what a failed launch took along is not waited for");
        let starts = Tally { starts_left: 3, started: 2, starting: S(60), ..tally.clone() };
        assert_eq!(starts.left(), Some(S(60 + 90)), "engines that are to be started take time too");
        let tally = Tally { timed: 0, ..tally };
        assert_eq!(tally.left(), None);
        assert_eq!(Tally::default().left(), None);
    }
}
