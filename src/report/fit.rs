//! What is cut so that consumers can read the whole JUnit file: most refuse one of tens of megabytes.
//!
//! It decides what goes first. Each case alone is cut in `case.rs`.

use super::case::attachment::alone;
use super::case::{Case, Cases, Note, Standing};
use super::sanitise::{cut, escaped_len, line};

/// Bytes that the words take which say that a text was cut.
const MARK: usize = 50;
/// Bytes that a message has at least, however many there are.
const LEAST: usize = 160;

/// Makes the file fit: outputs of good cases go first, from the first on, then the longest texts of the others are cut
/// alike. Verdicts, messages and figures of failures stay.
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
    all(cases, &mut |case| {
        if !good(case) {
            case.output = alone(&case.output).to_owned();
            case.earlier.clear();
        }
    });
    if squeeze(cases, budget) {
        return;
    }
    // What is left above the budget now are the names of a very large plan; only figures can go, and long messages.
    all(cases, &mut |case| {
        if good(case) {
            case.properties.clear();
            case.output.clear();
        }
    });
    if squeeze(cases, budget) {
        return;
    }
    for note in notes(cases) {
        note.message = line(&cut(&note.message, LEAST));
        note.text.clone_from(&note.message);
    }
}

fn notes(cases: &mut Cases) -> impl Iterator<Item = &mut Note> {
    cases.suites.iter_mut().flat_map(|suite| &mut suite.cases).filter_map(Case::note_mut)
}

/// Cuts the texts of what failed, the longest ones to one length, so that all fits; each keeps its message, which is its
/// first line and all that some consumers show, and a mark that more is cut. Where that does not fit, nothing is cut.
fn squeeze(cases: &mut Cases, budget: usize) -> bool {
    let all = || cases.suites.iter().flat_map(|suite| &suite.cases);
    let bare: usize = all().map(|case| size(case) - note_size(case)).sum();
    let lengths = |note: &Note| (escaped_len(&note.message), escaped_len(&note.text));
    let sizes: Vec<(usize, usize)> = all().filter_map(Case::note).map(lengths).collect();
    let length = |message: usize, text: usize, most: usize| text.min(most.max(message + MARK));
    let fits = |most: usize| {
        let sizes = sizes.iter().map(|(message, text)| message + length(*message, *text, most));
        bare + sizes.sum::<usize>() <= budget
    };
    let (mut most, mut beyond) = (0, sizes.iter().map(|it| it.1).max().unwrap_or(0) + 1);
    while most + 1 < beyond {
        let middle = most + (beyond - most) / 2;
        if fits(middle) { most = middle } else { beyond = middle }
    }
    if !fits(most) {
        return false;
    }
    for note in notes(cases) {
        let (message, text) = lengths(note);
        if length(message, text, most) < text {
            note.text = cut(&note.text, length(message, text, most));
        }
        // What says that something is cut may take more than there is.
        if !note.text.starts_with(&note.message) {
            note.text.clone_from(&note.message);
        }
    }
    true
}

fn note_size(case: &Case) -> usize {
    case.note().map_or(0, |note| escaped_len(&note.message) + escaped_len(&note.text))
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
        assert!(total(&big) <= 40_000 && total(&big) > 39_000, "{}", total(&big));
        for case in big.suites.iter().flat_map(|suite| &suite.cases) {
            if let Standing::Failure(note) | Standing::Error(note) = &case.standing {
                assert!(note.text.starts_with(&note.message), "{case:?}");
            }
        }
    }
    #[test]
    fn a_long_text_does_not_cost_the_others_theirs() {
        let mut cases = cases(&fixture::every_verdict());
        let mut notes: Vec<&mut Note> = cases
            .suites
            .iter_mut()
            .flat_map(|it| &mut it.cases)
            .filter_map(Case::note_mut)
            .collect();
        let short: Vec<String> = notes.iter().skip(1).map(|note| note.text.clone()).collect();
        notes[0].text = format!("{}\n{}", notes[0].message, "<".repeat(40_000));
        fit(&mut cases, 40_000);
        let left: Vec<&Note> =
            cases.suites.iter().flat_map(|it| &it.cases).filter_map(Case::note).collect();
        let kept: Vec<&String> = left.iter().skip(1).map(|note| &note.text).collect();
        assert!(left[0].text.contains("bytes cut") && left[0].text.len() > 1_000);
        assert!(short.iter().eq(kept), "{left:#?}");
        // However little there is, each says its message first, which is all that GitLab shows.
        for budget in [12_000, 8_000, 10] {
            fit(&mut cases, budget);
            for note in cases.suites.iter().flat_map(|it| &it.cases).filter_map(Case::note) {
                assert!(note.text.starts_with(&note.message) && note.message.len() > 3, "{note:?}");
            }
        }
    }
}
