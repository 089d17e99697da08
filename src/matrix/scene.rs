//! A scene: what the templates of one setting see, before any launch and in one.
//!
//! It fills contexts and renders `vars`; which templates there are and when they are rendered is
//! decided in [`super::launch`].

use std::collections::BTreeSet;
use std::ops::Range;

use minijinja::Value;
use serde_json::Value as Json;

use super::cell::length;
use super::spec::Runtime;
use crate::hardware::need::{Count, Vram};
use crate::suite::model::{AxisValue, Place, SecretSource, Setting, Suite, Test, TestSetting};
use crate::template::{self, Context, TemplateError};

/// What the templates of one setting see, before any launch.
#[derive(Debug)]
pub(crate) struct Scene {
    base: Context,
    vars: Vec<Var>,
    secrets: Vec<(String, SecretSource)>,
    pinned_port: Option<u16>,
}

#[derive(Debug)]
struct Var {
    name: String,
    value: Json,
    /// Dotted names that its texts use.
    uses: BTreeSet<String>,
}

/// A template error with the key that it stands under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blame {
    /// The key, such as `engine.command`.
    pub(super) key: String,
    pub(super) span: Option<Range<usize>>,
    pub(super) place: Option<Place>,
    /// Boxed, since results carry it.
    pub(super) error: Box<TemplateError>,
}

impl Blame {
    pub(super) fn new(key: impl Into<String>, error: TemplateError) -> Blame {
        Blame { key: key.into(), span: None, place: None, error: Box::new(error) }
    }

    /// The error alone, with its key in the message.
    pub(super) fn into_error(self) -> TemplateError {
        TemplateError {
            message: format!("{}: {}", self.key, self.error.message),
            span: None,
            ..*self.error
        }
    }
}

/// When a template is rendered: run-time values are stand-ins, or real.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment<'a> {
    /// Before the run. The port prints as `{port}`.
    Planned,
    /// Before the run, for templates that reckon with the port: it is this number.
    PlannedWithPort(u16),
    /// In the run.
    Running(&'a Runtime),
}

/// What a template belongs to: it decides which names are there.
#[derive(Debug, Clone)]
pub(super) enum Role {
    /// `hardware.probe`: no run yet.
    Probe,
    /// A setup command: no cell and no launch yet.
    Setup,
    /// The engine: no cell, since cells share it.
    Engine {
        /// Identity of the launch in this run.
        launch: String,
        /// Directory of the launch.
        dir: String,
    },
    /// A request of a cell.
    Cell {
        /// Identity of the launch in this run.
        launch: String,
        /// Directory of the launch.
        launch_dir: String,
        /// Directory of the cell.
        dir: String,
    },
}

impl Scene {
    pub(super) fn new(suite: &Suite, setting: &Setting) -> Scene {
        let base = Context::new()
            .with_all([
                ("model".to_owned(), model(setting)),
                ("engine".to_owned(), engine(suite, setting)),
                ("hardware".to_owned(), hardware(suite)),
                ("suite".to_owned(), of_suite(suite)),
                ("matrix".to_owned(), matrix(suite)),
            ])
            .with_environment();
        let base = undeclared(base);
        let vars = setting
            .vars
            .iter()
            .map(|(name, value)| {
                let mut uses = BTreeSet::new();
                collect_uses(value, &mut uses);
                Var { name: name.clone(), value: value.clone(), uses }
            })
            .collect();
        Scene { base, vars, secrets: setting.secrets.clone(), pinned_port: setting.engine.port }
    }

    /// Whether a secret of that name is declared.
    pub(super) fn has_secret(&self, name: &str) -> bool {
        self.secrets.iter().any(|(secret, _)| secret == name)
    }

