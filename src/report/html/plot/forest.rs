//! A chart of ratios: each cell's with its interval, below each other, against no change and the limit.
//!
//! It decides which cells are drawn and in which words they are named. Given numbers and words of this program alone, as
//! all charts are: where an axis has words of the suite, cells are numbered.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::judge::Side;
use crate::record::RunRecord;
use crate::report::grid::{Block, Tone};
use crate::report::ratio::Ratio;

use super::pairs::Marked;
use super::{BAD, Drawing, GRID, INK, PAPER, SERIES, WIDTH, figure, known, spelled};

/// Cells of a chart.
const MOST: usize = 64;
/// Height of a line, and of what stands above and below them.
const LINE: u32 = 17;
const AROUND: u32 = 62;
const MARK: RGBColor = SERIES[1];

/// The ratios of a table, as they are drawn.
pub struct Forest {
    rows: Vec<Row>,
    /// The limit, where all have the same.
    limit: Option<f64>,
    /// How many there are in all.
    all: usize,
    /// Whether cells are numbered.
    numbered: bool,
    /// By which axes they are named else.
    axes: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: String,
    value: f64,
    interval: Option<(f64, f64)>,
    bad: bool,
    /// How far it is from its limit, as a ratio; less than 1 is beyond.
    room: f64,
}

/// The ratios of a block: all of them, or those that are nearest to their limits.
pub fn of_block<'a>(
    record: &RunRecord,
    block: &Block,
    ratio: impl Fn(usize) -> Option<Ratio<'a>>,
) -> Forest {
    let axes = [block.row_axis.as_deref(), block.column_axis.as_deref()];
    let numbered = axes.iter().any(|axis| axis.is_some() && known(*axis).is_none())
        || block.row_axis.is_none();
    let mut limits = Vec::new();
    let mut rows = Vec::new();
    for (number, cell) in (1..).zip(block.cells.iter().flatten().flatten()) {
        let Some(found) = ratio(*cell) else { continue };
        let Some(estimate) = found.estimate().filter(|it| it.value.is_finite()) else { continue };
        let value = |axis: &Option<&str>| {
            let axes = &record.header.cells[*cell].axes;
            axes.iter().find(|(name, _)| Some(name.as_str()) == *axis).map(|(_, it)| spelled(it))
        };
        let words: Vec<String> = axes.iter().filter_map(value).collect();
        let bound = found.record.bound;
        let room = bound.map_or(1.0, |bound| match bound.side {
            Side::Min => estimate.value / bound.limit,
            Side::Max => bound.limit / estimate.value,
        });
        limits.extend(bound.map(|bound| bound.limit));
        rows.push(Row {
            name: if numbered { number.to_string() } else { words.join(" × ") },
            value: estimate.value,
            interval: estimate.lower.zip(estimate.upper),
            bad: found.mark().tone == Tone::Bad,
            room,
        });
    }
    let all = rows.len();
    let mut order: Vec<f64> = rows.iter().map(|row| row.room).collect();
    order.sort_by(f64::total_cmp);
    if let Some(last) = order.get(MOST - 1).filter(|_| all > MOST) {
        rows.retain(|row| row.room <= *last);
        rows.truncate(MOST);
    }
    let same = limits.iter().all(|limit| Some(limit) == limits.first());
    let limit = limits.first().copied().filter(|_| same);
    Forest { rows, limit, all, numbered, axes: axes.iter().filter_map(|it| known(*it)).collect() }
}

impl Forest {
    /// What stands in the chart.
    pub fn words(&self) -> String {
        let mut said = "Drawn: the ratio of each cell with its interval, a cross where it fails; \
                        no change as a line"
            .to_owned();
        if self.limit.is_some() {
            said.push_str(", the limit broken in red");
        }
        if self.numbered {
            said.push_str("; cells are numbered as they stand in the table, row by row");
        } else {
            said.push_str(&format!("; cells are named by {}", self.axes.join(" × ")));
        }
        if self.all > self.rows.len() {
            said.push_str(&format!(
                "; the {} of {} that are nearest to their limits",
                self.rows.len(),
                self.all
            ));
        }
        said + "."
    }

    /// Draws them; none where there are fewer than two.
    pub fn draw(&self) -> Option<Drawing> {
        if self.rows.len() < 2 {
            return None;
        }
        let values = || self.rows.iter().map(|row| row.value).chain(self.limit).chain([1.0]);
        let (least, most) = ends(values())?;
        // An interval without end must not hide all others.
        let (floor, ceiling) = (least - 3.0 * (most - least), most + 3.0 * (most - least));
        let bounds = self.rows.iter().filter_map(|row| row.interval);
        let bounds = bounds.flat_map(|(low, high)| [low.max(floor), high.min(ceiling)]);
        let (low, high) = ends(values().chain(bounds))?;
        let room = if high > low { (high - low) * 0.05 } else { 0.01 };
        let mut svg = String::new();
        self.render((low - room, high + room), &mut svg)?;
        Some(Drawing { svg })
    }

