//! The JSON Schema of a suite, in two flavours, and the shape check by it.
//!
//! Both flavours come from the types of [`file`](super::file). `suite` is draft 2020-12; `editor` is
//! draft 7 without any `$ref`, since Taplo reads drafts 4 to 7 and ignores what stands beside one.
//! The shape check maps each instance path to its span and says in our own words what belongs
//! there. Which keys must be there is not its business: a file may be a fragment.

use std::ops::Range;
use std::sync::OnceLock;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::paths::{Location, LocationSegment};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::file::File;
use super::name;
use super::problem::Problem;
use super::source::SourceMap;
use super::tree::{self, Path, Step, Tree};

/// The generated files below `schemas/`, by name.
pub fn files() -> [(&'static str, String); 2] {
    let print = |mut schema: Value| {
        strip(&mut schema);
        let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
        text.push('\n');
        text
    };
    [
        ("suite.schema.json", print(generate(SchemaSettings::draft2020_12()))),
        (
            "suite.editor.schema.json",
            print(generate(SchemaSettings::draft07().with(|settings| {
                settings.inline_subschemas = true;
            }))),
        ),
    ]
}

fn generate(settings: SchemaSettings) -> Value {
    let schema = settings.into_generator().into_root_schema_for::<File>();
    let mut schema = schema.to_value();
    tidy(&mut schema);
    schema
}

/// Takes out what TOML has no word for (null), says enumerations in one way, drops empty defaults.
fn tidy(node: &mut Value) {
    match node {
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Object(object) => {
            object.remove("default");
            match object.remove("format") {
                Some(format) if format == "date" => {
                    object.insert("format".to_owned(), format);
                }
                // No validator knows this format, so its end is said as a number.
                Some(format) if format == "uint32" => {
                    object.entry("maximum").or_insert(json!(u32::MAX));
                }
                Some(_) | None => {}
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(options)) = object.get_mut("enum") {
                options.retain(|option| !option.is_null());
            }
            for keyword in ["anyOf", "oneOf"] {
                flatten(object, keyword);
            }
            for (keyword, node) in object {
                if keyword == "properties"
                    && let Value::Object(keys) = node
                {
                    // A suite's own words, whatever keyword of a schema one is spelled like.
                    keys.values_mut().for_each(tidy);
                } else {
                    tidy(node);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn flatten(object: &mut Map<String, Value>, keyword: &str) {
    let Some(Value::Array(branches)) = object.get_mut(keyword) else { return };
    branches.retain(|branch| branch != &json!({ "type": "null" }));
    let options: Option<Vec<Value>> = branches
        .iter()
        .map(|branch| match (branch.get("const"), branch.get("enum")) {
            (Some(value), _) => Some(vec![value.clone()]),
            (None, Some(Value::Array(values))) => Some(values.clone()),
            (None, _) => None,
        })
        .collect::<Option<Vec<_>>>()
        .map(|lists| lists.concat());
    if let Some(options) = options.filter(|options| !options.is_empty()) {
        // What each option means is kept where editors look for it.
        let docs: Vec<Value> = branches
            .iter()
            .map(|branch| branch.get("description").cloned().unwrap_or(Value::Null))
            .collect();
        object.remove(keyword);
        object.insert("type".to_owned(), json!("string"));
        if docs.len() == options.len() && docs.iter().any(|doc| !doc.is_null()) {
            object.insert("x-taplo".to_owned(), json!({ "docs": { "enumValues": docs } }));
        }
        object.insert("enum".to_owned(), Value::Array(options));
    } else if let [only] = branches.as_slice()
        && let Value::Object(only) = only.clone()
    {
        object.remove(keyword);
        for (key, value) in only {
            object.entry(key).or_insert(value);
        }
        // The branch may itself have been a list of options.
        for keyword in ["anyOf", "oneOf"] {
            flatten(object, keyword);
        }
    }
}

/// Takes out what only the shape check reads.
fn strip(node: &mut Value) {
    match node {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(object) => {
            object.remove("x-expects");
            object.values_mut().for_each(strip);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schema that the shape check uses: no references, no required keys.
struct Shape {
    root: Value,
    validator: Option<jsonschema::Validator>,
}

fn shape() -> &'static Shape {
    static SHAPE: OnceLock<Shape> = OnceLock::new();
    SHAPE.get_or_init(|| {
        let mut root = generate(SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
        }));
        drop_required(&mut root);
        // A schema that our own types make compiles; a test holds it.
        let validator = jsonschema::options().build(&root).ok();
        Shape { root, validator }
    })
}

fn drop_required(node: &mut Value) {
    match node {
        Value::Array(items) => items.iter_mut().for_each(drop_required),
        Value::Object(object) => {
            object.remove("required");
            object.values_mut().for_each(drop_required);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What the shape check found in one tree.
#[derive(Debug, Default)]
pub struct ShapeFindings {
    /// The problems.
    pub problems: Vec<Problem>,
    /// Names of keys that were taken away, and of those that an unknown key was probably meant to
    /// be: that they are missing is no news.
    pub lost: Vec<String>,
}

/// Checks the shape of a tree and takes what is wrong away from it. `above` is the path of the tree
/// in a suite: empty for a file.
pub fn check(tree: &mut Tree<'_>, above: &Path, source: &SourceMap) -> ShapeFindings {
    let mut findings = ShapeFindings::default();
    tree::sort_out(tree, &mut findings.problems);
    let mut instance = tree::to_json(tree);
    part_floats(&mut instance);
    for step in above.0.iter().rev() {
        if let Step::Key(key) = step {
            instance = json!({ key: instance });
        }
    }
    let Some(validator) = &shape().validator else { return findings };
    let mut wrong = Vec::new();
    for error in validator.iter_errors(&instance) {
        explain(&error, tree, above, source, &mut findings, &mut wrong);
    }
    for path in wrong {
        findings.lost.extend(tree::remove(tree, &path));
    }
    findings
}

/// JSON Schema takes 2.0 for an integer, and TOML's types do not: such a number gets a fraction.
fn part_floats(node: &mut Value) {
    match node {
        Value::Array(items) => items.iter_mut().for_each(part_floats),
        Value::Object(object) => object.values_mut().for_each(part_floats),
        Value::Number(n) => {
            if let Some(float) = n.as_f64().filter(|float| n.is_f64() && float.fract() == 0.0) {
                *node = json!(float + float.abs().max(1.0) * 1e-9);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The path of a location in a tree. A location does not tell a key like `30` from a place in a
/// list; the tree does.
fn path_of(location: &Location, above: &Path, tree: &Tree<'_>) -> Path {
    let mut path = Path::default();
    for segment in location.iter().skip(above.0.len()) {
        let list = tree::locate(tree, &path).is_some_and(|(_, node)| node.get_ref().is_array());
        path.0.push(match segment {
            LocationSegment::Index(at) if list => Step::Index(at),
            LocationSegment::Index(at) => Step::Key(at.to_string()),
            LocationSegment::Property(key) => Step::Key(key.to_string()),
        });
    }
    path
}

/// The schema node that a keyword stands in, or one of its parents that says what belongs there.
fn node_of(location: &Location) -> &'static Value {
    let pointer = location.as_str();
    let parent = pointer.rfind('/').map_or("", |at| &pointer[..at]);
    shape().root.pointer(parent).unwrap_or(&Value::Null)
}

fn explain(
    error: &ValidationError<'_>,
    tree: &Tree<'_>,
    above: &Path,
    source: &SourceMap,
    findings: &mut ShapeFindings,
    wrong: &mut Vec<Path>,
) {
    let path = path_of(error.instance_path(), above, tree);
    let node = node_of(error.schema_path());
    if let ValidationErrorKind::AdditionalProperties { unexpected } = error.kind() {
        for key in unexpected {
            let full = path.key(key);
            let (problem, meant) = unknown_key(key, &path, above, node);
            let located = tree::locate(tree, &full);
            if let Some(value) = located.as_ref().map(|(_, value)| value.span()) {
                // What was wrong with the value is no news any more.
                let inside =
                    |span: &Range<usize>| value.start <= span.start && span.end <= value.end;
                findings.problems.retain(|old| !old.span.as_ref().is_some_and(inside));
            }
            let span = located.map(|(key, _)| key);
            findings.problems.push(Problem { span, ..problem });
            findings.lost.extend(meant.map(str::to_owned));
            wrong.push(full);
        }
        return;
    }
    if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } =
        error.kind()
    {
        // A branch that takes this type of value at all says what is wrong inside of it.
        let fitting = context.iter().find(|branch| {
            !branch.iter().any(|inner| {
                inner.instance_path() == error.instance_path()
                    && matches!(
                        inner.kind(),
                        ValidationErrorKind::Type { .. } | ValidationErrorKind::Enum { .. }
                    )
            })
        });
        if let Some(branch) = fitting.filter(|branch| !branch.is_empty()) {
            for inner in branch {
                explain(inner, tree, above, source, findings, wrong);
            }
            return;
        }
    }
    let located = tree::locate(tree, &path);
    let span = located.as_ref().map(|(_, node)| node.span());
    let written = span.as_ref().map_or("", |span| source.text(span));
    let problem = wrong_value(error, node, &path, written);
    findings.problems.push(Problem { span, ..problem });
    wrong.push(path);
}

fn unknown_key<'n>(
    key: &str,
    path: &Path,
    above: &Path,
    node: &'n Value,
) -> (Problem, Option<&'n str>) {
    let known: Vec<&str> = node
        .get("properties")
        .and_then(Value::as_object)
        .map(|keys| keys.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let whole = Path([above.0.as_slice(), path.0.as_slice()].concat());
    // A `--set` is checked as if it stood in a profile; nobody wrote that profile's name.
    let shown = if above.0.is_empty() { &whole } else { path };
    let problem = Problem::new("unknown-key", format!("unknown key `{key}` in {shown}"));
    if in_test(&whole)
        && let Some(help) = habit(key)
    {
        return (problem.help(help), None);
    }
    let inside = |table: &str| matches!(whole.0.as_slice(), [Step::Key(first), Step::Key(_)] if first == table);
    if inside("profile") && matches!(key, "expect" | "quarantine" | "min" | "max") {
        let help = "a profile changes work and policy, never a bound; choose cells with `select`";
        return (problem.help(help), None);
    }
    if let [Step::Key(first), Step::Key(_), Step::Key(table)] = whole.0.as_slice()
        && (first.as_str(), table.as_str()) == ("profile", "compare")
    {
        let help = "a profile and --set change how many `pairs` there are: what is compared and the bound on it stand in [compare] alone";
        return (problem.help(help), None);
    }
    if inside("variant") {
        let help =
            "a variant replaces single values below engine, model and vars, like `engine.version`";
        return (problem.help(help), None);
    }
    if let Some(near) = name::nearest(key, known.iter().copied()) {
        return (problem.help(format!("did you mean `{near}`?")), Some(near));
    }
    let help = match home(key, &whole) {
        Some(table) => format!("`{key}` belongs to {table}"),
        None => name::list(&known, "keys here are"),
    };
    (problem.help(help), None)
}

/// Whether a path is that of a test, or of one in a profile.
fn in_test(path: &Path) -> bool {
    let key = |step: &Step, name: &str| matches!(step, Step::Key(key) if key == name);
    match path.0.as_slice() {
        [test, Step::Index(_)] => key(test, "test"),
        [profile, _, test, Step::Key(_)] => key(profile, "profile") && key(test, "test"),
        [..] => false,
    }
}

/// What to write in a test for what other load generators call by another name.
fn habit(key: &str) -> Option<&'static str> {
    let plain = key.to_lowercase().replace(['_', ' '], "-");
    Some(match plain.as_str() {
        "num-prompts" | "num-requests" | "request-count" | "prompts" | "max-requests" => {
            "write `requests = 500` in a serve test, `samples` in a prefill test"
        }
        "warmup" | "warm-up" | "warmups" | "num-warmups" | "warmup-requests" => {
            "write `warmup-per-stream = 1` in a serve test: so many requests of each stream before the measured ones; the other kinds warm up by themselves"
        }
        "rate" | "request-rate" | "qps" | "rps" => {
            "write the axis matrix.request_rate = [1, 2], with `arrival = \"poisson\"` or \"constant\""
        }
        "concurrency" | "max-concurrency" | "streams" | "users" => {
            "write the axis: matrix.concurrency = [1, 16]"
        }
        "context" => "write the axis: matrix.context = [\"8K\"]",
        "stream" | "streaming" => {
            "leave it out: every request is streamed, since its tokens are timed"
        }
        "request-timeout" => "write `request.timeout = \"300s\"`",
        "input-len" | "input-length" | "random-input-len" | "isl" | "prompt-tokens" => {
            "write `input = 1024` in a serve test, or the axis matrix.input"
        }
        "output-len" | "output-length" | "random-output-len" | "osl" | "max-tokens" => {
            "write `output = 256` in a serve test, `max-output` in a decode test"
        }
        "range-ratio" | "random-range-ratio" => {
            "write input = { jitter = \"20%\" }: lengths within so much of their middle"
        }
        "goodput" => "write slo = { ttft = \"500ms\", tpot = \"50ms\" }: goodput counts against it",
        "ignore-eos" => "leave it out: outputs have exactly the length that is asked for",
        "seed" => "leave it out: it is one for the whole run, `tokgate run --seed`",
        _ => return None,
    })
}

/// The table of the suite that has a key of this very name.
fn home(key: &str, path: &Path) -> Option<String> {
    let root = shape().root.get("properties")?.as_object()?;
    if root.contains_key(key) {
        return (!path.0.is_empty()).then(|| "the top of the suite".to_owned());
    }
    root.iter().find_map(|(table, node)| {
        let (node, name) = match node.get("items") {
            Some(items) => (items, format!("[[{table}]]")),
            None => (node, format!("[{table}]")),
        };
        node.get("properties")?.get(key).map(|_| name)
    })
}

/// The words for a value of the wrong type, or outside of what is allowed.
fn wrong_value(error: &ValidationError<'_>, node: &Value, path: &Path, written: &str) -> Problem {
    let key = path.last_key().unwrap_or("the suite");
    let value = error.instance();
    let subject = match path.0.last() {
        Some(Step::Index(at)) => format!("entry {} of `{key}`", at + 1),
        Some(Step::Key(_)) | None => format!("`{key}`"),
    };
    let expects = expectation(node);
    if let Some(Value::Array(options)) = node.get("enum")
        && let Value::String(found) = value.as_ref()
    {
        let options: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
        return Problem::new("unknown-value", format!("`{found}` is not a value of {subject}"))
            .help(match name::nearest(found, options.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("write {}", alternatives(&options)),
            });
    }
    // Another crate's kinds: all that no arm names are values of a wrong type.
    #[allow(clippy::wildcard_enum_match_arm)]
    match error.kind() {
        ValidationErrorKind::Minimum { limit } => {
            Problem::new("number-range", format!("{subject} must be at least {limit}"))
                .help(format!("write {expects}"))
        }
        ValidationErrorKind::Maximum { limit } => {
            Problem::new("number-range", format!("{subject} must be at most {limit}"))
                .help(format!("write {expects}"))
        }
        ValidationErrorKind::MinItems { .. } | ValidationErrorKind::MaxItems { .. } => {
            let entries = value.as_array().map_or(0, Vec::len);
            Problem::new("wrong-type", format!("{subject} can't be a list of {entries}"))
                .help(format!("write {expects}"))
        }
        ValidationErrorKind::Constant { .. } => {
            Problem::new("unknown-value", format!("{subject} must be {expects}"))
                .maybe_help(node.get("const").map(|only| format!("write `{key} = {only}`")))
        }
        _ => {
            let found = match value.as_ref() {
                Value::Null => "nothing".to_owned(),
                Value::Bool(b) => b.to_string(),
                // As it is written: TOML's `0.30` is the number 0.3.
                Value::Number(n) if written.is_empty() => n.to_string(),
                Value::Number(_) => written.to_owned(),
                Value::String(text) if text.len() < 40 => format!("\"{text}\""),
                Value::String(_) => "a text".to_owned(),
                Value::Array(_) => "a list".to_owned(),
                Value::Object(_) => "a table".to_owned(),
            };
            match rewrite(value, node, path, key, written) {
                Some(help) => {
                    let message = format!("{subject} must be {expects}, not {found}");
                    Problem::new("wrong-type", message).help(help)
                }
                None => Problem::new("wrong-type", format!("{subject} can't be {found}"))
                    .help(format!("write {expects}")),
            }
        }
    }
}

fn alternatives(options: &[&str]) -> String {
    match options {
        [] => String::new(),
        [only] => format!("\"{only}\""),
        [first @ .., last] => {
            let first: Vec<_> = first.iter().map(|option| format!("\"{option}\"")).collect();
            format!("{} or \"{last}\"", first.join(", "))
        }
    }
}

/// What belongs at a node, in words.
fn expectation(node: &Value) -> String {
    if let Some(words) = node.get("x-expects").and_then(Value::as_str) {
        return words.to_owned();
    }
    if let Some(Value::Array(options)) = node.get("enum") {
        let options: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
        return alternatives(&options);
    }
    let words = match node.get("type").and_then(Value::as_str) {
        Some("string") => "a text in quotes",
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a table",
        Some(_) | None => "of another kind",
    };
    words.to_owned()
}

/// How the value at hand would be written rightly, where that is plain.
fn rewrite(value: &Value, node: &Value, path: &Path, key: &str, written: &str) -> Option<String> {
    let wants = |kind: &str| match node.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(some)) => some.iter().any(|one| one == kind),
        Some(_) | None => false,
    };
    let expects = node.get("x-expects").and_then(Value::as_str).unwrap_or("");
    let short = !written.contains('\n') && written.len() < 60;
    match value {
        Value::Number(_) if expects.starts_with("a date") => None,
        Value::Number(n) if wants("string") && expects.starts_with("a duration") => {
            Some(format!("write \"{n}s\" for seconds or \"{n}ms\" for milliseconds"))
        }
        Value::Number(n) if wants("string") && expects.starts_with("a percentage") => {
            let n = n.as_f64()?;
            // A hundredfold of 0.07 has rounding errors that nobody wants to read.
            let percent = if n < 1.0 { (n * 1e8).round() / 1e6 } else { n };
            Some(format!("write \"{percent}%\""))
        }
        Value::Number(n) if wants("string") && expects.starts_with("a size") => {
            Some(format!("write \"{n}GB\""))
        }
        Value::Number(_) | Value::Bool(_) if wants("string") && short => {
            Some(format!("quote it: \"{written}\""))
        }
        Value::Number(n) if wants("integer") && n.is_f64() => {
            Some("write a whole number".to_owned())
        }
        Value::String(text)
            if ["integer", "number", "boolean"].iter().any(|kind| wants(kind))
                && (text.parse::<f64>().is_ok() || matches!(text.as_str(), "true" | "false")) =>
        {
            Some(format!("write it without quotes: {text}"))
        }
        Value::Object(_) if wants("array") && path.0.len() == 1 => {
            Some(format!("write [[{key}]] with two brackets"))
        }
        Value::Object(_) if wants("array") && short => Some(format!("write a list: [{written}]")),
        Value::Array(_) if wants("object") && path.0.len() == 1 => {
            Some(format!("write [{key}] with single brackets"))
        }
        Value::Number(_) | Value::String(_) | Value::Bool(_)
            if short && (wants("array") || expects.starts_with("a list of values")) =>
        {
            let quotes = matches!(value, Value::String(_)) && !written.starts_with(['"', '\'']);
            let quote = if quotes { "\"" } else { "" };
            Some(format!("write a list: [{quote}{written}{quote}]"))
        }
        Value::String(text) if node.get("anyOf").is_some() => {
            let options = options_below(node);
            name::nearest(text, options.iter().copied())
                .map(|near| format!("did you mean \"{near}\"?"))
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            let keys = node.get("properties").and_then(Value::as_object)?;
            let keys: Vec<&str> = keys.keys().map(String::as_str).collect();
            Some(name::list(&keys, "its keys are"))
        }
    }
}

/// The words that branches of an `anyOf` take.
fn options_below(node: &Value) -> Vec<&str> {
    let branches = node.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    branches
        .filter_map(|branch| branch.get("enum").and_then(Value::as_array))
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[cfg(test)]
mod tests;