    /// The dotted names that templates use, themselves or by way of `vars`. What can't be read uses
    /// nothing; rendering it says why.
    pub(super) fn uses<'a>(&self, templates: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = BTreeSet::new();
        for template in templates {
            all.extend(template::names(template).unwrap_or_default());
        }
        // A var sees only earlier ones, so that one pass from the last to the first finds all.
        for var in self.vars.iter().rev() {
            if uses_name(&all, "vars", &var.name) {
                all.extend(var.uses.iter().cloned());
            }
        }
        all
    }

    /// What a template sees: `uses` says which `vars` are needed, `at` is the point of a test.
    pub(super) fn context(
        &self,
        suite: &Suite,
        uses: &BTreeSet<String>,
        at: Option<(&Test, &[u16])>,
        role: &Role,
        moment: Moment<'_>,
    ) -> Result<Context, Blame> {
        let mut names = self.run_names(moment);
        let mut context = self.base.clone();
        match role {
            Role::Probe => {
                const WHY: &str = "the hardware is looked at before the run begins";
                names.retain(|(name, _)| !matches!(name.as_str(), "port" | "run"));
                for name in ["axis", "launch", "cell", "run", "port"] {
                    context = context.without(name, WHY);
                }
            }
            Role::Setup => {
                context = context
                    .without("axis", "setup runs once, before any cell: matrix.NAME has all values")
                    .without("launch", "setup runs once, before any launch")
                    .without("cell", "setup runs once, before any cell");
            }
            Role::Engine { launch, dir } => {
                names.push(launch_name(launch, dir));
                context = context
                    .without("cell", "an engine serves many cells: write launch.dir or run.dir");
            }
            Role::Cell { launch, launch_dir, dir } => {
                names.push(launch_name(launch, launch_dir));
                names.push(("cell".to_owned(), table([("dir", Value::from(dir.as_str()))])));
            }
        }
        if let Some((test, point)) = at {
            let values = test.axes.iter().zip(point).map(|(axis, value)| {
                (axis.name.clone(), axis_value(&axis.values[usize::from(*value)]))
            });
            names.push(("axis".to_owned(), Value::from_pairs(values)));
            for axis in suite.tests.iter().flat_map(|test| &test.axes) {
                if test.axes.iter().all(|own| own.name != axis.name) {
                    let name = &axis.name;
                    context = context.without(
                        format!("axis.{name}"),
                        format!(
                            "test `{}` has no axis `{name}`: move it to [matrix], or ask \
                             {{% if axis.{name} is defined %}}",
                            test.name
                        ),
                    );
                }
            }
        }
        for (name, source) in &self.secrets {
            if let SecretSource::Env(variable) = source {
                context = context.without(
                    format!("secret.{name}"),
                    format!("set the environment variable {variable}"),
                );
            }
        }
        self.with_vars(context.with_all(names), uses)
    }

    /// The values that only a run knows.
    fn run_names(&self, moment: Moment<'_>) -> Vec<(String, Value)> {
        let port = |free: Value| self.pinned_port.map_or(free, Value::from);
        let (port, secrets, run, executable) = match moment {
            Moment::Planned | Moment::PlannedWithPort(_) => (
                match moment {
                    Moment::PlannedWithPort(number) => port(Value::from(number)),
                    Moment::Planned | Moment::Running(_) => port(Value::from("{port}")),
                },
                self.secrets
                    .iter()
                    .map(|(name, _)| (name.clone(), Value::from(format!("<redacted:{name}>"))))
                    .collect::<Vec<_>>(),
                table([("id", Value::from("{run.id}")), ("dir", Value::from("{run.dir}"))]),
                Value::from("tokgate"),
            ),
            Moment::Running(runtime) => (
                Value::from(runtime.port),
                runtime
                    .secrets
                    .iter()
                    .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
                    .collect(),
                table([
                    ("id", Value::from(runtime.run_id.as_str())),
                    ("dir", Value::from(runtime.run_dir.to_string_lossy().as_ref())),
                ]),
                Value::from(runtime.executable.to_string_lossy().as_ref()),
            ),
        };
        let tokgate =
            table([("path", executable), ("version", Value::from(env!("CARGO_PKG_VERSION")))]);
        vec![
            ("port".to_owned(), port),
            ("secret".to_owned(), Value::from_pairs(secrets)),
            ("run".to_owned(), run),
            ("tokgate".to_owned(), tokgate),
        ]
    }

    /// Renders those `vars` that are used, in order: each sees the ones before it.
    fn with_vars(&self, context: Context, uses: &BTreeSet<String>) -> Result<Context, Blame> {
        let mut done: Vec<(String, Value)> = Vec::new();
        for (index, var) in self.vars.iter().enumerate() {
            if !uses_name(uses, "vars", &var.name) {
                // Its name stays known, for the sake of did-you-mean.
                done.push((var.name.clone(), template::from_json(&var.value)));
                continue;
            }
            let value = if var.uses.is_empty() && !any_syntax(&var.value) {
                template::from_json(&var.value)
            } else {
                let mut seen = context.clone().with("vars", Value::from_pairs(done.clone()));
                for later in &self.vars[index..] {
                    seen = seen.without(
                        format!("vars.{}", later.name),
                        format!(
                            "vars are rendered in the order of the file, and `{}` does not stand \
                             above `{}`",
                            later.name, var.name
                        ),
                    );
                }
                rendered(&var.value, &seen)
                    .map_err(|error| Blame::new(format!("vars.{}", var.name), error))?
            };
            done.push((var.name.clone(), value));
        }
        Ok(context.with("vars", Value::from_pairs(done)))
    }
}

