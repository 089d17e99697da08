//! Progress during a run, on stderr: a live display on a terminal, quiet lines elsewhere.
//!
//! An onlooker: it gets each event after the record has taken it in, and never fails or holds up a
//! run; a closed stderr is nothing to it. It installs no signal handler and reads no key.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::record::{Event, RunRecord};

use super::github;
use super::message;
use super::narrate::{Guess, Narrator, part_of, roughly, whole};
use super::outlet;
use super::sanitise::line;
use super::screen::{self, MARGIN, Screen, fold, width};

/// How often the times of the live display go on.
const TICK: Duration = Duration::from_millis(200);
/// How often it is redrawn at most.
const PACE: Duration = Duration::from_millis(100);
/// Columns that further lines of one text are moved in.
const INDENT: usize = 4;
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

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
    /// What suits: `terminal` says whether stderr is one that can redraw and that somebody watches,
    /// `no_progress` and `quiet` are the options.
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
    Live(Display),
    Lines(Lines),
    Silent,
}

impl Progress {
    /// Begins to show a run, with every step if `verbose`, in colour if `color`; its clock starts here. `guess` is
    /// what its parts are taken to last.
    pub fn start(style: Style, verbose: bool, color: bool, guess: Guess) -> Progress {
        let began = Instant::now();
        let narrator = Narrator::new(verbose, color, guess);
        let shown = match style {
            Style::Live => {
                Shown::Live(Display::start(Live::new(narrator, outlet::Stderr, began, verbose)))
            }
            Style::Lines => Shown::Lines(Lines::start(narrator, began)),
            Style::Silent => Shown::Silent,
        };
        Progress { shown, began }
    }

    /// Takes an event that `record` has already taken in.
    pub fn see(&mut self, event: &Event, record: &RunRecord) {
        let now = self.began.elapsed();
        match &mut self.shown {
            Shown::Live(live) => live.see(event, record),
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
    fn start(narrator: Narrator, began: Instant) -> Lines {
        let narrator = Arc::new(Mutex::new(narrator));
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
struct Live<W: Write> {
    face: Face,
    screen: Screen<W>,
    /// Whether all that is told stays on the screen.
    verbose: bool,
    began: Instant,
    drawn: Option<Duration>,
}

/// The live display, and the thread that keeps its times going.
struct Display {
    live: Arc<Mutex<Live<outlet::Stderr>>>,
    /// Dropped to end the thread.
    alive: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Display {
    fn start(live: Live<outlet::Stderr>) -> Display {
        let live = Arc::new(Mutex::new(live));
        let (alive, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(&live);
        // Without the thread there is a display all the same, only that its times stand still.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                let mut live = shared.lock().unwrap_or_else(PoisonError::into_inner);
                live.draw("", screen::size());
            }
        });
        Display { live, alive: Some(alive), thread: thread.ok() }
    }

    fn see(&mut self, event: &Event, record: &RunRecord) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.see(event, record, screen::size());
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It can't panic, and if it did there would be nothing to do about it.
            let _ = thread.join();
        }
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.screen.clear(screen::size());
    }
}

impl<W: Write> Live<W> {
    fn new(narrator: Narrator, out: W, began: Instant, verbose: bool) -> Live<W> {
        let face = Face { narrator, launch: String::new(), cell: None, note: String::new() };
        Live { face, screen: Screen::new(out), verbose, began, drawn: None }
    }

    /// Takes an event, and draws if it is worth it.
    fn see(&mut self, event: &Event, record: &RunRecord, size: (u16, u16)) {
        let now = self.began.elapsed();
        let (told, stays) = self.face.see(event, record, now);
        let told = told.filter(|_| stays || self.verbose);
        // Events come by the thousand in virtual time.
        if told.is_none() && self.drawn.is_some_and(|drawn| now.saturating_sub(drawn) < PACE) {
            return;
        }
        let columns = usize::from(size.0);
        let above = told.unwrap_or_default();
        let above: Vec<String> = above.lines().map(|line| fold(line, columns, INDENT)).collect();
        self.draw(&above.join("\n"), size);
    }

