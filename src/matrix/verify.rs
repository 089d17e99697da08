//! Verification: what is wrong with a suite that shows only in its cells.
//!
//! This looks at names, templates and bounds as they stand; [`super::sighting`] watches the cells.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::expand::template_trouble;
use super::launch::render_setup;
use super::scene::{Moment, Scene};
use super::{Selection, Trouble};
use crate::judge::{Severity, Side};
use crate::suite::model::{
    AxisValue, CommandForm, CommandText, EngineSource, GridLimit, Key, Limits, Place, Predicate,
    Selector, Suite, TestSetting,
};
use crate::template::{self, TemplateError, nearest};

/// Refuses a matrix that is too large to expand.
pub(super) fn size(suite: &Suite, most: u128) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let mut total: u128 = 0;
    for test in &suite.tests {
        let mut product = suite.settings.len() as u128;
        for axis in &test.axes {
            product = product.saturating_mul(axis.values.len() as u128);
            if axis.values.len() > usize::from(u16::MAX) {
                troubles.push(
                    Trouble::new(
                        "axis-too-long",
                        format!("axis `{}` has {} values", axis.name, axis.values.len()),
                    )
                    .at(Some(axis.place.clone()))
                    .help(format!("an axis can have at most {}", u16::MAX)),
                );
            }
        }
        total = total.saturating_add(product);
    }
    if total > most && troubles.is_empty() {
        troubles.push(
            Trouble::new("too-many-cells", format!("the matrix has {total} cells"))
                .help(format!("a suite can have at most {most}; exclude does not count here")),
        );
    }
    troubles
}

/// What needs no cell: setup commands, pasted habits, selectors' names, bounds twice.
pub(super) fn whole(
    suite: &Suite,
    scenes: &[Scene],
    selection: &Selection,
    troubles: &mut Vec<Trouble>,
) {
    for (index, scene) in (0u32..).zip(scenes) {
        if let Err(blames) = render_setup(suite, scene, index, Moment::Planned) {
            troubles.extend(blames.into_iter().map(template_trouble));
        }
    }
    troubles.extend(super::probe::troubles(suite, scenes));
    habits(suite, troubles);
    portless(suite, troubles);
    for selector in selection.alternatives.iter().chain(&selection.skip) {
        let all: Vec<usize> = (0..suite.tests.len()).collect();
        let named = misnamed(suite, selector, &all, None);
        troubles.extend(named.into_iter().map(|trouble| Trouble {
            message: format!("in the selector '{}': {}", selector.text, trouble.message),
            ..trouble
        }));
    }
    twice(suite, troubles);
}

fn habits(suite: &Suite, troubles: &mut Vec<Trouble>) {
    for setting in &suite.settings {
        let engine = &setting.engine;
        let command = match &engine.source {
            EngineSource::Command(command) => Some(("engine.command", command)),
            EngineSource::Url(_) | EngineSource::Sim { .. } => None,
        };
        let commands = command
            .into_iter()
            .chain(engine.setup.iter().map(|setup| ("engine.setup", setup)))
            .chain(engine.stop_command.iter().map(|stop| ("engine.stop.command", stop)));
        let tools = suite.tests.iter().filter_map(|test| match &test.kind {
            TestSetting::Command(tool) => Some(("command", &tool.command)),
            TestSetting::Prefill { .. }
            | TestSetting::Decode(_)
            | TestSetting::Serve(_)
            | TestSetting::Startup => None,
        });
        let probe = suite.hardware_probe.iter().map(|probe| (super::probe::KEY, probe));
        for (key, command) in commands.chain(tools).chain(probe) {
            for error in habits_of(command, engine.shell) {
                troubles.push(Trouble {
                    code: "pasted-habit",
                    span: Some(command.span.clone()),
                    place: Some(command.place.clone()),
                    key: Some(key.to_owned()),
                    part: error.span.and_then(|span| match &command.form {
                        CommandForm::Line(line) => Some((line.as_str().into(), span)),
                        CommandForm::Words(_) => None,
                    }),
                    message: format!("{key}: {}", error.message),
                    help: error.help,
                    warning: false,
                });
            }
        }
    }
}

