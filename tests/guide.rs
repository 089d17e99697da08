//! Holds docs/guide.md to the code: its tables name what there is.

#![allow(clippy::unwrap_used, reason = "what can't be read fails the test")]

use std::collections::BTreeMap;

use tokgate::measure::metric::{CATALOGUE, Direction};

/// The rows of the guide's tables, by what stands in backticks in their first column.
fn rows() -> BTreeMap<String, Vec<String>> {
    let guide = include_str!("../docs/guide.md");
    let tables = guide.lines().filter_map(|line| line.strip_prefix("| `"));
    tables
        .filter_map(|line| {
            let (key, rest) = line.split_once('`')?;
            let cells = rest.split('|').skip(1).map(|cell| cell.trim().replace('`', "")).collect();
            Some((key.to_owned(), cells))
        })
        .collect()
}

#[test]
fn every_metric_stands_in_the_guide_with_unit_and_direction() {
    let rows = rows();
    for entry in CATALOGUE {
        let row = rows.get(entry.name).unwrap_or_else(|| panic!("no row for {}", entry.name));
        let better = match entry.better {
            Direction::Higher => "higher",
            Direction::Lower => "lower",
        };
        let mut of: Vec<_> = entry.tests.iter().map(|test| test.name()).collect();
        let mut told: Vec<_> = row[2].split(", ").collect();
        of.sort_unstable();
        told.sort_unstable();
        assert_eq!((row[0].as_str(), row[1].as_str()), (entry.unit, better), "{}", entry.name);
        assert_eq!(told, of, "{}", entry.name);
    }
}

#[test]
fn every_default_stands_in_the_guide_as_it_is() {
    let rows = rows();
    for (key, default) in tokgate::suite::defaults::TABLE {
        let row = rows.get(key).unwrap_or_else(|| panic!("no row for {key}"));
        assert_eq!(row[0], default, "{key}");
    }
}
