//! Axes: their kinds, their values in canonical form, no two alike.

use std::collections::HashMap;
use std::ops::Range;

use super::Checker;
use crate::load::Arrival;
use crate::measure::TestKind;
use crate::suite::file::{At, AxisItem, AxisValues, DatasetFormat, Geometric, Scalar, TestTable};
use crate::suite::model::{Axis, AxisKind, AxisValue};
use crate::suite::name;
use crate::suite::problem::Problem;

/// Axes with a meaning, in the order of a cell's id.
pub(super) const KNOWN: [(&str, AxisKind); 5] = [
    ("context", AxisKind::Tokens),
    ("input", AxisKind::Tokens),
    ("output", AxisKind::Tokens),
    ("concurrency", AxisKind::Count),
    ("request_rate", AxisKind::Rate),
];

/// Most streams that anybody could mean.
const MOST_STREAMS: i64 = 1_000_000;

/// Most values of an axis.
const MOST: usize = u16::MAX as usize;

/// What the values of an axis of this name mean.
pub(super) fn kind_of(name: &str) -> AxisKind {
    KNOWN.iter().find(|(known, _)| *known == name).map_or(AxisKind::Free, |(_, kind)| *kind)
}

/// Where an axis stands in a cell's id.
pub(super) fn order(name: &str) -> usize {
    KNOWN.iter().position(|(known, _)| *known == name).unwrap_or(KNOWN.len())
}

/// The axes with a meaning that a test has.
pub(super) fn axes_of_test(kind: TestKind, test: &TestTable) -> Vec<&'static str> {
    match kind {
        TestKind::Prefill => vec!["context"],
        TestKind::Decode => vec!["context", "concurrency"],
        TestKind::Serve => {
            let dataset = test.dataset.as_ref().map(|at| &at.value);
            let sharegpt = dataset
                .and_then(|table| table.format.as_ref())
                .is_some_and(|format| format.value == DatasetFormat::Sharegpt);
            let arrival = test.arrival.as_ref().map(|at| at.value).unwrap_or_default();
            let mut axes = Vec::new();
            if dataset.is_none() {
                axes.push("input");
            }
            if !sharegpt {
                axes.push("output");
            }
            axes.extend(match arrival {
                Arrival::Closed => Some("concurrency"),
                Arrival::Burst => None,
                Arrival::Constant | Arrival::Poisson => Some("request_rate"),
            });
            axes
        }
        TestKind::Command => KNOWN.iter().map(|(name, _)| *name).collect(),
        TestKind::Startup => Vec::new(),
    }
}

