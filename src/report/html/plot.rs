//! Charts of a test: throughput against concurrency, first tokens and prefill against context, what a
//! user gets against what the engine makes.
//!
//! It chooses points and axes; the library draws. The library is given numbers and words of this
//! program alone, no foreign text. Its colours stand for roles, which the style sheet fills in, so
//! that charts follow light, dark and print.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::measure::metric::Stat;
use crate::measure::{Base, Metric, TestKind};
use crate::quantity::{Tokens, print_number};
use crate::record::RunRecord;
use crate::report::figure;
use crate::report::grid::{Block, Sheet};
use crate::report::worst::Need;
use crate::suite::model::AxisValue;

use super::markup::{Markup, put};

pub mod forest;
pub mod pairs;

/// Roles of colours, as the style sheet knows them.
const INK: RGBColor = RGBColor(1, 0, 0);
const GRID: RGBColor = RGBColor(2, 0, 0);
const BAD: RGBColor = RGBColor(3, 0, 0);
const PAPER: RGBColor = RGBColor(4, 0, 0);
/// Lines are told apart by colour and by the name at their end.
const SERIES: [RGBColor; 8] = [
    RGBColor(0, 1, 0),
    RGBColor(0, 2, 0),
    RGBColor(0, 3, 0),
    RGBColor(0, 4, 0),
    RGBColor(0, 5, 0),
    RGBColor(0, 6, 0),
    RGBColor(0, 7, 0),
    RGBColor(0, 8, 0),
];
const WIDTH: u32 = 400;
const HEIGHT: u32 = 290;
/// Blocks of a test that are drawn; the tables have all.
pub const MOST_BLOCKS: usize = 6;

/// A drawing that the library made of numbers.
pub struct Drawing {
    svg: String,
}

impl Drawing {
    /// The drawing as it stands in a page.
    pub fn svg(&self) -> &str {
        &self.svg
    }
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    /// A number with its unit, said by this program.
    name: String,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    x: f64,
    y: f64,
    /// Its cell turns the run red.
    bad: bool,
}

/// What a chart is about.
#[derive(Debug, Clone, PartialEq)]
struct Chart {
    title: String,
    /// Words at the axes.
    x: Scale,
    y: Scale,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq)]
struct Scale {
    words: &'static str,
    /// Values that get a mark; empty: round numbers do.
    marks: Vec<f64>,
    tokens: bool,
}

/// Draws the charts of a test, where it has numbers enough for any.
pub fn charts(out: &mut Markup, record: &RunRecord, sheet: &Sheet) {
    let mut opened = false;
    for block in sheet.blocks.iter().take(MOST_BLOCKS) {
        for chart in of_block(record, sheet, block) {
            let Some(drawing) = draw(&chart) else { continue };
            if !opened {
                put!(out, "<div class=\"plots\">\n");
                opened = true;
            }
            put!(out, "<figure class=\"plot\"><figcaption>"(chart.title));
            if !block.heading.is_empty() {
                put!(out, " <small>" (block.heading) "</small>");
            }
            put!(out, "</figcaption><div role=\"img\" aria-label=\"Chart: " (chart.title)
                ". The table above has its figures.\">");
            out.drawing(&drawing);
            put!(out, "</div></figure>\n");
        }
    }
    if opened {
        put!(out, "</div>\n");
    }
}

fn of_block(record: &RunRecord, sheet: &Sheet, block: &Block) -> Vec<Chart> {
    let plain = |base| Metric { base, stat: None, per_gpu: false };
    let ttft = Metric { base: Base::Ttft, stat: Some(Stat::P50), per_gpu: false };
    let (Some(row), column) =
        (known(block.row_axis.as_deref()), known(block.column_axis.as_deref()))
    else {
        return Vec::new();
    };
    let at = |axis, metric| Against { record, block, metric, axis };
    match (sheet.kind, column) {
        (TestKind::Decode | TestKind::Serve, Some(column)) => {
            let total = plain(Base::OutputThroughput);
            let mut charts = vec![at(Axis::Columns, total).chart(
                &format!("Total throughput against {column}, a line for each {row}"),
                column,
            )];
            charts.push(at(Axis::Rows, ttft).chart(
                &format!("Median time to first token against {row}, a line for each {column}"),
                row,
            ));
            charts.push(frontier(record, block, row));
            charts
        }
        (TestKind::Decode | TestKind::Serve, None) => [plain(Base::OutputThroughput), ttft]
            .into_iter()
            .map(|metric| at(Axis::Rows, metric).chart(&format!("{metric} against {row}"), row))
            .collect(),
        (TestKind::Prefill, _) => vec![
            at(Axis::Rows, plain(Base::PrefillThroughput))
                .chart(&format!("Prefill throughput against {row}"), row),
            at(Axis::Rows, ttft).chart(&format!("Median time to first token against {row}"), row),
        ],
        (TestKind::Startup | TestKind::Command, _) => Vec::new(),
    }
}

