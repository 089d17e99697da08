//! The run told in lines, for logs and other places that are no terminal: what becomes of each
//! launch and each cell, if wanted each step on the way, and a sign of life in every minute without
//! a line.
//!
//! Pure: events and elapsed time in, lines out. It also keeps the tally that the live display shows.

use std::collections::HashSet;
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
    pub total: usize,
    /// Finished cells.
    pub done: usize,
    /// Those that failed or could not be judged.
    pub bad: usize,
    /// Those that sent requests: skipped ones say nothing about the rest.
    pub timed: usize,
    /// Time that passed from the first cell's start to the last one's end. Not the sum of their own
    /// times, which on a simulated engine may have passed on another clock.
    pub spent: Duration,
}

impl Tally {
    /// How long the rest will take if it goes on like this.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.total.saturating_sub(self.done);
        (self.timed > 0).then(|| self.spent.mul_f64(rest as f64 / self.timed as f64))
    }
}

/// Tells a run in lines.
#[derive(Debug, Default)]
pub struct Narrator {
    tally: Tally,
    finished: HashSet<usize>,
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
        let Tally { done, total, .. } = self.tally;
        Some(format!("… {} for {waited}, {done} of {total} cells done", self.doing))
    }

    fn tell(&mut self, event: &Event, record: &RunRecord, now: Duration) -> Option<String> {
        let launch_name = |launch: usize| {
            let planned = record.header.launches.get(launch);
            line(planned.map_or("?", |planned| planned.name.as_str()))
        };
        match event {
            Event::RunStarted(header) => {
                self.tally.total = header.cells.len();
                self.begin(format!("suite {}", line(&header.suite)), now);
                let what = part::words(record).unwrap_or_else(|| {
                    let launches = plural(header.launches.len(), "launch");
                    format!("{} in {launches}", plural(header.cells.len(), "cell"))
                });
                Some(format!("suite {}: {what}", line(&header.suite)))
            }
            Event::RunResumed { .. } => {
                // What ran before is done; its verdicts count, its time says nothing of this session.
                for (index, cell) in record.cells.iter().enumerate() {
                    if !matches!(cell.state, CellState::NotRun { .. }) {
                        self.finished.insert(index);
                        let bad = matches!(cell.judgement.verdict, Verdict::Fail | Verdict::Error);
                        self.tally.bad += usize::from(bad);
                    }
                }
                self.tally.total = record.cells.len();
                self.tally.done = self.finished.len();
                let suite = line(&record.header.suite);
                self.begin(format!("suite {suite}"), now);
                let left = plural(self.tally.total - self.tally.done, "cell");
                Some(format!("suite {suite}: {left} of {} left", self.tally.total))
            }
            Event::LaunchStarted { launch, log, round, .. } => {
                let mut name = launch_name(*launch);
                if *round > 0 {
                    name.push_str(&format!(" (round {})", round + 1));
                }
                self.begin(format!("launch {name}"), now);
                let log = log.as_ref().map(|log| format!(" (log {})", line(log)));
                Some(format!("launch {name}: start{}", log.unwrap_or_default()))
            }
            Event::LaunchStep { launch, step, .. } => {
                let said = format!("launch {}: {}", launch_name(*launch), line(step));
                self.begin(said.clone(), now);
                self.verbose.then_some(said)
            }
            Event::LaunchReady { launch, ready_time, .. } => Some(format!(
                "launch {}: ready after {}",
                launch_name(*launch),
                elapsed(*ready_time)
            )),
            Event::LaunchFailed { launch, failure } => Some(format!(
                "launch {}: FAILED in step {}: {}",
                launch_name(*launch),
                line(&failure.step),
                message::one_line(&failure.message)
            )),
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
                match part_of(record, *cell, *round) {
                    Some(round) => Some(self.finish_round(*cell, round, record)),
                    None => self.finish(*cell, *seconds, record, now),
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

    /// A cell that is to be measured in more launches has no verdict yet.
    fn finish_round(&self, cell: usize, (at, round): (u32, &Round), record: &RunRecord) -> String {
        let planned = &record.header.cells[cell];
        let (done, total) = (self.tally.done, self.tally.total.to_string());
        let width = total.len();
        let (part, name) = (format!("{} of {}", at + 1, planned.rounds), message::name(planned));
        let mut said = format!("[{done:>width$}/{total}] {part:<10}  {name}");
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

    fn finish(
        &mut self,
        cell: usize,
        seconds: f64,
        record: &RunRecord,
        now: Duration,
    ) -> Option<String> {
        let (planned, outcome) = (record.header.cells.get(cell)?, record.cells.get(cell)?);
        if self.finished.insert(cell) {
            self.tally.done += 1;
            let measured = figure::measurement(outcome).is_some();
            self.tally.timed += usize::from(measured && planned.kind != TestKind::Startup);
            self.tally.spent = now.saturating_sub(self.first.unwrap_or(now));
            let bad = matches!(outcome.judgement.verdict, Verdict::Fail | Verdict::Error);
            self.tally.bad += usize::from(bad);
        }
        let total = self.tally.total.to_string();
        let shown = figure::headline(planned.kind, std::iter::once((planned, outcome)));
        let figures: Vec<String> = match figure::measurement(outcome) {
            Some(_) => std::iter::once(shown.first)
                .chain(shown.second)
                .filter_map(|metric| figure::one(planned, outcome, metric))
                .map(|figure| format!("{} {}", figure.metric, figure.text()))
                .collect(),
            None => vec![],
        };
        let mark = grid::mark(outcome).to_string();
        let mut said = format!(
            "[{:>2$}/{total}] {mark:<10}  {}",
            self.tally.done,
            message::name(planned),
            total.len()
        );
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
    fn the_rest_is_reckoned_by_what_was() {
        let tally = Tally { total: 10, done: 4, bad: 0, timed: 2, spent: S(20) };
        assert_eq!(tally.left(), Some(S(60)), "two that were skipped are no measure");
        let tally = Tally { timed: 0, ..tally };
        assert_eq!(tally.left(), None);
        assert_eq!(Tally::default().left(), None);
    }
}
