//! The JUnit cases of a run, one model for both dialects: which suites and cases there are, what
//! each says, where it points, and what is cut so that consumers can read the file.
//!
//! A suite is a launch: a case for the start of the engine, then one for every planned cell. Texts
//! here are washed and cut; the dialects only write them down.

use std::collections::HashSet;

use crate::judge::Verdict;
use crate::measure::Metric;
use crate::record::run_record::{
    CellOutcome, CellState, LaunchOutcome, PlannedCellRecord, PlannedLaunchRecord, UnfitClass,
};
use crate::record::shard::Origin;
use crate::record::{RunRecord, slowdown};
use crate::suite::model::Place;

use super::count::inconclusive_fails;
use super::engine;
use super::figure;
use super::fit::fit;
use super::hardware;
use super::message;
use super::ratio;
use super::rounds;
use super::sanitise::{cut, line};

pub(super) mod attachment;
mod earlier;
mod empty;
mod overall;

pub use earlier::Earlier;

/// Bytes of XML that the whole file stays under, but for the bare cases of a plan so large that
/// they alone take more: every planned cell is in the file.
pub const MOST_IN_ALL: usize = 20_000_000;
/// Bytes of XML that the texts of a case take where nothing failed; with names and figures it
/// stays under 16 KiB.
const MOST_PLAIN: usize = 10 * 1024;
/// Bytes of XML that the text of a failure or error takes; with output, names and figures it stays
/// under 64 KiB.
const MOST_FAILED: usize = 48 * 1024;

/// A run as JUnit sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Cases {
    /// The suite's name.
    pub name: String,
    /// The suite file.
    pub file: String,
    /// One for each launch, then that of the mean ratio.
    pub suites: Vec<Suite>,
}

/// A launch with its cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Suite {
    /// `<suite>[.<variant>].<launch>`.
    pub name: String,
    /// When the run that it belongs to began, RFC 3339.
    pub started: String,
    /// Name of the machine.
    pub hostname: String,
    /// Facts of the launch.
    pub properties: Vec<(String, String)>,
    /// The start of the engine, then the cells.
    pub cases: Vec<Case>,
}

/// One test case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// With `name` unique over the whole file.
    pub classname: String,
    /// Canonical and stable over runs.
    pub name: String,
    /// Measured wall milliseconds.
    pub millis: u64,
    /// Where the reader should look.
    pub place: Place,
    /// How it stands.
    pub standing: Standing,
    /// What it was before it came to stand so; empty for most.
    pub earlier: Vec<Earlier>,
    /// `metric.<name>` and others, plain values.
    pub properties: Vec<(String, String)>,
    /// For `system-out`; may be empty.
    pub output: String,
}

impl Case {
    /// What it says, where it did not plainly pass.
    pub fn note(&self) -> Option<&Note> {
        match &self.standing {
            Standing::Plain => None,
            Standing::Skipped(note) | Standing::Failure(note) | Standing::Error(note) => Some(note),
        }
    }

    /// As [`Case::note`], to be cut.
    pub fn note_mut(&mut self) -> Option<&mut Note> {
        match &mut self.standing {
            Standing::Plain => None,
            Standing::Skipped(note) | Standing::Failure(note) | Standing::Error(note) => Some(note),
        }
    }
}

/// How a case stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Passed, or nothing that fails the build.
    Plain,
    /// Not run or not counted, with the reason.
    Skipped(Note),
    /// Judged and too slow.
    Failure(Note),
    /// It could not be judged.
    Error(Note),
}

/// What a case that did not plainly pass says.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// `limit`, `capacity`, `degraded`, `invalid`, `not-run`, …
    pub kind: String,
    /// One line.
    pub message: String,
    /// The message again, then everything else.
    pub text: String,
}

impl Note {
    fn new(kind: &str, message: String, rest: &[String], most: usize) -> Note {
        let mut text = message.clone();
        for line in rest {
            text.push('\n');
            text.push_str(line);
        }
        Note { kind: line(kind), message, text: cut(&text, most) }
    }
}

/// The cases of a record.
pub fn cases(record: &RunRecord) -> Cases {
    pointing(record, None)
}