/// The name of an axis that this program gives; others are words of the suite.
fn known(axis: Option<&str>) -> Option<&'static str> {
    ["context", "input", "output", "concurrency", "request_rate"]
        .into_iter()
        .find(|name| Some(*name) == axis)
}

/// Which axis of a block lies along the chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Rows,
    Columns,
}

struct Against<'a> {
    record: &'a RunRecord,
    block: &'a Block,
    metric: Metric,
    axis: Axis,
}

impl Against<'_> {
    fn chart(&self, title: &str, x: &'static str) -> Chart {
        let block = self.block;
        let (rows, columns) = (block.rows.len(), block.columns.len());
        let (along, across) = match self.axis {
            Axis::Rows => (rows, columns),
            Axis::Columns => (columns, rows),
        };
        let mut lines = Vec::new();
        let (mut marks, mut tokens) = (Vec::new(), false);
        for line in 0..across {
            let mut name = String::new();
            let mut points = Vec::new();
            for step in 0..along {
                let (row, column) = match self.axis {
                    Axis::Rows => (step, line),
                    Axis::Columns => (line, step),
                };
                let Some(cell) = block.cells[row][column] else { continue };
                let other = match self.axis {
                    Axis::Rows => block.column_axis.as_deref(),
                    Axis::Columns => block.row_axis.as_deref(),
                };
                let axes = &self.record.header.cells[cell].axes;
                let value = |axis: Option<&str>| {
                    axes.iter().find(|(name, _)| Some(name.as_str()) == axis).map(|(_, v)| v)
                };
                let own = match self.axis {
                    Axis::Rows => block.row_axis.as_deref(),
                    Axis::Columns => block.column_axis.as_deref(),
                };
                let Some(x) = value(own).and_then(AxisValue::number) else { continue };
                tokens |= matches!(value(own), Some(AxisValue::Tokens(_)));
                if name.is_empty() {
                    name = value(other).map(spelled).unwrap_or_default();
                }
                if let Some(y) = figure_of(self.record, cell, self.metric) {
                    points.push(Point { x, y, bad: bad(self.record, cell) });
                    if !marks.contains(&x) {
                        marks.push(x);
                    }
                }
            }
            lines.push(Line { name, points });
        }
        marks.sort_by(f64::total_cmp);
        let y = Scale { words: self.metric.base.entry().unit, marks: Vec::new(), tokens: false };
        Chart { title: title.to_owned(), x: Scale { words: x, marks, tokens }, y, lines }
    }
}

/// What a single request gets against what all get together, a line for each row.
fn frontier(record: &RunRecord, block: &Block, row: &str) -> Chart {
    let of = |base| Metric { base, stat: None, per_gpu: false };
    let lines = block.cells.iter().map(|cells| {
        let name = cells.iter().flatten().next().and_then(|cell| {
            let axes = &record.header.cells[*cell].axes;
            axes.iter().find(|(name, _)| Some(name) == block.row_axis.as_ref())
        });
        let points = cells.iter().flatten().filter_map(|cell| {
            let x = figure_of(record, *cell, of(Base::PerRequestThroughput))?;
            let y = figure_of(record, *cell, of(Base::OutputThroughput))?;
            Some(Point { x, y, bad: bad(record, *cell) })
        });
        Line {
            name: name.map(|(_, value)| spelled(value)).unwrap_or_default(),
            points: points.collect(),
        }
    });
    Chart {
        title: format!(
            "Frontier: total throughput against that of a request, a line for each {row}"
        ),
        x: Scale { words: "tok/s of a request", marks: Vec::new(), tokens: false },
        y: Scale { words: "tok/s in total", marks: Vec::new(), tokens: false },
        lines: lines.collect(),
    }
}

