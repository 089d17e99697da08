//! Small drawings beside figures: an interval against its limit, observations in their order, how gaps
//! are distributed. Shapes only; the words beside them have the numbers.

use crate::judge::{Bound, Estimate};
use crate::measure::Observations;

use super::markup::{Markup, put};

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 64.0;
/// Bars of a distribution.
const BARS: usize = 40;
/// Points of a series.
const MOST: usize = 200;

/// An estimate with its interval against limit and target.
pub fn gauge(out: &mut Markup, estimate: &Estimate, bound: &Bound) {
    let (low, high) =
        (estimate.lower.unwrap_or(estimate.value), estimate.upper.unwrap_or(estimate.value));
    let all = [low, high, estimate.value, bound.limit, bound.target];
    if all.iter().any(|value| !value.is_finite()) {
        return;
    }
    let (least, most) = span(all.into_iter());
    let width = 120.0;
    let x = |value: f64| 6.0 + (value - least) / (most - least) * (width - 12.0);
    put!(
        out,
        "<svg class=\"gauge\" viewBox=\"0 0 120 20\" width=\"120\" height=\"20\" aria-hidden=\"true\">"
    );
    let mut line = |class: &'static str, points: [(f64, f64); 2]| {
        put!(out, "<polyline class=\"" (class) "\" points=\"");
        out.points(points);
        put!(out, "\"/>");
    };
    line("axis", [(0.0, 10.0), (width, 10.0)]);
    line("limit", [(x(bound.limit), 2.0), (x(bound.limit), 18.0)]);
    if bound.target != bound.limit {
        line("target", [(x(bound.target), 4.0), (x(bound.target), 16.0)]);
    }
    line("range", [(x(low), 10.0), (x(high).max(x(low) + 0.5), 10.0)]);
    line("value", [(x(estimate.value), 5.0), (x(estimate.value), 15.0)]);
    put!(out, "</svg>");
}

/// The scale of ratios that are to be compared by eye: from the least to the greatest with 1 inside, and a little room
/// on both sides.
pub fn scale(ratios: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = span(ratios.filter(|ratio| ratio.is_finite()).chain([1.0, 1.02, 0.98]));
    let room = (high - low) * 0.15;
    (low - room, high + room)
}

/// A ratio with its interval beside no change, on a scale that others share; what is beyond it ends at its edge.
pub fn ratio(out: &mut Markup, value: f64, interval: Option<[f64; 2]>, (least, most): (f64, f64)) {
    let x = |value: f64| 2.0 + ((value - least) / (most - least)).clamp(0.0, 1.0) * 116.0;
    put!(
        out,
        "<svg class=\"gauge\" viewBox=\"0 0 120 20\" width=\"120\" height=\"20\" aria-hidden=\"true\">"
    );
    let mut line = |class: &'static str, points: [(f64, f64); 2]| {
        put!(out, "<polyline class=\"" (class) "\" points=\"");
        out.points(points);
        put!(out, "\"/>");
    };
    line("target", [(x(1.0), 2.0), (x(1.0), 18.0)]);
    if let Some([low, high]) = interval {
        line("range", [(x(low), 10.0), (x(high).max(x(low) + 0.5), 10.0)]);
    }
    line("value", [(x(value), 5.0), (x(value), 15.0)]);
    put!(out, "</svg>");
}

/// Values in the order in which they were observed, with a limit where one stands on them.
pub fn series(out: &mut Markup, values: &[f64], limit: Option<f64>) {
    let values: Vec<f64> =
        values.iter().copied().filter(|value| value.is_finite()).take(MOST).collect();
    let limit = limit.filter(|limit| limit.is_finite());
    let (low, high) = span(values.iter().copied().chain(limit));
    let step = WIDTH / values.len().max(1) as f64;
    let y = |value: f64| HEIGHT - 5.0 - (value - low) / (high - low) * (HEIGHT - 10.0);
    let x = |at: usize| (at as f64 + 0.5) * step;
    open(out);
    if let Some(limit) = limit {
        put!(out, "<polyline class=\"limit\" points=\"");
        out.points([(0.0, y(limit)), (WIDTH, y(limit))]);
        put!(out, "\"/>");
    }
    put!(out, "<polyline class=\"line\" points=\"");
    out.points(values.iter().enumerate().map(|(at, value)| (x(at), y(*value))));
    put!(out, "\"/>");
    if values.len() <= 40 {
        // Points as strokes of no length with round ends: one element for all.
        for (at, value) in values.iter().enumerate() {
            put!(out, "<polyline class=\"dot\" points=\"");
            out.points([(x(at), y(*value)), (x(at) + 0.1, y(*value))]);
            put!(out, "\"/>");
        }
    }
    put!(out, "</svg>");
}

