//! `kind = "command"`: an external tool, its result, and the metrics that it defines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Checker;
use crate::measure::UserMetric;
use crate::measure::metric::{CATALOGUE, Direction};
use crate::suite::defaults;
use crate::suite::file::{At, CommandValue, Entries, File, MetricTable, TestTable};
use crate::suite::model::{CommandSetting, Spans, Test, TestSetting};
use crate::suite::name;
use crate::suite::problem::Problem;
use crate::template;

/// Longest unit of a metric in characters.
const LONGEST_UNIT: usize = 20;

impl Checker<'_> {
    pub(super) fn command_setting(
        &mut self,
        table: &At<TestTable>,
        spans: &mut Spans,
    ) -> Option<CommandSetting> {
        let test = &table.value;
        if test.command.is_none() {
            self.missing(
                "command",
                table.span.clone(),
                "a command test has no `command`",
                "write what is run, like `command = \"lm_eval … --output_path {{ cell.dir }}/out.json\"`",
            );
        }
        if test.result.is_none() {
            self.missing(
                "result",
                table.span.clone(),
                "a command test has no `result`",
                "name the JSON file that the command writes below {{ cell.dir }}, like `result = \"out.json\"`",
            );
        }
        let metrics = self.metrics(&test.metrics);
        if test.preset.is_none() && test.metrics.0.is_empty() {
            // Of a metric that was taken away its name is all that is known.
            if self.known.lost.is_empty() {
                self.say(
                    Problem::at(
                        "missing-key",
                        table.span.clone(),
                        "nothing says which figures the command's result holds",
                    )
                    .help("write `preset = \"vllm-bench-serve\"` for a known tool, or metrics.NAME = { pointer = \"/path/in/json\", better = \"higher\" }"),
                );
            }
            return None;
        }
        let command = test.command.as_ref();
        let command = command.and_then(|command| self.command("command", command, spans));
        let result = test.result.as_ref().and_then(|at| {
            spans.0.insert("result".to_owned(), at.span.clone());
            self.result(at)
        });
        let timeout = self.duration(test.timeout.as_ref(), defaults::TOOL);
        Some(CommandSetting {
            command: command?,
            result: result?,
            preset: test.preset.as_ref().map(|at| at.value),
            metrics: metrics?,
            timeout,
            repeat: test.repeat.as_ref().map_or(defaults::REPEAT, |at| at.value.0),
        })
    }

    /// A result stays in the cell's directory: a file elsewhere may be an earlier run's.
    fn result(&mut self, at: &At<String>) -> Option<String> {
        let path = std::path::Path::new(&at.value);
        let wrong = if at.value.trim().is_empty() {
            Some("an empty text names no file".to_owned())
        } else if path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
            Some(format!("`{}` leaves the directory of the cell", at.value))
        } else {
            None
        };
        match wrong {
            Some(message) => {
                self.say(Problem::at("result", at.span.clone(), message).help(
                    "write a path below {{ cell.dir }}, like \"out.json\", and let the command write there",
                ));
                None
            }
            None => Some(at.value.clone()),
        }
    }

    /// The metrics that a test defines, each with its pointer; `None` where one can't be read.
    fn metrics(&mut self, entries: &Entries<At<MetricTable>>) -> Option<Vec<(UserMetric, String)>> {
        let mut found = Vec::new();
        let mut whole = true;
        for (name, table) in &entries.0 {
            match self.metric(name, table) {
                Some(metric) => found.push(metric),
                None => whole = false,
            }
        }
        whole.then_some(found)
    }

    fn metric(
        &mut self,
        name: &At<String>,
        table: &At<MetricTable>,
    ) -> Option<(UserMetric, String)> {
        let metric = &table.value;
        let mut named = self.word(name, "the name of a metric");
        if CATALOGUE.iter().any(|entry| entry.name == name.value) {
            self.say(
                Problem::at(
                    "bad-name",
                    name.span.clone(),
                    format!(
                        "`{}` is a metric of the catalogue, with a formula of its own",
                        name.value
                    ),
                )
                .help(format!("choose another name, like `tool_{}`", name.value)),
            );
            named = false;
        }
        for (key, there, example) in [
            ("pointer", metric.pointer.is_some(), "pointer = \"/results/exact_match\""),
            ("better", metric.better.is_some(), "better = \"higher\"` or `better = \"lower\""),
        ] {
            if !there {
                let message = format!("the metric `{}` has no `{key}`", name.value);
                self.missing(key, table.span.clone(), &message, &format!("write `{example}`"));
            }
        }
        let pointer = metric.pointer.as_ref().map(|at| self.pointer(at));
        let unit = metric.unit.as_ref().map_or(Some(""), |at| self.unit(at));
        let (pointer, better) = (pointer??, metric.better.as_ref()?.value);
        named.then_some((UserMetric::new(&name.value, unit?, better), pointer))
    }

    /// A JSON pointer.
    fn pointer(&mut self, at: &At<String>) -> Option<String> {
        let text = &at.value;
        let help = if !text.starts_with('/') {
            let inner = text.trim_start_matches("$.").trim_start_matches('.');
            let path = inner.replace('[', "/").replace(']', "").replace('.', "/");
            format!("write it with slashes: \"/{path}\"")
        } else if text.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
            "write `~` as `~0`, and a `/` inside of a name as `~1`".to_owned()
        } else {
            return Some(text.clone());
        };
        self.say(
            Problem::at("pointer", at.span.clone(), format!("`{text}` is not a JSON pointer"))
                .help(help),
        );
        None
    }

    fn unit<'t>(&mut self, at: &'t At<String>) -> Option<&'t str> {
        let unit = at.value.as_str();
        if unit.chars().any(char::is_control) || unit.chars().count() > LONGEST_UNIT {
            self.say(
                Problem::at("bad-name", at.span.clone(), "a unit is a short word on one line")
                    .help("write it like \"%\" or \"ms\", or leave it out"),
            );
            return None;
        }
        Some(unit)
    }

    /// One name of a metric means the same in every test, since bounds and reports name it alone.
    pub(super) fn one_meaning_each(&mut self, file: &File, tests: &[Test]) {
        type Meaning = (Option<Direction>, String, Range<usize>);
        let mut known: BTreeMap<&str, Meaning> = BTreeMap::new();
        let commands = file.test.iter().filter(|test| {
            tests.iter().any(|found| {
                found.span == test.span && matches!(found.kind, TestSetting::Command(_))
            })
        });
        for (name, table) in commands.flat_map(|test| &test.value.metrics.0) {
            let better = table.value.better.as_ref().map(|at| at.value);
            let unit = table.value.unit.as_ref().map_or("", |at| &at.value).to_owned();
            match known.get(name.value.as_str()) {
                Some((other, of, first)) if (*other, of) != (better, &unit) => {
                    self.say(
                        Problem::at(
                            "two-meanings",
                            name.span.clone(),
                            format!("`{}` has another unit or direction here", name.value),
                        )
                        .also(first.clone(), "first")
                        .help("give both the same `unit` and `better`, or different names"),
                    );
                }
                Some(_) => {}
                None => {
                    known.insert(&name.value, (better, unit, name.span.clone()));
                }
            }
        }
    }
}

