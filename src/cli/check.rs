//! `tokgate check`: every problem of a suite, without launching anything.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Global;
use super::exit::Exit;
use super::plan::Known;
use super::shape::{self, Choice, Overlay, Planned};
use crate::judge::power::{Losses, SURELY};
use crate::quantity::print_number;
use crate::record::prospect::{Asked, Need, Prospect, Way, prospects};
use crate::suite::Problem;
use crate::suite::model::{OnMissing, Place, Quarantine, Reference};

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
                let known = Known::of_files(&planned.plan);
                warnings.list.extend(blind(&planned, &known));
                warnings.list.extend(absent(&planned));
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
                let pairs = suite.compare.as_ref().filter(|_| known.is_nothing());
                let pairs = pairs.map_or_else(String::new, |compare| {
                    format!("; `tokgate plan` says what {} pairs can see", compare.pairs)
                });
                let said = format!(
                    "{}: right; {}, {}{starts}, {}, {}{pairs}\n",
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

/// Files with recorded runs that limits are shares of, and that are not there: a run will refuse.
fn absent(planned: &Planned) -> Vec<Problem> {
    let plan = &planned.plan;
    match plan.suite.baseline.on_missing {
        OnMissing::Error => {}
        OnMissing::Skip | OnMissing::Record => return Vec::new(),
    }
    let mut files: BTreeMap<PathBuf, Place> = BTreeMap::new();
    for bound in plan.cells.iter().flat_map(|cell| plan.bounds(cell)) {
        if let Some(Reference::File(file)) = bound.against.map(|against| against.reference)
            && !files.contains_key(&file)
        {
            files.insert(file, bound.place);
        }
    }
    files.retain(|file, _| matches!(file.try_exists(), Ok(false)));
    let problem = |(file, place): (&PathBuf, &Place)| {
        let message =
            format!("there is no {}, and limits are shares of what it has", file.display());
        let help =
            "a run ends with exit code 21 until it is there: `tokgate baseline record` makes it";
        let problem = Problem::new("no-baseline", message).help(help).warning();
        Problem { span: planned.loaded.source.line_span(place), ..problem }
    };
    files.iter().map(problem).collect()
}

fn expired(quarantine: &Quarantine) -> Problem {
    let message = format!("this quarantine expired on {}", quarantine.expires);
    let help = "a run ends with exit code 21 until it is gone, or has a later day with a reason that holds";
    Problem::at("expired-quarantine", quarantine.span.clone(), message).help(help).warning()
}

/// Limits that what is declared can't see reached, as far as the noise is known: one word for each line.
fn blind(planned: &Planned, known: &Known) -> Vec<Problem> {
    if known.is_nothing() {
        return Vec::new();
    }
    let plan = &planned.plan;
    let (limits, _) = prospects(plan, known.sources(), None);
    // The one that sees least of each line, and how many there are.
    let mut lines: Vec<(Prospect, usize)> = Vec::new();
    let mut losses = Losses::default();
    for limit in limits.into_iter().filter(|limit| limit.outlook.is_blind()) {
        match lines.iter_mut().find(|(it, _)| it.place == limit.place && it.metric == limit.metric)
        {
            Some((worst, cells)) => {
                *cells += 1;
                let noise = |it: &Prospect| it.outlook.noise.map_or(0.0, |(sd, _)| sd);
                if noise(&limit) > noise(worst) {
                    *worst = limit;
                }
            }
            None => lines.push((limit, 1)),
        }
    }
    lines.iter().map(|(worst, cells)| of_blind(planned, worst, *cells, &mut losses)).collect()
}

fn of_blind(planned: &Planned, limit: &Prospect, cells: usize, losses: &mut Losses) -> Problem {
    let plan = &planned.plan;
    let cell = &plan.cells[limit.cell];
    let worth = limit.outlook.worth_seeing().min(0.999);
    let percent = |share: f64| print_number(share * 100.0, 1);
    let (one, many) = match limit.way {
        Way::Pairs(_) => ("pair", "pairs"),
        Way::Variants(_) | Way::Runs { .. } | Way::Launches(_) => ("launch", "launches"),
    };
    let n = limit.way.declared();
    let by = format!("{n} {}", if n == 1 { one } else { many });
    let sees = limit.outlook.sees(SURELY, losses).unwrap_or(1.0);
    let more = match cells {
        1 => String::new(),
        n => format!(" (and {})", counted(n - 1, "other cell")),
    };
    let message = format!(
        "a loss of {} % can go unseen: with {by}, {} of {} {}{more} must get worse by {} % to be seen 19 times out of 20",
        percent(worth),
        limit.metric,
        plan.test(cell).name,
        plan.cell_id(cell),
        percent(sees),
    );
    let needs = limit.outlook.needs(Asked { loss: worth, surely: SURELY }, losses);
    let help = match (needs, limit.way) {
        (Need::Enough(n), Way::Pairs(_)) => format!("write `pairs = {n}` in [compare]"),
        (Need::Enough(n), Way::Variants(_) | Way::Runs { .. } | Way::Launches(_)) => {
            format!("write `launches = {n}` in test {}", plan.test(cell).name)
        }
        (_, Way::Runs { .. }) => {
            "`tokgate baseline record` adds runs, whose own noise no launch takes away".to_owned()
        }
        (_, Way::Pairs(_) | Way::Variants(_) | Way::Launches(_)) => {
            "let the limit tolerate more, or measure longer".to_owned()
        }
    };
    let help = format!("{help}; `tokgate plan` says what it takes to see which loss");
    let problem = Problem::new("blind-limit", message).help(help).warning();
    Problem { span: planned.loaded.source.line_span(&limit.place), ..problem }
}

fn counted(number: usize, noun: &str) -> String {
    match (number, noun.ends_with("ch")) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{number} {noun}es"),
        (_, false) => format!("{number} {noun}s"),
    }
}