/// A line among several: points in equal steps over a part of the width.
#[derive(Debug, Clone, Copy)]
pub struct Strand<'a> {
    /// Which colour of the style sheet.
    pub colour: usize,
    /// Where it begins, as a share of the width.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Its values.
    pub points: &'a [f32],
}

/// Points that all lines of a drawing have together at most: there may be many drawings on a page.
const MOST_IN_ALL: usize = 240;
/// And at least so many each.
const LEAST_OF_ONE: usize = 12;

/// Several lines from 0 at the bottom to `top`.
pub fn strands(out: &mut Markup, strands: &[Strand<'_>], top: f64) {
    let top = if top.is_finite() && top > 0.0 { top } else { 1.0 };
    let y = |value: f64| HEIGHT - 4.0 - (value / top).clamp(0.0, 1.0) * (HEIGHT - 8.0);
    let most = (MOST_IN_ALL / strands.len().max(1)).max(LEAST_OF_ONE);
    open(out);
    let mut begun = 0.0;
    for strand in strands {
        if strand.from > begun {
            begun = strand.from;
            put!(out, "<polyline class=\"part\" points=\"");
            out.points([(begun * WIDTH, 0.0), (begun * WIDTH, HEIGHT)]);
            put!(out, "\"/>");
        }
    }
    for strand in strands {
        let values = thinned(strand.points, most);
        let step = (strand.to - strand.from) * WIDTH / values.len().max(1) as f64;
        let x = |at: f64| strand.from * WIDTH + at * step;
        let drawn: Vec<(f64, f64)> = match values[..] {
            // What never changed has one point, and is so over all of the time.
            [only] => vec![(x(0.0), y(only)), (x(1.0), y(only))],
            _ => (0u32..).zip(&values).map(|(at, v)| (x(f64::from(at) + 0.5), y(*v))).collect(),
        };
        put!(out, "<polyline class=\"line g" (strand.colour) "\" points=\"");
        out.points(corners(&drawn));
        put!(out, "\"/>");
    }
    put!(out, "</svg>");
}

/// At most so many values: means of neighbours.
fn thinned(points: &[f32], most: usize) -> Vec<f64> {
    let size = points.len().div_ceil(most.max(1)).max(1);
    let mean = |part: &[f32]| part.iter().map(|v| f64::from(*v)).sum::<f64>() / part.len() as f64;
    points.chunks(size).map(mean).filter(|value| value.is_finite()).collect()
}

/// Points of a line without those inside of a level stretch, which look the same.
fn corners(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let level = |at: usize| {
        let near = |other: usize| (points[at].1 - points[other].1).abs() < 0.25;
        at > 0 && at + 1 < points.len() && near(at - 1) && near(at + 1)
    };
    (0..points.len()).filter(|at| !level(*at)).map(|at| points[at]).collect()
}

/// How samples are distributed: least, greatest, and the share of each of equal steps of ratio.
pub fn distribution(observations: &Observations) -> Option<(f64, f64, Vec<f64>)> {
    let counted: Vec<(f64, u64)> = match observations {
        Observations::Samples(samples) => samples.iter().map(|value| (*value, 1)).collect(),
        Observations::Histogram(counted) => counted.clone(),
        Observations::Waves(waves) => waves.iter().flatten().map(|value| (*value, 1)).collect(),
        Observations::Batches { .. }
        | Observations::Told(_)
        | Observations::Exact(_)
        | Observations::Point(_) => return None,
    };
    let counted: Vec<(f64, u64)> =
        counted.into_iter().filter(|(value, _)| value.is_finite() && *value > 0.0).collect();
    let total: u64 = counted.iter().map(|(_, count)| count).sum();
    let low = counted.iter().map(|(value, _)| *value).fold(f64::INFINITY, f64::min);
    let high = counted.iter().map(|(value, _)| *value).fold(0.0, f64::max);
    if total < 8 || high <= low {
        return None;
    }
    let mut bars = vec![0.0; BARS];
    for (value, count) in counted {
        let share = (value / low).ln() / (high / low).ln();
        bars[((share * BARS as f64) as usize).min(BARS - 1)] += count as f64 / total as f64;
    }
    Some((low, high, bars))
}

/// Bars of a distribution. Heights go by the square root, so that a few stalls are seen beside
/// thousands of ordinary gaps.
pub fn bars(out: &mut Markup, shares: &[f64]) {
    let most = shares.iter().copied().fold(0.0, f64::max);
    let step = WIDTH / shares.len().max(1) as f64;
    open(out);
    put!(out, "<polygon class=\"area\" points=\"");
    let corner = std::iter::once((0.0, HEIGHT));
    let tops = shares.iter().enumerate().flat_map(|(at, share)| {
        let y = HEIGHT - (share / most).sqrt() * (HEIGHT - 4.0);
        [(at as f64 * step, y), ((at + 1) as f64 * step, y)]
    });
    out.points(corner.chain(tops).chain(std::iter::once((WIDTH, HEIGHT))));
    put!(out, "\"/></svg>");
}

fn open(out: &mut Markup) {
    put!(
        out,
        "<svg class=\"spark\" viewBox=\"0 0 320 64\" width=\"320\" height=\"64\" aria-hidden=\"true\">"
    );
}

/// Least and greatest, apart at least by a little.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if high > low { (low, high) } else { (low - 1.0, low + 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_take_little_room_and_keep_their_shape() {
        let drop: Vec<f32> = (0..60).map(|at| if at < 30 { 1980.0 } else { 1290.0 }).collect();
        let strand = |colour| Strand { colour, from: 0.0, to: 1.0, points: &drop };
        let draw = |strands: &[Strand<'_>]| {
            let mut out = Markup::default();
            super::strands(&mut out, strands, 1980.0);
            out.finish()
        };
        let one = draw(&[strand(0)]);
        assert!(one.contains("points=\"2.7,4 157.3,4 162.7,23.5 317.3,23.5\""), "{one}");
        let eight = draw(&[0, 1, 2, 3, 4, 5, 6, 7].map(strand));
        assert!(eight.len() < 1_000 && eight.contains("class=\"line g7\""), "{eight}");
        let halves = [(0.0, 0.5), (0.5, 1.0)].map(|(from, to)| Strand { from, to, ..strand(0) });
        assert_eq!(draw(&halves).matches("class=\"part\" points=\"160,0 160,64\"").count(), 1);
        // What never changes is one point.
        let level = draw(&[Strand { points: &[990.0], ..strand(0) }]);
        assert!(level.contains("points=\"0,32 320,32\""), "{level}");
        let odd = [Strand { points: &[f32::NAN, f32::INFINITY, -1.0], ..strand(0) }];
        assert!(!draw(&odd).contains("NaN"));
        assert!(draw(&[]).ends_with("</svg>"));
    }

    #[test]
    fn a_distribution_has_all_of_its_samples_and_shows_the_rare_ones() {
        let gaps = Observations::Histogram(vec![(7.0, 6000), (8.0, 3999), (700.0, 1)]);
        let (low, high, shares) = distribution(&gaps).unwrap();
        assert_eq!((low, high, shares.len()), (7.0, 700.0, BARS));
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(shares[0] > 0.5 && shares[BARS - 1] > 0.0);
        assert_eq!(distribution(&Observations::Samples(vec![3.0; 20])), None, "all alike");
        assert_eq!(distribution(&Observations::Exact(3.0)), None);
    }
}