/// As [`cases`], those that fail with an attachment: the page of the run, from the root of a project on GitLab.
pub fn pointing(record: &RunRecord, page: Option<&str>) -> Cases {
    let header = &record.header;
    let mut suites: Vec<Suite> = header
        .launches
        .iter()
        .enumerate()
        .map(|(index, planned)| suite(record, index, planned))
        .collect();
    suites.extend(overall::suite(record));
    if header.cells.is_empty() {
        suites.push(empty::suite(record));
    }
    let mut cases = Cases { name: line(&header.suite), file: line(&header.path), suites };
    make_unique(&mut cases);
    if let Some(page) = page {
        attachment::attach(&mut cases, page);
    }
    fit(&mut cases, MOST_IN_ALL);
    cases
}

fn suite(record: &RunRecord, index: usize, planned: &PlannedLaunchRecord) -> Suite {
    let header = &record.header;
    let prefix = match &planned.variant {
        Some(variant) => format!("{}.{variant}", header.suite),
        None => header.suite.clone(),
    };
    let outcome = record.launches.get(index);
    let origin = record.origin(index);
    let mut cases = vec![launch_case(record, index, planned, outcome, &prefix)];
    let cells = header.cells.iter().zip(&record.cells);
    cases.extend(
        cells
            .enumerate()
            .filter(|(_, (cell, _))| cell.launch == index)
            .map(|(at, _)| cell_case(record, at)),
    );
    let mut properties = vec![
        ("tokgate.version".to_owned(), line(&header.tokgate)),
        ("run.id".to_owned(), line(origin.run_id)),
        ("run.seed".to_owned(), origin.seed.to_string()),
        ("plan.hash".to_owned(), line(&header.plan_hash)),
        ("policy.alpha".to_owned(), header.policy.alpha.to_string()),
    ];
    if let Some((shard, of)) = origin.shard {
        properties.push(("shard".to_owned(), format!("{shard}/{of}")));
        properties.push(("plan.cells".to_owned(), header.planned_cells().to_string()));
    }
    if let Some(merged) = &header.merged {
        properties.push(("run.shards".to_owned(), merged.of.to_string()));
    }
    if !record.resumptions.is_empty() {
        properties.push(("run.resumed".to_owned(), record.resumptions.len().to_string()));
    }
    if let Some(outcome) = outcome {
        let command = shell_words::join(&outcome.command);
        if !command.is_empty() {
            properties.push(("engine.command".into(), line(&cut(&command, 4096))));
        }
        if let Some(facts) = &outcome.facts {
            properties.push(("engine.model".into(), line(&facts.model)));
            let version = facts.version.iter().map(|v| ("engine.version".to_owned(), line(v)));
            properties.extend(version);
            let capacity = facts.kv_capacity.iter();
            properties.extend(capacity.map(|n| ("engine.kv-capacity".to_owned(), n.to_string())));
        }
    }
    let machine = origin.machine;
    properties.extend(machine.gpus_in_words().map(|gpu| ("machine.gpu".to_owned(), line(&gpu))));
    let driver = machine.driver.iter().map(|d| ("machine.driver".to_owned(), line(d)));
    properties.extend(driver);
    Suite {
        name: line(&format!("{prefix}.{}", planned.name)),
        started: line(origin.started),
        hostname: line(&machine.hostname),
        properties,
        cases,
    }
}

