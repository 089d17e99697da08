//! Selectors in a suite: `where`, `except`, `exclude`, and the lines of a profile's `select`.
//!
//! Each key must be an axis of a test in its scope, each value one of that axis. Whether a whole
//! selector meets a cell is seen when there are cells.

use std::ops::Range;

use super::{Checker, axes_of, hint, named};
use crate::suite::file::{At, Entries, Scalar, Selection};
use crate::suite::model::{AxisKind, AxisValue, Key, Predicate, Selector, Test};
use crate::suite::problem::Problem;
use crate::suite::selector::parse_predicate;

/// Which tests a selector can speak of, and which variants there are.
pub(super) struct Scope<'s> {
    pub(super) tests: &'s [Test],
    pub(super) of: Vec<usize>,
    pub(super) variants: &'s [String],
    /// What to write where `test` stands as a key and may not; `None` where it may.
    pub(super) no_test: Option<&'static str>,
}

impl Checker<'_> {
    pub(super) fn exclude(
        &mut self,
        table: &At<Entries<At<Selection>>>,
        test: &Test,
        variants: &[String],
    ) -> Option<Selector> {
        let scope = Scope {
            tests: std::slice::from_ref(test),
            of: vec![0],
            variants,
            no_test: Some("leave it out: `exclude` speaks of the test that it stands in"),
        };
        self.filter(table, scope)
    }

    /// A selector written as a table.
    pub(super) fn filter(
        &mut self,
        table: &At<Entries<At<Selection>>>,
        mut scope: Scope<'_>,
    ) -> Option<Selector> {
        let mut predicates: Vec<(Key, Predicate)> = Vec::new();
        let mut texts = Vec::new();
        let mut whole = true;
        // What `test` says narrows the scope of the other keys, wherever it stands.
        let entries = &table.value.0;
        let (first, rest): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(name, _)| name.value == "test");
        for (name, selection) in first.into_iter().chain(rest) {
            texts.push(format!("{}={}", name.value, words(&selection.value)));
            match self.predicate(name, selection, &scope) {
                Some((Key::Test, predicate)) => {
                    narrow(&mut scope, &predicate);
                    predicates.push((Key::Test, predicate));
                }
                Some(pair) => predicates.push(pair),
                None => whole = false,
            }
        }
        whole.then(|| Selector {
            predicates,
            text: texts.join(" "),
            place: Some(self.place(&table.span)),
            span: Some(table.span.clone()),
        })
    }

    fn predicate(
        &mut self,
        name: &At<String>,
        selection: &At<Selection>,
        scope: &Scope<'_>,
    ) -> Option<(Key, Predicate)> {
        let key = match name.value.as_str() {
            "test" => Key::Test,
            "variant" => Key::Variant,
            axis => Key::Axis(axis.to_owned()),
        };
        if let (Key::Test, Some(help)) = (&key, scope.no_test) {
            self.say(
                Problem::at("selector", name.span.clone(), "`test` is no key of this selector")
                    .help(help),
            );
            return None;
        }
        if !self.known_key(&key, &name.span, scope) {
            return None;
        }
        let kind = match &key {
            Key::Axis(axis) => Some(self.axis_kind(axis)),
            Key::Test | Key::Variant => None,
        };
        let predicate = match &selection.value {
            Selection::One(scalar) => {
                self.one(&key, kind, scalar, &selection.span, scope).inspect(|predicate| {
                    self.known_values(&key, predicate, &selection.span, scope);
                })?
            }
            Selection::Many(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    match self.one(&key, kind, &item.value, &item.span, scope)? {
                        one @ Predicate::OneOf(_) => {
                            self.known_values(&key, &one, &item.span, scope);
                            if let Predicate::OneOf(one) = one {
                                values.extend(one);
                            }
                        }
                        Predicate::Range(..) | Predicate::Not(_) => {
                            self.say(
                                Problem::at("selector", item.span.clone(), "a list holds single values only")
                                    .help("write a range or a negation as one text, like \"8K..64K\" or \"!8K\""),
                            );
                            return None;
                        }
                    }
                }
                if values.is_empty() {
                    self.say(
                        Problem::at(
                            "selector",
                            selection.span.clone(),
                            "an empty list selects nothing",
                        )
                        .help("name values, or leave the key out"),
                    );
                    return None;
                }
                Predicate::OneOf(values)
            }
        };
        Some((key, predicate))
    }

    fn one(
        &mut self,
        key: &Key,
        kind: Option<AxisKind>,
        scalar: &Scalar,
        span: &Range<usize>,
        scope: &Scope<'_>,
    ) -> Option<Predicate> {
        // No value of an axis has `..` in it, so this is meant as a range.
        if let (Key::Axis(axis), Scalar::Text(text)) = (key, scalar)
            && text.contains("..")
            && !numeric(axis, scope)
        {
            self.say(
                Problem::at(
                    "selector",
                    span.clone(),
                    format!("`{axis}` has no numbers to make a range of"),
                )
                .help("name the values in a list"),
            );
            return None;
        }
        let refused = match parse_predicate(key, kind, &scalar.to_string()) {
            Ok(predicate) => return Some(predicate),
            Err(refused) => refused,
        };
        self.say(
            Problem::at("selector", span.clone(), refused.message)
                .help("write a value, a range like \"8K..64K\", or a list of values")
                .maybe_help(refused.help),
        );
        None
    }

    /// Whether an axis (or `variant`) is one that the scope has.
    fn known_key(&mut self, key: &Key, span: &Range<usize>, scope: &Scope<'_>) -> bool {
        match key {
            Key::Test => true,
            Key::Variant => {
                if scope.variants.is_empty() {
                    self.say(
                        Problem::at("selector", span.clone(), "the suite has no variants")
                            .help("leave `variant` out"),
                    );
                    return false;
                }
                true
            }
            Key::Axis(axis) => {
                let axes = axes_of(named(scope.tests, &scope.of));
                let known = axes.contains(&axis.as_str());
                if !known && !self.broken_tests && !self.broken_axes.contains(axis) {
                    let message = match scope.of.as_slice() {
                        [only] => {
                            let test = scope.tests.get(*only).map_or("", |test| &test.name);
                            format!("the test `{test}` has no axis `{axis}`")
                        }
                        _ => format!("no test has the axis `{axis}`"),
                    };
                    self.say(
                        Problem::at("unknown-axis", span.clone(), message)
                            .help(hint(axis, &axes, "axes are")),
                    );
                }
                known
            }
        }
    }

    /// Says which values no test of the scope has, and where a range has no meaning.
    fn known_values(
        &mut self,
        key: &Key,
        predicate: &Predicate,
        span: &Range<usize>,
        scope: &Scope<'_>,
    ) {
        match (key, predicate) {
            (_, Predicate::Not(inner)) => self.known_values(key, inner, span, scope),
            (Key::Axis(axis), Predicate::OneOf(values)) => {
                for value in values {
                    self.known_value(axis, value, span, scope);
                }
            }
            (Key::Axis(axis), Predicate::Range(from, to)) => {
                if !numeric(axis, scope) {
                    self.say(
                        Problem::at(
                            "selector",
                            span.clone(),
                            format!("`{axis}` has no numbers to make a range of"),
                        )
                        .help("name the values in a list"),
                    );
                } else if let (Some(from), Some(to)) = (from, to)
                    && from > to
                {
                    self.say(
                        Problem::at("selector", span.clone(), "the range ends before it begins")
                            .help("write the smaller end first"),
                    );
                }
            }
            (Key::Test, Predicate::OneOf(values)) => {
                let tests: Vec<&str> = scope.tests.iter().map(|test| test.name.as_str()).collect();
                for value in values.iter().filter(|value| !tests.contains(&value.as_str())) {
                    self.unknown_test(value, span, &tests);
                }
            }
            (Key::Variant, Predicate::OneOf(values)) => {
                let variants: Vec<&str> = scope.variants.iter().map(String::as_str).collect();
                for value in values.iter().filter(|value| !variants.contains(&value.as_str())) {
                    self.say(
                        Problem::at(
                            "unknown-variant",
                            span.clone(),
                            format!("there is no variant `{value}`"),
                        )
                        .help(hint(value, &variants, "variants are")),
                    );
                }
            }
            (Key::Test | Key::Variant, Predicate::Range(..)) => {
                self.say(
                    Problem::at("selector", span.clone(), "names have no range")
                        .help("name them in a list"),
                );
            }
        }
    }

    pub(super) fn unknown_test(&mut self, name: &str, span: &Range<usize>, tests: &[&str]) {
        if !self.broken_tests {
            self.say(
                Problem::at("unknown-test", span.clone(), format!("there is no test `{name}`"))
                    .help(hint(name, tests, "tests are")),
            );
        }
    }

    /// Whether a test of the scope has this value on this axis; says so where none has.
    pub(super) fn known_value(
        &mut self,
        axis: &str,
        value: &str,
        span: &Range<usize>,
        scope: &Scope<'_>,
    ) -> bool {
        if self.broken_axes.contains(axis) {
            return true;
        }
        let mut values: Vec<String> = Vec::new();
        for own in named(scope.tests, &scope.of).flat_map(|test| test.axes.iter()) {
            if own.name != axis {
                continue;
            }
            for known in &own.values {
                let text = known.to_string();
                if text == value || same_number(known, value) {
                    return true;
                }
                values.push(text);
            }
        }
        values.dedup();
        let known: Vec<&str> = values.iter().map(String::as_str).collect();
        self.say(
            Problem::at("unknown-value", span.clone(), format!("`{axis}` has no value {value}"))
                .help(super::name::list(&known, "its values are")),
        );
        false
    }

    /// The lines of a profile's `select`.
    pub(super) fn select(
        &mut self,
        lines: &[(String, Range<usize>)],
        tests: &[Test],
        variants: &[String],
    ) -> Vec<Selector> {
        let mut out = Vec::new();
        for (line, span) in lines {
            let selector = match Selector::parse_line(line) {
                Ok(selector) => selector,
                Err(refused) => {
                    self.say(
                        Problem::at("selector", span.clone(), refused.message)
                            .maybe_help(refused.help),
                    );
                    continue;
                }
            };
            let mut scope =
                Scope { tests, of: (0..tests.len()).collect(), variants, no_test: None };
            for (key, predicate) in &selector.predicates {
                if *key == Key::Test {
                    self.known_values(key, predicate, span, &scope);
                    narrow(&mut scope, predicate);
                }
            }
            for (key, predicate) in &selector.predicates {
                if *key != Key::Test && self.known_key(key, span, &scope) {
                    self.known_values(key, predicate, span, &scope);
                }
            }
            out.push(Selector {
                place: Some(self.place(span)),
                span: Some(span.clone()),
                ..selector
            });
        }
        out
    }
}

/// Leaves those tests in a scope that a predicate on `test` names.
fn narrow(scope: &mut Scope<'_>, predicate: &Predicate) {
    if let Predicate::OneOf(names) = predicate {
        scope.of.retain(|at| scope.tests.get(*at).is_some_and(|test| names.contains(&test.name)));
    }
}

/// A selection as on the command line.
fn words(selection: &Selection) -> String {
    match selection {
        Selection::One(scalar) => scalar.to_string(),
        Selection::Many(items) => {
            items.iter().map(|item| item.value.to_string()).collect::<Vec<_>>().join(",")
        }
    }
}

/// Whether a text is another spelling of a number of a free axis: `1.50` for `1.5`.
fn same_number(known: &AxisValue, text: &str) -> bool {
    matches!(known, AxisValue::Integer(_) | AxisValue::Float(_))
        && known.number().is_some_and(|number| text.parse() == Ok(number))
}

/// Whether every value of an axis is a number.
fn numeric(axis: &str, scope: &Scope<'_>) -> bool {
    named(scope.tests, &scope.of)
        .flat_map(|test| test.axes.iter())
        .filter(|own| own.name == axis)
        .all(|own| own.values.iter().all(|value| value.number().is_some()))
}
