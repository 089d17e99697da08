//! Progress during a run, on stderr: a live display on a terminal, quiet lines elsewhere.
//!
//! An onlooker: it gets each event after the record has taken it in, and never fails or holds up a
//! run; a closed stderr is nothing to it. It installs no signal handler and reads no key.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::record::{Event, RunRecord};

use super::count::elapsed;
use super::message;
use super::narrate::Narrator;
use super::sanitise::line;

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
    /// Begins to show a run; its clock starts here.
    pub fn start(style: Style) -> Progress {
        let began = Instant::now();
        let shown = match style {
            Style::Live => Shown::Live(Box::new(Live::start(ProgressDrawTarget::stderr(), began))),
            Style::Lines => Shown::Lines(Lines::start(began)),
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
    fn start(began: Instant) -> Lines {
        let narrator = Arc::new(Mutex::new(Narrator::default()));
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
        // A reader that went away must not end the run.
        let _ = writeln!(std::io::stderr(), "{told}");
    }
}

/// Three lines redrawn in place: the launch, the cell, the whole.
struct Live {
    narrator: Narrator,
    all: MultiProgress,
    launch: ProgressBar,
    cell: ProgressBar,
    whole: ProgressBar,
    /// Milliseconds on the run's clock at which the end is expected; 0: not known.
    expected: Arc<AtomicU64>,
}

impl Live {
    fn start(target: ProgressDrawTarget, began: Instant) -> Live {
        let all = MultiProgress::with_draw_target(target);
        let expected = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&expected);
        let left = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let end = Duration::from_millis(shared.load(Ordering::Relaxed));
            let left = end.saturating_sub(began.elapsed()).as_secs_f64();
            // A display that can't be written is redrawn soon.
            let _ = match (end.is_zero(), left > 0.0) {
                (true, _) => Ok(()),
                (false, true) => write!(out, ", about {} left", elapsed(left.max(1.0).round())),
                (false, false) => write!(out, ", nearly done"),
            };
        };
        let gone = move |_: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{}", elapsed(began.elapsed().as_secs_f64().floor()));
        };
        let template = |text: &str| {
            ProgressStyle::with_template(text).unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        let bar = |text: &str| {
            let bar = ProgressBar::new(0);
            bar.set_style(template(text));
            all.add(bar)
        };
        let launch = bar("{spinner} {wide_msg}");
        let cell = bar("  {wide_msg}");
        let whole = all.add(ProgressBar::new(0));
        let style = template("  [{bar:24}] {pos}/{len} cells, {msg}{gone}{left}");
        whole.set_style(style.progress_chars("━╸─").with_key("gone", gone).with_key("left", left));
        for bar in [&launch, &whole] {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Live { narrator: Narrator::default(), all, launch, cell, whole, expected }
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
            Event::CellFinished { cell, .. } => {
                self.cell.set_message("");
                let judged = record.cells.get(*cell).map(|cell| cell.judgement.verdict);
                judged.is_some_and(message::wants_an_eye)
            }
            Event::RunStarted(_) | Event::RunFinished { .. } => false,
        };
        if stays && let Some(told) = told {
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
            let end = now.as_millis() as u64 + (left * 1000.0) as u64;
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
        let mut live = Live::start(ProgressDrawTarget::hidden(), Instant::now());
        live.see(&Event::RunStarted(Box::new(record.header.clone())), &record, Duration::ZERO);
        live.see(&Event::CellStarted { cell: 1, at: 0.0 }, &record, Duration::ZERO);
        let note =
            Event::CellPhase { cell: 1, phase: "window".into(), note: "12\u{7} tokens".into() };
        live.see(&note, &record, Duration::ZERO);
        assert_eq!(live.cell.message(), "decode concurrency=2 layout=tp8: window · 12␇ tokens");
        let state = record.cells[1].state.clone();
        let finished = Event::CellFinished { cell: 1, state, seconds: 5.0 };
        live.see(&finished, &record, Duration::from_secs(6));
        assert_eq!((live.whole.position(), live.whole.length()), (1, Some(12)));
        assert_eq!(live.whole.message(), "1 bad, ");
        assert_eq!(live.expected.load(Ordering::Relaxed), 6_000 + 11 * 5_000);
    }

    #[test]
    fn lines_end_with_their_thread() {
        let mut progress = Progress::start(Style::Lines);
        let record = fixture::every_verdict();
        progress.see(&Event::RunFinished { signal: None, stopped: None, at: 0.0 }, &record);
        progress.finish();
    }
}
