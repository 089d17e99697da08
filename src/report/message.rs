//! What a report says of a run in words: titles, messages of cells, warnings, rerun commands.
//!
//! Every text that leaves here has been washed; the reports only arrange them.

use crate::judge::{BoundVerdict, Severity, Verdict};
use crate::load::FailureClass;
use crate::record::run_record::{
    CellOutcome, CellState, EngineStart, LaunchFailure, PlannedCellRecord,
};
use crate::record::{RunRecord, slowdown};
use crate::suite::model::{Place, UnjudgedPolicy};

use super::count::{elapsed, plural};
use super::figure;
use super::overall;
use super::rounds;
use super::sanitise::{line, lines, short};

/// Bytes that a detail or a warning takes at most.
const LONGEST: usize = 64 * 1024;

/// `inkling-small · model · 8 × H200 · vllm 0.29.0 · bf16`.
pub fn title(record: &RunRecord) -> String {
    let declared = &record.header.declared;
    let first = record.launches.iter().find_map(|launch| launch.facts.as_ref());
    let model = declared.model.clone().or_else(|| first.map(|facts| facts.model.clone()));
    let hardware = declared.hardware.clone().or_else(|| {
        let machine = &record.header.machine;
        let processor = || format!("{} ({} cores)", machine.cpu, machine.cores);
        machine.gpus_in_words().or_else(|| (!machine.cpu.is_empty()).then(processor))
    });
    let mut engine = declared.engine.clone();
    if let Some(version) = first.and_then(|facts| facts.version.as_ref())
        && !engine.contains(version.as_str())
    {
        engine = format!("{engine} ({version})");
    }
    let parts = [
        Some(record.header.suite.clone()),
        model,
        hardware,
        (!engine.is_empty()).then_some(engine),
        declared.quantization.clone(),
    ];
    line(&parts.into_iter().flatten().collect::<Vec<_>>().join(" · "))
}

/// `decode context=8K concurrency=128`, as a selector has it.
pub fn selector(planned: &PlannedCellRecord) -> String {
    let mut words = vec![format!("test={}", planned.test)];
    words.extend(planned.variant.iter().map(|variant| format!("variant={variant}")));
    words.extend(planned.axes.iter().map(|(name, value)| format!("{name}={value}")));
    line(&words.join(" "))
}

/// A cell's name for people: `decode context=8K concurrency=128`.
pub fn name(planned: &PlannedCellRecord) -> String {
    let selector = selector(planned);
    selector.strip_prefix("test=").unwrap_or(&selector).to_owned()
}

/// The command that runs one cell again with every flag that shaped the run.
pub fn rerun(record: &RunRecord, planned: &PlannedCellRecord) -> String {
    let slowed = record.header.slowed;
    let subcommand = if slowed.is_some() { "selftest" } else { record.header.subcommand() };
    let mut words = vec!["tokgate".to_owned(), subcommand.to_owned(), record.header.path.clone()];
    if let Some(share) = slowed {
        words.extend(["--slow".to_owned(), slowdown::percent(share)]);
    }
    words.extend(["-E".to_owned(), selector(planned)]);
    words.extend(record.origin(planned.launch).flags.iter().cloned());
    line(&shell_words::join(words))
}

/// The command that runs the whole again, with what was selected and every flag that shaped it.
pub fn rerun_all(record: &RunRecord) -> String {
    let mut words = vec!["tokgate".to_owned(), "run".to_owned(), record.header.path.clone()];
    words.extend(record.header.selection.iter().cloned());
    words.extend(record.header.flags.iter().cloned());
    line(&shell_words::join(words))
}

/// The one line that says what came of a cell, if there is something to say.
pub fn of_cell(outcome: &CellOutcome) -> Option<String> {
    if let Some(reason) = reason(outcome) {
        return Some(reason);
    }
    let said = outcome.judgement.message.as_deref().filter(|message| !message.is_empty());
    let fact = match &outcome.state {
        CellState::NotRun { reason } => Some(reason.as_str()),
        CellState::Unfit { message, .. } | CellState::Broken { message, .. } => {
            Some(message.as_str())
        }
        CellState::Measured(_) => None,
    };
    let plain = match outcome.judgement.verdict {
        Verdict::Fail => Some("failed"),
        Verdict::Error => Some("could not be judged"),
        Verdict::Inconclusive => Some("inconclusive"),
        Verdict::Measured => Some("measured, nothing is expected of it"),
        Verdict::Skip => Some("skipped"),
        Verdict::Xfail => Some("fails as its quarantine expects"),
        Verdict::Xpass => Some("passes although it is in quarantine"),
        Verdict::Pass => None,
    };
    // What a tool printed stands below the first line.
    let first = |text| match &outcome.state {
        CellState::Broken { .. } => str::lines(text).next().unwrap_or_default(),
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Measured(_) => text,
    };
    said.or(fact).or(plain).map(first).map(one_line)
}

