//! A command cell: an external tool against the launched engine, its result file read.
//!
//! The tool runs under a supervisor, so that nothing of it is left when the cell ends, however that
//! comes about. Whatever goes wrong with it is an error and never a failure: nobody's change is
//! too slow because a tool is broken. What its numbers mean is decided in `measure::preset` and by the
//! suite.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use crate::engine;
use crate::engine::artefact;
use crate::engine::log::LogFile;
use crate::engine::redact::Redactor;
use crate::engine::supervise::{self as process, Secrecy, SuperviseError};
use crate::matrix::CommandSpec;
use crate::measure::preset::Told;
use crate::measure::{Base, Metric, document, told, validity};
use crate::record::run_record::{CellState, Measurement};
use crate::suite::model::CommandSetting;
use crate::transport::Transport;

use super::cell::{Bench, broken_words};
use super::watch;

/// Largest result that is read, in bytes: detailed ones hold every token's time.
const LARGEST: u64 = 512 << 20;
/// How long hiding secrets in a tool's files may take.
const CLEANING: Duration = Duration::from_secs(30);
/// Files that a message lists where the result is not among them.
const LISTED: usize = 8;

/// Measures the cell.
pub(super) async fn measure(bench: &mut Bench<'_>, setting: &CommandSetting) -> CellState {
    match attempt(bench, setting).await {
        Ok(measurement) => CellState::Measured(Box::new(measurement)),
        Err(state) => state,
    }
}

/// Whether a cell was given up as a tool's cells are: its engine may have died first.
pub(super) fn is_tools_fault(class: &str) -> bool {
    class.starts_with("command-") || class.starts_with("result-")
}

async fn attempt(
    bench: &mut Bench<'_>,
    setting: &CommandSetting,
) -> Result<Measurement, CellState> {
    match bench.endpoint.transport {
        Transport::Tcp | Transport::Relayed(_) => {}
        Transport::InProcess(_) => {
            return Err(broken_words(
                "unreachable",
                "the simulated engine runs inside of tokgate, where no tool reaches it: write clock = \"real\"",
            ));
        }
    }
    let mut repeats = Vec::new();
    let mut requests: Option<(u64, u64)> = None;
    let mut idle = true;
    let mut warnings = Vec::new();
    let mut stretches = Vec::new();
    for repeat in 0..setting.repeat.max(1) {
        let spec = match bench.plan.command_spec(bench.cell, bench.runtime, repeat) {
            Ok(Some(spec)) => spec,
            Ok(None) => return Err(broken_words("template", "the test has no command")),
            Err(error) => return Err(broken_words("template", &error.to_string())),
        };
        bench.phase("command", format!("run {} of {}", repeat + 1, setting.repeat.max(1)));
        let begun = bench.clock.now();
        let ran = run(bench, &spec).await;
        stretches.push((begun, bench.clock.now()));
        // Figures are read as the tool wrote them: one may hold the figures of a secret.
        let found = ran.and_then(|()| read(bench, setting, &spec));
        for word in clean(bench, &spec).await {
            warnings.push(word);
        }
        let found = found?;
        repeats.push(found.figures);
        if let Some((failed, all)) = found.requests {
            let (failed_before, all_before) = requests.unwrap_or_default();
            requests = Some((failed_before + failed, all_before + all));
        }
        bench.phase("drain", String::new());
        idle &= watch::drained(bench).await;
    }
    let observations = told::observations(&repeats);
    let mut measurement = Measurement { observations, warnings, ..Measurement::default() };
    measurement.telemetry = bench.instruments.over(&stretches).await.map(Box::new);
    if let Some((failed, all)) = requests {
        measurement.requests = all;
        let allowed = bench.policy.max_error_rate;
        measurement.checks.push(validity::error_rate(failed, all, allowed));
    }
    if !idle {
        measurement.warnings.push("the engine was not idle again after the command".to_owned());
    }
    Ok(measurement)
}

/// Hides secrets in what the tool has left, now that nothing of it runs; what could not be, as words.
async fn clean(bench: &Bench<'_>, spec: &CommandSpec) -> Vec<String> {
    let (dir, redactor) = (spec.dir.clone(), bench.redactor.clone());
    let cleaning = move || artefact::clean(&dir, &redactor, CLEANING);
    tokio::task::spawn_blocking(cleaning).await.unwrap_or_default()
}

