//! `tokgate selftest`: whether the limits of a suite can fail at all, asked of a finished run.
//!
//! A gate that can't fail is a defect of the suite, and stands for one in the exit code.

use std::path::PathBuf;

use crate::quantity::parse_percent;
use crate::record::sensitivity::sensitivity;
use crate::report::{json, selftest};

use super::exit::Exit;
use super::list::Format;
use super::say;

/// Judge a finished run again with every metric made worse, and name the limits that would not notice.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The output directory of a run, or its record.json
    pub run: PathBuf,
    /// How much worse, separated by commas; a limit that notices none of these can't fail
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%",
        value_parser = loss
    )]
    pub worse: Vec<f64>,
    /// Text for people, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

fn loss(text: &str) -> Result<f64, String> {
    let fraction = parse_percent(text.trim()).map_err(|error| error.to_string())?;
    if fraction > 0.0 && fraction < 1.0 {
        Ok(fraction)
    } else {
        Err("write a loss above 0% and below 100%".to_owned())
    }
}

/// Reads the record, judges it again and prints what was found.
///
/// [`Exit::Pass`] where every limit notices the greatest loss, or is quarantined; [`Exit::Suite`] where one
/// does not, where there is none, or where there is no record.
pub fn run(args: &Args) -> Exit {
    let path = if args.run.is_dir() { args.run.join("record.json") } else { args.run.clone() };
    let record = match json::read(&path) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("error: {error}"));
            say("  help: give the output directory of a run, such as tokgate-out/<suite>");
            return Exit::Suite;
        }
    };
    let mut losses = args.worse.clone();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    let limits = sensitivity(&record, &losses);
    let text = match args.format {
        Format::Text => selftest::text(&record, &limits, &losses),
        Format::Json => selftest::json(&record, &limits, &losses),
    };
    let printed = super::print(&text);
    say(&format!("selftest: {}", selftest::sentence(&record, &limits, &losses)));
    let found = if limits.is_empty() || !selftest::unable(&limits).is_empty() {
        Exit::Suite
    } else {
        Exit::Pass
    };
    printed.or(found)
}
