//! Suites whose numbers were replaced, by example and by property.

use proptest::prelude::*;

use super::*;
use crate::suite::model::{GridLimit, Limits, Suite};
use crate::suite::{LoadOptions, load};

/// Loads a text as a suite of its own.
fn suite(text: &str) -> Suite {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("suite.toml");
    std::fs::write(&path, text).unwrap();
    load(&path, &LoadOptions::default()).unwrap_or_else(|all| panic!("{}", all.render(false))).suite
}

/// Value and span of each number of a bound, in order, and the spans of all entries of each grid.
type Bounds = (Vec<(f64, Range<usize>)>, Vec<Vec<Range<usize>>>);

fn bounds(suite: &Suite) -> Bounds {
    let (mut numbers, mut grids) = (Vec::new(), Vec::new());
    for (_, limits) in suite.expectations.iter().flat_map(|expectation| &expectation.bounds) {
        match limits {
            Limits::Scalar { value, span, .. } => numbers.push((*value, span.clone())),
            Limits::Grid(grid) => {
                grids.push(grid.entries.iter().map(|entry| entry.span.clone()).collect());
                numbers.extend(grid.entries.iter().filter_map(|entry| match entry.limit {
                    GridLimit::Value(value) => Some((value, entry.span.clone())),
                    GridLimit::None | GridLimit::Over => None,
                }));
            }
            Limits::Ratio { .. } => {}
        }
    }
    (numbers, grids)
}

/// A text with its numbers replaced, in order, each by one that is written in its way.
fn replaced(text: &str, new: &[f64]) -> (String, Vec<f64>) {
    let suite = suite(text);
    let metric = suite.expectations[0].metric;
    let (numbers, grids) = bounds(&suite);
    assert_eq!(numbers.len(), new.len());
    let mut values = Vec::new();
    let edits: Vec<Edit> = numbers
        .iter()
        .zip(new)
        .map(|((_, span), new)| {
            let written = Written::read(&text[span.clone()], metric).unwrap();
            let (text, value) = written.write(*new, crate::judge::Side::Min).unwrap();
            values.push(value);
            Edit { span: span.clone(), text }
        })
        .collect();
    (revise(text, &grids, &edits).unwrap(), values)
}

const HEAD: &str = "version = 1\n[suite]\nname = \"card\"\n[engine]\nkind = \"sim\"\n[[test]]\nkind = \"decode\"\nmatrix.context = [\"1K\", \"2K\", \"4K\"]\nmatrix.concurrency = [1, 2, 4]\n[[expect]]\nmetric = \"output-throughput\"\n";

/// What becomes of the end of a suite.
fn end(text: &str, new: &[f64]) -> String {
    let (text, _) = replaced(&format!("{HEAD}{text}"), new);
    text.strip_prefix(HEAD).unwrap().to_owned()
}

#[test]
fn columns_that_end_below_each_other_still_do() {
    let grid = r#"min.rows = "context"
min.columns = "concurrency"
min.at   = [       1,      2,      4]   # streams
min.grid = [
  ["1K",      1355.5, 2380.0, "over"],  # one
  ["2K",       104.1,    "-",  999.9],  # two
  ["4K",        75.0, 1414.5, 2689.5],
]
"#;
    let new = [998.25, 10_234.5, 96.01, 1_000.75, 75.0, 99.9, 9_999.9];
    let expected = r#"min.rows = "context"
min.columns = "concurrency"
min.at   = [       1,      2,      4]   # streams
min.grid = [
  ["1K",       998.2, 10234.5, "over"], # one
  ["2K",        96.0,    "-", 1000.7],  # two
  ["4K",        75.0,   99.9, 9999.9],
]
"#;
    assert_eq!(end(grid, &new), expected);
}