/// Runs the tool to its end, in an empty directory of its own.
async fn run(bench: &Bench<'_>, spec: &CommandSpec) -> Result<(), CellState> {
    let failed = |message: String| broken_words("command-failed", &message);
    // What is emptied and written to is ours: an engine could have put a link in its way.
    let way = spec.dir.ancestors().take_while(|path| *path != bench.runtime.out_dir);
    if let Some(link) = way.into_iter().find(|path| path.is_symlink()) {
        return Err(failed(format!("{} is a link, which is not followed", link.display())));
    }
    if spec.dir.exists() {
        std::fs::remove_dir_all(&spec.dir)
            .map_err(|error| failed(format!("{} can't be emptied: {error}", spec.dir.display())))?;
    }
    std::fs::create_dir_all(&spec.dir)
        .map_err(|error| failed(format!("{} can't be made: {error}", spec.dir.display())))?;
    let log = log_path(bench);
    let written = LogFile::from_here(&log);
    let command = engine::Command { argv: spec.argv.clone() };
    let folder = [spec.dir.clone()];
    let secrecy = Secrecy { redactor: bench.redactor, clean: &folder, always: false };
    let logged = (log.as_path(), secrecy);
    let ended = process::run_secretive(&command, &spec.env, None, logged, spec.timeout).await;
    let program = program(&spec.argv);
    let (class, why) = match ended {
        Ok(exit) if exit.success() => return Ok(()),
        Ok(exit) => ("command-failed", format!("`{program}` failed: {exit}")),
        Err(error @ SuperviseError::TimedOut(_)) => {
            ("command-time-out", format!("`{program}`: {error}"))
        }
        Err(
            error @ (SuperviseError::Log { .. }
            | SuperviseError::Supervisor(_)
            | SuperviseError::NotStarted(_)),
        ) => return Err(failed(error.to_string())),
    };
    Err(broken_words(class, &with_log(&why, &log, &written, bench.redactor)))
}

/// A message, the last line of the log, where the log is; and behind it, a line each, its telling
/// lines.
fn with_log(why: &str, log: &Path, written: &LogFile, redactor: &Redactor) -> String {
    let lines = written.telling(redactor);
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let Some(last) = lines.last() else { return format!("{why} (it printed nothing)") };
    format!("{why}; its last line: {last} (see {name})\n{}", lines.join("\n"))
}

/// `command-<cell>.log` in the output directory; with the launch's name where there are several.
fn log_path(bench: &Bench<'_>) -> PathBuf {
    let launches = &bench.plan.launches;
    let launch = match launches.len() {
        1 => String::new(),
        _ => format!("{}.", launches[bench.cell.launch as usize].name),
    };
    let cell = bench.plan.cell_file(bench.cell);
    bench.runtime.out_dir.join(format!("command-{launch}{cell}.log"))
}

/// What a tool is called.
fn program(argv: &[String]) -> &str {
    let program = argv.first().map_or("", String::as_str);
    program.rsplit('/').next().unwrap_or(program)
}

/// Reads the result of one run.
fn read(
    bench: &Bench<'_>,
    setting: &CommandSetting,
    spec: &CommandSpec,
) -> Result<Told, CellState> {
    let shown = spec.result.strip_prefix(&spec.dir).unwrap_or(&spec.result).display().to_string();
    let text = text_of(spec, &shown)?;
    let unreadable =
        |why: &str| broken_words("result-unreadable", &format!("the result {shown}: {why}"));
    let documents = document::read(&text).map_err(|error| unreadable(&error.to_string()))?;
    let wanted: Vec<Metric> = bench.planned.bounds.iter().map(|bound| bound.metric).collect();
    let mut found = match setting.preset {
        Some(preset) => preset.read(&documents, &wanted).map_err(|error| {
            broken_words("result-unfit", &format!("the result {shown}: {error}"))
        })?,
        None => Told::default(),
    };
    if setting.metrics.is_empty() {
        return Ok(found);
    }
    let document = match &documents[..] {
        [document] => document,
        // The line that its preset reads.
        [.., last] if setting.preset.is_some() => last,
        several => {
            let why = format!("it has {} JSON values, where one is expected", several.len());
            return Err(unreadable(&why));
        }
    };
    for (metric, pointer) in &setting.metrics {
        let value = document::number(document, pointer).map_err(|error| {
            let message = format!("the result {shown}: metrics.{}: {error}", metric.name());
            broken_words("result-unfit", &message)
        })?;
        let metric = Metric { base: Base::User(*metric), stat: None, per_gpu: false };
        found.figures.insert(metric, value);
    }
    Ok(found)
}

