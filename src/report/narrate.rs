//! The run told in lines, for logs and other places that are no terminal: what becomes of each
//! launch and each cell, if wanted each step on the way, and a sign of life in every minute without
//! a line.
//!
//! Pure: events and elapsed time in, lines out. It also keeps the tally that the live display shows.

use std::time::Duration;

use crate::judge::Verdict;
use crate::measure::Metric;
use crate::record::run_record::{CellOutcome, CellState, Round};
use crate::record::{Event, RunRecord};

use super::console::Paint;
use super::count::{elapsed, plural};
use super::figure;
use super::grid;
use super::message;
use super::part;
use super::sanitise::line;

mod forecast;
mod tally;

pub use forecast::Guess;
use tally::Progress;
pub use tally::{Here, Tally};

/// Longest silence.
const SILENCE: Duration = Duration::from_secs(60);

/// Tells a run in lines.
#[derive(Debug, Default)]
pub struct Narrator {
    progress: Progress,
    /// Whether each step of a launch and each phase of a cell is told.
    verbose: bool,
    /// Whether marks are coloured.
    color: bool,
    /// What is going on, and since when.
    doing: String,
    since: Duration,
    /// When the last line was told.
    spoke: Duration,
}

impl Narrator {
    /// A narrator that tells each step of a launch and each phase of a cell if `verbose`, and paints the marks
    /// of cells if `color`. What it says of the time that is left begins with `guess`.
    pub fn new(verbose: bool, color: bool, guess: Guess) -> Narrator {
        let progress = Progress::expecting(guess);
        Narrator { verbose, color, progress, ..Narrator::default() }
    }

    /// How far the run is.
    pub fn tally(&self) -> &Tally {
        &self.progress.tally
    }

    /// What is going on, in a few words.
    pub fn doing(&self) -> &str {
        &self.doing
    }

    /// For how long it goes on.
    pub fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// How long the rest takes, if that can be said.
    pub fn left(&self, now: Duration) -> Option<Duration> {
        self.progress.left(now)
    }

    /// How far the launch under way is.
    pub fn here(&self, now: Duration) -> Here {
        self.progress.here(now)
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
        let (Tally { done, total, .. }, unit) = (&self.progress.tally, self.progress.tally.unit());
        let left = self.left(now).filter(|left| !left.is_zero());
        let left = left.map(|left| format!(", about {} left", roughly(left)));
        let left = left.unwrap_or_default();
        Some(format!("… {} for {waited}, {done} of {total} {unit} done{left}", self.doing))
    }

