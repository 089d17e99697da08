//! Checking: a suite as typed becomes one that cannot be wrong, or all that is wrong with it.
//!
//! Names are resolved, quantities read, defaults filled in. A part that is wrong is said and left
//! out, and the rest is checked on; what would only follow from an earlier problem is not said.
//! Which cells there are is not known here.

mod axis;
mod baseline;
mod engine;
mod expect;
mod filter;
mod grid;
mod hardware;
mod policy;
mod quantity;
mod serve;
mod test;
mod tool;

pub(in crate::suite) use expect::quantity as in_unit;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use super::file::{At, File};
use super::model::{BaselineSetting, Compare, EngineSource, Place, Setting, SimClock, Suite, Test};
use super::name;
use super::problem::Problem;
use super::source::SourceMap;
use crate::hardware::need::Count;
use crate::measure::TestKind;

/// The code of a problem about a data set that is not there (yet).
pub const MISSING_DATASET: &str = "missing-dataset";

/// A suite as typed, with variants, profile and command line laid over it.
#[derive(Debug, Clone)]
pub struct Typed {
    /// The suite without any variant.
    pub main: File,
    /// Name, span of the name, and the suite with the variant.
    pub variants: Vec<(String, Range<usize>, File)>,
    /// Lines of the profile's `select`.
    pub select: Vec<(String, Range<usize>)>,
}

/// What the checks need to know besides the suite.
pub struct Known<'a> {
    /// Names of keys that the shape check took away: that they are missing is no news.
    pub lost: &'a BTreeSet<String>,
    /// The suite file as the user named it.
    pub path: String,
    /// Whether an environment variable is set.
    pub env: &'a dyn Fn(&str) -> bool,
    /// Whether a file is there.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// Checks a suite. The problems hold warnings too; the suite is `None` only with an error among them.
pub fn check(
    typed: &Typed,
    source: &SourceMap,
    known: &Known<'_>,
) -> (Option<Suite>, Vec<Problem>) {
    let mut checker = Checker {
        source,
        known,
        problems: Vec::new(),
        broken_tests: false,
        broken_axes: BTreeSet::new(),
        baseline: BaselineSetting::default(),
        compare: None,
        broken_compare: false,
    };
    let suite = checker.suite(typed);
    (suite, checker.problems)
}

struct Checker<'a> {
    source: &'a SourceMap,
    known: &'a Known<'a>,
    problems: Vec<Problem>,
    /// A test could not be read: that something names it is no news.
    broken_tests: bool,
    /// Axes with a value that could not be read: that something names one is no news.
    broken_axes: BTreeSet<String>,
    /// `[baseline]`, whose file is what ratios are held against where they name none.
    baseline: BaselineSetting,
    /// `[compare]`, whose baseline is what ratios are held against where they name nothing.
    compare: Option<Compare>,
    /// `[compare]` could not be read: that a ratio is held against nothing is no news.
    broken_compare: bool,
}