/// Why a cell has not run, and how much of it has; none of one that has.
fn reason(outcome: &CellOutcome) -> Option<String> {
    let CellState::NotRun { reason } = &outcome.state else { return None };
    let partial = rounds::partial(outcome).map(|partial| format!("; {partial}"));
    Some(one_line(&format!("{reason}{}", partial.unwrap_or_default())))
}

/// Whether a verdict is one that somebody should look at while the run goes on.
pub fn wants_an_eye(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Fail | Verdict::Error | Verdict::Inconclusive => true,
        Verdict::Pass | Verdict::Measured | Verdict::Skip | Verdict::Xfail | Verdict::Xpass => {
            false
        }
    }
}

/// A message on one line, short enough for an attribute.
pub fn one_line(text: &str) -> String {
    short(text, 1024)
}

/// The words on a quarantine: until when, why, and where it is followed up.
pub fn of_quarantine(planned: &PlannedCellRecord) -> Option<String> {
    let quarantine = planned.quarantine.as_ref()?;
    let issue = quarantine.issue.as_ref().map(|issue| format!(" ({issue})")).unwrap_or_default();
    Some(line(&format!("quarantined until {}: {}{issue}", quarantine.expires, quarantine.reason)))
}

/// Where the reader should look: the bound that decided, else the test.
pub fn place<'a>(planned: &'a PlannedCellRecord, outcome: &CellOutcome) -> &'a Place {
    let decided = outcome.judgement.decided_by.and_then(|bound| planned.bounds.get(bound));
    decided.map_or(&planned.place, |bound| &bound.place)
}

/// What is worth knowing of a cell beyond its message: of a measured one every other bound, broken
/// checks and failed requests by class; of a broken one what its tool printed; its quarantine, its
/// warnings.
pub fn details(planned: &PlannedCellRecord, outcome: &CellOutcome) -> Vec<String> {
    let said = outcome.judgement.message.as_deref().unwrap_or_default();
    let shown = of_cell(outcome).unwrap_or_default();
    let mut out = Vec::new();
    if let Some(measured) = figure::measurement(outcome) {
        let warned = &outcome.judgement.warnings;
        for (record, bound) in planned.bounds.iter().zip(&outcome.judgement.bounds) {
            if !said.contains(&bound.message) && !warned.contains(&bound.message) {
                let word = bound_word(bound.verdict, record.severity);
                out.push(format!("{word}: {}", bound.message));
            }
        }
        out.extend(extended(outcome));
        for check in measured.checks.iter().filter(|check| check.fault.is_some()) {
            if !said.contains(&check.message) {
                out.push(format!("check: {}", check.message));
            }
        }
        for (class, (n, message)) in &measured.failures {
            out.push(format!("{n} × {}: {message}", class_name(*class)));
        }
    }
    if let CellState::Broken { message, .. } = &outcome.state {
        out.extend(message.lines().skip(1).map(|printed| format!("  {printed}")));
    }
    if let Some(quarantine) = &planned.quarantine
        && !said.contains(&quarantine.reason)
    {
        out.extend(of_quarantine(planned));
    }
    for warning in cell_warnings(outcome) {
        // The message may have it at its end, where nothing cut that. A check that only warns is one of them.
        if warning != said
            && !shown.contains(&line(warning))
            && !out.iter().any(|told| told == &format!("check: {warning}"))
        {
            out.push(format!("warning: {warning}"));
        }
    }
    out.iter().map(|text| short(text, LONGEST)).collect()
}

/// That a cell was measured for longer than planned, and why; none of one that was not.
pub fn extended(outcome: &CellOutcome) -> Option<String> {
    let measured = figure::measurement(outcome)?;
    measured
        .extended
        .then(|| "extended: inconclusive at the first look, so measured on once".to_owned())
}

