//! Quantities as people write them: token counts, durations, sizes, percentages.
//!
//! Parses and prints; decides what a suffix means, nothing else. Every refusal says what to write
//! instead. Token counts know `K` = 1024 and `M` = 1024² only; durations and sizes need a unit.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A text that is no quantity of the kind asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unreadable {
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// What to write instead, where that is known.
    pub help: Option<String>,
}

impl Unreadable {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Unreadable { message: message.into(), help: Some(help.into()) }
    }
}

/// A count of tokens. Prints in `K` where divisible by 1024, never in `M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub u64);

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0 && self.0.is_multiple_of(1024) {
            write!(f, "{}K", self.0 / 1024)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

impl std::str::FromStr for Tokens {
    type Err = Unreadable;

    fn from_str(text: &str) -> Result<Tokens, Unreadable> {
        let text = text.trim();
        let digits = text.len()
            - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '.').len();
        let (number, suffix) = text.split_at(digits);
        let plain = number.replace('_', "");
        let unit: u64 = match suffix {
            "" => 1,
            "K" | "Ki" => 1024,
            "M" | "Mi" => 1024 * 1024,
            "k" | "m" => {
                let (name, binary, decimal) =
                    if suffix == "k" { ("K", 1024.0, 1000.0) } else { ("M", 1_048_576.0, 1e6) };
                let help = match plain.parse::<f64>() {
                    Ok(n) if (n * binary).fract() == 0.0 => format!(
                        "write \"{n}{name}\" for {} tokens, or {} for the decimal reading",
                        n * binary,
                        n * decimal
                    ),
                    Ok(n) => format!(
                        "write the number of tokens, {} or {}",
                        (n * binary).round(),
                        n * decimal
                    ),
                    Err(_) => "write a whole number, or one with K (1024) or M (1024²)".to_owned(),
                };
                return Err(Unreadable::new(
                    format!("`{text}` has two readings as a token count"),
                    help,
                ));
            }
            _ => {
                return Err(Unreadable::new(
                    format!("`{text}` is not a token count"),
                    "write a whole number, or one with K (1024) or M (1024²), like \"8K\"",
                ));
            }
        };
        let count = plain.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
        count.map(Tokens).ok_or_else(|| {
            Unreadable::new(
                format!("`{text}` is not a whole token count"),
                "write a whole number, or one with K (1024) or M (1024²), like \"8K\"",
            )
        })
    }
}

/// Parses a duration: a number and one of `us ms s m h d`, parts may follow each other (`1h30m`).
///
/// # Errors
/// A missing or unknown unit, a negative or unreadable number.
pub fn parse_duration(text: &str) -> Result<Duration, Unreadable> {
    const HELP: &str = "write a number with a unit: \"500ms\", \"30s\", \"2m\", \"1h\"";
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(Unreadable::new("an empty text is not a duration", HELP));
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let tail = tail.trim_start();
        let end =
            tail.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let Ok(value) = number.replace('_', "").parse::<f64>() else {
            return Err(Unreadable::new(format!("`{text}` is not a duration"), HELP));
        };
        let scale = match unit {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "" => {
                return Err(Unreadable::new(
                    format!("`{text}` has no unit"),
                    format!("write \"{text}s\" for seconds or \"{text}ms\" for milliseconds"),
                ));
            }
            _ => return Err(Unreadable::new(format!("`{unit}` is not a unit of time"), HELP)),
        };
        seconds += value * scale;
        rest = tail.trim_start();
    }
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Unreadable::new(format!("`{text}` is too long a duration"), HELP))
}

/// Prints a duration in the largest unit that keeps it readable: `500ms`, `1.5s`, `2m`, `1h`.
pub fn print_duration(duration: Duration) -> String {
    let s = duration.as_secs_f64();
    if s > 0.0 && s < 1.0 {
        return format!("{}ms", trim(s * 1e3, 3));
    }
    for (unit, scale) in [("h", 3600.0), ("m", 60.0)] {
        if s >= scale && (s / scale * 10.0).fract() == 0.0 {
            return format!("{}{unit}", trim(s / scale, 1));
        }
    }
    format!("{}s", trim(s, 3))
}

