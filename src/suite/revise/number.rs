//! How a number is written (decimals, underscores, exponent, unit), and another one written likewise.
//!
//! A number is rounded to the loose side alone, so that a bound that was computed is never exceeded by
//! the one that is written.

use crate::judge::Side;
use crate::measure::Metric;
use crate::suite::check::in_unit;

/// What rounding may take of a number at the decimals that the old one had; beyond it there are more.
const COARSEST: f64 = 0.05;

/// Decimals that are tried beyond those of the old number.
const MORE: usize = 12;

/// The way in which a number of a suite is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<'t> {
    /// What stands before the digits: a quote.
    before: &'t str,
    /// What stands behind them: an exponent, or unit and quote.
    after: &'t str,
    /// What the digits are multiplied by for the value in the metric's unit.
    scale: f64,
    decimals: usize,
    plus: bool,
    grouped: bool,
    grouped_fraction: bool,
    metric: Metric,
}

impl<'t> Written<'t> {
    /// Reads how a literal of TOML is written that stands for a number in the metric's unit; `None` for a
    /// quantity that has more than one number (`"1m30s"`) or is spelled with escapes.
    pub fn read(literal: &'t str, metric: Metric) -> Option<Written<'t>> {
        if !literal.starts_with(['"', '\'']) {
            return Some(Written::bare(literal, metric));
        }
        let quotes =
            if literal.starts_with("\"\"\"") || literal.starts_with("'''") { 3 } else { 1 };
        let inner = literal.get(quotes..literal.len().checked_sub(quotes)?)?;
        if inner.contains(['\\', '\n']) {
            return None;
        }
        let start = inner.find(|c: char| !c.is_whitespace())?;
        let end = inner[start..].find(|c: char| !(c.is_ascii_digit() || c == '_' || c == '.'))?;
        let (number, unit) = inner[start..].split_at(end);
        if number.is_empty() || unit.contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let scale = in_unit(metric, &format!("1{unit}")).ok()?;
        let (before, after) =
            (&literal[..quotes + start], &literal[quotes + start + number.len()..]);
        Some(Written { before, after, scale, ..Written::bare(number, metric) })
    }

    /// A number without quotes.
    fn bare(literal: &'t str, metric: Metric) -> Written<'t> {
        let plus = literal.starts_with('+');
        let radix = ["0x", "0o", "0b"].iter().any(|prefix| literal.starts_with(prefix));
        let (digits, after) = match literal.find(['e', 'E']) {
            // What counts in another radix is written as decimals are.
            _ if radix => ("", ""),
            Some(at) => literal.split_at(at),
            None => (literal, ""),
        };
        let exponent: i32 =
            after.get(1..).and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(0);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        Written {
            before: "",
            after,
            scale: 10f64.powi(exponent),
            decimals: fraction.bytes().filter(u8::is_ascii_digit).count(),
            plus,
            grouped: whole.contains('_'),
            grouped_fraction: fraction.contains('_'),
            metric,
        }
    }

    /// The value that a text of [`Written::write`] stands for.
    fn value(&self, text: &str) -> Option<f64> {
        if self.before.is_empty() {
            return text.replace('_', "").parse().ok();
        }
        let text = text.trim_matches(['"', '\'']);
        in_unit(self.metric, text).ok()
    }

    /// Writes a value in the metric's unit likewise, rounded so that it asks for no more, and returns the text
    /// with its value.
    ///
    /// It has as many decimals as the old number, and more only where rounding would take over 5 %.
    /// `None` where no such text is a number of this metric.
    pub fn write(&self, value: f64, side: Side) -> Option<(String, f64)> {
        let tighter = |written: f64| match side {
            Side::Min => written > value,
            Side::Max => written < value,
        };
        let looser = match side {
            Side::Min => -1,
            Side::Max => 1,
        };
        for decimals in self.decimals..=self.decimals + MORE {
            let nearest = format!("{:.decimals$}", value / self.scale);
            let mut digits: i128 = nearest.replace('.', "").parse().ok()?;
            // The nearest is at most one step to the tight side; scaling may move it by one more.
            for _ in 0..3 {
                let text = self.render(digits, decimals);
                let Some(written) = self.value(&text) else { break };
                if tighter(written) {
                    digits += looser;
                } else if (written - value).abs() <= COARSEST * value.abs() {
                    return Some((text, written));
                } else {
                    break;
                }
            }
        }
        None
    }

    /// Digits with so many of them behind the point, in this way of writing.
    fn render(&self, digits: i128, decimals: usize) -> String {
        let all = format!("{:0>1$}", digits.unsigned_abs(), decimals + 1);
        let (whole, fraction) = all.split_at(all.len() - decimals);
        let mut text = String::from(self.before);
        match (digits < 0, self.plus) {
            (true, _) => text.push('-'),
            (false, true) => text.push('+'),
            (false, false) => {}
        }
        for (at, digit) in whole.chars().enumerate() {
            if self.grouped && at > 0 && (whole.len() - at).is_multiple_of(3) {
                text.push('_');
            }
            text.push(digit);
        }
        if decimals > 0 {
            text.push('.');
        }
        for (at, digit) in fraction.chars().enumerate() {
            if self.grouped_fraction && at > 0 && at.is_multiple_of(3) {
                text.push('_');
            }
            text.push(digit);
        }
        text.push_str(self.after);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rewritten(metric: &str, old: &str, value: f64, side: Side) -> Option<String> {
        let metric = metric.parse().unwrap();
        Written::read(old, metric)?.write(value, side).map(|(text, _)| text)
    }

    #[test]
    fn a_number_is_written_as_the_old_one_was() {
        for (old, value, new) in [
            ("16_100", 15_987.9, "15_987"),
            ("16_100", 987.9, "987"),
            ("900", 1_020.4, "1020"),
            ("7302.0", 7_301.99, "7301.9"),
            ("7302.0", 998.25, "998.2"),
            ("1_019.5", 1_234_567.89, "1_234_567.8"),
            ("1.000_5", 2.345_678, "2.345_6"),
            ("+50", 49.5, "+49"),
            ("1.5e3", 1_478.0, "1.47e3"),
            ("1e3", 1_478.0, "1.47e3"),
            ("0x3ee4", 15_987.9, "15987"),
            ("7302.0", 7302.0, "7302.0"),
            ("0.3", 0.3, "0.3"),
        ] {
            assert_eq!(
                rewritten("output-throughput", old, value, Side::Min).unwrap(),
                new,
                "{old}"
            );
        }
    }

    #[test]
    fn quantities_keep_quotes_and_unit() {
        for (metric, old, value, new) in [
            ("ttft.p50", "\"350ms\"", 338.2, "\"339ms\""),
            ("ttft.p50", "'1.50 s'", 1_338.2, "'1.34 s'"),
            ("ready-time", "\"2m\"", 118.0, "\"2m\""),
            ("error-rate", "\"1%\"", 1.95, "\"2%\""),
        ] {
            assert_eq!(rewritten(metric, old, value, Side::Max).as_deref(), Some(new), "{old}");
        }
        assert_eq!(
            rewritten("kv-capacity", "\"1180K\"", 1_100.0 * 1024.0 + 5.0, Side::Min).as_deref(),
            Some("\"1100K\"")
        );
        assert_eq!(rewritten("ttft.p50", "\"1m30s\"", 338.2, Side::Max), None);
        assert_eq!(rewritten("ttft.p50", "\"\\u0033ms\"", 338.2, Side::Max), None);
    }

    #[test]
    fn rounding_that_would_take_much_has_more_decimals() {
        assert_eq!(rewritten("output-throughput", "7", 7.9, Side::Min).unwrap(), "7.9");
        assert_eq!(rewritten("output-throughput", "4.0", 3.96, Side::Min).unwrap(), "3.9");
        assert_eq!(rewritten("output-throughput", "1", 0.0468, Side::Min).unwrap(), "0.046");
        assert_eq!(rewritten("ttft.p50", "\"2s\"", 31.0, Side::Max).unwrap(), "\"0.031s\"");
    }

    proptest! {
        #[test]
        fn no_rounding_asks_for_more(
            value in 1e-3..1e6f64,
            old in "[1-9][0-9]{0,5}(\\.[0-9]{1,4})?(e[0-3])?",
            min in any::<bool>(),
        ) {
            let side = if min { Side::Min } else { Side::Max };
            let metric = "output-throughput".parse().unwrap();
            let written = Written::read(&old, metric).unwrap();
            let (text, new) = written.write(value, side).unwrap();
            prop_assert_eq!(text.parse::<f64>().unwrap(), new);
            prop_assert!(if min { new <= value } else { new >= value }, "{text} of {value}");
            prop_assert!((new - value).abs() <= 0.05 * value, "{text} of {value}");
            // What was written stays as it is.
            prop_assert_eq!(Written::read(&text, metric).unwrap().write(new, side).unwrap().0, text);
        }
    }
}
