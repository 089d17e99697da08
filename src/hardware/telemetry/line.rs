//! A line: a quantity over one or several stretches of time, put end to end.
//!
//! Power goes straight from one reading to the next, so that at the ends of a stretch it is where it would be
//! between the readings beside them; all else stays as it was read until it is read again. Beyond the first and
//! the last reading it stays level for a while, and then nothing is known.

use std::time::Duration;

use super::{POINTS, Series};
use crate::clock::Stamp;

/// For how long a reading speaks of the time beside it that has none, in seconds.
const HOLD: f64 = 5.0;

/// A part of a run's time, from one stamp to a later one.
pub type Stretch = (Stamp, Stamp);

/// Its length in seconds.
pub fn length((from, to): Stretch) -> f64 {
    to.seconds_since(from).max(0.0)
}

/// A quantity over stretches that are put end to end.
pub struct Line {
    /// Corners by seconds from the beginning; time rises within a part, and what lies between parts is unknown.
    parts: Vec<Vec<(f64, f64)>>,
    /// Length of all stretches in seconds.
    seconds: f64,
    /// How many readings lie in them, and the least and greatest value of those.
    inside: usize,
    extremes: Option<(f64, f64)>,
}

impl Line {
    /// Through values with their stamps, in the order of their time. After `end` nothing is known.
    pub fn through(
        stretches: &[Stretch],
        values: impl Iterator<Item = (Stamp, f64)> + Clone,
        end: Option<Stamp>,
    ) -> Line {
        let mut line = Line { parts: Vec::new(), seconds: 0.0, inside: 0, extremes: None };
        for stretch in stretches.iter().copied().filter(|stretch| length(*stretch) > 0.0) {
            line.add(stretch, values.clone(), end);
        }
        line
    }

    /// Of values that each hold until the next one, in the order of their time. After `end` nothing is known.
    pub fn held(
        stretches: &[Stretch],
        values: impl Iterator<Item = (Stamp, f64)>,
        end: Option<Stamp>,
    ) -> Line {
        let hold = Duration::from_secs_f64(HOLD);
        let mut steps: Vec<(Stamp, Stamp, f64)> = Vec::new();
        for (at, value) in values {
            match steps.last_mut() {
                Some((_, until, _)) => *until = at,
                None => {
                    let before = at.0.saturating_sub(hold.as_nanos() as u64);
                    steps.push((Stamp(before), at, value));
                }
            }
            steps.push((at, at + hold, value));
        }
        if let (Some((_, until, _)), Some(end)) = (steps.last_mut(), end) {
            *until = (*until).min(end);
        }
        Line::of_steps(stretches, &steps)
    }

    /// Of values that each hold between two stamps.
    pub fn of_steps(stretches: &[Stretch], steps: &[(Stamp, Stamp, f64)]) -> Line {
        let mut line = Line { parts: Vec::new(), seconds: 0.0, inside: 0, extremes: None };
        for stretch in stretches.iter().copied().filter(|stretch| length(*stretch) > 0.0) {
            let (from, to) = stretch;
            for (begin, end, value) in steps {
                let (begin, end) = ((*begin).max(from), (*end).min(to));
                if end > begin {
                    let at = |stamp: Stamp| line.seconds + stamp.seconds_since(from);
                    line.parts.push(vec![(at(begin), *value), (at(end), *value)]);
                    line.count(*value);
                }
            }
            line.seconds += length(stretch);
        }
        line
    }

    fn add(
        &mut self,
        stretch: Stretch,
        values: impl Iterator<Item = (Stamp, f64)>,
        end: Option<Stamp>,
    ) {
        let (from, to) = stretch;
        let whole = length(stretch);
        // Where it is cut off.
        let until = end.map_or(whole, |end| end.seconds_since(from).clamp(0.0, whole));
        let mut corners: Vec<(f64, f64)> = Vec::new();
        let mut before: Option<(f64, f64)> = None;
        let mut after: Option<(f64, f64)> = None;
        for (at, value) in values {
            let corner = (at.seconds_since(from), value);
            if at < from {
                before = Some(corner);
            } else if at > to {
                after = Some(corner);
                break;
            } else {
                corners.push(corner);
                self.count(value);
            }
        }
        // A stretch between two readings is told by both.
        if let Some(before) = before {
            match corners.first().copied().or(after) {
                Some(next) => corners.insert(0, (0.0, between(before, next, 0.0))),
                None if -before.0 <= HOLD => corners.insert(0, (0.0, before.1)),
                None => {}
            }
        } else if let Some((at, value)) = corners.first().copied().or(after)
            && at > 0.0
            && at <= HOLD
        {
            corners.insert(0, (0.0, value));
        }
        if let Some(last) = corners.last().copied()
            && last.0 < whole
        {
            match after {
                Some(after) => corners.push((whole, between(last, after, whole))),
                None => corners.push((whole.min(last.0 + HOLD), last.1)),
            }
        }
        corners.retain(|(at, _)| *at <= until);
        if let Some(last) = corners.last().copied()
            && end.is_some()
            && last.0 < until.min(last.0 + HOLD)
        {
            corners.push((until.min(last.0 + HOLD), last.1));
        }
        corners.iter_mut().for_each(|(at, _)| *at += self.seconds);
        if !corners.is_empty() {
            self.parts.push(corners);
        }
        self.seconds += whole;
    }