fn launch_case(
    record: &RunRecord,
    index: usize,
    planned: &PlannedLaunchRecord,
    outcome: Option<&LaunchOutcome>,
    prefix: &str,
) -> Case {
    let cells = || {
        let all = record.header.cells.iter().zip(&record.cells);
        all.filter(|(cell, _)| cell.launch == index).map(|(_, outcome)| outcome)
    };
    let log = outcome.and_then(|outcome| outcome.log.as_deref());
    let ready_time = outcome.and_then(|outcome| outcome.ready_time);
    let standing = match outcome.and_then(|outcome| outcome.failure.as_ref()) {
        Some(failure) => {
            let message = message::one_line(&failure.message);
            let rest = message::of_launch(failure, log);
            Standing::Error(Note::new(
                if failure.mismatch { "mismatch" } else { "launch" },
                message,
                &rest,
                MOST_FAILED,
            ))
        }
        None if ready_time.is_some() => Standing::Plain,
        None => {
            let unwanted = |cell: &CellOutcome| {
                matches!(cell.state, CellState::Unfit { class: UnfitClass::Hardware, .. })
            };
            let untouched = |cell: &CellOutcome| matches!(cell.state, CellState::NotRun { .. });
            if cells().next().is_some() && cells().all(unwanted) {
                let message = cells().next().and_then(message::of_cell).unwrap_or_default();
                Standing::Skipped(Note::new("hardware", message, &[], MOST_PLAIN))
            } else if cells().all(untouched) {
                let message = match record.origin(index) {
                    Origin { missing: true, shard: Some((shard, of)), .. } => {
                        format!("not run: shard {shard} of {of} is missing")
                    }
                    Origin { .. } => "not run".to_owned(),
                };
                Standing::Error(Note::new("not-run", message, &[], MOST_PLAIN))
            } else {
                Standing::Plain
            }
        }
    };
    let mut output = Vec::new();
    if let Some(outcome) = outcome {
        output.extend(ready_time.map(|seconds| format!("ready after {seconds:.1} s")));
        if !outcome.command.is_empty() {
            output.push(format!("command: {}", line(&shell_words::join(&outcome.command))));
        }
        output.extend(log.map(|log| format!("log: {}", line(log))));
        output.extend(message::starts(record, index));
        output.extend(record.losses(index).into_iter().map(earlier::restarted));
        output.extend(outcome.warnings.iter().map(|text| format!("warning: {}", line(text))));
    }
    let slowed = record.header.slowed.map(|share| slowdown::words(&record.header, share));
    output.extend(slowed.map(|words| format!("warning: {words}")));
    let ready = ready_time.filter(|seconds| seconds.is_finite());
    let failed_after = outcome.and_then(|it| it.failure.as_ref()).map(|failure| failure.seconds);
    Case {
        // A cell's classname has the test's name behind this, so the two never meet.
        classname: line(prefix),
        name: line(&planned.name),
        millis: millis(ready.or(failed_after).unwrap_or(0.0)),
        place: clean_place(&planned.place),
        standing,
        earlier: earlier::of_launch(record, index),
        properties: ready
            .map(|seconds| ("metric.ready-time".to_owned(), plain(seconds)))
            .into_iter()
            .collect(),
        output: cut(&output.join("\n"), MOST_PLAIN),
    }
}

fn cell_case(record: &RunRecord, at: usize) -> Case {
    let (planned, outcome) = (&record.header.cells[at], &record.cells[at]);
    let policy = &record.header.policy;
    let judgement = &outcome.judgement;
    let said = message::of_cell(outcome);
    let class = judgement.class.as_deref();
    let place = clean_place(message::place(planned, outcome));
    let figures = figure::all(planned, outcome);
    let mut table = table(&figures);
    table.extend(engine::words(outcome).map(|words| format!("{:<24} {words}", "engine")));
    table
        .extend(hardware::words(outcome).map(|words| line(&format!("{:<24} {words}", "hardware"))));
    table.extend(rounds::lines(record, at));
    let details = message::details(planned, outcome);

    // Everything below the message of a case that needs somebody's eye.
    let evidence = || {
        let mut rest = details.clone();
        rest.extend(table.iter().cloned());
        rest.push(format!("at {place}"));
        rest.push(format!("rerun: {}", message::rerun(record, planned)));
        let launch = record.launches.get(planned.launch);
        let log = launch.and_then(|launch| launch.log.as_deref());
        rest.extend(log.map(|log| format!("log: {}", line(log))));
        rest
    };
    let failed =
        |kind: &str| Note::new(kind, said.clone().unwrap_or_default(), &evidence(), MOST_FAILED);
    let mut first = None;
    let standing = match judgement.verdict {
        Verdict::Pass => {
            first.clone_from(&said);
            Standing::Plain
        }
        Verdict::Fail => Standing::Failure(failed(class.unwrap_or("limit"))),
        Verdict::Error => Standing::Error(failed(class.unwrap_or("error"))),
        Verdict::Inconclusive if inconclusive_fails(policy.inconclusive, judgement) => {
            Standing::Failure(failed("inconclusive"))
        }
        Verdict::Inconclusive => {
            first = said.as_ref().map(|said| format!("inconclusive: {said}"));
            Standing::Plain
        }
        Verdict::Measured | Verdict::Xpass => {
            first.clone_from(&said);
            Standing::Plain
        }
        Verdict::Skip => {
            let message = said.clone().unwrap_or_default();
            let unfit = match &outcome.state {
                CellState::Unfit { class: UnfitClass::OverCapacity, .. } => "capacity",
                CellState::Unfit { class: UnfitClass::TooLong, .. } => "too-long",
                CellState::Unfit { class: UnfitClass::Hardware, .. } => "hardware",
                CellState::NotRun { .. } | CellState::Measured(_) | CellState::Broken { .. } => {
                    "skip"
                }
            };
            Standing::Skipped(Note::new(class.unwrap_or(unfit), message, &[], MOST_PLAIN / 4))
        }
        Verdict::Xfail => {
            let quarantine = planned.quarantine.as_ref();
            let said = said.clone().unwrap_or_default();
            let told = quarantine.is_some_and(|q| said.contains(&line(&q.reason)));
            let reason = message::of_quarantine(planned).filter(|_| !told);
            let parts: Vec<String> = reason.into_iter().chain([said]).collect();
            let message = message::one_line(&parts.join("; "));
            Standing::Skipped(Note::new("quarantine", message, &details, MOST_PLAIN / 4))
        }
    };
    let mut output: Vec<String> = first.into_iter().collect();
    if matches!(standing, Standing::Plain) {
        output.extend(details);
    }
    output.extend(table);
    let mut properties = vec![("verdict".to_owned(), verdict_name(judgement.verdict).to_owned())];
    properties.extend(figures.iter().map(|f| (format!("metric.{}", f.metric), plain(f.value))));
    properties.extend(ratios(planned, outcome));
    if !outcome.rounds.is_empty() {
        properties.push(("launches".to_owned(), outcome.rounds.len().to_string()));
    }
    let said = engine::properties(outcome).into_iter();
    properties.extend(said.map(|(name, value)| (name.to_owned(), plain(value))));
    let seen = hardware::readings(outcome).into_iter();
    properties.extend(seen.map(|it| (it.name.to_owned(), plain(it.value))));
    Case {
        classname: line(&planned.classname),
        name: line(&planned.id),
        millis: millis(outcome.seconds),
        place,
        earlier: earlier::of_cell(record, at),
        standing,
        properties,
        output: cut(&output.join("\n"), MOST_PLAIN / 2),
    }
}