/// Whether a command test's templates name an axis, themselves or by way of `vars`.
pub(super) fn names_axis(test: &TestTable, file: &File, axis: &str) -> bool {
    let mut texts: Vec<&str> = test.result.iter().map(|at| at.value.as_str()).collect();
    match test.command.as_ref().map(|at| &at.value) {
        Some(CommandValue::Line(line)) => texts.push(line),
        Some(CommandValue::Words(words)) => texts.extend(words.iter().map(|at| at.value.as_str())),
        None => {}
    }
    let mut used: BTreeSet<String> = BTreeSet::new();
    // What can't be read names nothing; rendering it says why.
    texts.iter().for_each(|text| used.extend(template::names(text).unwrap_or_default()));
    // A var sees only those above it, so that one pass upwards finds all.
    for (name, value) in file.vars.0.iter().rev() {
        if reaches(&used, "vars", &name.value) {
            strings(&value.value, &mut |text| {
                used.extend(template::names(text).unwrap_or_default());
            });
        }
    }
    reaches(&used, "axis", axis)
}

/// Whether `table.name`, something below it, or the table as a whole is used.
fn reaches(used: &BTreeSet<String>, table: &str, name: &str) -> bool {
    used.iter().any(|used| {
        let mut parts = used.split('.');
        parts.next() == Some(table) && parts.next().is_none_or(|part| part == name)
    })
}

fn strings(value: &serde_json::Value, found: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::String(text) => found(text),
        serde_json::Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        serde_json::Value::Object(fields) => {
            fields.values().for_each(|field| strings(field, found));
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {}
    }
}

/// The user metric of a name that tests define.
pub(super) fn defined(name: &str, tests: &[Test]) -> Option<UserMetric> {
    metrics_of(tests.iter()).find(|metric| metric.name() == name)
}

/// The metrics that tests define.
fn metrics_of<'t>(tests: impl Iterator<Item = &'t Test>) -> impl Iterator<Item = UserMetric> {
    tests.flat_map(|test| match &test.kind {
        TestSetting::Command(setting) => {
            setting.metrics.iter().map(|(metric, _)| *metric).collect::<Vec<_>>()
        }
        TestSetting::Prefill { .. }
        | TestSetting::Decode(_)
        | TestSetting::Serve(_)
        | TestSetting::Startup => Vec::new(),
    })
}

/// What is near to a name that no metric has, among those of the suite.
pub(super) fn near(wanted: &str, tests: &[Test]) -> Option<String> {
    let names: Vec<&'static str> = metrics_of(tests.iter()).map(UserMetric::name).collect();
    name::nearest(wanted, names.iter().copied()).map(|near| format!("did you mean \"{near}\"?"))
}