/// An engine that is not told its port listens elsewhere, and is waited for in vain.
fn portless(suite: &Suite, troubles: &mut Vec<Trouble>) {
    for setting in &suite.settings {
        let engine = &setting.engine;
        let EngineSource::Command(command) = &engine.source else { continue };
        let words = match &command.form {
            CommandForm::Line(line) => std::slice::from_ref(line),
            CommandForm::Words(words) => words.as_slice(),
        };
        let vars: Vec<String> = setting.vars.iter().map(|(_, value)| value.to_string()).collect();
        let texts = words
            .iter()
            .chain(engine.env.iter().map(|(_, value)| value))
            .chain(engine.files.iter().map(|(_, content)| content))
            .chain(&vars);
        if engine.port.is_none() && !texts.into_iter().any(|text| mentions_port(text)) {
            troubles.push(Trouble {
                span: Some(command.span.clone()),
                key: Some("engine.command".to_owned()),
                warning: true,
                ..Trouble::new("no-port", "nothing tells the engine its port".to_owned())
                    .at(Some(command.place.clone()))
                    .help("write `--port {{ port }}`, or set engine.port to the one that it takes")
            });
        }
    }
}

/// Whether a template takes `port`.
fn mentions_port(text: &str) -> bool {
    let inside = text.split("{{").skip(1).chain(text.split("{%").skip(1));
    inside.filter_map(|rest| rest.split(['}', '%']).next()).any(|code| {
        code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .any(|word| word == "port")
    })
}

fn habits_of(command: &CommandText, shell: bool) -> Vec<TemplateError> {
    match &command.form {
        CommandForm::Line(line) if shell => template::pasted_habits_in_shell(line),
        CommandForm::Line(line) => template::pasted_habits(line),
        CommandForm::Words(words) => template::pasted_habits_in_words(words),
    }
}

/// What a selector names that the tests in question do not have.
pub(super) fn misnamed(
    suite: &Suite,
    selector: &Selector,
    tests: &[usize],
    place: Option<&Place>,
) -> Vec<Trouble> {
    let at = selector.place.clone().or_else(|| place.cloned());
    let trouble = |code, message: String| Trouble::new(code, message).at(at.clone());
    let mut troubles = Vec::new();
    let mut unknown = |key: &str, names: Vec<&str>, predicate: &Predicate| {
        for value in predicate.values() {
            if names.contains(&value.as_str()) {
                continue;
            }
            let help = match nearest(value, names.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None if names.is_empty() => format!("the suite declares no {key}"),
                None => format!("the suite has {}", listed(names.iter().copied())),
            };
            let code = if key == "test" { "unknown-test" } else { "unknown-variant" };
            troubles.push(trouble(code, format!("`{value}` is no {key}")).help(help));
        }
    };
    for (key, predicate) in &selector.predicates {
        match key {
            Key::Test => {
                let names = suite.tests.iter().map(|test| test.name.as_str()).collect();
                unknown("test", names, predicate);
            }
            Key::Variant => {
                let names = suite.settings.iter().filter_map(|s| s.variant.as_deref()).collect();
                unknown("variant", names, predicate);
            }
            Key::Axis(_) => {}
        }
    }
    for (key, predicate) in &selector.predicates {
        let Key::Axis(name) = key else { continue };
        let asked = |index: &&usize| {
            selector.predicates.iter().all(|(key, predicate)| match key {
                Key::Test => predicate.holds_for_name(&suite.tests[**index].name),
                Key::Variant | Key::Axis(_) => true,
            })
        };
        let values: Vec<&AxisValue> = tests
            .iter()
            .filter(asked)
            .flat_map(|index| &suite.tests[*index].axes)
            .filter(|axis| axis.name == *name)
            .flat_map(|axis| &axis.values)
            .collect();
        if values.is_empty() {
            troubles.push(no_axis(suite, tests, name).at(at.clone()));
            continue;
        }
        if predicate.is_range() && values.iter().all(|value| value.number().is_none()) {
            troubles.push(
                trouble(
                    "range-without-numbers",
                    format!("axis `{name}` has no numbers for a range"),
                )
                .help("write a value or a list"),
            );
        }
        for text in predicate.values() {
            let one = Predicate::OneOf(vec![text.clone()]);
            if !values.iter().any(|value| one.holds_for(value)) {
                troubles.push(no_value(name, text, &values).at(at.clone()));
            }
        }
    }
    troubles
}

