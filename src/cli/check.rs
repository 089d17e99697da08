//! `tokgate check`: every problem of a suite, without launching anything.

use std::path::PathBuf;

use super::Global;
use super::exit::Exit;
use super::shape::{self, Choice, Overlay};
use crate::suite::Problem;
use crate::suite::model::Quarantine;

/// Arguments of `tokgate check`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Suite files
    #[arg(required = true, value_name = "SUITE")]
    suites: Vec<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    overlay: Overlay,
    /// Exit 11 when there are warnings
    #[arg(long)]
    deny_warnings: bool,
}

/// Checks each suite; says on stdout which are right, on stderr what is wrong.
pub fn run(args: &Args, global: &Global) -> Exit {
    let mut exit = Exit::Pass;
    for path in &args.suites {
        match shape::plan(path, &args.overlay, &args.choice, global.color_stderr()) {
            Ok(planned) => {
                let mut warnings = planned.warnings.clone();
                warnings.list.extend(shape::expired(&planned.plan).map(expired));
                if !warnings.is_empty() {
                    if !global.quiet {
                        super::say_as_is(&warnings.render(global.color_stderr()));
                    }
                    if args.deny_warnings {
                        exit = exit.or(Exit::Doubt);
                    }
                }
                if planned.plan.cells.is_empty() {
                    exit = exit.or(shape::nothing(path));
                    continue;
                }
                let (plan, suite) = (&planned.plan, &planned.plan.suite);
                // Where each launch is one start, it is said once.
                let starts = match plan.engines() {
                    starts if starts > plan.launches.len() as u64 => {
                        format!(" ({starts} engine starts)")
                    }
                    _ => String::new(),
                };
                let said = format!(
                    "{}: right; {}, {}{starts}, {}, {}\n",
                    path.display(),
                    counted(suite.tests.len(), "test"),
                    counted(plan.launches.len(), "launch"),
                    counted(plan.cells.len(), "cell"),
                    counted(suite.expectations.len(), "expectation"),
                );
                if !global.quiet {
                    exit = exit.or(super::print(&said));
                }
            }
            Err(wrong) => exit = exit.or(wrong),
        }
    }
    exit
}

fn expired(quarantine: &Quarantine) -> Problem {
    let message = format!("this quarantine expired on {}", quarantine.expires);
    let help = "a run ends with exit code 21 until it is gone, or has a later day with a reason that holds";
    Problem::at("expired-quarantine", quarantine.span.clone(), message).help(help).warning()
}

fn counted(number: usize, noun: &str) -> String {
    match (number, noun.ends_with("ch")) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{number} {noun}es"),
        (_, false) => format!("{number} {noun}s"),
    }
}