fn trim(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Parses a percentage, `"5%"`, to a fraction, `0.05`.
///
/// # Errors
/// A missing `%`, an unreadable or negative number.
pub fn parse_percent(text: &str) -> Result<f64, Unreadable> {
    const HELP: &str = "write a percentage like \"5%\"";
    let Some(number) = text.trim().strip_suffix('%') else {
        return Err(Unreadable::new(format!("`{text}` has no % sign"), HELP));
    };
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value / 100.0),
        Ok(_) | Err(_) => Err(Unreadable::new(format!("`{text}` is not a percentage"), HELP)),
    }
}

/// A size in bytes as written: a decimal unit on a GPU's label has two readings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// The reading as written: GB = 10⁹ bytes, GiB = 2³⁰ bytes.
    pub bytes: f64,
    /// The other reading of a decimal unit, as vendors use it (GB = 2³⁰); equal to `bytes` for binary units.
    pub binary_reading: f64,
}

/// Parses a size: a number and one of `B KB MB GB TB KiB MiB GiB TiB`.
///
/// # Errors
/// A missing or unknown unit, an unreadable or negative number.
pub fn parse_size(text: &str) -> Result<Size, Unreadable> {
    const HELP: &str = "write a number with a unit: \"141GB\", \"80GiB\"";
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let Ok(value) = number.replace('_', "").parse::<f64>() else {
        return Err(Unreadable::new(format!("`{text}` is not a size"), HELP));
    };
    let (power, binary) = match unit.trim() {
        "B" => (0, true),
        "KB" => (1, false),
        "MB" => (2, false),
        "GB" => (3, false),
        "TB" => (4, false),
        "KiB" => (1, true),
        "MiB" => (2, true),
        "GiB" => (3, true),
        "TiB" => (4, true),
        "" => return Err(Unreadable::new(format!("`{text}` has no unit"), HELP)),
        other => return Err(Unreadable::new(format!("`{other}` is not a unit of size"), HELP)),
    };
    let in_binary = value * 1024f64.powi(power);
    Ok(Size {
        bytes: if binary { in_binary } else { value * 1000f64.powi(power) },
        binary_reading: in_binary,
    })
}

/// Prints a number for people: thousands apart by narrow blanks, at most `decimals` digits behind the point.
pub fn print_number(value: f64, decimals: usize) -> String {
    let text = trim(value, decimals);
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_read_and_print_in_binary_thousands() {
        assert_eq!("8K".parse(), Ok(Tokens(8192)));
        assert_eq!("1024Ki".parse(), Ok(Tokens(1 << 20)));
        assert_eq!("16_100".parse(), Ok(Tokens(16_100)));
        assert_eq!(Tokens(1 << 20).to_string(), "1024K");
        assert_eq!(Tokens(1000).to_string(), "1000");
    }

    #[test]
    fn a_small_k_names_both_readings() {
        let refused = "8k".parse::<Tokens>().unwrap_err();
        assert_eq!(
            refused.help.unwrap(),
            "write \"8K\" for 8192 tokens, or 8000 for the decimal reading"
        );
        assert!("1.5m".parse::<Tokens>().unwrap_err().message.contains("two readings"));
        assert!("1.5K".parse::<Tokens>().is_err());
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(parse_duration("30").unwrap_err().help.unwrap().contains("30s"));
        for text in ["500ms", "1.5s", "2m", "1h", "90s"] {
            assert_eq!(
                parse_duration(&print_duration(parse_duration(text).unwrap())),
                parse_duration(text)
            );
        }
    }

    #[test]
    fn sizes_keep_both_readings_of_a_decimal_unit() {
        let size = parse_size("141GB").unwrap();
        assert_eq!(size.bytes, 141e9);
        assert_eq!(size.binary_reading, 141.0 * 1024f64.powi(3));
    }

    #[test]
    fn numbers_print_with_thousands_apart() {
        assert_eq!(print_number(6936.9, 1), "6 936.9");
        assert_eq!(print_number(7302.0, 1), "7 302");
        assert_eq!(print_number(-1234567.0, 1), "-1 234 567");
    }
}