impl Checker<'_> {
    /// An axis as written; `None` where its name is no name or nothing of it can be used.
    pub(super) fn axis(&mut self, name: &At<String>, values: &At<AxisValues>) -> Option<Axis> {
        if matches!(name.value.as_str(), "test" | "variant") {
            let message =
                format!("`{}` can't be the name of an axis: selectors use it", name.value);
            self.say(
                Problem::at("bad-name", name.span.clone(), message).help("choose another name"),
            );
            return None;
        }
        if !self.word(name, "the name of an axis") {
            self.broken_axes.insert(name.value.clone());
            return None;
        }
        let kind = kind_of(&name.value);
        if kind == AxisKind::Free {
            self.meant_for_known(name);
        }
        let before = self.problems.len();
        let found = match &values.value {
            AxisValues::List(items) => self.listed(kind, &name.value, items),
            AxisValues::Geometric(steps) => self.geometric(kind, &name.value, steps, &values.span),
        };
        let mut seen: HashMap<String, Range<usize>> = HashMap::with_capacity(found.len());
        let mut kept = Vec::with_capacity(found.len());
        for (value, span) in found {
            let text = value.to_string();
            if let Some(first) = seen.get(&text) {
                let written = self.source.text(&span).to_owned();
                self.say(
                    Problem::at(
                        "duplicate-value",
                        span,
                        format!("`{written}` stands twice in `{}`: both are {text}", name.value),
                    )
                    .label("second")
                    .also(first.clone(), "first")
                    .help("leave one of them out"),
                );
            } else {
                seen.insert(text, span);
                kept.push(value);
            }
        }
        if self.problems.len() > before {
            self.broken_axes.insert(name.value.clone());
        } else if kept.is_empty() {
            self.say(
                Problem::at(
                    "empty-axis",
                    values.span.clone(),
                    format!("the axis `{}` has no values", name.value),
                )
                .help("write at least one, or leave the axis out"),
            );
            self.broken_axes.insert(name.value.clone());
            return None;
        }
        if kept.len() > MOST {
            let message = format!("the axis `{}` has {} values", name.value, kept.len());
            self.say(
                Problem::at("number-range", values.span.clone(), message)
                    .help(format!("an axis has at most {MOST} values")),
            );
            return None;
        }
        Some(Axis {
            name: name.value.clone(),
            kind,
            values: kept,
            place: self.place(&values.span),
            span: values.span.clone(),
        })
    }

    /// A free axis whose name is almost that of one with a meaning is probably a slip.
    fn meant_for_known(&mut self, name: &At<String>) {
        let known = KNOWN.iter().map(|(known, _)| *known);
        if let Some(near) = name::nearest(&name.value, known) {
            self.say(
                Problem::at(
                    "free-axis",
                    name.span.clone(),
                    format!("`{}` is an axis for templates only", name.value),
                )
                .help(format!("did you mean `{near}`?"))
                .warning(),
            );
        }
    }

    fn listed(
        &mut self,
        kind: AxisKind,
        name: &str,
        items: &[At<AxisItem>],
    ) -> Vec<(AxisValue, Range<usize>)> {
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            let value = match &item.value {
                AxisItem::Scalar(scalar) => self.axis_scalar(kind, name, scalar, &item.span),
                AxisItem::Table(fields) => self.axis_table(kind, name, fields, &item.span),
            };
            out.extend(value.map(|value| (value, item.span.clone())));
        }
        out
    }

    /// A single value of an axis.
    pub(super) fn axis_scalar(
        &mut self,
        kind: AxisKind,
        name: &str,
        scalar: &Scalar,
        span: &Range<usize>,
    ) -> Option<AxisValue> {
        match kind {
            AxisKind::Tokens => self.tokens(span, scalar).map(AxisValue::Tokens),
            AxisKind::Count => self.count(name, scalar, span).map(AxisValue::Integer),
            AxisKind::Rate => match scalar {
                Scalar::Integer(n) if *n > 0 => Some(AxisValue::Integer(*n)),
                Scalar::Float(n) if *n > 0.0 && n.is_finite() => Some(AxisValue::Float(*n)),
                Scalar::Integer(_) | Scalar::Float(_) | Scalar::Text(_) | Scalar::Bool(_) => {
                    let endless = scalar.to_string().trim_start_matches('+').starts_with("inf");
                    let help = if endless {
                        "write `arrival = \"burst\"` for everything at once, and no axis `request_rate`"
                    } else {
                        "write a number of requests a second above 0, without quotes and unit"
                    };
                    self.say(
                        Problem::at("quantity", span.clone(), format!("`{scalar}` is not a rate"))
                            .help(help),
                    );
                    None
                }
            },
            AxisKind::Free => match scalar {
                Scalar::Integer(n) => Some(AxisValue::Integer(*n)),
                Scalar::Float(n) => Some(AxisValue::Float(*n)),
                Scalar::Bool(b) => Some(AxisValue::Bool(*b)),
                Scalar::Text(text) => {
                    let table = format!(
                        "write {{ id = \"…\", value = \"{text}\" }} and use axis.{name}.value"
                    );
                    self.plain_id(text, span, &table).then(|| AxisValue::Text(text.clone()))
                }
            },
        }
    }

    fn count(&mut self, name: &str, scalar: &Scalar, span: &Range<usize>) -> Option<i64> {
        let help = match scalar {
            Scalar::Integer(n) if (1..=MOST_STREAMS).contains(n) => return Some(*n),
            Scalar::Text(text) => text
                .parse::<crate::quantity::Tokens>()
                .ok()
                .map(|count| format!("write it without quotes: {}", count.0)),
            Scalar::Integer(_) | Scalar::Float(_) | Scalar::Bool(_) => None,
        };
        self.say(
            Problem::at(
                "quantity",
                span.clone(),
                format!("`{}` is not a value of `{name}`", self.source.text(span)),
            )
            .help(help.unwrap_or_else(|| format!("write a whole number from 1 to {MOST_STREAMS}"))),
        );
        None
    }

    fn axis_table(
        &mut self,
        kind: AxisKind,
        name: &str,
        fields: &serde_json::Map<String, serde_json::Value>,
        span: &Range<usize>,
    ) -> Option<AxisValue> {
        if kind != AxisKind::Free {
            self.say(
                Problem::at(
                    "quantity",
                    span.clone(),
                    format!("a value of `{name}` is a single one, not a table"),
                )
                .help("tables belong to axes of other names, like `layout`"),
            );
            return None;
        }
        let id = match fields.get("id") {
            Some(serde_json::Value::String(id)) => id.clone(),
            Some(serde_json::Value::Number(id)) => id.to_string(),
            Some(_) | None => {
                self.say(
                    Problem::at(
                        "axis-id",
                        span.clone(),
                        format!("this value of `{name}` has no `id`"),
                    )
                    .help("give it one, which names it in cells: { id = \"tp8\", tp = 8 }"),
                );
                return None;
            }
        };
        for key in fields.keys().filter(|key| !name::is_word(key)) {
            let help =
                name::as_word(key).map_or_else(String::new, |word| format!("write `{word}`: "));
            self.say(
                Problem::at("bad-name", span.clone(), format!("templates can't name `{key}`"))
                    .help(format!("{help}lower-case letters, digits and `_`")),
            );
        }
        self.plain_id(&id, span, "choose an id of letters, digits, `-`, `_` and `.`")
            .then(|| AxisValue::Table { id, fields: fields.clone() })
    }

    /// Whether a text can stand in a cell's id and in a selector.
    fn plain_id(&mut self, text: &str, span: &Range<usize>, help: &str) -> bool {
        let odd = if text.is_empty() {
            Some("it is empty")
        } else if text.len() > name::LONGEST {
            Some("it is too long for the name of a file")
        } else if text.starts_with('!') {
            Some("it begins with `!`, which negates in selectors")
        } else if text.contains("..") {
            Some("it has `..` in it, which makes a range in selectors")
        } else if text.contains([',', '=']) {
            Some("it has `,` or `=` in it, which part the axes of a cell")
        } else if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            Some("it has a blank in it, which parts the keys of a selector")
        } else {
            None
        };
        if let Some(odd) = odd {
            let shown: String = text.chars().take(40).collect();
            let more = if shown.len() < text.len() { "…" } else { "" };
            let message = format!("`{shown}{more}` can't name a cell: {odd}");
            self.say(Problem::at("axis-id", span.clone(), message).help(help));
        }
        odd.is_none()
    }

    fn geometric(
        &mut self,
        kind: AxisKind,
        name: &str,
        steps: &Geometric,
        span: &Range<usize>,
    ) -> Vec<(AxisValue, Range<usize>)> {
        let mut complete = true;
        for (key, there) in [
            ("from", steps.from.is_some()),
            ("to", steps.to.is_some()),
            ("times", steps.times.is_some()),
        ] {
            if !there {
                complete = false;
                self.missing(
                    key,
                    span.clone(),
                    &format!("the axis `{name}` has no `{key}`"),
                    "write { from = 1, to = 128, times = 2 }, or a list",
                );
                self.broken_axes.insert(name.to_owned());
            }
        }
        let (Some(from), Some(to), Some(times)) = (&steps.from, &steps.to, &steps.times) else {
            return Vec::new();
        };
        if !complete {
            return Vec::new();
        }
        let Some((from, to_value)) = self.end(kind, name, from).zip(self.end(kind, name, to))
        else {
            return Vec::new();
        };
        if times.value <= 1.0 {
            self.say(
                Problem::at(
                    "number-range",
                    times.span.clone(),
                    format!("`times = {}` does not grow", times.value),
                )
                .help("write a factor above 1, like `times = 2`"),
            );
            return Vec::new();
        }
        if from > to_value {
            self.say(
                Problem::at(
                    "empty-axis",
                    to.span.clone(),
                    format!("the axis `{name}` has no values: `to` is below `from`"),
                )
                .help("write the smaller value at `from`"),
            );
            return Vec::new();
        }
        let mut out = Vec::new();
        let mut value = from;
        // A product of floats may miss the end by its last digit.
        while value <= to_value * (1.0 + 1e-9) && out.len() <= MOST {
            if value.fract().abs() > 1e-6 && kind != AxisKind::Rate {
                self.say(
                    Problem::at(
                        "quantity",
                        times.span.clone(),
                        format!(
                            "`times = {}` leads to {value}, and `{name}` has whole values",
                            times.value
                        ),
                    )
                    .help("write the values as a list"),
                );
                return Vec::new();
            }
            let whole = value.round();
            out.push((
                match kind {
                    AxisKind::Tokens => AxisValue::Tokens(whole as u64),
                    AxisKind::Count | AxisKind::Free => AxisValue::Integer(whole as i64),
                    AxisKind::Rate if value == whole => AxisValue::Integer(whole as i64),
                    AxisKind::Rate => AxisValue::Float(value),
                },
                span.clone(),
            ));
            value *= times.value;
        }
        out
    }

    fn end(&mut self, kind: AxisKind, name: &str, at: &At<Scalar>) -> Option<f64> {
        if kind == AxisKind::Free {
            return match &at.value {
                Scalar::Integer(n) if *n > 0 => Some(*n as f64),
                Scalar::Integer(_) | Scalar::Float(_) | Scalar::Text(_) | Scalar::Bool(_) => {
                    self.say(
                        Problem::at(
                            "quantity",
                            at.span.clone(),
                            format!("`{}` can't be multiplied", at.value),
                        )
                        .help("write a whole number from 1 on, or the values as a list"),
                    );
                    None
                }
            };
        }
        self.axis_scalar(kind, name, &at.value, &at.span)?.number()
    }
}