/// The text of the result, which must be a file of the cell's own directory.
fn text_of(spec: &CommandSpec, shown: &str) -> Result<String, CellState> {
    let program = program(&spec.argv);
    let outside = || {
        broken_words(
            "result-unreadable",
            &format!(
                "the result {shown} is outside of {{{{ cell.dir }}}}: write a path below it, without `..`"
            ),
        )
    };
    let unreadable = |why: &str| {
        broken_words("result-unreadable", &format!("the result {shown} can't be read: {why}"))
    };
    let inside = spec.result.strip_prefix(&spec.dir).is_ok_and(|relative| {
        relative.components().all(|part| matches!(part, Component::Normal(_)))
    });
    if !inside {
        return Err(outside());
    }
    let found = matching(&spec.dir, spec.result.strip_prefix(&spec.dir).unwrap_or(&spec.result));
    let real = match &found[..] {
        [path] => path.canonicalize().map_err(|error| unreadable(&error.to_string()))?,
        [] => {
            let there = listed(&spec.dir);
            let dir = spec.dir.display();
            let message = format!("`{program}` ended well and wrote no {shown} in {dir}; {there}");
            return Err(broken_words("result-missing", &message));
        }
        several => {
            return Err(unreadable(&format!(
                "{} files are called so, and one is the result",
                several.len()
            )));
        }
    };
    if !spec.dir.canonicalize().is_ok_and(|dir| real.starts_with(dir)) {
        return Err(outside());
    }
    let meta = std::fs::metadata(&real).map_err(|error| unreadable(&error.to_string()))?;
    if !meta.is_file() {
        return Err(unreadable("it is no file"));
    }
    if meta.len() > LARGEST {
        return Err(unreadable(&format!(
            "it has {} bytes, and {LARGEST} are the most: have the tool leave out details of requests",
            meta.len()
        )));
    }
    let bytes = std::fs::read(&real).map_err(|error| unreadable(&error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| unreadable("it is no text"))
}

/// The files below `dir` at a relative path; `*` in a part of it stands for any characters, since tools
/// put times into names.
fn matching(dir: &Path, relative: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for part in relative {
        let part = part.to_string_lossy();
        found = found
            .iter()
            .flat_map(|folder| match part.contains('*') {
                false => vec![folder.join(&*part)],
                true => std::fs::read_dir(folder)
                    .into_iter()
                    .flatten()
                    .flatten()
                    .filter(|entry| fits(&entry.file_name().to_string_lossy(), &part))
                    .map(|entry| entry.path())
                    .collect(),
            })
            .filter(|path| path.exists())
            .collect();
    }
    found
}

/// Whether a name is one that a pattern with `*` stands for.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(head) else { return false };
    let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
    ends.into_iter().any(|at| fits(&name[at..], rest))
}

/// Which files there are, for who looks for one.
fn listed(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let more = if names.len() > LISTED { ", …" } else { "" };
    names.truncate(LISTED);
    if names.is_empty() {
        "nothing is there".to_owned()
    } else {
        format!("there are {}{more}", names.join(", "))
    }
}

/// Why a program can't be started, where that can be told without starting it.
pub(super) fn not_there(spec: &CommandSpec) -> Option<String> {
    let program = spec.argv.first()?;
    if program.contains('/') {
        let there = Path::new(program).exists();
        return (!there).then(|| format!("can't start `{program}`: there is no such file"));
    }
    let own = spec.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = own.map(|(_, value)| value.into()).or_else(|| std::env::var_os("PATH"))?;
    let found = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    (!found).then(|| format!("can't start `{program}`: not found in any directory of PATH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_of_a_name() {
        for (name, pattern, same) in [
            ("out.json", "out.json", true),
            ("results_2026-11-30T01.json", "results_*.json", true),
            ("samples_2026.json", "results_*.json", false),
            ("abc", "*", true),
            ("aXbXc", "a*b*c", true),
            ("aXbX", "a*b*c", false),
            ("é", "*", true),
        ] {
            assert_eq!(fits(name, pattern), same, "{name} {pattern}");
        }
        let dir = tempfile::tempdir().unwrap();
        for file in ["model/results_1.json", "model/samples_1.json", "results_2.json"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "{}").unwrap();
        }
        let found = |pattern: &str| matching(dir.path(), Path::new(pattern)).len();
        assert_eq!(found("*/results_*.json"), 1);
        assert_eq!(found("*/*.json"), 2);
        assert_eq!(found("results_2.json"), 1);
        assert_eq!(found("none/*.json"), 0);
    }
}