#[test]
fn what_has_no_room_moves_the_rest_no_further_than_it_must() {
    let grid = "min.rows = \"context\"\nmin.columns = \"concurrency\"\nmin.at = [1, 2]\nmin.grid = [\n  [\"1K\", 900,   100],\n  [\"2K\", 800, 1_000],\n]\n";
    let moved = "min.rows = \"context\"\nmin.columns = \"concurrency\"\nmin.at = [1, 2]\nmin.grid = [\n  [\"1K\", 1000,  100],\n  [\"2K\", 800, 1_000],\n]\n";
    assert_eq!(end(grid, &[1000.0, 100.0, 800.0, 1000.0]), moved);
}

#[test]
fn columns_that_begin_below_each_other_still_do() {
    let grid = "min.rows = \"context\"\nmin.columns = \"concurrency\"\nmin.at = [1, 2]\nmin.grid = [\n  [\"1K\", 16_100, 5],\n  [\"2K\", 9_300,  7],\n  [\"4K\", 800,    6],\n]\n";
    let new = "min.rows = \"context\"\nmin.columns = \"concurrency\"\nmin.at = [1, 2]\nmin.grid = [\n  [\"1K\", 9_100,  5],\n  [\"2K\", 10_300, 7],\n  [\"4K\", 80,     6],\n]\n";
    assert_eq!(end(grid, &[9_100.0, 5.0, 10_300.0, 7.0, 80.0, 6.0]), new);
}

#[test]
fn every_spelling_of_a_bound_is_edited_where_it_stands() {
    for (old, new) in [
        ("min = 50\n", "min = 1234\n"),
        ("min = 50   # far below\n", "min = 1234 # far below\n"),
        ("min = 5_000   # far below\r\n", "min = 1_234   # far below\r\n"),
        ("\tmin\t=\t50.0\t# tabs\n", "\tmin\t=\t1234.0\t# tabs\n"),
        (
            "min = { rows = \"context\", grid = [[\"1K\", 50]] }\n",
            "min = { rows = \"context\", grid = [[\"1K\", 1234]] }\n",
        ),
        (
            "min.rows = \"context\"\nmin.grid = [\n  [\n    \"1K\",\n    50.0,   # own line\n  ],\n]",
            "min.rows = \"context\"\nmin.grid = [\n  [\n    \"1K\",\n    1234.0, # own line\n  ],\n]",
        ),
        (
            "[expect.min]\nrows = \"context\"\ngrid = [[\"1K\",50]]#tight\n",
            "[expect.min]\nrows = \"context\"\ngrid = [[\"1K\",1234]]#tight\n",
        ),
    ] {
        assert_eq!(end(old, &[1234.0]), new);
    }
}

#[test]
fn a_text_that_would_say_something_else_is_refused() {
    let text = "a = 1\nb = 2 # c\n";
    let edit = |span: Range<usize>, text: &str| Edit { span, text: text.to_owned() };
    assert_eq!(revise(text, &[], &[edit(4..5, "7")]).unwrap(), "a = 7\nb = 2 # c\n");
    for wrong in [
        edit(4..5, "7\nc = 8"),
        edit(4..5, "7 #"),
        edit(10..11, "3]"),
        edit(12..13, "x"),
        edit(4..7, "1\nc"),
    ] {
        assert!(revise(text, &[], std::slice::from_ref(&wrong)).is_err(), "{wrong:?}");
    }
}

/// One entry of a grid as somebody may write it.
fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => "[1-9][0-9]{0,4}",
        2 => "[1-9][0-9]{0,3}\\.[0-9]{1,3}",
        1 => "[1-9]_[0-9]{3}(\\.[0-9]_?[0-9])?",
        1 => "[1-9](\\.[0-9])?e[1-4]",
        1 => Just("\"-\"".to_owned()),
        1 => Just("\"over\"".to_owned()),
    ]
}

fn blank() -> impl Strategy<Value = String> {
    prop_oneof![5 => " {0,4}", 1 => Just("\t".to_owned())]
}