    fn tell(&mut self, event: &Event, record: &RunRecord, now: Duration) -> Option<String> {
        let launch_name = |launch: usize| {
            let planned = record.header.launches.get(launch);
            line(planned.map_or("?", |planned| planned.name.as_str()))
        };
        match event {
            Event::RunStarted(header) => {
                self.progress.count(record, false);
                self.begin(format!("suite {}", line(&header.suite)), now);
                let what = part::words(record).unwrap_or_else(|| {
                    let launches = plural(header.launches.len(), "launch");
                    format!("{} in {launches}", plural(header.cells.len(), "cell"))
                });
                let often = match self.progress.tally.total == self.progress.tally.cells {
                    true => String::new(),
                    false => format!(
                        ", {} with {}",
                        plural(self.progress.tally.total, "measurement"),
                        plural(self.progress.tally.starts_left, "engine start")
                    ),
                };
                Some(format!("suite {}: {what}{often}", line(&header.suite)))
            }
            Event::RunResumed { .. } => {
                self.progress.count(record, true);
                let suite = line(&record.header.suite);
                self.begin(format!("suite {suite}"), now);
                let Tally { done, total, .. } = self.progress.tally;
                let unit = self.progress.tally.unit().trim_end_matches('s');
                Some(format!("suite {suite}: {} of {total} left", plural(total - done, unit)))
            }
            Event::LaunchStarted { launch, log, round, .. } => {
                let mut name = launch_name(*launch);
                let rounds = record.rounds_of(*launch);
                if rounds > 1 {
                    name.push_str(&format!(" ({} of {rounds})", round + 1));
                }
                self.progress.start(*launch, *round, record, now);
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
                self.progress.ready(now);
                let name = launch_name(*launch);
                Some(format!("launch {name}: ready after {}", elapsed(*ready_time)))
            }
            Event::LaunchFailed { launch, failure } => {
                self.progress.ready(now);
                self.progress.lose(*launch, record);
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
                self.progress.begin(*cell, record, now);
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
                self.progress.take(*cell, *round, record, now);
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

    /// `[ 3/48] `.
    fn counter(&self) -> String {
        let total = self.progress.tally.total.to_string();
        format!("[{:>1$}/{total}] ", self.progress.tally.done, total.len())
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
        for (other, before) in &self.progress.bad {
            let (name, outcome) = (&record.header.cells[cell].variant, &record.cells[*other]);
            let held = name
                .as_ref()
                .is_some_and(|name| record.twin(*other, name) == Some(cell) && *other != cell);
            if held && outcome.judgement.verdict != *before {
                judged.push(*other);
            }
        }
        judged.sort_unstable();
        for other in judged {
            self.progress.weigh(other, record);
            if let Some(told) = self.verdict(other, record.cells[other].seconds, record) {
                said.push_str(&format!("\n{told}"));
            }
        }
        Some(said)
    }

    fn verdict(&self, cell: usize, seconds: f64, record: &RunRecord) -> Option<String> {
        let (planned, outcome) = (record.header.cells.get(cell)?, record.cells.get(cell)?);
        let shown = figure::headline(planned.kind, std::iter::once((planned, outcome)));
        let worth = match outcome.judgement.verdict {
            Verdict::Fail | Verdict::Error | Verdict::Inconclusive | Verdict::Skip => true,
            Verdict::Pass | Verdict::Measured | Verdict::Xfail | Verdict::Xpass => false,
        };
        let message = message::of_cell(outcome).filter(|_| worth);
        // What its message begins with is told once.
        let told = |metric: &Metric| {
            let name = format!("{metric} ");
            message.as_ref().is_some_and(|message| message.starts_with(&name))
        };
        let measured = figure::measurement(outcome).is_some();
        let figures: Vec<String> = match measured {
            true => std::iter::once(shown.first)
                .chain(shown.second)
                .filter(|metric| !told(metric))
                .filter_map(|metric| figure::one(planned, outcome, metric))
                .map(|figure| format!("{} {}", figure.metric, figure.text()))
                .collect(),
            false => vec![],
        };
        let waits = measured && record.waits(cell);
        let mark = if waits { "… waits".to_owned() } else { grid::mark(outcome).to_string() };
        let mark = format!("{mark:<10}");
        let mark = Paint::Tone(grid::mark(outcome).tone).on(&mark, self.color && !waits);
        let mut said = format!("{}{mark}  {}", self.counter(), message::name(planned));
        if !figures.is_empty() {
            said.push_str(&format!("  {}", figures.join(", ")));
        }
        if measured {
            said.push_str(&format!("  ({})", elapsed(seconds)));
        }
        if let Some(message) = message {
            said.push_str(&format!("  {message}"));
        }
        Some(said)
    }
}

/// A duration in whole seconds: `5s`, `1m12s`.
pub(super) fn whole(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { elapsed(seconds as f64) }
}

/// A time that is not known to the second: what is long is told in steps, so that it does not flicker.
pub(super) fn roughly(left: Duration) -> String {
    let seconds = left.as_secs_f64().ceil();
    let step = match seconds {
        s if s < 30.0 => 1.0,
        s if s < 120.0 => 5.0,
        s if s < 600.0 => 10.0,
        _ => 60.0,
    };
    whole(Duration::from_secs_f64((seconds / step).ceil() * step))
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
        let mut verbose = Narrator::new(true, false, Guess::default());
        let more: Vec<String> = events(&record)
            .iter()
            .filter_map(|(at, event)| verbose.see(event, &record, S(*at)))
            .filter(|line| !told.contains(line))
            .collect();
        assert_eq!(more, ["launch layout=tp8: health", "decode concurrency=1 layout=tp8: window"]);
        assert!(told.iter().all(|line| !line.contains(char::is_control)));
    }

    #[test]
    fn marks_are_coloured_if_asked() {
        let record = fixture::every_verdict();
        let told = |color| {
            let mut narrator = Narrator::new(false, color, Guess::default());
            let events = events(&record);
            let told = events.iter().filter_map(|(at, it)| narrator.see(it, &record, S(*at)));
            told.collect::<Vec<_>>().join("\n")
        };
        let coloured = told(true);
        assert!(coloured.contains("[ 1/12] \u{1b}[32m✓ pass    "), "{coloured}");
        assert!(coloured.contains("\u{1b}[1;31m✗ fail    "), "{coloured}");
        let mut plain = coloured;
        for code in ["2", "32", "1;31", "33", "0"] {
            plain = plain.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(plain, told(false));
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
        assert_eq!((narrator.tally().done, narrator.left(S(0))), (10, None));
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
        assert_eq!(narrator.left(S(now)), Some(S(42 * 30 + 7 * 50)));
        assert_eq!(
            narrator.tick(S(now + 90)).unwrap(),
            "… decode variant=new context=32K concurrency=16 for 2m00s, 6 of 48 measurements done, about 27m00s left"
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
}