/// Whether the used names contain `table.name`, something below it, or the table as a whole.
pub(super) fn uses_name(uses: &BTreeSet<String>, table: &str, name: &str) -> bool {
    uses.iter().any(|used| {
        used == table
            || used
                .strip_prefix(table)
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|rest| rest.split('.').next() == Some(name))
    })
}

fn collect_uses(value: &Json, uses: &mut BTreeSet<String>) {
    match value {
        Json::String(text) => uses.extend(template::names(text).unwrap_or_default()),
        Json::Array(items) => items.iter().for_each(|item| collect_uses(item, uses)),
        Json::Object(fields) => fields.values().for_each(|field| collect_uses(field, uses)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn any_syntax(value: &Json) -> bool {
    match value {
        Json::String(text) => template::has_syntax(text),
        Json::Array(items) => items.iter().any(any_syntax),
        Json::Object(fields) => fields.values().any(any_syntax),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
    }
}

/// A value with its texts rendered.
fn rendered(value: &Json, context: &Context) -> Result<Value, TemplateError> {
    Ok(template::from_json(&rendered_json(value, context)?))
}

/// JSON with its texts rendered.
pub(super) fn rendered_json(value: &Json, context: &Context) -> Result<Json, TemplateError> {
    Ok(match value {
        Json::String(text) => Json::String(template::render_text(text, context)?),
        Json::Array(items) => Json::Array(
            items.iter().map(|item| rendered_json(item, context)).collect::<Result<_, _>>()?,
        ),
        Json::Object(fields) => Json::Object(
            fields
                .iter()
                .map(|(name, field)| Ok((name.clone(), rendered_json(field, context)?)))
                .collect::<Result<_, TemplateError>>()?,
        ),
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    })
}

fn launch_name(id: &str, dir: &str) -> (String, Value) {
    ("launch".to_owned(), table([("id", Value::from(id)), ("dir", Value::from(dir))]))
}

fn table<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::from_pairs(fields.map(|(name, value)| (name.to_owned(), value)))
}

/// Says of what a suite may declare, and this one does not, where it would be declared.
fn undeclared(mut base: Context) -> Context {
    const DECLARED: [(&str, &[&str]); 3] = [
        ("model", &["name", "revision", "quantization"]),
        ("engine", &["version", "gpus"]),
        ("hardware", &["gpu", "count", "vram", "driver", "cuda", "os"]),
    ];
    let root = base.root.clone();
    for (table, names) in DECLARED {
        for name in names {
            let value = root.get_attr(table).and_then(|table| table.get_attr(name));
            if value.is_ok_and(|value| value.is_undefined()) {
                let or = if *name == "gpus" { ", or [hardware] count = …" } else { "" };
                let why = format!("declare it: [{table}] {name} = …{or}");
                base = base.without(format!("{table}.{name}"), why);
            }
        }
    }
    base.without("variant", "give the variants different vars, and write vars.NAME")
}

/// A table of those fields that have a value.
fn declared<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    Value::from_pairs(
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))),
    )
}

fn model(setting: &Setting) -> Value {
    let text = |text: &Option<String>| text.as_deref().map(Value::from);
    declared([
        ("name", text(&setting.model.name)),
        ("revision", text(&setting.model.revision)),
        ("quantization", text(&setting.model.quantization)),
    ])
}

fn engine(suite: &Suite, setting: &Setting) -> Value {
    let counted = suite.hardware.as_ref().and_then(|need| match need.count {
        Some(Count::Exactly(count)) if count > 0 => Some(count),
        Some(Count::Exactly(_) | Count::AtLeast(_)) | None => None,
    });
    let kind = serde_json::to_value(setting.engine.kind).ok();
    declared([
        ("kind", kind.as_ref().map(template::from_json)),
        ("version", setting.engine.version.as_deref().map(Value::from)),
        ("gpus", setting.engine.gpus.or(counted).map(Value::from)),
    ])
}