/// An axis that the tests in question do not have.
pub(super) fn no_axis(suite: &Suite, tests: &[usize], name: &str) -> Trouble {
    let names = |tests: &mut dyn Iterator<Item = usize>| -> BTreeSet<&str> {
        tests.flat_map(|i| &suite.tests[i].axes).map(|axis| axis.name.as_str()).collect()
    };
    let here = names(&mut tests.iter().copied());
    let everywhere = names(&mut (0..suite.tests.len()));
    let help = if everywhere.contains(name) {
        let holders: Vec<&str> = suite
            .tests
            .iter()
            .filter(|test| test.axes.iter().any(|axis| axis.name == name))
            .map(|test| test.name.as_str())
            .collect();
        format!("tests with that axis: {}", listed(holders.into_iter()))
    } else {
        match nearest(name, here.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None if here.is_empty() => "the test has no axes".to_owned(),
            None => format!("its axes are {}", listed(here.into_iter())),
        }
    };
    Trouble::new("unknown-axis", format!("no axis `{name}`")).help(help)
}

/// A value that an axis does not have.
pub(super) fn no_value(axis: &str, text: &str, values: &[&AxisValue]) -> Trouble {
    let spelled: BTreeSet<String> = values.iter().map(ToString::to_string).collect();
    let mut order: Vec<String> = values.iter().map(ToString::to_string).collect();
    let mut fresh = spelled.clone();
    order.retain(|value| fresh.remove(value));
    let near = values
        .iter()
        .all(|value| value.number().is_none())
        .then(|| nearest(text, order.iter().map(String::as_str)))
        .flatten();
    let help = match near {
        Some(value) => format!("did you mean `{value}`?"),
        None => format!("its values are {}", listed(order.iter().map(String::as_str))),
    };
    Trouble::new("unknown-value", format!("`{text}` is no value of axis `{axis}`")).help(help)
}

/// Names for a message, the first few of many.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let shown: Vec<String> = names.iter().take(12).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(12) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The same metric, side, severity, tests and cells twice.
fn twice(suite: &Suite, troubles: &mut Vec<Trouble>) {
    type Shape<'a> = Option<(&'a str, Option<&'a str>)>;
    type Same<'a> =
        (String, Side, bool, Severity, Vec<usize>, Vec<String>, Option<Vec<String>>, Shape<'a>);
    let mut scalars: BTreeMap<Same<'_>, &Place> = BTreeMap::new();
    let mut entries: BTreeMap<Same<'_>, HashMap<(&str, Option<&str>), &Place>> = BTreeMap::new();
    let sorted = |selector: &Selector| {
        let mut parts: Vec<String> = selector.to_string().split(' ').map(str::to_owned).collect();
        parts.sort();
        parts
    };
    for expectation in &suite.expectations {
        for (side, limits) in &expectation.bounds {
            let mut tests = expectation.tests.clone();
            tests.sort_unstable();
            let (shape, relative) = match limits {
                Limits::Scalar { .. } => (None, false),
                Limits::Ratio { .. } => (None, true),
                Limits::Grid(grid) => (Some((grid.rows.as_str(), grid.columns.as_deref())), false),
            };
            let same: Same<'_> = (
                expectation.metric.to_string(),
                *side,
                relative,
                expectation.severity,
                tests,
                sorted(&expectation.filter),
                expectation.except.as_ref().map(sorted),
                shape,
            );
            let metric = expectation.metric;
            let word = match (side, relative) {
                (Side::Min, false) => "min",
                (Side::Max, false) => "max",
                (Side::Min, true) => "min-ratio",
                (Side::Max, true) => "max-ratio",
            };
            match limits {
                Limits::Scalar { place, .. } | Limits::Ratio { place, .. } => match scalars
                    .get(&same)
                {
                    Some(first) => troubles.push(
                        Trouble::new("same-bound", format!("{word} of `{metric}` is given twice"))
                            .at(Some(place.clone()))
                            .help(format!("the first stands at {first}: keep one of them")),
                    ),
                    None => {
                        scalars.insert(same, place);
                    }
                },
                Limits::Grid(grid) => {
                    let known = entries.entry(same).or_default();
                    for entry in grid.entries.iter().filter(|e| e.limit != GridLimit::None) {
                        let key = (entry.row.as_str(), entry.column.as_deref());
                        match known.get(&key) {
                            Some(first) => troubles.push(
                                Trouble::new(
                                    "same-bound",
                                    format!(
                                        "{word} of `{metric}` at {} is given twice",
                                        grid_cell(&entry.row, entry.column.as_deref())
                                    ),
                                )
                                .at(Some(entry.place.clone()))
                                .help(format!("the first stands at {first}: keep one of them")),
                            ),
                            None => {
                                known.insert(key, &entry.place);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A grid's entry in words.
pub(super) fn grid_cell(row: &str, column: Option<&str>) -> String {
    column.map_or_else(|| format!("row {row}"), |column| format!("row {row}, column {column}"))
}
