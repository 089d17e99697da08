//! What shapes a plan: the flags that check, list and run share, and the way from a file to a plan.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::matrix::{Plan, Selection, Trouble, expand};
use crate::suite::check::MISSING_DATASET;
use crate::suite::model::{Place, Quarantine, Selector};
use crate::suite::source::SourceMap;
use crate::suite::{LoadOptions, Loaded, Problem, Problems, Suite};

use super::exit::Exit;
use super::{secrecy, voice};

/// Flags that change what a suite says.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Overlay {
    /// The profile of the suite to use
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Set a value of the suite, like test.decode.duration=5s; never a bound
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// The engine already runs here, instead of the suite's command
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
}

/// Flags that choose cells.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Choice {
    /// Only cells that match, like 'test=decode context=8K,16K concurrency=32..'; several are
    /// alternatives
    #[arg(short = 'E', long = "select", value_name = "SELECTOR")]
    pub select: Vec<String>,
    /// No cells that match
    #[arg(long, value_name = "SELECTOR")]
    pub skip: Vec<String>,
}

impl Choice {
    /// Whether nothing is chosen, so that all cells are.
    pub fn is_empty(&self) -> bool {
        self.select.is_empty() && self.skip.is_empty()
    }
}

/// A suite without errors, and its plan.
pub struct Planned {
    /// The suite as read.
    pub loaded: Loaded,
    /// What a run would do.
    pub plan: Plan,
    /// What is odd but not wrong.
    pub warnings: Problems,
}

/// Loads, checks and expands a suite.
///
/// # Errors
/// [`Exit::Suite`], after every problem has been said on stderr; [`Exit::NothingSelected`].
pub fn plan(path: &Path, overlay: &Overlay, choice: &Choice, color: bool) -> Result<Planned, Exit> {
    let selection = selection(choice)?;
    let options = LoadOptions {
        profile: overlay.profile.clone(),
        set: overlay.set.clone(),
        url: overlay.url.clone(),
    };
    let refuse = |problems: Problems| {
        secrecy::of_text(&problems.source);
        super::say_as_is(&masked(problems.source, problems.list).render(color));
        Exit::Suite
    };
    let loaded = crate::suite::load(path, &options).map_err(refuse)?;
    let bare = secrecy::of_text(&loaded.source);
    match expand::expand(Arc::new(loaded.suite.clone()), &selection) {
        Ok(plan) if plan.cells.is_empty() => {
            super::say(&format!("error: no cell of {} is selected", path.display()));
            super::say(&format!("  help: `tokgate list {}` shows its cells", path.display()));
            Err(Exit::NothingSelected)
        }
        Ok(plan) => {
            let more = plan.warnings.iter().cloned().map(|it| problem(&loaded, it));
            let rendered = secrecy::of_plan(&plan)
                .into_iter()
                .map(|(key, it)| Problem { span: span_of(&loaded, None, &key), ..it });
            let list = loaded.warnings.iter().cloned().chain(more).chain(bare).chain(rendered);
            let warnings = masked(loaded.source.clone(), list.collect());
            Ok(Planned { loaded, plan, warnings })
        }
        Err(troubles) => {
            let more = troubles.into_iter().map(|it| problem(&loaded, it));
            let list = more.chain(loaded.warnings.iter().cloned()).collect();
            Err(refuse(Problems::new(loaded.source.clone(), list)))
        }
    }
}

/// The plan of a suite that was changed after it was checked: the same cells, measured in another way.
///
/// # Errors
/// As [`plan`].
pub fn again(
    planned: &Planned,
    choice: &Choice,
    change: impl FnOnce(&mut Suite),
) -> Result<Plan, Exit> {
    let selection = selection(choice)?;
    let mut suite = planned.loaded.suite.clone();
    change(&mut suite);
    expand::expand(Arc::new(suite), &selection).map_err(|troubles| {
        let list = troubles.into_iter().map(|it| problem(&planned.loaded, it)).collect();
        let problems = masked(planned.loaded.source.clone(), list);
        super::say_as_is(&problems.render(false));
        Exit::Suite
    })
}