fn hardware(suite: &Suite) -> Value {
    let need = suite.hardware.clone().unwrap_or_default();
    declared([
        ("gpu", need.gpu.map(Value::from)),
        (
            "count",
            need.count.map(|count| match count {
                Count::Exactly(count) | Count::AtLeast(count) => Value::from(count),
            }),
        ),
        (
            "vram",
            need.vram.map(|vram| match vram {
                Vram::About(size) | Vram::AtLeast(size) => Value::from(size.bytes as u64),
            }),
        ),
        ("driver", need.driver.map(Value::from)),
        ("cuda", need.cuda.map(Value::from)),
        ("os", need.os.map(Value::from)),
    ])
}

fn of_suite(suite: &Suite) -> Value {
    let dir = std::path::Path::new(&suite.path)
        .parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .map_or(".".into(), |dir| dir.to_string_lossy());
    table([
        ("name", Value::from(suite.name.as_str())),
        ("path", Value::from(suite.path.as_str())),
        ("dir", Value::from(dir.as_ref())),
        ("tags", Value::from(suite.tags.clone())),
    ])
}

/// All values of each axis of the suite, whatever is selected; for `context`, `input`, `output` and
/// `concurrency` without an axis the values that cells have without one, of lengths that vary the greatest.
fn matrix(suite: &Suite) -> Value {
    let mut axes: Vec<(String, Vec<&AxisValue>)> = Vec::new();
    for axis in suite.tests.iter().flat_map(|test| &test.axes) {
        let index = match axes.iter().position(|(name, _)| *name == axis.name) {
            Some(index) => index,
            None => {
                axes.push((axis.name.clone(), Vec::new()));
                axes.len() - 1
            }
        };
        let values = &mut axes[index].1;
        // Most tests share their axes, and a long axis should not be compared value by value.
        if values.len() == axis.values.len()
            && values.iter().zip(&axis.values).all(|(a, b)| *a == b)
        {
            continue;
        }
        let known: BTreeSet<String> = values.iter().map(ToString::to_string).collect();
        values.extend(axis.values.iter().filter(|value| !known.contains(&value.to_string())));
    }
    let mut fields: Vec<(String, Value)> = axes
        .iter()
        .map(|(name, values)| {
            let values: Vec<Value> = values.iter().map(|value| axis_value(value)).collect();
            (name.clone(), Value::from(values))
        })
        .collect();
    for name in ["context", "input", "output", "concurrency"] {
        if axes.iter().any(|(axis, _)| axis == name) {
            continue;
        }
        let values: BTreeSet<u64> =
            suite.tests.iter().filter_map(|test| unsaid(&test.kind, name)).collect();
        fields.push((name.to_owned(), Value::from(values.into_iter().collect::<Vec<_>>())));
    }
    Value::from_pairs(fields)
}

/// What cells of a test have where no axis of that name says it.
fn unsaid(kind: &TestSetting, axis: &str) -> Option<u64> {
    match (kind, axis) {
        (TestSetting::Prefill { context, .. }, "context") => Some(*context),
        (TestSetting::Prefill { .. }, "concurrency") => Some(1),
        (TestSetting::Decode(setting), "context") => Some(setting.context),
        (TestSetting::Decode(setting), "concurrency") => Some(setting.concurrency),
        (TestSetting::Serve(setting), "input") if setting.dataset.is_none() => {
            Some(length(setting.input, None).greatest())
        }
        (TestSetting::Serve(setting), "output") if setting.dataset.is_none() => {
            Some(length(setting.output, None).greatest())
        }
        (TestSetting::Serve(setting), "concurrency") => Some(setting.concurrency),
        (
            TestSetting::Prefill { .. }
            | TestSetting::Decode(_)
            | TestSetting::Serve(_)
            | TestSetting::Startup
            | TestSetting::Command(_),
            _,
        ) => None,
    }
}

/// A value of an axis as templates see it: numbers whole, tables with their `id`.
fn axis_value(value: &AxisValue) -> Value {
    match value {
        AxisValue::Tokens(tokens) => Value::from(*tokens),
        AxisValue::Integer(whole) => Value::from(*whole),
        AxisValue::Float(number) => Value::from(*number),
        AxisValue::Text(text) => Value::from(text.as_str()),
        AxisValue::Bool(yes) => Value::from(*yes),
        AxisValue::Table { id, fields } => Value::from_pairs(
            fields
                .iter()
                .map(|(name, field)| (name.clone(), template::from_json(field)))
                .chain([("id".to_owned(), Value::from(id.as_str()))]),
        ),
    }
}