/// The name of a class of failures, as records have it.
pub fn class_name(class: FailureClass) -> String {
    let name = serde_json::to_value(class).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or("failed").to_owned()
}

/// The line itself says how clear a pass is, and how sure a failure.
fn bound_word(verdict: BoundVerdict, severity: Severity) -> &'static str {
    match (verdict, severity) {
        (BoundVerdict::Clear | BoundVerdict::Close, _) => "pass",
        (_, Severity::Report) => "report",
        (_, Severity::Warn) => "warning",
        (BoundVerdict::Inconclusive, Severity::Fail) => "inconclusive",
        (BoundVerdict::Fail, Severity::Fail) => "fail",
        (BoundVerdict::NoData, Severity::Fail) => "no data",
    }
}

/// The warnings of a cell, each once.
pub fn cell_warnings(outcome: &CellOutcome) -> impl Iterator<Item = &String> {
    let judged = &outcome.judgement.warnings;
    let measured = figure::measurement(outcome).map(|m| m.warnings.as_slice()).unwrap_or_default();
    judged.iter().chain(measured.iter().filter(move |warning| !judged.contains(warning)))
}

fn shortly(text: &str) -> String {
    short(text, LONGEST)
}

/// Cells that a warning about many of them names.
const NAMED: usize = 3;

/// Every warning of a run, with the cell or launch that it is about.
pub fn warnings(record: &RunRecord) -> Vec<String> {
    let mut out: Vec<String> = record.warnings.iter().map(|text| shortly(text)).collect();
    for (planned, launch) in record.header.launches.iter().zip(&record.launches) {
        out.extend(
            launch.warnings.iter().map(|text| shortly(&format!("launch {}: {text}", planned.name))),
        );
    }
    let mut unjudged: Vec<String> = Vec::new();
    for (planned, outcome) in record.header.cells.iter().zip(&record.cells) {
        // Cells that have no bound at all may be thousands: they are told together.
        let silent = outcome.judgement.verdict == Verdict::Measured && planned.bounds.is_empty();
        if silent && outcome.judgement.class.as_deref() != Some("reference") {
            unjudged.push(name(planned));
        }
        let told = outcome.judgement.message.as_ref().filter(|_| silent);
        let warnings = cell_warnings(outcome).filter(|warning| Some(*warning) != told);
        out.extend(warnings.map(|text| shortly(&format!("{}: {text}", name(planned)))));
    }
    if let Some(overall) = overall::of(record) {
        let warnings = overall.judgement().warnings.iter();
        out.extend(warnings.map(|text| shortly(&format!("{}: {text}", overall::NAME))));
    }
    if !unjudged.is_empty() && record.header.policy.unjudged == UnjudgedPolicy::Warn {
        let more = if unjudged.len() > NAMED { ", …" } else { "" };
        out.push(format!(
            "nothing is expected of {}: {}{more} (policy.unjudged)",
            plural(unjudged.len(), "cell"),
            unjudged[..unjudged.len().min(NAMED)].join(", ")
        ));
    }
    out
}

/// Why cells have not run: how many of them, and each reason. The mean ratio waits with them.
pub fn not_run(record: &RunRecord) -> Vec<(String, String)> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for reason in record.cells.iter().filter_map(reason) {
        match counted.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, n)) => *n += 1,
            None => counted.push((reason, 1)),
        }
    }
    let cells = counted.into_iter().map(|(reason, n)| (plural(n, "cell"), reason));
    let mut told: Vec<(String, String)> = cells.collect();
    if let Some(overall) = overall::of(record).filter(|it| it.judgement().verdict == Verdict::Error)
        && overall.is_pending()
    {
        told.push(("the mean ratio".to_owned(), overall.said()));
    }
    told
}

