//! What the relative bounds of a plan are held against, found and checked before anything is
//! launched.
//!
//! It joins plan and baselines. Which files fit is decided in `record::baseline`, what a ratio means
//! in `judge`; what a cell that a file lacks leads to is the suite's `on-missing`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::judge::power::{Design, Losses, Question, SURELY};
use crate::judge::ratio::{family_level, logarithms, moments};
use crate::judge::{Bound, Side};
use crate::matrix::{Cell, CellBound, Plan};
use crate::record::baseline::{Baseline, BaselineError, CellLine, Key, LEAST_RUNS};
use crate::record::provenance::Provenance;
use crate::record::run_record::{GitRecord, NoiseRecord, RelativeRecord, VariantRecord};
use crate::report::count::plural;
use crate::suite::model::{Compare, OnMissing, Reference};

use super::exit::Exit;
use super::git::{self, GitError};
use super::say;

mod noise;

/// Cells that a message names.
const NAMED: usize = 3;

/// What a plan's relative bounds are held against.
#[derive(Debug, Default)]
pub struct References {
    /// By cell of the plan and position among the cell's bounds.
    pub relative: BTreeMap<(usize, usize), RelativeRecord>,
    /// What a calibration tells of the noise of bounds, by the same key.
    pub noise: BTreeMap<(usize, usize), NoiseRecord>,
    /// Words worth reading.
    pub notes: Vec<String>,
}

/// Finds what the relative bounds of a plan, of a shard those of the whole one, are held against, or says everything that is wrong.
///
/// `recording`: what is measured is to become a baseline, so that none is needed. `whole`: no cell
/// was left out, so that one that only a baseline has is worth a word.
///
/// # Errors
/// [`Exit::Baseline`]: a file is missing, broken or of something else, or lacks a cell; git can't tell what a
/// revision has.
pub fn resolve(
    plan: &Plan,
    provenance: &Provenance,
    recording: bool,
    whole: bool,
) -> Result<References, Exit> {
    let comparisons = plan.comparisons();
    let mut asked: BTreeMap<Source, Vec<Asked<'_>>> = BTreeMap::new();
    let mut found = References::default();
    let mut failed = false;
    for (index, cell) in plan.cells.iter().enumerate() {
        for (position, bound) in plan.bounds(cell).into_iter().enumerate() {
            let Some(against) = &bound.against else { continue };
            let (file, revision) = match &against.reference {
                Reference::File(file) => (file.clone(), None),
                Reference::Git { revision, file } => (file.clone(), Some(revision.clone())),
                Reference::Variant(setting) => {
                    let record = RelativeRecord {
                        file: plan.reference(against),
                        git: None,
                        variant: Some(variant(plan, *setting, cell)),
                        runs: Vec::new(),
                        comparisons,
                        halved: plan.halves(),
                        recorded: false,
                        sees: None,
                    };
                    found.relative.insert((index, position), record);
                    continue;
                }
            };
            let one = Asked { index, cell, position, bound };
            asked.entry(Source { file, revision }).or_default().push(one);
        }
    }
    for (source, asked) in asked {
        let shown = source.to_string();
        let mut search =
            Search { plan, provenance, source: &source, shown, comparisons, whole, failed: false };
        search.file(&asked, recording, &mut found);
        failed |= search.failed;
    }
    // What is recorded is not judged.
    failed |= !recording && !noise::resolve(plan, provenance, &mut found);
    if failed { Err(Exit::Baseline) } else { Ok(found) }
}

/// The variant that a cell is held against.
fn variant(plan: &Plan, setting: u32, judged: &Cell) -> VariantRecord {
    let name = plan.suite.settings[setting as usize].variant.clone().unwrap_or_default();
    let compared =
        |compare: &Compare| compare.baseline == setting && compare.candidate == judged.setting;
    VariantRecord { name, paired: plan.suite.compare.as_ref().is_some_and(compared) }
}

/// Where recorded runs stand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    file: PathBuf,
    /// The revision of git; `None`: as it stands in the working tree.
    revision: Option<String>,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.revision {
            Some(revision) => write!(f, "{revision}:{}", self.file.display()),
            None => write!(f, "{}", self.file.display()),
        }
    }
}

/// A relative bound of a cell.
struct Asked<'p> {
    index: usize,
    cell: &'p Cell,
    position: usize,
    bound: CellBound,
}

struct Search<'a> {
    plan: &'a Plan,
    provenance: &'a Provenance,
    source: &'a Source,
    /// Its name in messages, once it is known with its commit.
    shown: String,
    comparisons: u64,
    whole: bool,
    failed: bool,
}