    fn count(&mut self, value: f64) {
        self.inside += 1;
        let (least, most) = self.extremes.unwrap_or((value, value));
        self.extremes = Some((least.min(value), most.max(value)));
    }

    fn segments(&self) -> impl Iterator<Item = ((f64, f64), (f64, f64))> + '_ {
        self.parts.iter().flat_map(|part| part.windows(2).map(|pair| (pair[0], pair[1])))
    }

    /// For how many seconds it is known.
    pub fn known(&self) -> f64 {
        self.segments().map(|(a, b)| b.0 - a.0).sum()
    }

    /// Length of all stretches in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// The area under it, as far as it is known.
    pub fn area(&self) -> f64 {
        self.segments().map(|(a, b)| (b.0 - a.0) * (a.1 + b.1) / 2.0).sum()
    }

    /// What is kept of it; `None` where nothing is known.
    pub fn series(&self) -> Option<Series> {
        let known = self.known();
        if known <= 0.0 {
            return None;
        }
        let mean = self.area() / known;
        // Between two readings the ends are all there is.
        let ends = || {
            let all = self.parts.iter().flatten().map(|corner| corner.1);
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            })
        };
        let (min, max) = self.extremes.unwrap_or_else(ends);
        // Few readings may all be on one side of what lies between them and those outside.
        let mean = rounded(mean, 6);
        Some(Series { min: min.min(mean), mean, max: max.max(mean), points: self.points() })
    }

    /// The means of equally long parts; one where all are the same.
    fn points(&self) -> Vec<f32> {
        let count = self.inside.clamp(1, POINTS);
        let width = self.seconds / count as f64;
        let mut sums = vec![(0.0, 0.0); count];
        for (a, b) in self.segments() {
            let slope = if b.0 > a.0 { (b.1 - a.1) / (b.0 - a.0) } else { 0.0 };
            let value = |at: f64| a.1 + slope * (at - a.0);
            let first = ((a.0 / width) as usize).min(count - 1);
            let last = ((b.0 / width) as usize).min(count - 1);
            for (bin, (area, time)) in sums.iter_mut().enumerate().take(last + 1).skip(first) {
                let left = a.0.max(bin as f64 * width);
                let right = if bin + 1 == count { b.0 } else { b.0.min((bin + 1) as f64 * width) };
                if right > left {
                    *area += (right - left) * (value(left) + value(right)) / 2.0;
                    *time += right - left;
                }
            }
        }
        // What is not known is drawn as what was known last.
        let first = sums.iter().find(|(_, time)| *time > 0.0).map(|(area, time)| area / time);
        let mut level = first.unwrap_or_default();
        let points: Vec<f32> = sums
            .iter()
            .map(|(area, time)| {
                if *time > 0.0 {
                    level = area / time;
                }
                rounded(level, 4) as f32
            })
            .collect();
        condensed(points)
    }
}

/// One point for all where they are equal.
pub fn condensed(mut points: Vec<f32>) -> Vec<f32> {
    if points.iter().all(|point| *point == points[0]) {
        points.truncate(1);
    }
    points
}

/// The value between two corners.
fn between(a: (f64, f64), b: (f64, f64), at: f64) -> f64 {
    if b.0 <= a.0 {
        return b.1;
    }
    a.1 + (b.1 - a.1) * ((at - a.0) / (b.0 - a.0)).clamp(0.0, 1.0)
}

/// To so many digits: what is drawn needs no more, and a record grows with each.
pub fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let place = value.abs().log10().floor() as i32 + 1 - digits;
    let step = 10f64.powi(place.abs());
    let rounded =
        if place > 0 { (value / step).round() * step } else { (value * step).round() / step };
    if rounded.is_finite() { rounded } else { value }
}