    fn draw(&mut self, above: &str, size: (u16, u16)) {
        let now = self.began.elapsed();
        self.drawn = Some(now);
        self.screen.draw(size, above, &self.face.lines(now, usize::from(size.0)));
    }
}

/// What the three lines say.
struct Face {
    narrator: Narrator,
    /// The launch and what became of it.
    launch: String,
    /// The cell under way.
    cell: Option<String>,
    /// Its phase, and how far that is.
    note: String,
}

impl Face {
    /// Takes an event; what is told of it, and whether that needs an eye and stays on the screen.
    fn see(&mut self, event: &Event, record: &RunRecord, now: Duration) -> (Option<String>, bool) {
        let told = self.narrator.see(event, record, now);
        let stays = match event {
            Event::LaunchStep { .. } => {
                self.launch.clear();
                false
            }
            Event::LaunchStarted { .. } | Event::LaunchReady { .. } => {
                self.launch = told.clone().unwrap_or_default();
                false
            }
            Event::LaunchStopped { .. } => {
                self.launch = told.clone().unwrap_or_default();
                self.cell = None;
                false
            }
            Event::LaunchFailed { .. } => {
                self.launch.clear();
                self.cell = None;
                true
            }
            Event::Warning { .. } => true,
            Event::CellStarted { cell, .. } => {
                self.cell = record.header.cells.get(*cell).map(message::name);
                self.note.clear();
                false
            }
            Event::CellPhase { phase, note, .. } => {
                self.note = line(&format!("{phase} {note}"));
                false
            }
            Event::CellFinished { cell, round, .. } => {
                self.cell = None;
                let judged = record.cells.get(*cell).map(|cell| cell.judgement.verdict);
                part_of(record, *cell, *round).is_none()
                    && !record.waits(*cell)
                    && judged.is_some_and(message::wants_an_eye)
            }
            Event::RunStarted(_) | Event::RunResumed { .. } | Event::RunFinished { .. } => false,
        };
        (told, stays)
    }

