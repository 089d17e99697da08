//! The window of a decode cell: when figures begin to count, and when they have counted enough.
//!
//! A pure state machine over stamps. It opens once every stream has emitted and the engine's
//! gauges agree, and closes once it has lasted long enough and each stream has had its tokens.
//! Ramp and drain lie outside. What the figures are is decided in `observe`.

use std::time::Duration;

use super::absence::Absences;
use crate::clock::Stamp;

/// Where the window stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not every stream emits yet, or the engine's gauges do not agree.
    Ramp,
    /// Figures count.
    Open {
        /// Figures count from just after this stamp.
        since: Stamp,
    },
    /// It is over.
    Closed {
        /// Exclusive.
        from: Stamp,
        /// Inclusive.
        to: Stamp,
    },
}

impl State {
    /// The same on a clock that stood still in some absences.
    pub fn on(self, away: &Absences) -> State {
        match self {
            State::Closed { from, to } => {
                State::Closed { from: away.still(from), to: away.still(to) }
            }
            State::Open { since } => State::Open { since: away.still(since) },
            State::Ramp => State::Ramp,
        }
    }
}

/// The window's state machine. Stamps must not decrease.
///
/// The stream whose event opens the window also closes it. Streams of a batch emit within a few
/// milliseconds of each other, once a step; a window from the end of one such burst to the
/// beginning of another would lack most of a step, which is 2 % of a second at 20 ms a step.
#[derive(Debug, Clone)]
pub struct Window {
    duration: Duration,
    min_tokens: u64,
    gauges_ok: bool,
    emitted: Vec<bool>,
    silent: usize,
    inside: Vec<u64>,
    short: usize,
    opener: Option<(u32, Stamp)>,
    last: Option<Stamp>,
    closing: Option<Stamp>,
    closed: bool,
}

impl Window {
    /// A window over so many streams that lasts at least `duration`, and until each stream has had
    /// `min_tokens` tokens in it.
    pub fn new(streams: u32, duration: Duration, min_tokens: u32) -> Window {
        let count = streams as usize;
        Window {
            duration,
            min_tokens: u64::from(min_tokens),
            gauges_ok: true,
            emitted: vec![false; count],
            silent: count,
            inside: vec![0; count],
            short: if min_tokens > 0 { count } else { 0 },
            opener: None,
            last: None,
            closing: None,
            closed: false,
        }
    }

    /// Whether the engine's gauges say that all streams run and none waits. True until said
    /// otherwise; say `false` before the first event where gauges can be read.
    pub fn set_gauges_ok(&mut self, ok: bool) {
        self.gauges_ok = ok;
    }

    /// An event of a stream. `tokens` may be 0 where the count is unknown: an event carries at
    /// least one token, which is enough to go by for the window's length.
    ///
    /// A stream that ends one request and begins the next only has a longer gap.
    pub fn on_token(&mut self, stream: u32, at: Stamp, tokens: u32) -> State {
        let Some(emitted) = self.emitted.get_mut(stream as usize) else {
            return self.state();
        };
        if !*emitted {
            *emitted = true;
            self.silent -= 1;
        }
        match self.opener {
            None if self.silent == 0 && self.gauges_ok => {
                self.opener = Some((stream, at));
            }
            None => {}
            Some((opener, from)) => self.inside(stream, at, tokens, opener, from),
        }
        self.last = Some(at);
        self.state()
    }

    fn inside(&mut self, stream: u32, at: Stamp, tokens: u32, opener: u32, from: Stamp) {
        if let Some(end) = self.closing
            && at > end
        {
            // The end stands only when time has moved past it: other streams may have events of
            // the very same stamp, which count.
            self.closed = true;
            return;
        }
        if self.closed || at <= from {
            return;
        }
        let had = &mut self.inside[stream as usize];
        let before = *had;
        *had += u64::from(tokens.max(1));
        if before < self.min_tokens && *had >= self.min_tokens {
            self.short -= 1;
        }
        if self.closing.is_none()
            && stream == opener
            && self.short == 0
            && at.since(from) >= self.duration
        {
            self.closing = Some(at);
        }
    }

    /// Time has reached `now` with no event unseen before it: lets the window end without waiting
    /// for another event.
    pub fn on_time(&mut self, now: Stamp) -> State {
        if self.closing.is_some_and(|end| now > end) {
            self.closed = true;
        }
        self.state()
    }