impl Checker<'_> {
    fn say(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// A key that must be there and isn't, unless the shape check has already spoken of it.
    fn missing(&mut self, key: &str, span: Range<usize>, message: &str, help: &str) {
        if self.known.lost.contains(key) || self.known.lost.contains("extends") {
            // An error has been said; a second one would only repeat it.
            return;
        }
        self.say(Problem::at("missing-key", span, message).help(help));
    }

    /// Whether the shape check took none of these keys away: else that nothing is said is no news.
    fn kept(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| !self.known.lost.contains(*key))
    }

    fn place(&self, span: &Range<usize>) -> Place {
        self.source.place(span.start)
    }

    fn suite(&mut self, typed: &Typed) -> Option<Suite> {
        let main = &typed.main;
        let top = self.top();
        if main.version.is_none() {
            self.missing(
                "version",
                top.clone(),
                "`version` is missing",
                "begin the suite with `version = 1`",
            );
        }
        let (suite_name, tags) = self.title(main, top.clone());
        let hardware = self.hardware(main.hardware.as_ref());
        let gpus = hardware.as_ref().and_then(|(need, ..)| match need.count {
            Some(Count::Exactly(n)) if n > 0 => Some(n),
            Some(Count::Exactly(_) | Count::AtLeast(_)) | None => None,
        });

        let mut settings = Vec::new();
        if typed.variants.is_empty() {
            settings.extend(self.setting(None, main, gpus, top.clone()));
        }
        for (variant, span, file) in &typed.variants {
            self.word(&At { value: variant.clone(), span: span.clone() }, "a variant's name");
            settings.extend(self.setting(Some(variant.clone()), file, gpus, span.clone()));
        }
        let whole = settings.len() == typed.variants.len().max(1);
        let mut hardware_probe = None;
        let hardware = hardware.map(|(mut need, said, probe)| {
            hardware_probe = probe;
            // Where nothing is said, a url means that the hardware is elsewhere.
            need.here = said.unwrap_or_else(|| {
                settings
                    .iter()
                    .all(|setting| !matches!(setting.engine.source, EngineSource::Url(_)))
            });
            need
        });

        let variants: Vec<String> =
            typed.variants.iter().map(|(name, _, _)| name.clone()).collect();
        let tests = self.tests(main, &variants, top);
        self.within_reach(&settings, &tests);
        let per_gpu = whole && settings.iter().all(|setting| setting.engine.gpus.is_some());
        self.baseline = self.baseline_table(main.baseline.as_ref());
        self.compare = self.compare_table(main.compare.as_ref(), &variants);
        self.broken_compare = main.compare.is_some() && self.compare.is_none();
        self.launches_of_pairs(main, variants.len());
        let expectations = self.expectations(main, &tests, &variants, !whole || per_gpu);
        let quarantines = self.quarantines(main, &tests, &variants);
        let policy = self.policy(main.policy.as_ref());
        let select = self.select(&typed.select, &tests, &variants);
        let clean = whole && self.problems.iter().all(|problem| problem.warning);
        let suite_name = suite_name?;
        clean.then(|| Suite {
            name: suite_name,
            tags,
            path: self.known.path.clone(),
            hash: String::new(),
            hardware,
            hardware_probe,
            settings,
            tests,
            expectations,
            baseline: self.baseline.clone(),
            compare: self.compare.clone(),
            quarantines,
            policy,
            select,
        })
    }

    /// A tool is a process of its own, and reaches no engine inside of this one.
    fn within_reach(&mut self, settings: &[Setting], tests: &[Test]) {
        let inside = settings.iter().any(|setting| match setting.engine.source {
            EngineSource::Sim { clock, .. } => clock == SimClock::Virtual,
            EngineSource::Command(_) | EngineSource::Url(_) => false,
        });
        for test in tests.iter().filter(|test| inside && test.kind.kind() == TestKind::Command) {
            self.say(
                Problem::at(
                    "out-of-reach",
                    test.span.clone(),
                    "no tool reaches a simulated engine in virtual time, which runs inside of tokgate",
                )
                .help("write `clock = \"real\"` in [engine]"),
            );
        }
    }

    /// The first byte of the suite file itself: the place of what is missing altogether.
    fn top(&self) -> Range<usize> {
        let files = self.source.files();
        let suite = files.iter().rev().find(|file| !file.name.starts_with("--"));
        suite.map_or(0..0, |file| {
            let first = file.text.lines().next().map_or(0, str::len);
            file.start..file.start + first
        })
    }

    fn title(&mut self, file: &File, top: Range<usize>) -> (Option<String>, Vec<String>) {
        let Some(table) = &file.suite else {
            self.missing(
                "suite",
                top,
                "`[suite]` is missing",
                "give the suite a name:\n[suite]\nname = \"my-card\"",
            );
            return (None, Vec::new());
        };
        let tags = table.value.tags.iter().map(|tag| tag.value.clone()).collect();
        let Some(title) = &table.value.name else {
            self.missing(
                "name",
                table.span.clone(),
                "`[suite]` has no `name`",
                "give the suite a name, like `name = \"my-card\"`",
            );
            return (None, tags);
        };
        (self.name_title(title, "a suite's name"), tags)
    }
}

/// The tests of a scope, by index.
fn named<'t>(tests: &'t [Test], scope: &[usize]) -> impl Iterator<Item = &'t Test> + Clone {
    let scope = scope.to_vec();
    scope.into_iter().filter_map(|at| tests.get(at))
}

/// `decode has no axis …` and the like: which axes tests have.
fn axes_of<'t>(tests: impl Iterator<Item = &'t Test>) -> Vec<&'t str> {
    let mut names: Vec<&str> =
        tests.flat_map(|test| test.axes.iter().map(|axis| axis.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// `did you mean …`, for names in a message about a suite's own words.
fn hint(wanted: &str, known: &[&str], all: &str) -> String {
    name::suggest(wanted, known.iter().copied(), all)
}
