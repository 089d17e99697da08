//! Templates: commands, urls, environment values and bodies, rendered strictly.
//!
//! A value can never add an argument whatever the author quoted: in a string command each `{{ }}`
//! renders to a marker, the text is split as a POSIX shell splits words, then the markers are
//! replaced inside the words. An undefined name is an error. It launches nothing.

mod habit;
mod quote;
mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object};

pub use habit::{pasted_habits, pasted_habits_in_shell, pasted_habits_in_words};
pub use render::{render_line, render_shell, render_text, render_words};

/// A template that can't be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TemplateError {
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
    /// Bytes of the template that are to blame.
    pub span: Option<Range<usize>>,
    /// The template that `span` counts in, where the error has come out of rendering one.
    pub template: Option<Box<str>>,
}

impl TemplateError {
    /// An error without help or span.
    pub fn new(message: impl Into<String>) -> TemplateError {
        TemplateError { message: message.into(), help: None, span: None, template: None }
    }

    /// The same with what to write instead.
    pub fn help(mut self, help: impl Into<String>) -> TemplateError {
        self.help = Some(help.into());
        self
    }

    /// The same with the template that it is about.
    fn of(self, template: &str) -> TemplateError {
        let template = self.span.is_some().then(|| template.into());
        TemplateError { template, ..self }
    }

    /// The same with the bytes that are to blame.
    pub fn at(mut self, span: Range<usize>) -> TemplateError {
        self.span = Some(span);
        self
    }
}

/// What templates see: `vars model hardware engine suite axis matrix env secret host port tokgate
/// run launch cell`.
#[derive(Debug, Clone)]
pub struct Context {
    /// The names and their values.
    pub root: Value,
    names: BTreeMap<String, Value>,
    absent: BTreeMap<String, String>,
}

impl Default for Context {
    fn default() -> Context {
        Context::new()
    }
}

impl Context {
    /// A context that knows no name.
    pub fn new() -> Context {
        Context {
            root: Value::from_pairs(Vec::<(String, Value)>::new()),
            names: BTreeMap::new(),
            absent: BTreeMap::new(),
        }
    }

    /// The same with one more top-level name, or another value for it.
    pub fn with(self, name: impl Into<String>, value: Value) -> Context {
        self.with_all([(name.into(), value)])
    }

    /// The same with more top-level names.
    pub fn with_all(mut self, names: impl IntoIterator<Item = (String, Value)>) -> Context {
        self.names.extend(names);
        self.root = Value::from_pairs(self.names.clone());
        self
    }

    /// The same with a top-level name whose value is given as JSON: objects become tables, arrays
    /// lists, `null` the value none.
    pub fn with_json(self, name: impl Into<String>, value: &serde_json::Value) -> Context {
        self.with(name, from_json(value))
    }

    /// The same with `env`, which reads the environment of this process when it is asked.
    pub fn with_environment(self) -> Context {
        self.with_environment_of(Arc::new(|name: &str| std::env::var(name).ok()))
    }

    /// The same with `env` read through `lookup`.
    pub fn with_environment_of(self, lookup: Lookup) -> Context {
        self.with("env", Value::from_object(Environment { lookup }))
    }

    /// Says why a name is not there: `why` is the help of the error that its use leads to. The
    /// name is dotted, and stands for all names below it too.
    pub fn without(mut self, name: impl Into<String>, why: impl Into<String>) -> Context {
        self.absent.insert(name.into(), why.into());
        self
    }

    /// The value of a dotted name, where it is known.
    fn look_up(&self, dotted: &str) -> Option<Value> {
        let mut value = self.root.clone();
        for part in dotted.split('.') {
            value = value.get_attr(part).ok().filter(|v| !v.is_undefined())?;
        }
        Some(value)
    }

    /// The error that the use of an unknown dotted name leads to.
    fn unknown(&self, dotted: &str) -> TemplateError {
        let head = dotted.split('.').next().unwrap_or(dotted);
        if head == "env" && self.names.contains_key("env") {
            let name = dotted.strip_prefix("env.").unwrap_or(dotted);
            return TemplateError::new(format!("the environment variable {name} is not set"))
                .help(format!("set {name}, or give a default: env.{name} | default(\"…\")"));
        }
        let mut known = String::new();
        let mut stem = String::new();
        for part in dotted.split('.') {
            if !stem.is_empty() {
                stem.push('.');
            }
            stem.push_str(part);
            if let Some(why) = self.absent.get(&stem) {
                return TemplateError::new(format!("`{dotted}` is not known here"))
                    .help(why.clone());
            }
            if self.look_up(&stem).is_none() {
                return self.unknown_part(dotted, &known, part);
            }
            known = stem.clone();
        }
        TemplateError::new(format!("`{dotted}` has no value"))
    }

    fn unknown_part(&self, dotted: &str, known: &str, part: &str) -> TemplateError {
        let error = TemplateError::new(format!("`{dotted}` is not known"));
        let parent = if known.is_empty() { Some(self.root.clone()) } else { self.look_up(known) };
        let names: Vec<String> = parent
            .and_then(|parent| parent.try_iter().ok())
            .map(|names| names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        let full = |name: &str| {
            if known.is_empty() { name.to_owned() } else { format!("{known}.{name}") }
        };
        if let Some(name) = nearest(part, names.iter().map(String::as_str)) {
            return error.help(format!("did you mean `{}`?", full(name)));
        }
        if names.is_empty() {
            return match known {
                "" => error,
                "vars" | "secret" => error.help(format!(
                    "declare it: [{}] {part} = …",
                    if known == "secret" { "secrets" } else { known }
                )),
                _ => error.help(format!("`{known}` has nothing of that name")),
            };
        }
        let list: Vec<String> = names.iter().map(|name| format!("`{}`", full(name))).collect();
        error.help(format!("known are {}", list.join(", ")))
    }
}

/// JSON as a template value: objects become tables, arrays lists, `null` the value none.
pub fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(yes) => Value::from(*yes),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Value::from(whole),
            (None, Some(whole)) => Value::from(whole),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(name, value)| (name.clone(), from_json(value))))
        }
    }
}

/// The nearest of `names` to `text`, where one is near enough to have been meant.
pub fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(text, name), name))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// How a variable of the environment is looked up.
pub type Lookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

struct Environment {
    lookup: Lookup,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("environment")
    }
}

impl Object for Environment {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (self.lookup)(key.as_str()?).map(Value::from)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}

/// The dotted names that a template uses, such as `axis.layout.tp`; a name without dots stands for
/// everything below it. Names that the template sets itself and built-in functions are left out.
///
/// # Errors
/// The template can't be read.
pub fn names(template: &str) -> Result<BTreeSet<String>, TemplateError> {
    if !has_syntax(template) {
        return Ok(BTreeSet::new());
    }
    let environment = render::environment();
    let parsed = environment
        .template_from_named_str("template", template)
        .map_err(|error| render::readable(&error, template, &Context::new()))?;
    let globals: BTreeSet<&str> = environment.globals().map(|(name, _)| name).collect();
    Ok(parsed
        .undeclared_variables(true)
        .into_iter()
        .filter(|name| !globals.contains(name.as_str()))
        .collect())
}

/// Whether a text is more than itself when rendered.
pub fn has_syntax(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}

#[cfg(test)]
mod tests;
