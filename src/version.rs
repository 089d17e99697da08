//! Version requirements as people write them, and whether a version meets one.
//!
//! A version is its leading numbers: what follows a `+`, a `-` or a letter (`+cu132`, `-dev`,
//! `.dev45`, `rc1`) says how it was built and is ignored, on both sides. llama.cpp's build numbers
//! (`b11434`) are versions of one number. It reads and compares; what a mismatch leads to is
//! decided by those who ask.

use std::cmp::Ordering;

/// A requirement that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a version requirement; write one like \"0.29.0\" or \">=0.28, <0.30\"")]
pub struct UnreadableRequirement {
    /// The part that is to blame, as written.
    pub text: String,
}

/// Whether `actual` meets `requirement`: clauses apart by commas, all of which must hold.
///
/// A clause is a version, which also stands for its refinements (`0.29` is any 0.29.x), or one of
/// `== != >= > <= <` and a version, missing numbers being zero. A version without any number
/// (`unknown`) meets nothing.
///
/// # Errors
/// A clause that can't be read.
pub fn matches(requirement: &str, actual: &str) -> Result<bool, UnreadableRequirement> {
    let clauses = requirement
        .split(',')
        .map(Clause::read)
        .collect::<Result<Vec<_>, UnreadableRequirement>>()?;
    let Some(actual) = numbers(actual) else { return Ok(false) };
    Ok(clauses.iter().all(|clause| clause.holds(&actual)))
}

/// Whether a requirement can be read.
///
/// # Errors
/// A clause that can't be read.
pub fn check(requirement: &str) -> Result<(), UnreadableRequirement> {
    matches(requirement, "0").map(|_| ())
}

/// The leading numbers of a version; `None` where there is none.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let text = text.trim();
    let text = match text.strip_prefix(['v', 'V', 'b']) {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => rest,
        Some(_) | None => text,
    };
    let mut found = Vec::new();
    for part in text.split('.') {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let Ok(number) = part[..digits].parse() else { break };
        found.push(number);
        if digits < part.len() {
            break;
        }
    }
    (!found.is_empty()).then_some(found)
}

#[derive(Debug, Clone, Copy)]
enum Operator {
    Refines,
    Equal,
    NotEqual,
    AtLeast,
    Above,
    AtMost,
    Below,
}

struct Clause {
    operator: Operator,
    version: Vec<u64>,
}

impl Clause {
    fn read(text: &str) -> Result<Clause, UnreadableRequirement> {
        const OPERATORS: [(&str, Operator); 7] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            (">=", Operator::AtLeast),
            ("<=", Operator::AtMost),
            (">", Operator::Above),
            ("<", Operator::Below),
            ("=", Operator::Refines),
        ];
        let text = text.trim();
        let unreadable = || UnreadableRequirement { text: text.to_owned() };
        let (operator, version) = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?.trim())))
            .unwrap_or((Operator::Refines, text));
        // Whatever may be ignored is cut off first, so that the rest must be numbers to the end.
        let plain = version.split(['+', '-']).next().unwrap_or_default();
        let plain = plain.strip_suffix(".*").unwrap_or(plain);
        let bare = plain.strip_prefix(['v', 'V', 'b']).unwrap_or(plain);
        let readable = !bare.is_empty()
            && bare.split('.').all(|part| {
                part.starts_with(|c: char| c.is_ascii_digit())
                    && part.chars().all(|c| c.is_ascii_alphanumeric())
            });
        if !readable {
            return Err(unreadable());
        }
        Ok(Clause { operator, version: numbers(plain).ok_or_else(unreadable)? })
    }

    fn holds(&self, actual: &[u64]) -> bool {
        let order = compare(actual, &self.version);
        match self.operator {
            Operator::Refines => {
                let depth = self.version.len().min(actual.len());
                actual[..depth] == self.version[..depth]
                    && self.version[depth..].iter().all(|number| *number == 0)
            }
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::AtLeast => order != Ordering::Less,
            Operator::Above => order == Ordering::Greater,
            Operator::AtMost => order != Ordering::Greater,
            Operator::Below => order == Ordering::Less,
        }
    }
}

/// Compares number by number, missing ones being zero.
fn compare(a: &[u64], b: &[u64]) -> Ordering {
    let at = |numbers: &[u64], i: usize| numbers.get(i).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|i| at(a, i).cmp(&at(b, i)))
        .find(|order| *order != Ordering::Equal)
        .unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_version_stands_for_its_refinements() {
        for (requirement, actual, expected) in [
            ("0.29.0", "0.29.0", true),
            ("0.29.0", "0.29", true),
            ("0.29", "0.29.3", true),
            ("0.29", "0.30.0", false),
            ("0.29.0", "0.29.1", false),
            ("0.2", "0.29.0", false),
            ("0.29.*", "0.29.7", true),
        ] {
            assert_eq!(matches(requirement, actual), Ok(expected), "{requirement} of {actual}");
        }
    }

    #[test]
    fn build_parts_are_ignored_on_both_sides() {
        for actual in ["0.29.0+cu132", "0.29.0-dev", "0.29.0.dev45+g1a2b3c", "v0.29.0", "0.29.0rc1"]
        {
            assert_eq!(matches("0.29.0", actual), Ok(true), "{actual}");
            assert_eq!(matches(">=0.29.0+cu132, <0.30", actual), Ok(true), "{actual}");
        }
    }

    #[test]
    fn ranges_need_every_clause() {
        assert_eq!(matches(">=0.28, <0.30", "0.29.4"), Ok(true));
        assert_eq!(matches(">=0.28, <0.30", "0.30.0"), Ok(false));
        assert_eq!(matches(">0.28, !=0.29.1", "0.29.1"), Ok(false));
        assert_eq!(matches("<=0.28", "0.28.0"), Ok(true));
        assert_eq!(matches("==0.29", "0.29.1"), Ok(false));
        assert_eq!(matches(">=570", "580.65.06"), Ok(true));
    }

    #[test]
    fn build_numbers_compare_as_integers() {
        assert_eq!(matches(">=b9000", "b11434-1a2b3c4"), Ok(true));
        assert_eq!(matches("b11434", "b11434"), Ok(true));
        assert_eq!(matches("11434", "b11434"), Ok(true));
        assert_eq!(matches(">=b11434", "b0-unknown"), Ok(false));
        assert_eq!(matches(">=1", "unknown"), Ok(false));
    }

    #[test]
    fn what_is_no_requirement_is_refused() {
        for text in ["", "latest", ">=", "0.28 - 0.30", ">=0.28,", "~0.29", "0..1"] {
            assert!(check(text).is_err(), "{text}");
        }
        assert!(check("latest").unwrap_err().to_string().contains("`latest`"));
    }
}
