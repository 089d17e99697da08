//! Annotations on GitHub: the worst cells as messages on the line of the suite that asked for more.
//!
//! GitHub reads commands out of what a step prints (`::error file=…::…`), and Azure has its own
//! (`##vso[…]`). So there are two sides to it: the commands that are meant, escaped so that they say what
//! they say; and all other text, which must not be taken for one.

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use crate::record::RunRecord;
use crate::suite::model::Place;

use super::grid;
use super::message;
use super::overall;
use super::sanitise::line;
use super::worst::{self, Need, Which};

/// GitHub shows so many errors and so many warnings of a step.
const MOST: usize = 10;
/// Lines of a failed launch's log in its annotation.
const TELLING: usize = 5;

/// From where paths are told.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The directory in which tokgate was started: the record's paths count from here.
    pub here: &'a Path,
    /// `GITHUB_WORKSPACE`: annotations count from there.
    pub workspace: &'a Path,
}

/// The annotations of a record, a line each: errors for launches, cells and a mean ratio that turn the run red, the
/// worst first, then warnings for cells in doubt that policy lets pass.
pub fn annotations(record: &RunRecord, ground: Ground<'_>) -> String {
    let mut errors: Vec<String> = Vec::new();
    let mut warnings: Vec<String> = Vec::new();
    for (planned, launch) in record.header.launches.iter().zip(&record.launches) {
        if let Some(failure) = &launch.failure {
            let title = format!("launch {} failed", planned.name);
            // What its log says of the cause, which a message rarely does.
            let lines = failure.log_tail.iter().rev().take(TELLING).rev();
            let told: Vec<&str> =
                std::iter::once(&failure.message).chain(lines).map(String::as_str).collect();
            errors.push(command("error", &planned.place, &title, &told.join("\n"), ground));
        }
    }
    for (which, need) in worst::cases(record) {
        let (list, kind) = match need {
            Need::Failed | Need::Unjudged | Need::Doubtful => (&mut errors, "error"),
            Need::Tolerated => (&mut warnings, "warning"),
            // A failed launch, or the end of the run, speaks for all that it kept from running.
            Need::NotRun => continue,
        };
        if list.len() >= MOST {
            continue;
        }
        let (place, title, said, rerun) = match which {
            Which::Cell(cell) => {
                let (planned, outcome) = (&record.header.cells[cell], &record.cells[cell]);
                let title = format!("{} {}", grid::mark(outcome), message::name(planned));
                let said = message::of_cell(outcome).unwrap_or_default();
                let place = message::place(planned, outcome);
                (place, title, said, message::rerun(record, planned))
            }
            Which::MeanRatio => {
                let Some(overall) = overall::of(record) else { continue };
                let title = format!("{} {} {}", overall.mark(), overall::NAME, overall.heading());
                (&overall.compare.place, title, overall.said(), message::rerun_all(record))
            }
        };
        let told = format!("{said}\nrerun: {rerun}");
        list.push(command(kind, place, &title, &told, ground));
    }
    errors.truncate(MOST);
    errors.concat() + &warnings.concat()
}

fn command(kind: &str, place: &Place, title: &str, said: &str, ground: Ground<'_>) -> String {
    let mut out = format!("::{kind} ");
    // A place outside of the repository has no line there to stand on.
    if let Some(file) = relative(&place.file, ground) {
        let _ = write!(out, "file={},line={},", property(&file), place.line);
    }
    let said: Vec<String> = said.lines().map(message::one_line).collect();
    let _ = writeln!(out, "title={}::{}", property(&line(title)), data(&said.join("\n")));
    out
}

/// A path of the record as the repository has it.
fn relative(file: &str, ground: Ground<'_>) -> Option<String> {
    let whole = plain(&plain(ground.here).join(file));
    let inside = whole.strip_prefix(plain(ground.workspace)).ok()?;
    inside.to_str().map(line)
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(part),
        }
    }
    out
}

/// The message of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property of a command, which ends at a comma or a colon.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Whether a CI service reads commands out of what this process prints.
pub fn reads_along() -> bool {
    let is_true = |name| std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    is_true("GITHUB_ACTIONS") || is_true("TF_BUILD")
}

/// Text for the log of a CI service that may read along: no command is left in it.
///
/// GitHub takes a line that begins with `::` for one, behind blanks too; GitHub and Azure take
/// `##name[` wherever it stands. A blank is put between the two signs.
pub fn disarmed(text: &str) -> Cow<'_, str> {
    if !text.contains("::") && !text.contains("##") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for piece in text.split_inclusive(['\n', '\r']) {
        let rest = behind_blanks(piece);
        let indent = &piece[..piece.len() - rest.len()];
        out.push_str(indent);
        match rest.strip_prefix("::") {
            Some(rest) => {
                out.push_str(": :");
                without_hashes(rest, &mut out);
            }
            None => without_hashes(rest, &mut out),
        }
    }
    Cow::Owned(out)
}

/// What stands behind blanks and colours.
fn behind_blanks(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some((code, behind)) = rest.strip_prefix("\u{1b}[").and_then(|it| it.split_once('m'))
    {
        if !code.chars().all(|c| c.is_ascii_digit() || c == ';') {
            break;
        }
        rest = behind.trim_start();
    }
    rest
}