    /// After closing: opens again where it opened, to last twice as long. The streams must have
    /// gone on meanwhile.
    pub fn extend(&mut self) {
        if let (Some((_, from)), Some(to), true) = (self.opener, self.closing, self.closed) {
            self.duration = to.since(from) * 2;
            self.closing = None;
            self.closed = false;
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        match (self.opener, self.closing) {
            (None, _) => State::Ramp,
            (Some((_, from)), Some(to)) if self.closed => State::Closed { from, to },
            (Some((_, since)), _) => State::Open { since },
        }
    }

    /// How many streams have emitted.
    pub fn emitting(&self) -> usize {
        self.emitted.len() - self.silent
    }

    /// Share of the window that is done, between 0 and 1, by time and by the slowest stream.
    pub fn progress(&self) -> f64 {
        let (Some((_, from)), Some(last)) = (self.opener, self.last) else { return 0.0 };
        let time = last.since(from).as_secs_f64() / self.duration.as_secs_f64().max(1e-9);
        let fewest = self.inside.iter().min().copied().unwrap_or(0);
        let tokens = fewest as f64 / self.min_tokens.max(1) as f64;
        if self.min_tokens == 0 { time.min(1.0) } else { time.min(tokens).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 10_000_000;

    fn ms(n: u64) -> Stamp {
        Stamp(n * 1_000_000)
    }

    #[test]
    fn it_opens_just_after_the_event_with_which_all_streams_emit() {
        let mut window = Window::new(2, Duration::from_millis(100), 0);
        assert_eq!(window.on_token(0, ms(10), 1), State::Ramp);
        assert_eq!(window.on_token(0, ms(20), 1), State::Ramp);
        assert_eq!(window.on_token(1, ms(25), 1), State::Open { since: ms(25) });
    }

    #[test]
    fn it_waits_for_the_gauges() {
        let mut window = Window::new(1, Duration::from_millis(100), 0);
        window.set_gauges_ok(false);
        assert_eq!(window.on_token(0, ms(10), 1), State::Ramp);
        window.set_gauges_ok(true);
        assert_eq!(window.state(), State::Ramp);
        assert_eq!(window.on_token(0, ms(20), 1), State::Open { since: ms(20) });
    }

    #[test]
    fn it_closes_with_the_first_event_that_is_late_enough() {
        let mut window = Window::new(1, Duration::from_millis(100), 2);
        window.on_token(0, ms(0), 1);
        for at in [40, 80, 120] {
            assert_eq!(window.on_token(0, ms(at), 1), State::Open { since: ms(0) });
        }
        assert_eq!(window.on_time(ms(120)), State::Open { since: ms(0) });
        let closed = State::Closed { from: ms(0), to: ms(120) };
        assert_eq!(window.on_token(0, ms(160), 1), closed);
        assert_eq!(window.on_token(0, ms(200), 1), closed);
    }

    #[test]
    fn a_slow_stream_keeps_it_open_until_it_has_its_tokens() {
        let mut window = Window::new(2, Duration::from_millis(10), 3);
        window.on_token(1, ms(0), 1);
        window.on_token(0, ms(1), 1);
        for i in 1..20 {
            window.on_token(0, ms(1 + i * 10), 1);
            if i % 5 == 0 {
                window.on_token(1, ms(2 + i * 10), 1);
            }
        }
        // The third token of stream 1 comes at 152 ms, the next event of the opener at 161 ms.
        assert_eq!(window.state(), State::Closed { from: ms(1), to: ms(161) });
    }

    #[test]
    fn streams_in_lockstep_leave_whole_steps_in_the_window() {
        let mut window = Window::new(4, Duration::from_millis(95), 0);
        let mut counted = 0;
        let mut events = Vec::new();
        for step in 0..30 {
            for stream in 0..4 {
                let at = Stamp(step * STEP);
                events.push(at);
                window.on_token(stream, at, 1);
            }
        }
        let State::Closed { from, to } = window.state() else { panic!("it ran long enough") };
        counted += events.iter().filter(|at| **at > from && **at <= to).count();
        assert_eq!(to.since(from), Duration::from_millis(100));
        assert_eq!(counted, 40);
    }

    #[test]
    fn events_of_the_closing_stamp_still_count() {
        let mut window = Window::new(2, Duration::from_millis(20), 0);
        window.on_token(0, ms(0), 1);
        window.on_token(1, ms(0), 1);
        window.on_token(1, ms(20), 1);
        assert_eq!(window.on_token(0, ms(20), 1), State::Open { since: ms(0) });
        assert_eq!(window.on_time(ms(21)), State::Closed { from: ms(0), to: ms(20) });
    }

    #[test]
    fn an_extension_lasts_as_long_again() {
        let mut window = Window::new(1, Duration::from_millis(100), 0);
        for i in 0..12 {
            window.on_token(0, ms(i * 10), 1);
        }
        assert_eq!(window.state(), State::Closed { from: ms(0), to: ms(100) });
        window.extend();
        assert_eq!(window.state(), State::Open { since: ms(0) });
        for i in 12..30 {
            window.on_token(0, ms(i * 10), 1);
        }
        assert_eq!(window.state(), State::Closed { from: ms(0), to: ms(200) });
    }

    #[test]
    fn a_gap_between_two_requests_of_a_stream_only_delays_it() {
        let mut window = Window::new(1, Duration::from_millis(100), 0);
        window.on_token(0, ms(0), 1);
        window.on_token(0, ms(90), 1);
        window.on_token(0, ms(400), 1);
        assert_eq!(window.on_token(0, ms(410), 1), State::Closed { from: ms(0), to: ms(400) });
    }

    #[test]
    fn unknown_counts_do_not_keep_it_open_for_ever() {
        let mut window = Window::new(1, Duration::from_millis(10), 3);
        for i in 0..6 {
            window.on_token(0, ms(i * 10), 0);
        }
        assert_eq!(window.state(), State::Closed { from: ms(0), to: ms(30) });
    }

    #[test]
    fn progress_is_that_of_the_slower_condition() {
        let mut window = Window::new(1, Duration::from_millis(100), 20);
        window.on_token(0, ms(0), 1);
        window.on_token(0, ms(50), 1);
        assert!((window.progress() - 0.05).abs() < 1e-9);
    }
}
