//! `tokgate check`: every problem of a suite, without launching anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::suite::{LoadOptions, Loaded, Problem, Problems, load};

/// Arguments of `tokgate check`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Suite files.
    #[arg(required = true, value_name = "SUITE")]
    pub suites: Vec<PathBuf>,
    /// Profile to check with; the others are checked for their own problems.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Change a value, like test.decode.duration=5s; never a bound.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Where the engine already runs, instead of the suite's command.
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Exit with 11 on warnings.
    #[arg(long)]
    pub deny_warnings: bool,
}

/// Checks each suite; says on standard output which are right, on standard error what is wrong.
pub fn run(args: &Args, color: bool) -> ExitCode {
    let options =
        LoadOptions { profile: args.profile.clone(), set: args.set.clone(), url: args.url.clone() };
    let (mut wrong, mut warned) = (false, false);
    for path in &args.suites {
        match check_suite(path, &options) {
            Ok(loaded) => {
                let suite = &loaded.suite;
                if !loaded.warnings.is_empty() {
                    warned = true;
                    eprint!("{}", Problems::new(loaded.source, loaded.warnings).render(color));
                }
                println!(
                    "{}: right; tests: {}, expectations: {}",
                    path.display(),
                    suite.tests.len(),
                    suite.expectations.len()
                );
            }
            Err(problems) => {
                wrong = true;
                eprintln!("{}", problems.render(color).trim_end());
            }
        }
    }
    if wrong {
        ExitCode::from(20)
    } else if warned && args.deny_warnings {
        ExitCode::from(11)
    } else {
        ExitCode::SUCCESS
    }
}

/// Loads a suite and expands its matrix: every problem that can be found without launching.
///
/// # Errors
/// Every problem at once.
pub fn check_suite(path: &Path, options: &LoadOptions) -> Result<Loaded, Problems> {
    let mut loaded = load(path, options)?;
    let found = cell_problems(&loaded);
    if found.iter().any(|problem| !problem.warning) {
        let mut all = found;
        all.append(&mut loaded.warnings);
        return Err(Problems::new(loaded.source, all));
    }
    loaded.warnings.extend(found);
    Ok(loaded)
}

/// Problems that only show once there are cells: templates, selectors and grids that meet none.
fn cell_problems(loaded: &Loaded) -> Vec<Problem> {
    // MERGE: the one call of crate::matrix::expand::expand belongs here; its problems are returned.
    let _ = loaded;
    Vec::new()
}