impl Search<'_> {
    fn refuse(&mut self, what: &str, help: &str) {
        say(&format!("error: {what}"));
        say(&format!("  help: {help}"));
        self.failed = true;
    }

    /// The recorded runs, those that nobody has recorded yet where that may be; what is wrong is said.
    fn baseline(&mut self) -> Option<(Baseline, Option<GitRecord>)> {
        let may_lack = self.plan.suite.baseline.on_missing != OnMissing::Error;
        let none = || Baseline::new(&self.plan.suite.name, self.provenance.identity());
        let file = &self.source.file;
        let Some(revision) = &self.source.revision else {
            return match Baseline::read(file) {
                Ok(baseline) => Some((baseline, None)),
                Err(BaselineError::Absent { .. }) if may_lack => Some((none(), None)),
                Err(error) => {
                    self.refuse(&error.to_string(), error.help());
                    None
                }
            };
        };
        let of = |commit: String| {
            let file = file.display().to_string();
            GitRecord { revision: revision.clone(), commit, file }
        };
        match git::read(file, revision) {
            Ok(git::Found { commit, text }) => {
                let parsed = Baseline::parse(Path::new(&self.shown), &text);
                self.shown = format!("{} ({})", self.source, git::short(&commit));
                match parsed {
                    Ok(baseline) => Some((baseline, Some(of(commit)))),
                    Err(error) => {
                        self.refuse(&error.to_string(), error.help());
                        None
                    }
                }
            }
            Err(GitError::Absent { commit, .. }) if may_lack => {
                self.shown = format!("{} ({})", self.source, git::short(&commit));
                Some((none(), Some(of(commit))))
            }
            Err(error) => {
                self.refuse(&error.to_string(), &error.help());
                None
            }
        }
    }

    fn file(&mut self, asked: &[Asked<'_>], recording: bool, found: &mut References) {
        let on_missing = self.plan.suite.baseline.on_missing;
        // What is recorded is held against nothing, so that no revision is asked for it.
        let held = if recording { None } else { Some(self.baseline()) };
        let (baseline, git) = match held {
            None => (None, None),
            Some(None) => return,
            Some(Some((baseline, git))) => (Some(baseline), git),
        };
        let (shown, comparisons) = (self.shown.clone(), self.comparisons);
        let halved = self.plan.halves();
        let empty = |asked: &Asked<'_>, runs: Vec<f64>, sees| {
            let (file, git, recorded) = (shown.clone(), git.clone(), false);
            let variant = None;
            let record =
                RelativeRecord { file, git, variant, runs, comparisons, halved, recorded, sees };
            ((asked.index, asked.position), record)
        };
        let Some(baseline) = baseline else {
            found.relative.extend(asked.iter().map(|asked| empty(asked, Vec::new(), None)));
            return;
        };
        let tests: BTreeSet<&str> =
            asked.iter().map(|asked| self.plan.test(asked.cell).name.as_str()).collect();
        let misfits =
            baseline.misfits(&self.plan.suite.name, self.provenance, tests.iter().copied());
        for misfit in &misfits {
            self.refuse(&format!("the baseline {shown} does not fit: {misfit}"), misfit.help());
        }
        if !misfits.is_empty() {
            return;
        }
        let lines: HashMap<Key, &CellLine> =
            baseline.cells.iter().map(|line| (line.key(), line)).collect();
        let mut renamed: BTreeSet<&str> = BTreeSet::new();
        let mut missing: Vec<(Key, &Asked<'_>)> = Vec::new();
        let mut known = Vec::new();
        for one in asked {
            let key = self.key(one);
            let test = self.plan.test(one.cell).name.as_str();
            match lines.get(&key) {
                // All cells of a test have the same axes, so one tells.
                None if renamed.contains(test) => {}
                None => match baseline.other_axes(test, &key.cell) {
                    Some(misfit) => {
                        renamed.insert(test);
                        let what = format!("the baseline {shown} does not fit: {misfit}");
                        self.refuse(&what, misfit.help());
                    }
                    None => missing.push((key, one)),
                },
                Some(line) if line.values.len() < LEAST_RUNS && on_missing == OnMissing::Record => {
                    missing.push((key, one));
                }
                Some(line) => known.push((one, *line)),
            }
        }
        self.few(&known);
        let missing_keys: Vec<String> = missing.iter().map(|(key, _)| key.to_string()).collect();
        match on_missing {
            OnMissing::Error | OnMissing::Skip | OnMissing::Record if missing.is_empty() => {}
            OnMissing::Error => {
                let what = format!("the baseline {shown} lacks {}", told(&missing_keys));
                self.refuse(&what, "`tokgate baseline record` measures what is missing; `on-missing = \"skip\"` in [baseline] lets it pass unjudged");
            }
            OnMissing::Skip => found.notes.push(format!(
                "not judged, since the baseline {shown} lacks it (baseline.on-missing): {}",
                told(&missing_keys)
            )),
            OnMissing::Record => {
                found.notes.push(format!(
                    "not judged but recorded in {} (baseline.on-missing): {}",
                    self.source.file.display(),
                    told(&missing_keys)
                ));
            }
        }
        if self.whole {
            self.extra(&baseline, &tests, found);
        }
        found.relative.extend(missing.iter().map(|(_, one)| {
            let (at, record) = empty(one, Vec::new(), None);
            (at, RelativeRecord { recorded: on_missing == OnMissing::Record, ..record })
        }));
        let level = family_level(self.plan.suite.policy.alpha, self.comparisons);
        let mut losses = Losses::default();
        found.relative.extend(known.iter().filter(|_| !self.failed).map(|(one, line)| {
            let runs = line.runs();
            let launches = self.plan.rounds(one.cell);
            let sees = one
                .bound
                .bound
                .and_then(|bound| sees(&runs, launches, (&bound, level), &mut losses));
            empty(one, runs, sees)
        }));
    }

    fn key(&self, asked: &Asked<'_>) -> Key {
        Key {
            test: self.plan.test(asked.cell).name.clone(),
            variant: self.plan.variant(asked.cell).map(str::to_owned),
            cell: self.plan.cell_id(asked.cell),
            metric: asked.bound.metric.to_string(),
        }
    }

    /// Values that no ratio can be made of: too few, or not above zero.
    fn few(&mut self, known: &[(&Asked<'_>, &CellLine)]) {
        let (mut few, mut zero) = (Vec::new(), Vec::new());
        for (_, line) in known {
            if line.values.len() < LEAST_RUNS {
                few.push(line.key().to_string());
            } else if line.middle().is_none() {
                zero.push(line.key().to_string());
            }
        }
        let shown = self.shown.clone();
        if !few.is_empty() {
            let what = format!(
                "the baseline {shown} has fewer than {LEAST_RUNS} runs of {}: one run shows no noise",
                told(&few)
            );
            self.refuse(&what, "`tokgate baseline record` adds runs; five are a good number");
        }
        if !zero.is_empty() {
            let what =
                format!("the baseline {shown} has values that are not above 0 of {}", told(&zero));
            self.refuse(
                &what,
                "a share of nothing means nothing: write an absolute bound, `min` or `max`",
            );
        }
    }

    /// Names cells that the baseline has and the suite has not.
    fn extra(&self, baseline: &Baseline, tests: &BTreeSet<&str>, found: &mut References) {
        let planned: BTreeSet<(&str, Option<&str>, String)> = self
            .plan
            .cells
            .iter()
            .map(|cell| {
                let test = self.plan.test(cell).name.as_str();
                (test, self.plan.variant(cell), self.plan.cell_id(cell))
            })
            .collect();
        let extra: BTreeSet<String> = baseline
            .cells
            .iter()
            .filter(|line| tests.contains(line.test.as_str()))
            .filter(|line| {
                let at = (line.test.as_str(), line.variant.as_deref(), line.cell.clone());
                !planned.contains(&at)
            })
            .map(|line| format!("{} {}", line.test, line.cell))
            .collect();
        if !extra.is_empty() {
            found.notes.push(format!(
                "the baseline {} has cells that the suite has not: {}",
                self.shown,
                counted(&extra.into_iter().collect::<Vec<_>>(), "cell")
            ));
        }
    }
}

/// The smallest loss that so many launches can be seen to have against these runs.
fn sees(
    runs: &[f64],
    launches: u32,
    (bound, level): (&Bound, f64),
    losses: &mut Losses,
) -> Option<f64> {
    let (_, squares) = moments(&logarithms(runs, "the baseline").ok()?);
    let sd = (squares / (runs.len() - 1) as f64).sqrt();
    let limit = match bound.side {
        Side::Min => -bound.limit.ln(),
        Side::Max => bound.limit.ln(),
    };
    let design = Design::runs(runs.len() as u64, launches.into())?;
    Some(losses.smallest(design, Question { alpha: level, limit }, sd, SURELY))
}

/// `2 values: decode context=8K output-throughput, …`.
fn told(names: &[String]) -> String {
    counted(names, "value")
}

fn counted(names: &[String], what: &str) -> String {
    let more = if names.len() > NAMED { ", …" } else { "" };
    let named = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    format!("{}: {named}{more}", plural(names.len(), what))
}