/// Each start of a launch whose cells are measured in several:
/// `launch 2 of 4: ready after 3.1 s, log engine-new.2.log`.
pub fn starts(record: &RunRecord, launch: usize) -> Vec<String> {
    let Some(outcome) = record.launches.get(launch) else { return Vec::new() };
    let rounds = record.rounds_of(launch);
    // Why an engine was started again for the same round is among the warnings.
    if outcome.starts.len() < 2 || rounds < 2 {
        return Vec::new();
    }
    let of = |(at, start): (usize, &EngineStart)| {
        let which = format!("launch {} of {rounds}", start.round + 1);
        let again = outcome.starts[..at].iter().any(|before| before.round == start.round);
        let again = if again { ", started again" } else { "" };
        let ready = start.ready_time.map(|seconds| format!("ready after {}", elapsed(seconds)));
        let failed = start.failure.as_ref().map(|why| format!("FAILED: {why}"));
        let log = start.log.as_ref().map(|log| format!("log {log}"));
        let parts: Vec<String> = [ready, failed, log].into_iter().flatten().collect();
        one_line(&format!("{which}{again}: {}", parts.join(", ")))
    };
    outcome.starts.iter().enumerate().map(of).collect()
}

/// A failed launch in full: step, message, exit, the telling lines of its log.
pub fn of_launch(failure: &LaunchFailure, log: Option<&str>) -> Vec<String> {
    let mut out = vec![format!("step: {}", line(&failure.step))];
    out.extend(failure.exit.iter().map(|exit| format!("exit: {}", line(exit))));
    if let Some(log) = log {
        out.push(format!("log: {}", line(log)));
    }
    out.extend(
        failure
            .log_tail
            .iter()
            .flat_map(|text| lines(text).lines().map(|one| format!("  {one}")).collect::<Vec<_>>()),
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_rerun_command_names_one_cell_and_carries_the_flags() {
        let record = fixture::page_with_a_loss();
        let planned = record.header.cells.iter().find(|c| c.id == "context=8K,concurrency=128");
        assert_eq!(
            rerun(&record, planned.unwrap()),
            "tokgate run suites/page.toml -E 'test=decode context=8K concurrency=128' --seed 42"
        );
    }

    #[test]
    fn details_say_each_thing_once() {
        let mut record = fixture::page();
        let (planned, outcome) = (&mut record.header.cells[12], &mut record.cells[12]);
        let judged = outcome.judgement.bounds[0].clone();
        planned.bounds = vec![planned.bounds[0].clone(); 3];
        let line = |what: &str, verdict| {
            let message = format!("{what} is slow");
            crate::record::run_record::BoundJudgement { message, verdict, ..judged.clone() }
        };
        outcome.judgement.message = Some("a is slow".into());
        outcome.judgement.bounds = vec![
            line("a", BoundVerdict::Fail),
            line("b", BoundVerdict::Fail),
            line("c", BoundVerdict::Inconclusive),
        ];
        planned.bounds[1].severity = Severity::Warn;
        planned.bounds[2].severity = Severity::Report;
        outcome.judgement.warnings = vec!["b is slow".into()];
        assert_eq!(details(planned, outcome), ["report: c is slow", "warning: b is slow"]);
    }

    #[test]
    fn a_warning_at_the_end_of_the_message_is_told_where_the_message_is_cut() {
        let record = fixture::throttled();
        let at = fixture::hot_cell(&record);
        let (planned, mut outcome) = (&record.header.cells[at], record.cells[at].clone());
        let warned = |outcome: &CellOutcome| {
            details(planned, outcome)
                .iter()
                .any(|line| line.starts_with("warning: hardware was suspect"))
        };
        assert!(!warned(&outcome));
        let message = outcome.judgement.message.as_mut().unwrap();
        *message = format!("{}; {message}", "one of very many limits ".repeat(60));
        assert!(warned(&outcome));
    }

    #[test]
    fn every_warning_names_its_cell() {
        assert_eq!(
            warnings(&fixture::every_verdict()),
            [
                "the suite has no floors for prefill",
                "decode concurrency=1 layout=tp8: capacity grew: expected over, and it fits",
                "nothing is expected of 1 cell: decode concurrency=32 layout=tp8 (policy.unjudged)",
            ]
        );
    }

    #[test]
    fn a_title_has_what_is_known() {
        let mut record = fixture::page();
        assert_eq!(
            title(&record),
            "inkling-small-h200x8 · thinkingmachines/Inkling-Small · 8 × H200 · vllm 0.29.0 · bf16"
        );
        record.header.declared = Default::default();
        record.header.declared.engine = "vllm".into();
        record.launches[0].facts.as_mut().unwrap().version = Some("\u{1b}[1m0.30".into());
        assert_eq!(
            title(&record),
            "inkling-small-h200x8 · thinkingmachines/Inkling-Small · EPYC (96 cores) · vllm (0.30)"
        );
    }
}