/// What may stand at the end of a line.
fn line_end() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("\n".to_owned()),
        1 => Just("\r\n".to_owned()),
        2 => " {0,3}# ?[a-z0-9 \\]\",#é]{0,12}\n",
    ]
}

/// A grid of three rows and columns with odd blanks, comments, and arrays over several lines.
fn grid() -> impl Strategy<Value = String> {
    let item = (blank(), entry(), blank(), prop_oneof![4 => Just(String::new()), 1 => line_end()]);
    let row = (blank(), blank(), prop::collection::vec(item, 3), any::<bool>(), line_end());
    (prop::collection::vec(row, 3), line_end(), any::<bool>()).prop_map(|(rows, first, inline)| {
        let mut grid = format!("[{first}");
        for (name, (indent, head, items, last, end)) in ["1K", "2K", "4K"].iter().zip(rows) {
            grid.push_str(&format!("{indent}[{head}\"{name}\","));
            for (at, (before, entry, after, end)) in items.iter().enumerate() {
                let comma = if at < 2 || last { "," } else { "" };
                grid.push_str(&format!("{before}{entry}{after}{comma}{end}"));
            }
            grid.push_str(&format!("],{end}"));
        }
        grid.push(']');
        let at = "[1, 2,   4]";
        if inline {
            format!("min = {{ rows = \"context\", columns = \"concurrency\", at = {at}, grid = {grid} }}\n")
        } else {
            format!("min.rows = \"context\"\nmin.columns = \"concurrency\"\nmin.at = {at}\nmin.grid = {grid} # end\n")
        }
    })
}

/// A text without its numbers, and without blanks.
fn masked(text: &str, spans: &[(f64, Range<usize>)]) -> String {
    let mut masked = String::new();
    let mut done = 0;
    let mut spans: Vec<_> = spans.iter().map(|(_, span)| span.clone()).collect();
    spans.sort_by_key(|span| span.start);
    for span in spans {
        masked.push_str(&text[done..span.start]);
        masked.push('9');
        done = span.end;
    }
    masked.push_str(&text[done..]);
    masked.replace(' ', "")
}

/// The comments of a text, as they stand.
fn comments(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.find('#').map(|at| &line[at..])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_revised_suite_is_the_same_but_for_its_numbers(
        grid in grid(),
        new in prop::collection::vec(1.0..100_000.0f64, 9),
    ) {
        let text = format!("{HEAD}{grid}");
        let before = suite(&text);
        let (old, _) = bounds(&before);
        let (revised, values) = replaced(&text, &new[..old.len()]);
        let after = suite(&revised);
        let (numbers, _) = bounds(&after);
        let got: Vec<f64> = numbers.iter().map(|(value, _)| *value).collect();
        prop_assert_eq!(&got, &values);
        prop_assert_eq!(masked(&text, &old), masked(&revised, &numbers));
        prop_assert_eq!(comments(&text), comments(&revised));
        // Places and values apart, it is the same suite.
        let shape = |suite: &Suite| {
            let mut suite = suite.clone();
            suite.hash.clear();
            for (_, limits) in suite.expectations.iter_mut().flat_map(|it| &mut it.bounds) {
                if let Limits::Grid(grid) = limits {
                    for entry in &mut grid.entries {
                        (entry.span, entry.place.file) = (0..0, String::new());
                        if let GridLimit::Value(value) = &mut entry.limit { *value = 1.0 }
                    }
                }
            }
            for expectation in &mut suite.expectations {
                (expectation.span, expectation.place.file) = (0..0, String::new());
            }
            for test in &mut suite.tests {
                test.place.file.clear();
                test.axes.iter_mut().for_each(|axis| axis.place.file.clear());
            }
            format!("{:?}", (suite.tests, suite.expectations, suite.policy, suite.baseline))
        };
        prop_assert_eq!(shape(&before), shape(&after));
        // What is as it should be is not touched again.
        let again = replaced(&revised, &values).0;
        prop_assert_eq!(again, revised);
    }
}