    fn render(&self, (low, high): (f64, f64), svg: &mut String) -> Option<()> {
        let count = self.rows.len();
        let height = AROUND + LINE * count as u32;
        let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
        let marks: Vec<f64> = (1..=count).map(|at| at as f64).collect();
        // From above to below.
        let range = (count as f64 + 0.6, 0.4);
        let mut area = ChartBuilder::on(&root)
            .margin_top(10)
            .margin_right(14)
            .margin_bottom(18)
            .x_label_area_size(22)
            .y_label_area_size(92)
            .build_cartesian_2d(low..high, Marked { range, marks })
            .ok()?;
        let text = |color: RGBColor, size: i32| ("sans-serif", size).into_font().color(&color);
        let decimals = (-((high - low) / 5.0).log10()).ceil().clamp(2.0, 6.0) as usize;
        let name = |at: &f64| {
            let row = self.rows.get((at.round() as usize).wrapping_sub(1));
            row.map(|row| row.name.clone()).unwrap_or_default()
        };
        area.configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(GRID)
            .label_style(text(INK, 15))
            .x_labels(5)
            .y_labels(count)
            .x_label_formatter(&|value| figure::column(*value, decimals))
            .y_label_formatter(&name)
            .draw()
            .ok()?;
        let down = |x: f64| [(x, range.0), (x, range.1)];
        area.draw_series(LineSeries::new(down(1.0), INK.stroke_width(1))).ok()?;
        if let Some(limit) = self.limit {
            area.draw_series(DashedLineSeries::new(down(limit), 6, 4, BAD.stroke_width(2))).ok()?;
        }
        for (at, row) in (1..).zip(&self.rows) {
            let y = f64::from(at);
            let color = if row.bad { BAD } else { MARK };
            if let Some((from, to)) = row.interval {
                let ends = [(from.clamp(low, high), y), (to.clamp(low, high), y)];
                area.draw_series(LineSeries::new(ends, color.stroke_width(3))).ok()?;
            }
            let dot = EmptyElement::at((row.value, y));
            if row.bad {
                area.draw_series([dot
                    + Circle::new((0, 0), 6, PAPER.filled())
                    + PathElement::new(vec![(-5, -5), (5, 5)], BAD.stroke_width(3))
                    + PathElement::new(vec![(-5, 5), (5, -5)], BAD.stroke_width(3))])
                    .ok()?;
            } else {
                area.draw_series([dot
                    + Circle::new((0, 0), 4, PAPER.filled())
                    + Circle::new((0, 0), 4, MARK.stroke_width(2))])
                    .ok()?;
            }
        }
        let style = text(INK, 15).pos(Pos::new(HPos::Right, VPos::Bottom));
        root.draw_text("ratio", &style, (WIDTH as i32 - 14, height as i32 - 1)).ok()?;
        drop(area);
        root.present().ok()?;
        drop(root);
        Some(())
    }
}

/// Least and greatest; none of nothing.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, ratio};
    use crate::suite::model::AxisValue;

    #[test]
    fn every_ratio_is_drawn_by_name_and_what_fails_has_a_cross() {
        let record = fixture::compare();
        let table = &ratio::tables(&record)[0];
        let forest = of_block(&record, &table.blocks[0], |cell| table.ratio(&record, cell));
        assert_eq!((forest.rows.len(), forest.all, forest.numbered), (6, 6, false));
        assert_eq!(forest.rows.iter().filter(|row| row.bad).count(), 1);
        let svg = forest.draw().unwrap().svg;
        for row in &forest.rows {
            assert!(row.name.starts_with("8K × ") || row.name.starts_with("32K × "), "{row:?}");
            assert!(svg.contains(&format!("\n{}\n", row.name)), "{svg}");
        }
        let failed = svg.matches("stroke=\"#030000\" stroke-width=\"3\"").count();
        assert_eq!(failed, 3, "an interval and a cross: {svg}");
    }

    #[test]
    fn words_of_a_suite_never_reach_the_library_and_an_endless_interval_hides_nothing() {
        let mut record = fixture::compare();
        for cell in &mut record.header.cells {
            for (at, (name, value)) in cell.axes.iter_mut().enumerate() {
                *name = format!("</svg><script>{at}");
                *value = AxisValue::Text(format!("<script>{value}"));
            }
        }
        let table = &ratio::tables(&record)[0];
        let forest = of_block(&record, &table.blocks[0], |cell| table.ratio(&record, cell));
        assert!(forest.numbered && forest.rows.len() > 1);
        assert!(!forest.draw().unwrap().svg.contains("script"));
        assert!(forest.words().contains("numbered"));
        let row = |value: f64, interval| Row {
            name: "x".into(),
            value,
            interval: Some(interval),
            bad: false,
            room: 1.0,
        };
        let rows = vec![row(0.99, (1e-300, 1e300)), row(1.01, (1.0, f64::INFINITY))];
        let forest = Forest { rows, limit: Some(0.97), all: 2, numbered: true, axes: vec![] };
        let svg = forest.draw().unwrap().svg;
        // Both are apart on an axis of hundredths.
        let marked = |mark: &str| svg.contains(&format!("\n{mark}\n"));
        assert!(marked("1.00") && marked("0.90"), "{svg}");
    }
}
