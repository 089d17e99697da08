//! From a loaded suite to a plan, saying every problem of the matrix with its place.

use std::sync::Arc;

use crate::matrix::{Plan, Selection, Trouble, expand};
use crate::suite::{Loaded, Problem, Problems, SourceMap};

use super::exit::Exit;

/// Expands the suite.
///
/// # Errors
/// [`Exit::Suite`], after every problem has been said on stderr.
pub fn plan(loaded: &Loaded, selection: &Selection, color: bool) -> Result<Plan, Exit> {
    match expand::expand(Arc::new(loaded.suite.clone()), selection) {
        Ok(plan) => Ok(plan),
        Err(troubles) => {
            let problems = troubles.into_iter().map(|trouble| problem(&loaded.source, trouble));
            let problems = Problems::new(loaded.source.clone(), problems.collect());
            eprint!("{}", problems.render(color));
            Err(Exit::Suite)
        }
    }
}

/// What is odd but not wrong, in suite and plan.
pub fn warnings(loaded: &Loaded, plan: &Plan) -> Problems {
    let more = plan.warnings.iter().cloned().map(|trouble| problem(&loaded.source, trouble));
    let list = loaded.warnings.iter().cloned().chain(more).collect();
    Problems::new(loaded.source.clone(), list)
}

fn problem(source: &SourceMap, trouble: Trouble) -> Problem {
    let span = trouble.span.or_else(|| trouble.place.and_then(|place| source.line_span(&place)));
    Problem {
        span,
        warning: trouble.warning,
        ..Problem::new(trouble.code, trouble.message).maybe_help(trouble.help)
    }
}
