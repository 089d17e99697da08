//! `tokgate baseline diff`: two baselines beside each other, value by value.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::judge::Method;
use crate::judge::ratio::against_runs;
use crate::measure::Direction;
use crate::record::baseline::{Baseline, CellLine, Key};
use crate::record::wording::number;

use super::super::exit::Exit;
use super::super::{git, print};
use super::refuse;
use crate::report::columns::columns;

/// The level of each bound of the intervals that are shown.
const ALPHA: f64 = 0.05;

/// Arguments of `tokgate baseline diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The baseline that the other one is compared with; REVISION:FILE is one as it stands in git
    #[arg(value_name = "A")]
    old: PathBuf,
    /// The other one
    #[arg(value_name = "B")]
    new: PathBuf,
}

/// Prints the difference. It is no verdict: whatever it shows, it exits 0.
pub fn run(args: &Args) -> Exit {
    match (read(&args.old), read(&args.new)) {
        (Ok(old), Ok(new)) => print(&render(&old, &new)),
        (Err(exit), _) | (_, Err(exit)) => exit,
    }
}

/// The baseline in a file, or in `REVISION:FILE` of git where no file has that name.
pub fn read(path: &Path) -> Result<Baseline, Exit> {
    let named = path.to_str().filter(|_| !path.exists()).and_then(|text| text.split_once(':'));
    let found = match named {
        Some((revision, file)) if !revision.is_empty() && !file.is_empty() => {
            let found = git::read(Path::new(file), revision)
                .map_err(|error| refuse(&error.to_string(), &error.help()))?;
            Baseline::parse(path, &found.text)
        }
        Some(_) | None => Baseline::read(path),
    };
    found.map_err(|error| refuse(&error.to_string(), error.help()))
}

/// What differs in kind, then a row for each value.
fn render(old: &Baseline, new: &Baseline) -> String {
    let mut out = String::new();
    for words in kinds(old, new) {
        out.push_str(&format!("note: {words}\n"));
    }
    let of = |baseline: &Baseline| -> BTreeMap<Key, CellLine> {
        baseline.cells.iter().map(|line| (line.key(), line.clone())).collect()
    };
    let (olds, news) = (of(old), of(new));
    let mut rows = vec![["value", "A", "B", "B/A", "90 % interval", ""].map(str::to_owned)];
    // In the order of the files, which is by numbers where they are some.
    let order = old.cells.iter().chain(new.cells.iter().filter(|it| !olds.contains_key(&it.key())));
    for key in order.map(CellLine::key) {
        rows.push(row(&key, olds.get(&key), news.get(&key)));
    }
    out.push_str(&columns(&rows, 1..4));
    out
}

fn row(key: &Key, old: Option<&CellLine>, new: Option<&CellLine>) -> [String; 6] {
    let shown = |line: Option<&CellLine>| {
        let middle = line.and_then(CellLine::middle);
        middle.map_or_else(|| "–".to_owned(), number)
    };
    let (mut ratio, mut interval, mut word) = (String::new(), String::new(), String::new());
    match (old, new) {
        (Some(_), None) => word = "only in A".to_owned(),
        (None, _) => word = "only in B".to_owned(),
        (Some(old), Some(new)) => {
            if let (Some(a), Some(b)) = (old.middle(), new.middle()) {
                ratio = format!("{:.3}", b / a);
            }
            let found = against_runs(&old.runs(), &new.runs(), None)
                .and_then(|found| found.estimate(ALPHA, Method::Baseline));
            if let Ok(found) = found
                && let (Some(lower), Some(upper)) = (found.lower, found.upper)
            {
                interval = format!("[{lower:.3}, {upper:.3}]");
                let higher = old.better == Direction::Higher;
                word = match (lower > 1.0, upper < 1.0) {
                    (true, _) if higher => "better",
                    (_, true) if !higher => "better",
                    (true, _) | (_, true) => "worse",
                    (false, false) => "",
                }
                .to_owned();
            }
        }
    }
    [key.to_string(), shown(old), shown(new), ratio, interval, word]
}

/// What the two are of, where that differs.
fn kinds(old: &Baseline, new: &Baseline) -> Vec<String> {
    let mut found = Vec::new();
    if old.head.suite != new.head.suite {
        found.push(format!("A is of suite `{}`, B of `{}`", old.head.suite, new.head.suite));
    }
    let keys: BTreeSet<&String> =
        old.head.identity.keys().chain(new.head.identity.keys()).collect();
    for key in keys {
        let word = |baseline: &Baseline| {
            baseline.head.identity.get(key).cloned().unwrap_or_else(|| "unknown".to_owned())
        };
        if word(old) != word(new) {
            found.push(format!("{key}: A {}, B {}", word(old), word(new)));
        }
    }
    for (name, workload) in &old.tests {
        if new.tests.get(name).is_some_and(|other| other != workload) {
            found.push(format!("test `{name}` is measured in another way in B"));
        }
    }
    let (there, here) = (super::engines(&old.runs), super::engines(&new.runs));
    if there != here {
        let words = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(", ");
        found.push(format!("engine: A {}, B {}", words(there), words(here)));
    }
    found.push(format!("runs: A {}, B {}", old.runs.len(), new.runs.len()));
    found
}
