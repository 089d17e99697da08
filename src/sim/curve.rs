//! Curves through measured points, straight on log-log paper.
//!
//! Below the first point they are flat; beyond the last they go on as the last segment does, so
//! that an engine loaded beyond its table does not become infinitely fast. They know nothing of
//! what the numbers mean.

/// A curve through points with rising, positive x and positive y.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// A curve, or what is wrong with the points.
    pub(crate) fn new(points: Vec<(f64, f64)>) -> Result<Curve, String> {
        if points.is_empty() {
            return Err("needs at least one point".to_owned());
        }
        if let Some((x, y)) = points.iter().find(|(x, y)| {
            let good = x.is_finite() && y.is_finite() && *x > 0.0 && *y > 0.0;
            !good
        }) {
            return Err(format!("{y} at {x}: both must be above zero"));
        }
        if let Some(pair) = points.windows(2).find(|pair| pair[1].0 <= pair[0].0) {
            return Err(format!(
                "{} does not come before {}: write rising values",
                pair[0].0, pair[1].0
            ));
        }
        Ok(Curve { points })
    }

    /// The value at `x`.
    pub(crate) fn at(&self, x: f64) -> f64 {
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        if x <= first.0 || self.points.len() == 1 {
            return first.1;
        }
        let upper = if x >= last.0 {
            self.points.len() - 1
        } else {
            self.points.partition_point(|(known, _)| *known <= x)
        };
        between(self.points[upper - 1], self.points[upper], x)
    }
}

/// Curves by context: rows of one curve each.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Surface {
    rows: Vec<(f64, Curve)>,
}

impl Surface {
    /// A surface, or what is wrong with the rows.
    pub(crate) fn new(rows: Vec<(f64, Curve)>) -> Result<Surface, String> {
        // The heights don't matter here: only that the rows rise.
        Curve::new(rows.iter().map(|(row, _)| (*row, 1.0)).collect())?;
        Ok(Surface { rows })
    }

    /// The value at row `y`, column `x`.
    pub(crate) fn at(&self, y: f64, x: f64) -> f64 {
        let (first, last) = (&self.rows[0], &self.rows[self.rows.len() - 1]);
        if y <= first.0 || self.rows.len() == 1 {
            return first.1.at(x);
        }
        let upper = if y >= last.0 {
            self.rows.len() - 1
        } else {
            self.rows.partition_point(|(known, _)| *known <= y)
        };
        let (low, high) = (&self.rows[upper - 1], &self.rows[upper]);
        if y == high.0 {
            return high.1.at(x);
        }
        if y == low.0 {
            return low.1.at(x);
        }
        between((low.0, low.1.at(x)), (high.0, high.1.at(x)), y)
    }
}

fn between(low: (f64, f64), high: (f64, f64), x: f64) -> f64 {
    // The table's own values come back exactly.
    if x == low.0 {
        return low.1;
    }
    if x == high.0 {
        return high.1;
    }
    let slope = (high.1 / low.1).ln() / (high.0 / low.0).ln();
    low.1 * (slope * (x / low.0).ln()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-9
    }

    #[test]
    fn a_curve_is_a_power_law_between_its_points() {
        let curve = Curve::new(vec![(1.0, 10.0), (4.0, 40.0), (16.0, 80.0)]).unwrap();
        assert!(close(curve.at(2.0), 20.0));
        assert!(close(curve.at(8.0), 40.0 * 2f64.sqrt()));
        assert_eq!(curve.at(4.0), 40.0);
        assert_eq!(curve.at(0.1), 10.0, "flat below the table");
        assert!(close(curve.at(64.0), 160.0), "the last slope goes on beyond it");
    }

    #[test]
    fn a_surface_takes_rows_of_any_length() {
        let row = |points: &[(f64, f64)]| Curve::new(points.to_vec()).unwrap();
        let surface = Surface::new(vec![
            (1024.0, row(&[(1.0, 5.0), (2.0, 6.0)])),
            (4096.0, row(&[(1.0, 20.0)])),
        ])
        .unwrap();
        assert_eq!(surface.at(1024.0, 2.0), 6.0);
        assert_eq!(surface.at(4096.0, 2.0), 20.0);
        assert!(close(surface.at(2048.0, 1.0), 10.0));
        assert!(close(surface.at(16384.0, 1.0), 80.0));
    }

    #[test]
    fn points_that_make_no_curve_are_named() {
        let refused = |points: &[(f64, f64)]| Curve::new(points.to_vec()).unwrap_err();
        assert_eq!(refused(&[]), "needs at least one point");
        assert_eq!(
            refused(&[(2.0, 1.0), (1.0, 1.0)]),
            "2 does not come before 1: write rising values"
        );
        assert_eq!(refused(&[(2.0, 0.0)]), "0 at 2: both must be above zero");
    }
}