fn without_hashes(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest.find("##") {
        let (before, after) = rest.split_at(at + 1);
        out.push_str(before);
        let name = after[1..].trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-');
        if name.starts_with('[') {
            out.push(' ');
        }
        rest = after;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::fixture;

    fn told(record: &RunRecord, here: &str) -> Vec<String> {
        let ground = Ground { here: Path::new(here), workspace: Path::new("/work/repo") };
        annotations(record, ground).lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_annotation_stands_on_the_line_that_set_the_limit() {
        let record = fixture::page_with_a_loss();
        assert_eq!(
            told(&record, "/work/repo/perf"),
            [
                "::error file=perf/suites/page.toml,line=58,title=✗ fail decode context=8K concurrency=128::\
              output-throughput 6 871 tok/s < 6 936.9 (-5.9 %25 of 7 302, in this launch, suites/page.toml:58)\
              %0Arerun: tokgate run suites/page.toml -E 'test=decode context=8K concurrency=128' --seed 42"
            ]
        );
        assert!(told(&record, "/elsewhere")[0].starts_with("::error title=✗ fail"));
        assert!(told(&record, "/work/repo/a/../..")[0].starts_with("::error title="));
    }

    #[test]
    fn a_mean_ratio_stands_on_the_line_of_its_limit_before_the_cells() {
        let lines = told(&fixture::compare(), "/work/repo");
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(
            lines[0].starts_with(
                "::error file=suites/page.toml,line=8,title=✗ fail mean ratio new against old::mean ratio 0.9"
            ),
            "{}",
            lines[0]
        );
        assert!(lines[0].ends_with("%0Arerun: tokgate run suites/page.toml --seed 42"));
        assert!(
            lines[1].contains("line=40,title=✗ fail decode variant=new context=8K"),
            "{}",
            lines[1]
        );
        assert!(told(&fixture::compare_without_loss(), "/work/repo").is_empty());
    }

    #[test]
    fn ten_errors_at_most_the_worst_first_and_doubt_is_a_warning() {
        let lines = told(&fixture::every_verdict(), "/work/repo");
        let heads: Vec<&str> = lines
            .iter()
            .map(|line| line.split("title=").nth(1).unwrap().split("::").next().unwrap())
            .collect();
        assert_eq!(
            heads,
            [
                "launch layout=dp8 failed",
                "✗ fail decode concurrency=2 layout=tp8",
                "✗ degraded decode concurrency=4 layout=tp8",
                "! error decode concurrency=16 layout=tp8",
                "? unsure decode concurrency=8 layout=tp8",
            ]
        );
        assert!(
            lines[4].starts_with("::warning ")
                && lines[..4].iter().all(|l| l.starts_with("::error "))
        );
        let mut record = fixture::every_verdict();
        let (planned, outcome) = (record.header.cells[1].clone(), record.cells[1].clone());
        record.header.cells.extend(std::iter::repeat_n(planned, 30));
        record.cells.extend(std::iter::repeat_n(outcome, 30));
        let lines = told(&record, "/work/repo");
        assert_eq!(lines.iter().filter(|line| line.starts_with("::error ")).count(), 10);
    }

    #[test]
    fn foreign_text_starts_no_command_and_adds_no_property() {
        let mut record = fixture::every_verdict();
        let hostile =
            "x,line=1::boo\r\n::set-env name=PATH::/tmp\n##vso[task.setvariable]%0A::error::%";
        record.header.launches[1].name = hostile.into();
        record.header.launches[1].place.file = hostile.into();
        record.launches[1].failure.as_mut().unwrap().message = hostile.into();
        let first = &told(&record, "/work/repo")[0];
        assert!(
            first.starts_with(
                "::error file=x%2Cline=1%3A%3Aboo %3A%3Aset-env name=PATH%3A%3A/tmp \
                 ##vso[task.setvariable]%250A%3A%3Aerror%3A%3A%25,line=12,title=launch x%2Cline"
            ),
            "{first}"
        );
        assert!(
            told(&record, "/work/repo")
                .iter()
                .all(|line| line.starts_with("::error ") || line.starts_with("::warning "))
        );
    }

    #[test]
    fn what_is_printed_is_no_command() {
        for (text, left) in [
            ("::error::boo", ": :error::boo"),
            ("  ::add-mask::x\n\t::y", "  : :add-mask::x\n\t: :y"),
            ("a ##vso[task.complete]##[error]x", "a # #vso[task.complete]# #[error]x"),
            ("###[x] ##teamcity[y]", "## #[x] # #teamcity[y]"),
            ("std::vector ## heading", "std::vector ## heading"),
            ("a\r::b", "a\r: :b"),
            (" \u{1b}[1;31m ::b", " \u{1b}[1;31m : :b"),
        ] {
            assert_eq!(disarmed(text), left);
        }
    }

    proptest! {
        #[test]
        fn no_command_survives(text in "([ \t\n\r:#\\[a-zé]|::|##vso\\[|##\\[){0,40}") {
            let left = disarmed(&text);
            for line in left.split(['\n', '\r']) {
                prop_assert!(!line.trim_start().starts_with("::"), "{line:?}");
            }
            prop_assert!(!left.contains("##[") && !left.contains("##vso["), "{left:?}");
            prop_assert_eq!(disarmed(&left), left.clone());
        }
    }
}