/// Says that no cell of a suite is selected.
pub fn nothing(path: &Path) -> Exit {
    super::say(&format!("error: no cell of {} is selected", path.display()));
    super::say("  help: `tokgate list` without -E, --skip and --profile shows all cells");
    Exit::NothingSelected
}

/// Data sets of selected tests that are not there, as errors: a run needs them, unless a setup step
/// may fetch them.
pub fn missing_data(planned: &Planned) -> Problems {
    let plan = &planned.plan;
    let fetched = plan.suite.settings.iter().any(|setting| !setting.engine.setup.is_empty());
    let used: BTreeSet<u32> = plan.cells.iter().map(|cell| cell.test).collect();
    let wanted: Vec<_> = used
        .iter()
        .filter_map(|test| plan.suite.tests[*test as usize].spans.of("dataset.file"))
        .collect();
    let list = (planned.loaded.warnings.iter())
        .filter(|problem| !fetched && problem.code == MISSING_DATASET)
        .filter(|problem| problem.span.as_ref().is_some_and(|span| wanted.contains(span)))
        .map(|problem| Problem { warning: false, ..problem.clone() })
        .collect();
    masked(planned.loaded.source.clone(), list)
}

/// The quarantines whose day is over.
pub fn expired(plan: &Plan) -> impl Iterator<Item = &Quarantine> {
    let today = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::now()).date();
    plan.suite.quarantines.iter().filter(move |quarantine| quarantine.expires < today)
}

/// Problems that show no secret where they show the text that is to blame.
fn masked(source: SourceMap, list: Vec<Problem>) -> Problems {
    let redactor = voice::redactor();
    let source = if redactor.is_empty() { source } else { source.masked(|it| redactor.mask(it)) };
    Problems::new(source, list)
}

fn span_of(loaded: &Loaded, place: Option<&Place>, key: &str) -> Option<Range<usize>> {
    let (settings, tests) = (&loaded.suite.settings, &loaded.suite.tests);
    // A request is blamed with the place of its test.
    let test = tests.iter().filter(|test| Some(&test.place) == place);
    let spans = test.map(|test| &test.spans).chain(settings.iter().map(|it| &it.spans));
    spans.into_iter().find_map(|spans| spans.of(key))
}

fn problem(loaded: &Loaded, trouble: Trouble) -> Problem {
    let by_key = |key: &String| span_of(loaded, trouble.place.as_ref(), key);
    let source = &loaded.source;
    let span = trouble
        .span
        .or_else(|| trouble.key.as_ref().and_then(by_key))
        .or_else(|| trouble.place.as_ref().and_then(|place| source.line_span(place)));
    let span = match (span, &trouble.part) {
        (Some(span), Some((template, part))) => Some(source.inside(&span, template, part)),
        (span, _) => span,
    };
    Problem {
        span,
        warning: trouble.warning,
        ..Problem::new(trouble.code, trouble.message).maybe_help(trouble.help)
    }
}

fn selection(choice: &Choice) -> Result<Selection, Exit> {
    Ok(Selection {
        alternatives: selectors(&choice.select, "-E")?,
        skip: selectors(&choice.skip, "--skip")?,
    })
}

fn selectors(texts: &[String], flag: &str) -> Result<Vec<Selector>, Exit> {
    let mut selectors = Vec::with_capacity(texts.len());
    for text in texts {
        match Selector::parse_line(text) {
            Ok(selector) => selectors.push(selector),
            Err(error) => {
                super::say(&format!("error: {flag} '{text}': {}", error.message));
                if let Some(help) = error.help {
                    super::say(&format!("  help: {help}"));
                }
                return Err(Exit::Suite);
            }
        }
    }
    Ok(selectors)
}
