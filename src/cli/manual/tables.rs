//! Tables of the book that are lists in the code: the catalogue of metrics, the exit codes.

use crate::cli::exit;
use crate::measure::metric::{CATALOGUE, Direction};

/// Every metric with unit, direction, tests, forms and formula.
pub fn metrics() -> String {
    let mut table =
        "| metric | unit | better | of | forms | formula |\n|---|---|---|---|---|---|\n".to_owned();
    for entry in CATALOGUE {
        let better = match entry.better {
            Direction::Higher => "higher",
            Direction::Lower => "lower",
        };
        let of: Vec<_> = entry.tests.iter().map(|test| test.name()).collect();
        let forms = match (entry.latency, entry.per_gpu) {
            (true, true) => "suffix, `-per-gpu`",
            (true, false) => "suffix",
            (false, true) => "`-per-gpu`",
            (false, false) => "",
        };
        table.push_str(&row(&[
            &format!("`{}`", entry.name),
            entry.unit,
            better,
            &of.join(", "),
            forms,
            entry.formula,
        ]));
    }
    table
}

/// Every exit code, what it means, and who acts.
pub fn exit_codes() -> String {
    let mut table = "| exit code | meaning | who acts |\n|---|---|---|\n".to_owned();
    for line in exit::TABLE {
        let codes: Vec<_> = line.exits.iter().map(|exit| exit.code().to_string()).collect();
        table.push_str(&row(&[&codes.join(", "), line.meaning, line.acts]));
    }
    table
}

/// A line of a table. An empty cell has one blank, as people write it.
fn row(cells: &[&str]) -> String {
    let cells: Vec<_> = cells
        .iter()
        .map(|cell| {
            if cell.is_empty() { " ".to_owned() } else { format!(" {} ", cell.replace('|', "\\|")) }
        })
        .collect();
    format!("|{}|\n", cells.join("|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_a_line_for_each_entry() {
        assert_eq!(metrics().lines().count(), CATALOGUE.len() + 2);
        let ttft =
            "| `ttft` | ms | lower | prefill, decode, serve, command | suffix | t_1 − t_send |\n";
        assert!(metrics().contains(ttft), "{}", metrics());
        assert!(
            exit_codes().contains("\n| 12 | no cell selected; of two runs none in common | |\n")
        );
        assert!(
            exit_codes().contains("\n| 130, 143, 129 | interrupted by SIGINT, SIGTERM, SIGHUP; ")
        );
    }
}