/// A value of an axis in this program's words: numbers alone.
fn spelled(value: &AxisValue) -> String {
    match value {
        AxisValue::Tokens(n) => Tokens(*n).to_string(),
        AxisValue::Integer(n) => n.to_string(),
        AxisValue::Float(n) => print_number(*n, 3),
        AxisValue::Text(_) | AxisValue::Bool(_) | AxisValue::Table { .. } => String::new(),
    }
}

fn figure_of(record: &RunRecord, cell: usize, metric: Metric) -> Option<f64> {
    let found = figure::one(&record.header.cells[cell], &record.cells[cell], metric)?;
    // Axes are logarithmic.
    (found.value.is_finite() && found.value > 0.0).then_some(found.value)
}

fn bad(record: &RunRecord, cell: usize) -> bool {
    Need::of(record, cell).is_some_and(Need::fails)
}

/// Draws a chart; none where no line has two points.
fn draw(chart: &Chart) -> Option<Drawing> {
    let lines: Vec<&Line> = chart.lines.iter().filter(|line| !line.points.is_empty()).collect();
    if !lines.iter().any(|line| line.points.len() > 1) {
        return None;
    }
    let lines = thinned(&lines, SERIES.len());
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = range(points().map(|point| point.x), 1.04)?;
    let y = range(points().map(|point| point.y), 1.12)?;
    let mut svg = String::new();
    let drawn = render(chart, &lines, x, y, &mut svg);
    drawn.is_some().then_some(Drawing { svg })
}

fn render(
    chart: &Chart,
    lines: &[&Line],
    x: (f64, f64),
    y: (f64, f64),
    svg: &mut String,
) -> Option<()> {
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let ticks = |scale: &Scale, range: (f64, f64), most: usize| match scale.marks.is_empty() {
        true => round_numbers(range, most),
        false => {
            thinned(&scale.marks.iter().collect::<Vec<_>>(), most).into_iter().copied().collect()
        }
    };
    let (x_ticks, y_ticks) = (ticks(&chart.x, x, 8), ticks(&chart.y, y, 6));
    let mut area = ChartBuilder::on(&root)
        .margin_top(24)
        .margin_right(38)
        .margin_bottom(18)
        .x_label_area_size(22)
        .y_label_area_size(54)
        .build_cartesian_2d(
            (x.0..x.1).log_scale().with_key_points(x_ticks),
            (y.0..y.1).log_scale().with_key_points(y_ticks),
        )
        .ok()?;
    let text = |color: RGBColor, size: i32| ("sans-serif", size).into_font().color(&color);
    area.configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(text(INK, 15))
        .x_label_formatter(&|value| label(*value, chart.x.tokens))
        .y_label_formatter(&|value| label(*value, chart.y.tokens))
        .draw()
        .ok()?;
    for (at, line) in lines.iter().enumerate() {
        let color = SERIES[at * SERIES.len() / lines.len().max(1)];
        let points = line.points.iter().map(|point| (point.x, point.y));
        area.draw_series(LineSeries::new(points, color.stroke_width(2))).ok()?;
        let dots = line.points.iter().filter(|point| !point.bad);
        area.draw_series(dots.map(|point| Circle::new((point.x, point.y), 3, color.filled())))
            .ok()?;
        // What failed has another shape, not only another colour.
        let failed = line.points.iter().filter(|point| point.bad);
        area.draw_series(failed.map(|point| {
            EmptyElement::at((point.x, point.y))
                + Circle::new((0, 0), 7, PAPER.filled())
                + PathElement::new(vec![(-5, -5), (5, 5)], BAD.stroke_width(3))
                + PathElement::new(vec![(-5, 5), (5, -5)], BAD.stroke_width(3))
        }))
        .ok()?;
        if let Some(last) = line.points.last().filter(|_| lines.len() > 1) {
            let style = text(color, 15).pos(Pos::new(HPos::Left, VPos::Center));
            let name = Text::new(line.name.clone(), (8, 0), style);
            area.draw_series(std::iter::once(EmptyElement::at((last.x, last.y)) + name)).ok()?;
        }
    }
    let at_top = text(INK, 15).pos(Pos::new(HPos::Left, VPos::Top));
    root.draw_text(chart.y.words, &at_top, (4, 4)).ok()?;
    let below = text(INK, 15).pos(Pos::new(HPos::Right, VPos::Bottom));
    let corner = (WIDTH as i32 - 38, HEIGHT as i32 - 1);
    root.draw_text(chart.x.words, &below, corner).ok()?;
    drop(area);
    root.present().ok()?;
    drop(root);
    Some(())
}

