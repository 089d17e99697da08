//! Progress during a run, on stderr: a live display on a terminal, quiet lines elsewhere.
//!
//! An onlooker: it gets each event after the record has taken it in, and never fails or holds up a
//! run; a closed stderr is nothing to it. It installs no signal handler and reads no key.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::record::{Event, RunRecord};

use super::count::elapsed;
use super::github;
use super::message;
use super::narrate::{Narrator, part_of};
use super::outlet;
use super::sanitise::line;
use super::screen::{self, Screen};

/// How a run is shown while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Redrawn in place.
    Live,
    /// A line for each step and cell, a sign of life a minute.
    Lines,
    /// Not at all.
    Silent,
}

impl Style {
    /// What suits: `terminal` says whether stderr is one that can redraw, `no_progress` and `quiet`
    /// are the options.
    pub fn choose(terminal: bool, no_progress: bool, quiet: bool) -> Style {
        match (quiet, terminal && !no_progress) {
            (true, _) => Style::Silent,
            (false, true) => Style::Live,
            (false, false) => Style::Lines,
        }
    }
}

/// The progress of one run.
pub struct Progress {
    shown: Shown,
    began: Instant,
}

enum Shown {
    Live(Box<Live>),
    Lines(Lines),
    Silent,
}

impl Progress {
    /// Begins to show a run, with every step if `verbose`; its clock starts here.
    pub fn start(style: Style, verbose: bool) -> Progress {
        let began = Instant::now();
        let shown = match style {
            Style::Live => {
                let screen = Box::new(Screen::new(outlet::Stderr));
                let target = ProgressDrawTarget::term_like_with_hz(screen, 10);
                Shown::Live(Box::new(Live::start(target, began, verbose)))
            }
            Style::Lines => Shown::Lines(Lines::start(began, verbose)),
            Style::Silent => Shown::Silent,
        };
        Progress { shown, began }
    }

    /// Takes an event that `record` has already taken in.
    pub fn see(&mut self, event: &Event, record: &RunRecord) {
        let now = self.began.elapsed();
        match &mut self.shown {
            Shown::Live(live) => live.see(event, record, now),
            Shown::Lines(lines) => lines.see(event, record, now),
            Shown::Silent => {}
        }
    }

    /// Ends the display and leaves the terminal clean; dropping does the same.
    pub fn finish(self) {}
}

/// Lines on stderr, and the thread that gives signs of life.
struct Lines {
    narrator: Arc<Mutex<Narrator>>,
    /// Dropped to end the thread.
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    fn start(began: Instant, verbose: bool) -> Lines {
        let narrator = Arc::new(Mutex::new(Narrator::new(verbose)));
        let (alive, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(&narrator);
        // Without the thread there are lines all the same, only no signs of life.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_secs(1)) {
                let mut narrator = shared.lock().unwrap_or_else(PoisonError::into_inner);
                say(narrator.tick(began.elapsed()));
            }
        });
        Lines { narrator, alive: Some(alive), thread: thread.ok() }
    }

    fn see(&mut self, event: &Event, record: &RunRecord, now: Duration) {
        let mut narrator = self.narrator.lock().unwrap_or_else(PoisonError::into_inner);
        say(narrator.see(event, record, now));
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It can't panic, and if it did there would be nothing to do about it.
            let _ = thread.join();
        }
    }
}

fn say(told: Option<String>) {
    if let Some(told) = told {
        let told =
            if github::reads_along() { github::disarmed(&told) } else { told.as_str().into() };
        outlet::say(format!("{told}\n").as_bytes());
    }
}

/// Three lines redrawn in place: the launch, the cell, the whole.
struct Live {
    narrator: Narrator,
    /// Whether all that is told stays on the screen.
    verbose: bool,
    all: MultiProgress,
    launch: ProgressBar,
    cell: ProgressBar,
    whole: ProgressBar,
    /// Milliseconds on the run's clock at which the end is expected; 0: not known.
    expected: Arc<AtomicU64>,
}

