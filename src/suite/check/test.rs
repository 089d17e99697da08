//! `[[test]]` and `[request]`: what is measured, and how requests are made.

use std::ops::Range;

use super::Checker;
use super::axis::{axes_of_kind, kind_of, order};
use crate::load::Api;
use crate::measure::TestKind;
use crate::suite::defaults;
use crate::suite::file::{At, File, PrefixValue, PrefixWord, RequestTable, TestTable};
use crate::suite::model::{
    Axis, AxisKind, DecodeSetting, Prefix, Request, Spans, Test, TestSetting,
};
use crate::suite::problem::Problem;

impl Checker<'_> {
    /// Every test that can be read.
    pub(super) fn tests(
        &mut self,
        file: &File,
        variants: &[String],
        top: Range<usize>,
    ) -> Vec<Test> {
        if file.test.is_empty() {
            self.broken_tests = true;
            self.missing(
                "test",
                top,
                "the suite has no test",
                "write at least one:\n[[test]]\nkind = \"decode\"",
            );
        }
        let mut suite_axes = Vec::new();
        for (name, values) in &file.matrix.0 {
            suite_axes.extend(self.axis(name, values));
        }
        let mut tests = Vec::new();
        for table in &file.test {
            match self.test(table, file.request.as_ref(), &suite_axes, variants) {
                Some(test) => tests.push(test),
                None => self.broken_tests = true,
            }
        }
        for axis in &suite_axes {
            let taken = tests.iter().any(|test| test.axes.iter().any(|own| own.span == axis.span));
            let used = tests.iter().any(|test| test.axes.iter().any(|own| own.name == axis.name));
            if !used && !self.broken_tests {
                self.say(
                    Problem::at("unknown-axis", axis.span.clone(), format!("no test has the axis `{}`", axis.name))
                        .help("decode has context and concurrency, prefill has context; axes of other names are for templates"),
                );
            } else if !taken && !self.broken_tests {
                self.say(
                    Problem::at(
                        "no-effect",
                        axis.span.clone(),
                        format!("each test has an axis `{}` of its own", axis.name),
                    )
                    .help(format!(
                        "leave it out, or change the tests' own: test.NAME.matrix.{}",
                        axis.name
                    ))
                    .warning(),
                );
            }
        }
        tests
    }

    fn test(
        &mut self,
        table: &At<TestTable>,
        request: Option<&At<RequestTable>>,
        suite_axes: &[Axis],
        variants: &[String],
    ) -> Option<Test> {
        let test = &table.value;
        let own_name = test.name.as_ref().map(|at| self.name_title(at, "a test's name"));
        let mut own_axes = Vec::new();
        for (name, values) in &test.matrix.0 {
            own_axes.extend(self.axis(name, values).map(|axis| (axis, name.span.clone())));
        }
        let Some(kind) = test.kind.as_ref().map(|at| at.value) else {
            self.missing(
                "kind",
                table.span.clone(),
                "`[[test]]` has no `kind`",
                "write one of prefill, decode or startup, like `kind = \"decode\"`",
            );
            return None;
        };
        self.keys_of_kind(test, kind);
        let axes = self.axes(kind, own_axes, suite_axes);
        let mut spans = Spans::default();
        let request = self.request(&[request, test.request.as_ref()], &mut spans);
        let setting = self.test_setting(test, kind);
        let mut found = Test {
            name: own_name.unwrap_or_else(|| Some(kind.name().to_owned()))?,
            place: self.place(&table.span),
            span: table.span.clone(),
            kind: setting,
            request,
            spans,
            axes,
            exclude: Vec::new(),
        };
        found.exclude =
            test.exclude.iter().filter_map(|table| self.exclude(table, &found, variants)).collect();
        Some(found)
    }

    /// Axes in the order of a cell's id: its own, and those of `[matrix]` that its kind has.
    fn axes(
        &mut self,
        kind: TestKind,
        own: Vec<(Axis, Range<usize>)>,
        suite: &[Axis],
    ) -> Vec<Axis> {
        let has = |axis: &Axis| {
            axis.kind == AxisKind::Free || axes_of_kind(kind).contains(&axis.name.as_str())
        };
        let mut axes = Vec::new();
        for (axis, span) in own {
            if has(&axis) {
                axes.push(axis);
                continue;
            }
            let known = match axes_of_kind(kind) {
                [] => "none with a meaning".to_owned(),
                names => names.join(" and "),
            };
            self.say(
                Problem::at(
                    "unknown-axis",
                    span,
                    format!("{} has no axis `{}`", kind.name(), axis.name),
                )
                .help(format!("it has {known}; axes of other names are for templates")),
            );
        }
        for axis in suite {
            if has(axis) && !axes.iter().any(|own| own.name == axis.name) {
                axes.push(axis.clone());
            }
        }
        axes.sort_by(|a, b| (order(&a.name), &a.name).cmp(&(order(&b.name), &b.name)));
        axes
    }

    /// Keys that belong to tests of another kind.
    fn keys_of_kind(&mut self, test: &TestTable, kind: TestKind) {
        use TestKind::{Decode, Prefill};
        let written = [
            ("duration", Decode, test.duration.as_ref().map(|at| &at.span)),
            ("min-tokens", Decode, test.min_tokens.as_ref().map(|at| &at.span)),
            ("max-output", Decode, test.max_output.as_ref().map(|at| &at.span)),
            ("prefix", Decode, test.prefix.as_ref().map(|at| &at.span)),
            ("capacity", Decode, test.capacity.as_ref().map(|at| &at.span)),
            ("ttft-samples", Decode, test.ttft_samples.as_ref().map(|at| &at.span)),
            ("samples", Prefill, test.samples.as_ref().map(|at| &at.span)),
        ];
        let own: Vec<&str> =
            written.iter().filter(|(_, of, _)| *of == kind).map(|(key, _, _)| *key).collect();
        for (key, of, span) in written {
            if let Some(span) = span.filter(|_| of != kind) {
                let help = if key == "samples" && kind == Decode {
                    "a decode test has `ttft-samples`, and a window of `duration` and `min-tokens`"
                        .to_owned()
                } else if own.is_empty() {
                    format!("leave it out; {} tests have it", of.name())
                } else {
                    format!("leave it out; a {} test has {}", kind.name(), own.join(", "))
                };
                self.say(
                    Problem::at(
                        "wrong-key",
                        span.clone(),
                        format!("a {} test has no `{key}`", kind.name()),
                    )
                    .help(help),
                );
            }
        }
    }

    fn test_setting(&mut self, test: &TestTable, kind: TestKind) -> TestSetting {
        match kind {
            TestKind::Startup => TestSetting::Startup,
            TestKind::Prefill => TestSetting::Prefill {
                samples: test.samples.as_ref().map_or(defaults::SAMPLES, |at| at.value.0),
                context: defaults::CONTEXT,
            },
            TestKind::Decode => TestSetting::Decode(DecodeSetting {
                duration: self.duration(test.duration.as_ref(), defaults::DURATION),
                min_tokens: test.min_tokens.as_ref().map_or(defaults::MIN_TOKENS, |at| at.value.0),
                max_output: self.token_count(test.max_output.as_ref(), defaults::MAX_OUTPUT),
                prefix: test
                    .prefix
                    .as_ref()
                    .and_then(|at| self.prefix(at))
                    .unwrap_or(Prefix::Unique),
                capacity: test.capacity.as_ref().map(|at| at.value).unwrap_or_default(),
                ttft_samples: test
                    .ttft_samples
                    .as_ref()
                    .map_or(defaults::TTFT_SAMPLES, |at| at.value.0),
                context: defaults::CONTEXT,
                concurrency: defaults::CONCURRENCY,
            }),
        }
    }

    fn prefix(&mut self, at: &At<PrefixValue>) -> Option<Prefix> {
        match &at.value {
            PrefixValue::Word(PrefixWord::Unique) => Some(Prefix::Unique),
            PrefixValue::Word(PrefixWord::Shared) => Some(Prefix::Shared),
            PrefixValue::Word(PrefixWord::Cold) => Some(Prefix::Cold),
            PrefixValue::Groups(table) => match (&table.groups, &table.length) {
                (Some(groups), Some(length)) => {
                    let length = self.tokens(&length.span, &length.value.0)?;
                    Some(Prefix::Groups { groups: groups.value.0, length })
                }
                (groups, _) => {
                    let key = if groups.is_none() { "groups" } else { "length" };
                    self.missing(
                        key,
                        at.span.clone(),
                        &format!("`prefix` has no `{key}`"),
                        "write { groups = 150, length = 6000 }",
                    );
                    None
                }
            },
        }
    }

    /// `[request]` with what lies over it.
    fn request(&mut self, tables: &[Option<&At<RequestTable>>], spans: &mut Spans) -> Request {
        let mut request = Request {
            api: Api::default(),
            body: serde_json::Map::new(),
            headers: Vec::new(),
            timeout: defaults::TIMEOUT,
            idle_timeout: defaults::IDLE,
            prompt_tolerance: Some(defaults::PROMPT_TOLERANCE),
            output_tolerance: Some(defaults::OUTPUT_TOLERANCE),
        };
        for table in tables.iter().flatten() {
            let table = &table.value;
            if let Some(api) = &table.api {
                request.api = api.value;
            }
            if let Some(body) = &table.body {
                self.body(body);
                spans.0.insert("request.body".to_owned(), body.span.clone());
                request.body.extend(body.value.clone());
            }
            for (name, value) in &table.headers.0 {
                self.header(name, value);
                spans.0.insert(format!("request.headers.{}", name.value), value.span.clone());
                request.headers.retain(|(old, _)| !old.eq_ignore_ascii_case(&name.value));
                request.headers.push((name.value.clone(), value.value.clone()));
            }
            request.timeout = self.duration(table.timeout.as_ref(), request.timeout);
            request.idle_timeout = self.duration(table.idle_timeout.as_ref(), request.idle_timeout);
            if let Some(tolerance) = &table.prompt_tolerance {
                request.prompt_tolerance = self.tolerance(tolerance);
            }
            if let Some(tolerance) = &table.output_tolerance {
                request.output_tolerance = self.tolerance(tolerance);
            }
        }
        request
    }

    /// Fields that the measurement itself sets can't be overridden.
    fn body(&mut self, body: &At<serde_json::Map<String, serde_json::Value>>) {
        const OWN: [&str; 5] = ["prompt", "messages", "stream", "model", "max_tokens"];
        for key in body.value.keys().filter(|key| OWN.contains(&key.as_str())) {
            let help = match key.as_str() {
                "model" => "name the model in [model]",
                "max_tokens" => "a decode test has `max-output`",
                _ => "leave it out",
            };
            self.say(
                Problem::at(
                    "request-body",
                    body.span.clone(),
                    format!("`{key}` is set by the test, not by `body`"),
                )
                .help(help),
            );
        }
    }

    fn header(&mut self, name: &At<String>, value: &At<String>) {
        if value.value.contains(|c: char| c.is_control() && c != '\t') {
            self.say(
                Problem::at(
                    "request-header",
                    value.span.clone(),
                    format!("the header `{}` holds a control character", name.value),
                )
                .help("a header is one line of text"),
            );
        }
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.value.is_empty() || !name.value.chars().all(token) {
            self.say(
                Problem::at(
                    "bad-name",
                    name.span.clone(),
                    format!("`{}` can't be the name of a header", name.value),
                )
                .help("write the name alone, like x-tenant"),
            );
        }
    }

    /// The kind of an axis, for selectors that name it.
    pub(super) fn axis_kind(&self, name: &str) -> AxisKind {
        kind_of(name)
    }
}