/// Each ratio of a cell with its interval, and the smallest loss that it could have seen.
fn ratios(planned: &PlannedCellRecord, outcome: &CellOutcome) -> Vec<(String, String)> {
    let mut told: Vec<Metric> = Vec::new();
    let mut properties = Vec::new();
    for ratio in ratio::of(planned, outcome) {
        let metric = ratio.record.metric;
        // Of several against different things the first has the name.
        if told.contains(&metric) {
            continue;
        }
        told.push(metric);
        let Some(estimate) = ratio.estimate() else { continue };
        let bounds =
            [("", Some(estimate.value)), (".lower", estimate.lower), (".upper", estimate.upper)];
        for (suffix, value) in bounds {
            properties.extend(value.map(|value| (format!("ratio.{metric}{suffix}"), plain(value))));
        }
        properties.extend(ratio.judged.sees.map(|sees| (format!("sees.{metric}"), plain(sees))));
    }
    properties
}

/// The name of a verdict in properties and Markdown.
pub fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Error => "error",
        Verdict::Measured => "measured",
        Verdict::Skip => "skip",
        Verdict::Xfail => "xfail",
        Verdict::Xpass => "xpass",
    }
}

/// Figures as lines of one metric each: consumers show about a thousand characters of a good case.
fn table(figures: &[figure::Figure]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for figure in figures {
        let Metric { base, per_gpu, stat } = figure.metric;
        let name = Metric { base, per_gpu, stat: None }.to_string();
        let value = match stat {
            Some(stat) => format!("{} {}", stat.name(), figure.text()),
            None => figure.text(),
        };
        match lines.last_mut() {
            Some((last, values)) if *last == name => values.push(value),
            Some(_) | None => lines.push((name, vec![value])),
        }
    }
    let told = |(name, values): &(String, Vec<String>)| {
        line(&format!("{name:<24} {}", values.join(" · ")))
    };
    lines.iter().map(told).collect()
}

/// A number as programs read it; behind the sixth digit there is only what floating point left.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn clean_place(place: &Place) -> Place {
    Place { file: line(&place.file), line: place.line }
}

fn millis(seconds: f64) -> u64 {
    let millis = (seconds * 1000.0).round();
    // Saturates, and is 0 for what is no number.
    millis.clamp(0.0, 1e12) as u64
}