    /// The lines, for a terminal so wide.
    fn lines(&self, now: Duration, columns: usize) -> Vec<String> {
        let spin = SPINNER[(now.as_millis() / TICK.as_millis()) as usize % SPINNER.len()];
        let tally = self.narrator.tally();
        let here = self.narrator.here(now);
        // While an engine loads, how long it has done so is the only thing that moves.
        let mut launch = match self.launch.is_empty() {
            true => {
                format!("{} for {}", self.narrator.doing(), whole(self.narrator.waited(now)))
            }
            false => self.launch.clone(),
        };
        // Of one launch the line of the whole says all.
        if here.total > 0 && here.total < tally.total {
            launch.push_str(&format!(" · {}/{}{}", here.done, here.total, left(here.left)));
        }
        let cell = self.cell.as_ref().map(|cell| squeezed(cell, &self.note, columns));
        let bad = if tally.bad > 0 { format!(", {} bad", tally.bad) } else { String::new() };
        let (done, total) = (tally.done, tally.total);
        let left = left(self.narrator.left(now).filter(|_| done < total));
        let said = format!("{done}/{total} {}{bad}, {}{left}", tally.unit(), whole(now));
        let bar = match total {
            0 => String::new(),
            total => bar(done as f32 / total as f32, columns, said.len()),
        };
        vec![
            format!("{spin} {launch}"),
            cell.map_or(String::new(), |cell| format!("  {cell}")),
            format!("  {bar}{said}"),
        ]
    }
}

/// `, about 2m left`; what takes longer than expected has nothing to say.
fn left(left: Option<Duration>) -> String {
    let left = left.filter(|left| !left.is_zero());
    left.map(|left| format!(", about {} left", roughly(left))).unwrap_or_default()
}

/// A cell and its phase; where they don't fit, what tells of progress stays.
fn squeezed(cell: &str, note: &str, columns: usize) -> String {
    if note.is_empty() {
        return cell.to_owned();
    }
    let room = columns.saturating_sub(width(note) + 5 + MARGIN);
    format!("{}: {note}", screen::cut(cell, room.max(8)))
}

/// The whole's bar, as long as the terminal has room for beside what is said.
fn bar(fraction: f32, columns: usize, said: usize) -> String {
    // What is said grows and shrinks by a few figures, and the bar is not to follow it.
    let cells = columns.saturating_sub(said.next_multiple_of(8) + 6 + MARGIN).min(24);
    if cells < 6 {
        return String::new();
    }
    let full = ((fraction.clamp(0.0, 1.0) * cells as f32) as usize).min(cells);
    let (head, rest) = if full < cells { ("╸", cells - full - 1) } else { ("", 0) };
    format!("[{}{head}{}] ", "━".repeat(full), "─".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::report::screen::tests::{Tape, Terminal};

    #[test]
    fn style_follows_terminal_and_options() {
        assert_eq!(Style::choose(true, false, false), Style::Live);
        assert_eq!(Style::choose(true, true, false), Style::Lines);
        assert_eq!(Style::choose(false, false, false), Style::Lines);
        assert_eq!(Style::choose(true, false, true), Style::Silent);
    }

    #[test]
    fn the_live_display_shows_launch_cell_and_the_whole() {
        let record = fixture::every_verdict();
        let guess = Guess { cells: vec![Duration::from_secs(10); 12], starts: vec![] };
        let narrator = Narrator::new(false, false, guess);
        let mut face = Face { narrator, launch: String::new(), cell: None, note: String::new() };
        const S: fn(u64) -> Duration = Duration::from_secs;
        face.see(&Event::RunStarted(Box::new(record.header.clone())), &record, S(0));
        let started = Event::LaunchStarted {
            round: 0,
            launch: 0,
            command: vec![],
            log: None,
            ordinal: 0,
            at: 0.0,
        };
        face.see(&started, &record, S(0));
        let step = Event::LaunchStep { launch: 0, step: "health".into(), at: 0.0 };
        face.see(&step, &record, S(0));
        assert_eq!(
            face.lines(S(42), 80)[0][4..],
            *"launch layout=tp8: health for 42s · 0/10, about 1m40s left"
        );
        let ready = Event::LaunchReady {
            launch: 0,
            ready_time: 50.0,
            facts: Default::default(),
            warnings: vec![],
        };
        face.see(&ready, &record, S(50));
        face.see(&Event::CellStarted { round: 0, cell: 1, at: 0.0 }, &record, S(50));
        let note =
            |note: &str| Event::CellPhase { cell: 1, phase: "window".into(), note: note.into() };
        face.see(&note("12\u{7} %, 801 tok/s"), &record, S(51));
        assert_eq!(
            face.lines(S(53), 80)[1..],
            [
                "  decode concurrency=2 layout=tp8: window 12␇ %, 801 tok/s",
                "  [╸───────────────────────] 0/12 cells, 53s, about 2m50s left"
            ]
        );
        // What says how far it is stays where there is little room.
        assert_eq!(face.lines(S(53), 40)[1], "  decode c…: window 12␇ %, 801 tok/s");
        let state = record.cells[1].state.clone();
        let finished = Event::CellFinished { round: 0, cell: 1, state, seconds: 5.0 };
        assert!(face.see(&finished, &record, S(55)).1, "a failure stays on the screen");
        let lines = face.lines(S(55), 80);
        assert!(lines[0].ends_with(": ready after 50.0s · 1/10, about 45s left"), "{lines:?}");
        assert!(lines[2].ends_with(" 1/12 cells, 1 bad, 55s, about 1m45s left"), "{lines:?}");
    }

    #[test]
    fn what_needs_an_eye_is_folded_above_the_display() {
        let record = fixture::every_verdict();
        let (tape, mut terminal) = (Tape::default(), Terminal::new(40));
        let mut live = Live::new(Narrator::default(), tape.clone(), Instant::now(), false);
        live.see(&Event::RunStarted(Box::new(record.header.clone())), &record, (40, 24));
        let state = record.cells[1].state.clone();
        let finished = Event::CellFinished { round: 0, cell: 1, state, seconds: 5.0 };
        live.see(&finished, &record, (40, 24));
        live.screen.clear((40, 24));
        terminal.see(&tape.take());
        let lines = terminal.lines();
        assert!(lines[0].starts_with("[ 1/12] ✗ fail"), "{lines:#?}");
        assert!(lines.len() > 3 && lines[1].starts_with("    "), "{lines:#?}");
        assert!(lines.iter().all(|line| width(line) <= 40), "{lines:#?}");
        assert_eq!(lines.last().unwrap(), "");
    }

    #[test]
    fn the_line_of_the_whole_fits_into_the_terminal() {
        for columns in [40, 66, 67, 79, 80, 200] {
            for fraction in [0.0, 0.3, 1.0] {
                for said in [30, 47, 60] {
                    let width = bar(fraction, columns, said).chars().count();
                    assert!(width == 0 || 2 + width + said + MARGIN <= columns, "{columns}");
                }
            }
        }
        assert_eq!(bar(0.0, 71, 56), "[╸─────] ");
        assert_eq!(bar(0.5, 71, 56), "[━━━╸──] ");
        assert_eq!(bar(1.0, 71, 56), "[━━━━━━] ");
        assert_eq!(whole(Duration::from_millis(59_900)), "59s");
        let steps = [29, 31, 119, 121, 601].map(|s| roughly(Duration::from_secs(s)));
        assert_eq!(steps, ["29s", "35s", "2m00s", "2m10s", "11m00s"]);
    }

    #[test]
    fn lines_end_with_their_thread() {
        let mut progress = Progress::start(Style::Lines, false, false, Guess::default());
        let record = fixture::every_verdict();
        progress.see(&Event::RunFinished { signal: None, stopped: None, at: 0.0 }, &record);
        progress.finish();
    }
}