impl Live {
    fn start(target: ProgressDrawTarget, began: Instant, verbose: bool) -> Live {
        let all = MultiProgress::with_draw_target(target);
        let expected = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&expected);
        let left = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let end = Duration::from_millis(shared.load(Ordering::Relaxed));
            let left = end.saturating_sub(began.elapsed());
            // What takes longer than expected has nothing to say.
            if !left.is_zero() {
                // A display that can't be written is redrawn soon.
                let _ = write!(out, ", about {} left", whole(left + Duration::from_millis(999)));
            }
        };
        let gone = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{}", whole(began.elapsed()));
        };
        let gauge = |state: &ProgressState, out: &mut dyn fmt::Write| {
            let columns = usize::from(screen::size().0);
            let _ = out.write_str(&bar(state.fraction(), columns));
        };
        let template = |text: &str| {
            ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        let line = |style: ProgressStyle| {
            let line = ProgressBar::new(0);
            line.set_style(style);
            all.add(line)
        };
        let launch = line(template("{spinner} {wide_msg}"));
        let cell = line(template("  {wide_msg}"));
        let style = template("  {gauge}{pos}/{len} cells, {msg}{gone}{left}");
        let style = style.with_key("gauge", gauge).with_key("gone", gone).with_key("left", left);
        let whole = line(style);
        for bar in [&launch, &whole] {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Live { narrator: Narrator::new(verbose), verbose, all, launch, cell, whole, expected }
    }

    fn see(&mut self, event: &Event, record: &RunRecord, now: Duration) {
        let told = self.narrator.see(event, record, now);
        // What needs an eye stays on the screen above the display.
        let stays = match event {
            Event::LaunchStep { .. } => {
                self.launch.set_message(self.narrator.doing().to_owned());
                false
            }
            Event::LaunchStarted { .. } | Event::LaunchReady { .. } => {
                self.launch.set_message(told.clone().unwrap_or_default());
                false
            }
            Event::LaunchStopped { .. } => {
                self.launch.set_message(told.clone().unwrap_or_default());
                self.cell.set_message("");
                false
            }
            Event::LaunchFailed { .. } | Event::Warning { .. } => true,
            Event::CellStarted { .. } => {
                self.cell.set_message(self.narrator.doing().to_owned());
                false
            }
            Event::CellPhase { note, .. } => {
                let doing = self.narrator.doing();
                self.cell.set_message(format!("{doing} · {}", line(note)));
                false
            }
            Event::CellFinished { cell, round, .. } => {
                self.cell.set_message("");
                if part_of(record, *cell, *round).is_some() {
                    return;
                }
                let judged = record.cells.get(*cell).map(|cell| cell.judgement.verdict);
                judged.is_some_and(message::wants_an_eye)
            }
            Event::RunStarted(_) | Event::RunResumed { .. } | Event::RunFinished { .. } => false,
        };
        if (stays || self.verbose)
            && let Some(told) = told
        {
            let _ = self.all.println(told);
        }
        let tally = self.narrator.tally();
        self.whole.set_length(tally.total as u64);
        self.whole.set_position(tally.done as u64);
        let bad = if tally.bad > 0 { format!("{} bad, ", tally.bad) } else { String::new() };
        self.whole.set_message(bad);
        if let Some(left) = tally.left()
            && matches!(event, Event::CellFinished { .. })
        {
            let end = u64::try_from((now + left).as_millis()).unwrap_or(u64::MAX);
            self.expected.store(end, Ordering::Relaxed);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        for bar in [&self.launch, &self.cell, &self.whole] {
            bar.finish_and_clear();
        }
        let _ = self.all.clear();
    }
}

/// Columns that the whole's line needs beside its bar, when its numbers are long.
const BESIDE: usize = 54;

/// The whole's bar, as long as the terminal has room for; a line that wraps can't be redrawn well.
fn bar(fraction: f32, columns: usize) -> String {
    let cells = columns.saturating_sub(BESIDE).min(24);
    if cells < 6 {
        return String::new();
    }
    let full = ((fraction.clamp(0.0, 1.0) * cells as f32) as usize).min(cells);
    let (head, rest) = if full < cells { ("╸", cells - full - 1) } else { ("", 0) };
    format!("[{}{head}{}] ", "━".repeat(full), "─".repeat(rest))
}

/// A duration in whole seconds: `5s`, `1m12s`.
fn whole(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 { format!("{seconds}s") } else { elapsed(seconds as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn style_follows_terminal_and_options() {
        assert_eq!(Style::choose(true, false, false), Style::Live);
        assert_eq!(Style::choose(true, true, false), Style::Lines);
        assert_eq!(Style::choose(false, false, false), Style::Lines);
        assert_eq!(Style::choose(true, false, true), Style::Silent);
    }

    #[test]
    fn the_live_display_counts_cells_and_expects_an_end() {
        let record = fixture::every_verdict();
        let mut live = Live::start(ProgressDrawTarget::hidden(), Instant::now(), false);
        live.see(&Event::RunStarted(Box::new(record.header.clone())), &record, Duration::ZERO);
        live.see(&Event::CellStarted { round: 0, cell: 1, at: 0.0 }, &record, Duration::ZERO);
        let note =
            Event::CellPhase { cell: 1, phase: "window".into(), note: "12\u{7} tokens".into() };
        live.see(&note, &record, Duration::ZERO);
        assert_eq!(live.cell.message(), "decode concurrency=2 layout=tp8: window · 12␇ tokens");
        let state = record.cells[1].state.clone();
        let finished = Event::CellFinished { round: 0, cell: 1, state, seconds: 5.0 };
        live.see(&finished, &record, Duration::from_secs(6));
        assert_eq!((live.whole.position(), live.whole.length()), (1, Some(12)));
        assert_eq!(live.whole.message(), "1 bad, ");
        assert_eq!(live.expected.load(Ordering::Relaxed), 6_000 + 11 * 6_000);
    }

    #[test]
    fn the_line_of_the_whole_fits_into_the_terminal() {
        for columns in [40, 59, 60, 72, 80, 200] {
            for fraction in [0.0, 0.3, 1.0] {
                let width = bar(fraction, columns).chars().count();
                assert!(width == 0 || width + BESIDE <= columns + 3, "{columns}: {width}");
            }
        }
        assert_eq!(bar(0.0, 60), "[╸─────] ");
        assert_eq!(bar(0.5, 60), "[━━━╸──] ");
        assert_eq!(bar(1.0, 60), "[━━━━━━] ");
        let beside = "  [] 1000/1000 cells, 12 bad, 2h03m, about 2h03m left";
        assert!(beside.chars().count() < BESIDE);
        assert_eq!(whole(Duration::from_millis(59_900)), "59s");
    }

    #[test]
    fn lines_end_with_their_thread() {
        let mut progress = Progress::start(Style::Lines, false);
        let record = fixture::every_verdict();
        progress.see(&Event::RunFinished { signal: None, stopped: None, at: 0.0 }, &record);
        progress.finish();
    }
}