/// The least and the greatest value, each moved outwards by a factor; none where there is nothing.
fn range(values: impl Iterator<Item = f64>, room: f64) -> Option<(f64, f64)> {
    let (low, high) = values
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if !(low > 0.0 && low <= high && high < 1e300) {
        return None;
    }
    let room = if high / low < 1.2 { room * 1.2 } else { room };
    Some((low / room, high * room))
}

/// Round numbers within a range: as fine as there is room for.
fn round_numbers((low, high): (f64, f64), most: usize) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let steps: [&[f64]; 5] = [
        &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        &[1.0, 2.0, 5.0],
        &[1.0, 3.0],
        &[1.0],
    ];
    let of = |steps: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|decade| {
            let power = 10f64.powi(decade);
            steps.iter().map(move |step| step * power).collect::<Vec<_>>()
        });
        all.filter(|value| (low..=high).contains(value)).collect()
    };
    let found = steps.iter().map(|steps| of(steps)).find(|found| found.len() <= most);
    let found = found.unwrap_or_else(|| {
        let all = of(&[1.0]);
        thinned(&all.iter().collect::<Vec<_>>(), most).into_iter().copied().collect()
    });
    if found.is_empty() { vec![low * 1.001, high / 1.001] } else { found }
}

/// At most so many of them, evenly spread, first and last among them.
fn thinned<'a, T>(all: &[&'a T], most: usize) -> Vec<&'a T> {
    if all.len() <= most {
        return all.to_vec();
    }
    (0..most).map(|at| all[at * (all.len() - 1) / (most - 1).max(1)]).collect()
}

/// A number at an axis.
fn label(value: f64, tokens: bool) -> String {
    if tokens && (1.0..1e15).contains(&value) {
        return Tokens(value.round() as u64).to_string();
    }
    let decimals = match value.abs() {
        v if v >= 10.0 => 0,
        v if v >= 1.0 => 1,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    print_number(value, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, grid};

    #[test]
    fn a_test_of_two_axes_has_three_charts_with_the_points_of_its_cells() {
        let record = fixture::page_with_a_loss();
        let sheet = &grid::sheets(&record)[2];
        let charts = of_block(&record, sheet, &sheet.blocks[0]);
        assert_eq!(charts.len(), 3);
        let total = &charts[0];
        assert_eq!(total.lines.len(), 8);
        assert_eq!((total.lines[0].name.as_str(), total.lines[0].points.len()), ("8K", 8));
        assert_eq!(total.lines[0].points[7], Point { x: 128.0, y: 6871.0, bad: true });
        let svg = draw(total).unwrap().svg;
        let drawn = |color: &str| {
            svg.matches(&format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{color}")).count()
        };
        assert_eq!((drawn("#000"), drawn("#03")), (8, 2), "eight lines and a cross");
        assert!(svg.contains("\n8K\n") && svg.contains("\n128\n"), "{svg}");
    }

    #[test]
    fn charts_of_nothing_are_not_drawn() {
        let scale = Scale { words: "x", marks: vec![], tokens: false };
        let chart = |points: &[(f64, f64)]| Chart {
            title: String::new(),
            x: scale.clone(),
            y: scale.clone(),
            lines: vec![Line {
                name: String::new(),
                points: points.iter().map(|(x, y)| Point { x: *x, y: *y, bad: false }).collect(),
            }],
        };
        assert!(draw(&chart(&[])).is_none());
        assert!(draw(&chart(&[(1.0, 1.0)])).is_none());
        assert!(draw(&chart(&[(1.0, 5.0), (2.0, 5.0)])).is_some(), "a flat line is one");
        assert!(draw(&chart(&[(1.0, 1e-9), (1e12, 1e200)])).is_some());
    }

    #[test]
    fn axes_are_marked_by_round_numbers() {
        assert_eq!(round_numbers((3.5, 8000.0), 6), [10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]);
        assert_eq!(round_numbers((16_000.0, 42_000.0), 6), [20_000.0, 30_000.0, 40_000.0]);
        assert_eq!(round_numbers((0.9, 110.0), 8), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!((label(8192.0, true), label(0.25, false)), ("8K".into(), "0.25".into()));
    }
}
