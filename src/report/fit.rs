//! What is cut so that consumers can read the whole JUnit file: most refuse one of tens of megabytes.
//!
//! It decides what goes first. Each case alone is cut in `case.rs`.

use super::case::attachment::alone;
use super::case::{Case, Cases, Standing};
use super::sanitise::{cut, escaped_len};

/// Makes the file fit: outputs of good cases go first, from the first on, then the texts of the
/// others share what is left. Verdicts, messages and figures of failures stay.
pub fn fit(cases: &mut Cases, budget: usize) {
    let mut total: usize = cases.suites.iter().flat_map(|suite| &suite.cases).map(size).sum();
    if total <= budget {
        return;
    }
    let all = |cases: &mut Cases, act: &mut dyn FnMut(&mut Case)| {
        cases.suites.iter_mut().flat_map(|suite| &mut suite.cases).for_each(act);
    };
    let good = |case: &Case| matches!(case.standing, Standing::Plain | Standing::Skipped(_));
    all(cases, &mut |case| {
        if total > budget && good(case) && !(case.output.is_empty() && case.earlier.is_empty()) {
            let before = size(case);
            case.earlier.clear();
            case.output = "… output dropped, the file would be too large".into();
            total = total + size(case) - before;
        }
    });
    if total <= budget {
        return;
    }
    let (mut bare, mut failed) = (0, 0usize);
    all(cases, &mut |case| {
        if !good(case) {
            case.output = alone(&case.output).to_owned();
            case.earlier.clear();
            failed += 1;
        }
        bare += size(case) - note_size(case);
    });
    let share = budget.saturating_sub(bare) / failed.max(1);
    all(cases, &mut |case| {
        if let Standing::Failure(note) | Standing::Error(note) = &mut case.standing {
            note.text = cut(&note.text, share.saturating_sub(escaped_len(&note.message)));
        }
    });
    // What is left above the budget now are the names of a very large plan; only figures can go.
    let total: usize = cases.suites.iter().flat_map(|suite| &suite.cases).map(size).sum();
    if total > budget {
        all(cases, &mut |case| {
            if good(case) {
                case.properties.clear();
                case.output.clear();
            }
        });
    }
}

fn note_size(case: &Case) -> usize {
    match &case.standing {
        Standing::Plain => 0,
        Standing::Skipped(note) | Standing::Failure(note) | Standing::Error(note) => {
            escaped_len(&note.message) + escaped_len(&note.text)
        }
    }
}

/// Bytes that a case takes in the wordier of the two dialects, reckoned generously.
fn size(case: &Case) -> usize {
    let properties: usize =
        case.properties.iter().map(|(k, v)| 60 + escaped_len(k) + escaped_len(v)).sum();
    let names = [&case.classname, &case.name, &case.place.file];
    let earlier: usize =
        case.earlier.iter().map(|it| 200 + escaped_len(&it.message) + escaped_len(&it.text)).sum();
    400 + names.iter().map(|name| escaped_len(name)).sum::<usize>()
        + properties
        + earlier
        + note_size(case)
        + escaped_len(&case.output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::case::cases;
    use crate::report::fixture;

    #[test]
    fn a_file_too_large_loses_the_output_of_good_cases_first() {
        let mut big = cases(&fixture::every_verdict());
        for case in big.suites.iter_mut().flat_map(|suite| &mut suite.cases) {
            case.output = "x".repeat(8_000);
            if let Standing::Failure(note) | Standing::Error(note) = &mut case.standing {
                note.text = format!("{}\n{}", note.message, "y".repeat(20_000));
            }
        }
        let total = |cases: &Cases| -> usize {
            cases.suites.iter().flat_map(|suite| &suite.cases).map(size).sum()
        };
        let before = total(&big);
        let mut trimmed = big.clone();
        fit(&mut trimmed, before - 10_000);
        assert!(total(&trimmed) <= before - 10_000);
        let outputs: Vec<usize> =
            trimmed.suites[0].cases.iter().map(|case| case.output.len()).collect();
        assert!(outputs[0] < 100 && outputs[1] < 100 && outputs[10] == 8_000, "{outputs:?}");

        fit(&mut big, 40_000);
        assert!(total(&big) <= 40_000, "{}", total(&big));
        for case in big.suites.iter().flat_map(|suite| &suite.cases) {
            if let Standing::Failure(note) | Standing::Error(note) = &case.standing {
                assert!(note.text.starts_with(&note.message), "{case:?}");
            }
        }
    }
}
