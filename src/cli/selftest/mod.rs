//! `tokgate selftest`: whether the limits of a suite can fail at all, asked of a finished run, or of a run
//! in which everything takes longer.
//!
//! A gate that can't fail is a defect of the suite, and stands for one in the exit code.

mod live;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::quantity::parse_percent;
use crate::record::RunRecord;
use crate::record::sensitivity::{mean_sensitivity, sensitivity};
use crate::report::{json, selftest};
use crate::transport::Delay;

use super::exit::Exit;
use super::list::Format;
use super::{Global, say};

/// Name the limits that can't fail: judge a finished run again with every metric made worse, or run a suite
/// while everything takes longer.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The output directory of a run, or its record.json; with --slow a suite file
    #[arg(value_name = "RUN|SUITE")]
    pub run: PathBuf,
    /// How much worse, separated by commas; a limit that notices none of these can't fail
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%",
        value_parser = loss,
        conflicts_with = "slow"
    )]
    pub worse: Vec<f64>,
    /// Run the suite while whatever the engine answers takes so much longer, like 10%: each limit has to
    /// notice
    #[arg(long, value_name = "PERCENT", value_parser = delay)]
    pub slow: Option<Delay>,
    /// Text for people, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    #[command(flatten)]
    live: live::Flags,
}

fn loss(text: &str) -> Result<f64, String> {
    let fraction = share(text)?;
    if fraction > 0.0 && fraction < 1.0 {
        Ok(fraction)
    } else {
        Err("write a loss above 0% and below 100%".to_owned())
    }
}

fn share(text: &str) -> Result<f64, String> {
    parse_percent(text.trim()).map_err(|error| {
        let help = error.help.clone().map(|help| format!("; {help}")).unwrap_or_default();
        format!("{error}{help}")
    })
}

fn delay(text: &str) -> Result<Delay, String> {
    Delay::new(share(text)?).ok_or_else(|| "write a delay above 0% and up to 1000%".to_owned())
}

/// Reads the record of a run, or makes one that is slowed, and prints what its limits noticed.
///
/// [`Exit::Pass`] where every limit notices the greatest loss, or is quarantined; [`Exit::Suite`] where one
/// does not, where there is none, or where there is no record. Of a slowed run also whatever kept its cells
/// from being judged.
pub fn run(args: &Args, global: &Global) -> ExitCode {
    match args.slow {
        Some(delay) => live::run(args, delay, global).into(),
        None => of_record(args).into(),
    }
}

fn of_record(args: &Args) -> Exit {
    if is_suite(&args.run) {
        let path = args.run.display();
        say(&format!("error: {path} is a suite, and a finished run is asked for"));
        say(&format!(
            "  help: `tokgate selftest {path} --slow 10%` runs it while everything takes 10% longer; a finished \
             run is named by its output directory, such as tokgate-out/<suite>"
        ));
        return Exit::Suite;
    }
    if let Some(flag) = args.live.first() {
        say(&format!("error: {flag} shapes a run, and a finished one is judged again"));
        say("  help: leave it away, or give a suite and --slow 10%");
        return Exit::Suite;
    }
    let path = if args.run.is_dir() { args.run.join("record.json") } else { args.run.clone() };
    let record = match json::read(&path) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("error: {error}"));
            say("  help: give the output directory of a run, such as tokgate-out/<suite>");
            return Exit::Suite;
        }
    };
    match record.header.slowed {
        // It is judged as it is: made worse still, it would say nothing of the suite.
        Some(share) => live::tell(&record, share, args.format),
        None => judge_again(args, &record),
    }
}

fn is_suite(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir()
}

fn judge_again(args: &Args, record: &RunRecord) -> Exit {
    let mut losses = args.worse.clone();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    let limits = sensitivity(record, &losses);
    let mean = mean_sensitivity(record, &losses);
    let text = match args.format {
        Format::Text => selftest::text(record, &limits, mean.as_ref(), &losses),
        Format::Json => selftest::json(record, &limits, mean.as_ref(), &losses),
    };
    let printed = super::print(&text);
    say(&format!("selftest: {}", selftest::sentence(record, &limits, mean.as_ref(), &losses)));
    let blind =
        !selftest::unable(&limits).is_empty() || mean.as_ref().is_some_and(|it| !it.notices());
    let found =
        if (limits.is_empty() && mean.is_none()) || blind { Exit::Suite } else { Exit::Pass };
    printed.or(found)
}
