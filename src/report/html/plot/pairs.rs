//! Charts of launches: what each gave, and the ratio of each pair with its mean, interval and limit.
//!
//! Given numbers alone, as all charts are.

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::judge::Estimate;
use crate::judge::paired::Order;

use super::{BAD, Drawing, GRID, INK, PAPER, SERIES, WIDTH, figure};

const HEIGHT: u32 = 200;
/// Launches that are drawn; the table has all.
const MOST: usize = 200;
const OWN: RGBColor = SERIES[1];
const THEIRS: RGBColor = SERIES[5];

/// The ratios of pairs.
pub struct Ratios<'a> {
    /// Each pair's, with which was measured first.
    pub pairs: &'a [(Order, f64)],
    /// Their mean with its interval.
    pub mean: Option<Estimate>,
    /// The limit on it.
    pub limit: Option<f64>,
}

/// What the launches of a cell gave, and in pairs those of the variant that it is held against.
pub struct Values<'a> {
    /// Of the cell.
    pub own: &'a [Option<f64>],
    /// Of the other; empty where there are no pairs.
    pub theirs: &'a [Option<f64>],
}

/// A launch in a chart.
struct Dot {
    x: f64,
    y: f64,
    color: RGBColor,
    filled: bool,
}

/// What lies below the dots.
#[derive(Default)]
struct Ground {
    /// An interval, from and to.
    band: Option<(f64, f64)>,
    /// Lines across: a value and how it is drawn.
    mean: Option<f64>,
    even: Option<f64>,
    limit: Option<f64>,
}

impl Ratios<'_> {
    /// Draws them; none where there is nothing to see.
    pub fn draw(&self) -> Option<Drawing> {
        let dots = (1..).zip(self.pairs.iter().take(MOST)).map(|(at, (order, ratio))| Dot {
            x: f64::from(at),
            y: *ratio,
            color: OWN,
            filled: *order == Order::BaselineFirst,
        });
        let mean = self.mean;
        let band = mean.and_then(|mean| Some((mean.lower?, mean.upper?)));
        let mean = mean.map(|mean| mean.value);
        let ground = Ground { band, mean, even: Some(1.0), limit: self.limit };
        draw(&dots.collect::<Vec<_>>(), &ground, "pair", 3)
    }
}

impl Values<'_> {
    /// Draws them; none where there is nothing to see.
    pub fn draw(&self) -> Option<Drawing> {
        let of = |values: &[Option<f64>], color, filled| -> Vec<Dot> {
            let shown = (1..).zip(values.iter().take(MOST));
            let dot = |(at, value): (u32, &Option<f64>)| {
                Some(Dot { x: f64::from(at), y: (*value)?, color, filled })
            };
            shown.filter_map(dot).collect()
        };
        let mut dots = of(self.theirs, THEIRS, false);
        dots.extend(of(self.own, OWN, true));
        draw(&dots, &Ground::default(), "launch", 0)
    }
}

fn draw(dots: &[Dot], ground: &Ground, below: &'static str, decimals: usize) -> Option<Drawing> {
    let last = dots.iter().map(|dot| dot.x).fold(0.0, f64::max);
    if last < 2.0 || dots.iter().any(|dot| !dot.y.is_finite()) {
        return None;
    }
    let lines = [ground.mean, ground.even, ground.limit];
    let band = ground.band.into_iter().flat_map(|(low, high)| [low, high]);
    let all = dots.iter().map(|dot| dot.y).chain(lines.into_iter().flatten()).chain(band);
    let (low, high) = all
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    // All alike: room on both sides.
    let room = if high > low { (high - low) * 0.12 } else { high.abs().max(1e-9) * 0.02 };
    let (low, high) = (low - room, high + room);
    // As many digits as it takes to tell the marks apart.
    let needed = (-((high - low) / 6.0).log10()).ceil().clamp(0.0, 9.0) as usize;
    let decimals = decimals.max(needed);
    let mut svg = String::new();
    render(dots, ground, (last, low, high), (below, decimals), &mut svg)?;
    Some(Drawing { svg })
}

fn render(
    dots: &[Dot],
    ground: &Ground,
    (last, low, high): (f64, f64, f64),
    (below, decimals): (&'static str, usize),
    svg: &mut String,
) -> Option<()> {
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let (left, right) = (0.4, last + 0.6);
    let step = (last / 10.0).ceil().max(1.0);
    let marks: Vec<f64> =
        (1..).map(|at| f64::from(at) * step).take_while(|at| *at <= last).collect();
    let mut area = ChartBuilder::on(&root)
        .margin_top(10)
        .margin_right(12)
        .margin_bottom(18)
        .x_label_area_size(22)
        .y_label_area_size(62)
        .build_cartesian_2d(Marked { range: (left, right), marks }, low..high)
        .ok()?;
    let text = |color: RGBColor, size: i32| ("sans-serif", size).into_font().color(&color);
    area.configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(INK, 15))
        .y_labels(5)
        .y_label_formatter(&|value| figure::column(*value, decimals))
        .draw()
        .ok()?;
    if let Some((from, to)) = ground.band {
        let corners = [(left, from), (right, to)];
        area.draw_series([Rectangle::new(corners, OWN.mix(0.18).filled())]).ok()?;
    }
    let across = |y: f64| [(left, y), (right, y)];
    if let Some(even) = ground.even {
        area.draw_series(LineSeries::new(across(even), INK.stroke_width(1))).ok()?;
    }
    if let Some(mean) = ground.mean {
        area.draw_series(LineSeries::new(across(mean), OWN.stroke_width(2))).ok()?;
    }
    if let Some(limit) = ground.limit {
        area.draw_series(DashedLineSeries::new(across(limit), 6, 4, BAD.stroke_width(2))).ok()?;
    }
    for dot in dots {
        let at = EmptyElement::at((dot.x, dot.y));
        let inner = if dot.filled { dot.color } else { PAPER };
        area.draw_series([at
            + Circle::new((0, 0), 4, inner.filled())
            + Circle::new((0, 0), 4, dot.color.stroke_width(2))])
            .ok()?;
    }
    let style = text(INK, 15).pos(Pos::new(HPos::Right, VPos::Bottom));
    root.draw_text(below, &style, (WIDTH as i32 - 12, HEIGHT as i32 - 1)).ok()?;
    drop(area);
    root.present().ok()?;
    drop(root);
    Some(())
}

/// An axis of whole numbers with the marks that it is given.
pub(super) struct Marked {
    pub(super) range: (f64, f64),
    pub(super) marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.range.0) / (self.range.1 - self.range.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: plotters::coord::ranged1d::KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Marked {
    fn format(value: &f64) -> String {
        format!("{value:.0}")
    }
}
