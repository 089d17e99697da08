//! `[[test]]` and `[request]`: what is measured, and how requests are made.

use std::ops::Range;

use super::Checker;
use super::axis::{axes_of_test, kind_of, order};
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
            match self.test(table, file, &suite_axes, variants) {
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
                        .help("decode has context and concurrency, prefill has context, serve has input, output, and concurrency or request_rate; axes of other names are for templates"),
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
        self.one_meaning_each(file, &tests);
        tests
    }

    fn test(
        &mut self,
        table: &At<TestTable>,
        file: &File,
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
                "write one of startup, prefill, decode, serve or command, like `kind = \"decode\"`",
            );
            return None;
        };
        self.keys_of_kind(test, kind);
        let axes = self.axes(test, kind, own_axes, suite_axes, file);
        let mut spans = Spans::default();
        let request = [file.request.as_ref(), test.request.as_ref()];
        let request = self.request(&request, &mut spans);
        let setting = self.test_setting(table, kind, &axes, &mut spans)?;
        let mut found = Test {
            name: own_name.unwrap_or_else(|| Some(kind.name().to_owned()))?,
            place: self.place(&table.span),
            span: table.span.clone(),
            kind: setting,
            request,
            spans,
            axes,
            exclude: Vec::new(),
            launches: test.launches.as_ref().map_or(defaults::LAUNCHES, |at| at.value.0),
        };
        found.exclude =
            test.exclude.iter().filter_map(|table| self.exclude(table, &found, variants)).collect();
        Some(found)
    }

    /// Axes in the order of a cell's id: its own, and those of `[matrix]` that it has. Of those with a
    /// meaning a command test takes the ones that its command names: to the others it is all one.
    fn axes(
        &mut self,
        test: &TestTable,
        kind: TestKind,
        own: Vec<(Axis, Range<usize>)>,
        suite: &[Axis],
        file: &File,
    ) -> Vec<Axis> {
        let known = axes_of_test(kind, test);
        let has = |axis: &Axis| axis.kind == AxisKind::Free || known.contains(&axis.name.as_str());
        let mut axes = Vec::new();
        for (axis, span) in own {
            if has(&axis) {
                axes.push(axis);
            } else {
                self.no_axis(test, kind, &axis.name, span, &known);
            }
        }
        for axis in suite {
            let wanted = match kind {
                TestKind::Command if axis.kind != AxisKind::Free => {
                    super::tool::names_axis(test, file, &axis.name)
                }
                TestKind::Command
                | TestKind::Prefill
                | TestKind::Decode
                | TestKind::Serve
                | TestKind::Startup => has(axis),
            };
            if wanted && !axes.iter().any(|own| own.name == axis.name) {
                axes.push(axis.clone());
            }
        }
        axes.sort_by(|a, b| (order(&a.name), &a.name).cmp(&(order(&b.name), &b.name)));
        axes
    }

    /// Says that a test has no such axis, and what to write instead.
    fn no_axis(
        &mut self,
        test: &TestTable,
        kind: TestKind,
        name: &str,
        span: Range<usize>,
        known: &[&str],
    ) {
        if kind == TestKind::Serve
            && let Some(problem) = super::serve::no_axis(test, name, &span)
        {
            self.say(problem);
            return;
        }
        let known = match known {
            [] => "none with a meaning".to_owned(),
            names => names.join(" and "),
        };
        let message = format!("{} has no axis `{name}`", kind.name());
        self.say(
            Problem::at("unknown-axis", span, message)
                .help(format!("it has {known}; axes of other names are for templates")),
        );
    }

    /// Keys that belong to tests of another kind.
    fn keys_of_kind(&mut self, test: &TestTable, kind: TestKind) {
        let written = keys(test);
        let own: Vec<&str> = (written.iter())
            .filter(|(_, of, _)| of.contains(&kind))
            .map(|(key, _, _)| *key)
            .collect();
        for (key, of, span) in written {
            let Some(span) = span.filter(|_| !of.contains(&kind)) else { continue };
            let help = match instead(kind, key) {
                Some(help) => help.to_owned(),
                None if own.is_empty() => {
                    let of: Vec<&str> = of.iter().map(|kind| kind.name()).collect();
                    format!("leave it out; {} tests have it", of.join(" and "))
                }
                None => format!("leave it out; a {} test has {}", kind.name(), own.join(", ")),
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

    /// What the keys of a test say; `None` where that can't be told.
    fn test_setting(
        &mut self,
        table: &At<TestTable>,
        kind: TestKind,
        axes: &[Axis],
        spans: &mut Spans,
    ) -> Option<TestSetting> {
        let test = &table.value;
        Some(match kind {
            TestKind::Startup => TestSetting::Startup,
            TestKind::Serve => {
                TestSetting::Serve(Box::new(self.serve_setting(table, axes, spans)?))
            }
            TestKind::Command => {
                TestSetting::Command(Box::new(self.command_setting(table, spans)?))
            }
            TestKind::Prefill => TestSetting::Prefill {
                samples: test.samples.as_ref().map_or(defaults::SAMPLES, |at| at.value.0),
                context: defaults::CONTEXT,
            },
            TestKind::Decode => TestSetting::Decode(DecodeSetting {
                duration: self.duration(test.duration.as_ref(), defaults::DURATION),
                min_tokens: test.min_tokens.as_ref().map_or(defaults::MIN_TOKENS, |at| at.value.0),
                max_output: self.token_count(test.max_output.as_ref(), defaults::MAX_OUTPUT),
                prefix: self.prefix(test.prefix.as_ref()),
                capacity: test.capacity.as_ref().map(|at| at.value).unwrap_or_default(),
                ttft_samples: test
                    .ttft_samples
                    .as_ref()
                    .map_or(defaults::TTFT_SAMPLES, |at| at.value.0),
                context: defaults::CONTEXT,
                concurrency: defaults::CONCURRENCY,
            }),
        })
    }

    /// How prompts share their beginnings, or the default.
    pub(super) fn prefix(&mut self, at: Option<&At<PrefixValue>>) -> Prefix {
        at.and_then(|at| self.read_prefix(at)).unwrap_or(Prefix::Unique)
    }

    fn read_prefix(&mut self, at: &At<PrefixValue>) -> Option<Prefix> {
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
                "max_tokens" => "a decode test has `max-output`, a serve test `output`",
                "stream" => "leave it out: every request is streamed, since its tokens are timed",
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

/// A key, the kinds of tests that have it, and where it is written.
type KeyOfKinds<'t> = (&'static str, &'static [TestKind], Option<&'t Range<usize>>);

/// Every key that belongs to some kinds of tests alone.
fn keys(test: &TestTable) -> Vec<KeyOfKinds<'_>> {
    use TestKind::{Command, Decode, Prefill, Serve};
    fn span<T>(at: &Option<At<T>>) -> Option<&Range<usize>> {
        at.as_ref().map(|at| &at.span)
    }
    vec![
        ("duration", &[Decode, Serve], span(&test.duration)),
        ("min-tokens", &[Decode], span(&test.min_tokens)),
        ("max-output", &[Decode], span(&test.max_output)),
        ("prefix", &[Decode, Serve], span(&test.prefix)),
        ("capacity", &[Decode], span(&test.capacity)),
        ("ttft-samples", &[Decode], span(&test.ttft_samples)),
        ("samples", &[Prefill], span(&test.samples)),
        ("arrival", &[Serve], span(&test.arrival)),
        ("requests", &[Serve], span(&test.requests)),
        ("requests-per-stream", &[Serve], span(&test.requests_per_stream)),
        ("warmup-per-stream", &[Serve], span(&test.warmup_per_stream)),
        ("input", &[Serve], span(&test.input)),
        ("output", &[Serve], span(&test.output)),
        ("dataset", &[Serve], span(&test.dataset)),
        ("slo", &[Serve], span(&test.slo)),
        ("command", &[Command], span(&test.command)),
        ("result", &[Command], span(&test.result)),
        ("preset", &[Command], span(&test.preset)),
        ("metrics", &[Command], test.metrics.0.first().map(|(name, _)| &name.span)),
        ("timeout", &[Command], span(&test.timeout)),
        ("repeat", &[Serve, Command], span(&test.repeat)),
        ("launches", &TestKind::ALL, span(&test.launches)),
    ]
}

/// What to write in a test of one kind for a key of another.
fn instead(kind: TestKind, key: &str) -> Option<&'static str> {
    use TestKind::{Command, Decode, Prefill, Serve, Startup};
    Some(match (kind, key) {
        (Decode, "samples") => {
            "a decode test has `ttft-samples`, and a window of `duration` and `min-tokens`"
        }
        (Decode, "requests" | "requests-per-stream" | "repeat") => {
            "a decode test's streams send one request after the other as long as its window is open: write `duration` or `min-tokens`"
        }
        (Decode, "output") => {
            "write `max-output`: a decode test's streams loop until its window closes"
        }
        (Decode | Prefill, "input") => "write the axis: matrix.context = [\"8K\"]",
        (Prefill, "requests" | "requests-per-stream" | "repeat") => "write `samples`",
        (Decode | Prefill, "arrival" | "slo" | "dataset") => {
            "that is for requests as a service gets them: write `kind = \"serve\"`"
        }
        (Serve, "samples" | "ttft-samples") => {
            "write how many requests are measured: `requests = 100`, or `requests-per-stream = 10`"
        }
        (Serve, "max-output") => "write `output`: a serve test's outputs have exactly that length",
        (Serve, "min-tokens") => {
            "a serve test ends by `requests`, `requests-per-stream` or `duration`"
        }
        (Serve, "capacity") => {
            "leave it out: a serve test is run whatever fits, and requests that wait are part of its figures"
        }
        (Serve, "timeout") => "write `request.timeout = \"300s\"`: the longest time of one request",
        (Command, "duration") => "write `timeout`; how much is measured is said in the command",
        (Command, "requests" | "requests-per-stream" | "samples" | "input" | "output") => {
            "say it in the command: the tool makes the requests"
        }
        (Startup | Prefill | Decode, "timeout") => {
            "write `request.timeout`, or `engine.ready.timeout` for the launch"
        }
        (Startup | Prefill | Decode | Serve | Command, _) => return None,
    })
}
