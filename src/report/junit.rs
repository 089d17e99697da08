//! JUnit XML in two dialects from one model of cases.
//!
//! `rich` is what most consumers read best: properties, file and line. `strict` keeps to the
//! schema that Jenkins' xUnit plugin validates against, which knows none of them. Neither decides
//! what a case says; that is `case.rs`.

use std::path::PathBuf;
use std::time::Duration;

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestRerun, TestSuite, XmlString};

use crate::record::RunRecord;

use super::case::{self, Case, Cases, Earlier, Note, Standing, Suite};
use super::sanitise::cdata;

/// Which JUnit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Dialect {
    /// With properties, file and line.
    #[default]
    Rich,
    /// Valid by Jenkins' junit-10.xsd.
    Strict,
}

/// What is asked of the file of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// Its dialect.
    pub dialect: Dialect,
    /// The page that failing cases point to, from the root of a project on GitLab.
    pub page: Option<String>,
    /// Where it is written too.
    pub copy: Option<PathBuf>,
}

/// Renders a record as JUnit XML.
pub fn render(record: &RunRecord, dialect: Dialect) -> String {
    ordered(record, &Order { dialect, ..Order::default() })
}

/// As [`render`], with the page that is asked for.
pub fn ordered(record: &RunRecord, order: &Order) -> String {
    let cases = case::pointing(record, order.page.as_deref());
    match order.dialect {
        Dialect::Rich => rich(&cases),
        Dialect::Strict => strict(&cases),
    }
}

fn rich(cases: &Cases) -> String {
    let mut report = quick_junit::Report::new(cases.name.as_str());
    let mut whole = Duration::ZERO;
    for suite in &cases.suites {
        let time = suite.cases.iter().map(|case| Duration::from_millis(case.millis)).sum();
        whole += time;
        let mut out = TestSuite::new(suite.name.as_str());
        out.set_time(time);
        for (name, value) in
            [("timestamp", &suite.started), ("hostname", &suite.hostname), ("file", &cases.file)]
        {
            if !value.is_empty() {
                out.extra.insert(name.into(), XmlString::new(value));
            }
        }
        for (name, value) in &suite.properties {
            out.add_property((name.as_str(), value.as_str()));
        }
        out.add_test_cases(suite.cases.iter().map(rich_case));
        report.add_test_suite(out);
    }
    report.set_time(whole);
    // Writing into memory can't fail, and what is written is UTF-8.
    report.to_string().unwrap_or_default()
}

fn rich_case(case: &Case) -> TestCase {
    let told = |mut status: TestCaseStatus, note: &Note| {
        status.set_message(note.message.as_str());
        status.set_type(note.kind.as_str());
        status.set_description(note.text.as_str());
        status
    };
    let mut status = match &case.standing {
        Standing::Plain => TestCaseStatus::success(),
        Standing::Skipped(note) => told(TestCaseStatus::skipped(), note),
        Standing::Failure(note) => told(TestCaseStatus::non_success(NonSuccessKind::Failure), note),
        Standing::Error(note) => told(TestCaseStatus::non_success(NonSuccessKind::Error), note),
    };
    // Flaky where the case stands well in the end, else a rerun; a case that was skipped has none.
    status.add_reruns(case.earlier.iter().map(rerun));
    let mut out = TestCase::new(case.name.as_str(), status);
    out.set_classname(case.classname.as_str());
    out.set_time(Duration::from_millis(case.millis));
    if !case.place.file.is_empty() {
        out.extra.insert("file".into(), XmlString::new(&case.place.file));
        out.extra.insert("line".into(), XmlString::new(case.place.line.to_string()));
    }
    for (name, value) in &case.properties {
        out.add_property((name.as_str(), value.as_str()));
    }
    if !case.output.is_empty() {
        out.set_system_out(case.output.as_str());
    }
    out
}

fn rerun(earlier: &Earlier) -> TestRerun {
    let kind = if earlier.error { NonSuccessKind::Error } else { NonSuccessKind::Failure };
    let mut out = TestRerun::new(kind);
    out.set_type(earlier.kind);
    out.set_message(earlier.message.as_str());
    // Jenkins reads this child, and not the element's own text.
    out.set_stack_trace(earlier.text.as_str());
    out
}

fn strict(cases: &Cases) -> String {
    let mut report = junit_report::Report::new();
    for suite in &cases.suites {
        let mut out = junit_report::TestSuite::new(&suite.name);
        let started: Option<jiff::Timestamp> = suite.started.parse().ok();
        let started = started
            .and_then(|at| junit_report::OffsetDateTime::from_unix_timestamp(at.as_second()).ok())
            .unwrap_or(junit_report::OffsetDateTime::UNIX_EPOCH);
        out.set_timestamp(started);
        // Jenkins puts a package before the suite's name, where it would be noise.
        out.package.clear();
        if !suite.hostname.is_empty() {
            out.hostname.clone_from(&suite.hostname);
        }
        out.add_testcases(suite.cases.iter().zip(plain_times(suite)).map(strict_case));
        report.add_testsuite(out);
    }
    let mut bytes = Vec::new();
    // Writing into memory can't fail, and what is written is UTF-8.
    match report.write_xml(&mut bytes) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

fn strict_case((case, millis): (&Case, u64)) -> junit_report::TestCase {
    let time = duration(millis);
    let name = &case.name;
    let with_cause = |mut out: junit_report::TestCase, text: &str| {
        let text = Some(cdata(text));
        match &mut out.result {
            junit_report::TestResult::Error { cause, .. }
            | junit_report::TestResult::Failure { cause, .. }
            | junit_report::TestResult::SkippedWithCause { cause, .. } => *cause = text,
            junit_report::TestResult::Success | junit_report::TestResult::Skipped => {}
        }
        out
    };
    let mut out = match &case.standing {
        Standing::Plain => junit_report::TestCase::success(name, time),
        Standing::Skipped(note) => with_cause(
            junit_report::TestCase::skipped_with_cause(name, &note.kind, &note.message),
            &note.text,
        ),
        Standing::Failure(note) => with_cause(
            junit_report::TestCase::failure(name, time, &note.kind, &note.message),
            &note.text,
        ),
        Standing::Error(note) => with_cause(
            junit_report::TestCase::error(name, time, &note.kind, &note.message),
            &note.text,
        ),
    };
    out.time = time;
    out.set_classname(&case.classname);
    if !case.output.is_empty() {
        out.set_system_out(&cdata(&case.output));
    }
    out
}

/// Milliseconds of each case, moved by as few as it takes that the crate prints them and their sum
/// with at most three digits: it adds seconds and fraction as binary numbers, which makes 4.637 s
/// `4.6370000000000005`, and the schema refuses that.
fn plain_times(suite: &Suite) -> Vec<u64> {
    let up = |mut millis: u64| {
        while !prints_plainly(millis) {
            millis += 1;
        }
        millis
    };
    let mut times: Vec<u64> = suite.cases.iter().map(|case| up(case.millis)).collect();
    let before: u64 = times.iter().rev().skip(1).sum();
    if let Some(last) = times.last_mut() {
        while !prints_plainly(*last) || !prints_plainly(before + *last) {
            *last += 1;
        }
    }
    times
}

fn prints_plainly(millis: u64) -> bool {
    let text = duration(millis).as_seconds_f64().to_string();
    text.split_once('.').is_none_or(|(_, fraction)| fraction.len() <= 3)
}

fn duration(millis: u64) -> junit_report::Duration {
    junit_report::Duration::milliseconds(i64::try_from(millis).unwrap_or(i64::MAX))
}

#[cfg(test)]
#[path = "junit_tests.rs"]
mod tests;