/// The plan has no two cells alike; should a record have them, the second must not vanish behind the
/// first in consumers that key on classname and name.
fn make_unique(cases: &mut Cases) {
    let mut seen = HashSet::new();
    for case in cases.suites.iter_mut().flat_map(|suite| &mut suite.cases) {
        let plain = case.name.clone();
        let mut n = 1;
        while !seen.insert((case.classname.clone(), case.name.clone())) {
            n += 1;
            case.name = format!("{plain} ({n})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::BoundVerdict;
    use crate::report::fixture;
    use crate::suite::model::InconclusivePolicy;

    fn find<'a>(cases: &'a Cases, name: &str) -> &'a Case {
        let mut all = cases.suites.iter().flat_map(|suite| &suite.cases);
        all.find(|case| case.name == name).unwrap()
    }

    #[test]
    fn a_suite_is_a_launch_and_every_planned_cell_is_there_once() {
        let cases = cases(&fixture::page());
        let names: Vec<&str> = cases.suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(names, ["inkling-small-h200x8.engine"]);
        assert_eq!(cases.suites[0].cases.len(), 1 + 74);
        let launch = &cases.suites[0].cases[0];
        assert_eq!(
            (launch.classname.as_str(), launch.name.as_str()),
            ("inkling-small-h200x8", "engine")
        );
        assert_eq!(launch.standing, Standing::Plain);
    }

    #[test]
    fn a_failure_says_it_in_one_line_first_and_points_at_the_limit() {
        let cases = cases(&fixture::page_with_a_loss());
        let case = find(&cases, "context=8K,concurrency=128");
        let Standing::Failure(note) = &case.standing else { panic!("{case:?}") };
        assert_eq!(note.kind, "limit");
        assert_eq!(
            note.message,
            "output-throughput 6 871 tok/s < 6 936.9 (-5.9 % of 7 302, in this launch, \
             suites/page.toml:58)"
        );
        insta::assert_snapshot!(note.text);
        assert_eq!((case.place.line, case.millis), (58, 30_020));
    }

    #[test]
    fn verdicts_map_to_elements() {
        let kinds: Vec<String> = cases(&fixture::every_verdict())
            .suites
            .iter()
            .flat_map(|suite| &suite.cases)
            .map(|case| match &case.standing {
                Standing::Plain => format!("plain: {}", case.output.lines().next().unwrap_or("")),
                Standing::Skipped(note) => format!("skipped {}: {}", note.kind, note.message),
                Standing::Failure(note) => format!("failure {}: {}", note.kind, note.message),
                Standing::Error(note) => format!("error {}: {}", note.kind, note.message),
            })
            .collect();
        insta::assert_snapshot!(kinds.join("\n"));
    }

    #[test]
    fn policy_decides_what_is_inconclusive() {
        let mut record = fixture::every_verdict();
        let standing =
            |record: &RunRecord| find(&cases(record), "concurrency=8,layout=tp8").standing.clone();
        assert_eq!(standing(&record), Standing::Plain);
        record.header.policy.inconclusive = InconclusivePolicy::Fail;
        assert!(
            matches!(standing(&record), Standing::Failure(note) if note.kind == "inconclusive")
        );
        // By the estimate alone: fails only where one is beyond its limit.
        record.header.policy.inconclusive = InconclusivePolicy::Point;
        assert_eq!(standing(&record), Standing::Plain);
        let mut bound = record.cells[0].judgement.bounds[0].clone();
        bound.verdict = BoundVerdict::Inconclusive;
        record.cells[3].judgement.bounds.push(bound);
        assert!(matches!(standing(&record), Standing::Failure(_)));
    }

    #[test]
    fn a_run_without_cells_is_an_error() {
        let mut record = fixture::page();
        record.header.cells.clear();
        record.header.launches.clear();
        record.cells.clear();
        record.launches.clear();
        let cases = cases(&record);
        assert!(
            matches!(&cases.suites[0].cases[0].standing, Standing::Error(note) if note.kind == "no-cell")
        );
    }

    #[test]
    fn two_cells_alike_stay_two() {
        let mut record = fixture::page();
        record.header.cells[11].id = record.header.cells[10].id.clone();
        let cases = cases(&record);
        let all = cases.suites.iter().flat_map(|suite| &suite.cases);
        let names: HashSet<_> = all.map(|case| (&case.classname, &case.name)).collect();
        assert_eq!(names.len(), 75);
    }
}
