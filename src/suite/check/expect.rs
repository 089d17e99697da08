//! `[[expect]]`: which metric of which tests is bounded, on which side, by how much.

use std::collections::HashMap;
use std::ops::Range;

use super::filter::Scope;
use super::{Checker, hint, tool};
use crate::judge::Side;
use crate::measure::metric::{CATALOGUE, Direction, Entry, Stat};
use crate::measure::{Base, Metric};
use crate::quantity::{Tokens, Unreadable, parse_duration, parse_percent};
use crate::suite::defaults;
use crate::suite::file::{At, ExpectTable, File, LimitValue};
use crate::suite::model::{
    Amount, AxisValue, DecodeSetting, Expectation, Limits, Selector, ServeSetting, Test,
    TestSetting,
};
use crate::suite::name;
use crate::suite::problem::Problem;

impl Checker<'_> {
    /// Every expectation that can be read. `per_gpu`: whether the number of GPUs is known.
    pub(super) fn expectations(
        &mut self,
        file: &File,
        tests: &[Test],
        variants: &[String],
        per_gpu: bool,
    ) -> Vec<Expectation> {
        let mut out: Vec<Expectation> = Vec::new();
        let mut seen: HashMap<String, Range<usize>> = HashMap::new();
        for table in &file.expect {
            let Some(found) = self.expectation(table, tests, variants, per_gpu) else { continue };
            for rule in rules(&found) {
                if let Some(first) = seen.get(&rule) {
                    self.say(
                        Problem::at("same-expectation", table.span.clone(), format!("`{}` is bounded twice for the same cells", found.metric))
                            .label("second")
                            .also(first.clone(), "first")
                            .help("keep one of them; to override a bound of the file that this one extends, give both the same `name`"),
                    );
                } else {
                    seen.insert(rule, table.span.clone());
                }
            }
            out.push(found);
        }
        out
    }

    fn expectation(
        &mut self,
        table: &At<ExpectTable>,
        tests: &[Test],
        variants: &[String],
        per_gpu: bool,
    ) -> Option<Expectation> {
        let expect = &table.value;
        let slack = self.percent(expect.slack.as_ref(), 1.0).unwrap_or(0.0);
        let Some(at) = &expect.metric else {
            self.missing(
                "metric",
                table.span.clone(),
                "`[[expect]]` has no `metric`",
                "say what is bounded, like `metric = \"output-throughput\"`",
            );
            return None;
        };
        let metric = self.metric_named(at, tests)?;
        if metric.per_gpu && !per_gpu {
            self.say(
                Problem::at(
                    "needs-gpus",
                    at.span.clone(),
                    format!("`{metric}` needs to know how many GPUs the engine uses"),
                )
                .help("write `gpus = 8` in [engine], or `count = 8` in [hardware]"),
            );
        }
        if let Some(name) = &expect.name {
            self.name_title(name, "the name of an expectation");
        }
        let of = self.tests_of(expect, metric, at, tests)?;
        let scope = || Scope {
            tests,
            of: of.clone(),
            variants,
            no_test: Some("name tests by the key `test` of [[expect]]"),
        };
        let filter = expect.filter.as_ref().map(|table| self.filter(table, scope()));
        let except = expect.except.as_ref().map(|table| self.filter(table, scope()));
        let bounds = self.bounds(table, metric, &scope());
        self.needs_interval(metric, at, &of, tests);
        self.carries(metric, at, &of, tests);
        Some(Expectation {
            name: expect.name.as_ref().map(|at| at.value.clone()),
            place: self.place(&table.span),
            span: table.span.clone(),
            metric,
            bounds: bounds?,
            slack,
            filter: filter.unwrap_or_else(|| Some(Selector::default()))?,
            except: match except {
                Some(except) => Some(except?),
                None => None,
            },
            severity: expect.severity.as_ref().map(|at| at.value).unwrap_or_default(),
            tests: of,
        })
    }

    /// The metric of a name: of the catalogue, or one that a command test defines.
    fn metric_named(&mut self, at: &At<String>, tests: &[Test]) -> Option<Metric> {
        if let Some(metric) = tool::defined(&at.value, tests) {
            return Some(metric.into());
        }
        let (head, _) = at.value.split_once('.').unwrap_or((&at.value, ""));
        let head = head.strip_suffix("-per-gpu").unwrap_or(head);
        if tool::defined(head, tests).is_some() {
            let message = format!("`{head}` is one number of a tool, and has no other form");
            self.say(
                Problem::at("unknown-metric", at.span.clone(), message)
                    .help(format!("write \"{head}\"")),
            );
            return None;
        }
        let unknown = match at.value.parse::<Metric>() {
            Ok(metric) => return Some(metric),
            Err(unknown) => unknown,
        };
        // A name without a dash may be one that a test defines which could not be read.
        if !(self.broken_tests && name::is_word(&at.value)) {
            let help = tool::near(&at.value, tests).unwrap_or(unknown.help);
            self.say(Problem::at("unknown-metric", at.span.clone(), unknown.message).help(help));
        }
        None
    }

    /// Indices of the tests that an expectation holds for.
    fn tests_of(
        &mut self,
        expect: &ExpectTable,
        metric: Metric,
        at: &At<String>,
        tests: &[Test],
    ) -> Option<Vec<usize>> {
        let produces = |test: &Test| test.kind.produces(metric);
        let Some(named) = &expect.test else {
            let of: Vec<usize> =
                (0..tests.len()).filter(|index| produces(&tests[*index])).collect();
            if of.is_empty() {
                if !self.broken_tests {
                    self.say(
                        Problem::at(
                            "metric-not-produced",
                            at.span.clone(),
                            format!("no test of this suite measures `{metric}`"),
                        )
                        .help(makers(metric)),
                    );
                }
                return None;
            }
            return Some(of);
        };
        if named.texts().is_empty() {
            self.say(
                Problem::at("selector", named.span.clone(), "an empty list names no test")
                    .help("name tests, or leave `test` out for all that measure the metric"),
            );
            return None;
        }
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        let mut of = Vec::new();
        let mut whole = true;
        for name in named.texts() {
            let Some(index) = names.iter().position(|known| *known == name.value) else {
                self.unknown_test(&name.value, &name.span, &names);
                whole = false;
                continue;
            };
            if !produces(&tests[index]) {
                let kind = tests[index].kind.kind();
                self.say(
                    Problem::at(
                        "metric-not-produced",
                        at.span.clone(),
                        format!(
                            "the {} test `{}` does not measure `{metric}`",
                            kind.name(),
                            name.value
                        ),
                    )
                    .also(name.span.clone(), "this test")
                    .help(format!(
                        "{}; {}",
                        makers(metric),
                        measures(&tests[index].kind)
                    )),
                );
                whole = false;
            } else if of.contains(&index) {
                self.say(
                    Problem::at(
                        "duplicate-value",
                        name.span.clone(),
                        format!("the test `{}` is named twice", name.value),
                    )
                    .help("leave one of them out"),
                );
            } else {
                of.push(index);
            }
        }
        (whole && !of.is_empty()).then_some(of)
    }

    fn bounds(
        &mut self,
        table: &At<ExpectTable>,
        metric: Metric,
        scope: &Scope<'_>,
    ) -> Option<Vec<(Side, Limits)>> {
        let entry = metric.base.entry();
        let right = match entry.better {
            Direction::Higher => Side::Min,
            Direction::Lower => Side::Max,
        };
        let expect = &table.value;
        let mut bounds = Vec::new();
        let mut written = false;
        for (side, value) in [(Side::Min, &expect.min), (Side::Max, &expect.max)] {
            let Some(value) = value else { continue };
            written = true;
            if side != right {
                let (better, wrong, write) = match entry.better {
                    Direction::Higher => ("higher", "max", "min"),
                    Direction::Lower => ("lower", "min", "max"),
                };
                self.say(
                    Problem::at(
                        "wrong-side",
                        value.span.clone(),
                        format!(
                            "`{metric}` is better when {better}: a `{wrong}` would punish a gain"
                        ),
                    )
                    .help(format!("write `{write}`")),
                );
                continue;
            }
            let limits = match &value.value {
                LimitValue::Number(number) => self.positive(metric, *number, side, &value.span),
                LimitValue::Text(text) => {
                    let read = quantity(metric, text);
                    self.read(&value.span, read)
                        .and_then(|number| self.positive(metric, number, side, &value.span))
                }
                LimitValue::Grid(grid) => {
                    bounds.extend(
                        self.grid(grid, &value.span, metric, side, scope)
                            .map(|grid| (side, Limits::Grid(grid))),
                    );
                    None
                }
            };
            bounds.extend(limits.map(|number| {
                let place = self.place(&value.span);
                (side, Limits::Scalar { value: number, place, span: value.span.clone() })
            }));
        }
        let (ratios, relative) = self.ratios(table, metric, scope.variants);
        bounds.extend(ratios);
        if !written && !relative && self.kept(&["min", "max", "min-ratio", "max-ratio"]) {
            let key = if right == Side::Min { "min" } else { "max" };
            self.say(
                Problem::at("no-bound", table.span.clone(), "this expectation expects nothing")
                    .help(format!("write `{key} = …`, a number in {}", unit_words(entry.unit))),
            );
        }
        (!bounds.is_empty()).then_some(bounds)
    }

    /// A bound can't be negative, and one of nothing can't be broken. Of a tool's figures nothing is
    /// known.
    pub(super) fn positive(
        &mut self,
        metric: Metric,
        number: f64,
        side: Side,
        span: &Range<usize>,
    ) -> Option<f64> {
        if let Base::User(_) = metric.base {
            return Some(number);
        }
        if number < 0.0 {
            self.say(
                Problem::at(
                    "number-range",
                    span.clone(),
                    format!("no figure is below 0, so {number} bounds nothing"),
                )
                .help("write a number above 0"),
            );
            return None;
        }
        if number == 0.0 && side == Side::Min {
            self.say(
                Problem::at("empty-bound", span.clone(), "`min = 0` holds whatever is measured")
                    .help("write a number above 0, or leave the bound out")
                    .warning(),
            );
        }
        Some(number)
    }

    /// A bound that one observation can't be judged by.
    fn needs_interval(&mut self, metric: Metric, at: &At<String>, of: &[usize], tests: &[Test]) {
        if metric.base == Base::CompletedRequests {
            return;
        }
        for test in super::named(tests, of) {
            let key = match &test.kind {
                TestSetting::Prefill { samples: 1, .. } => "samples",
                TestSetting::Serve(setting)
                    if setting.amount == Amount::Requests(1) && metric.stat.is_some() =>
                {
                    "requests"
                }
                TestSetting::Prefill { .. }
                | TestSetting::Decode(_)
                | TestSetting::Serve(_)
                | TestSetting::Startup
                | TestSetting::Command(_) => continue,
            };
            self.say(
                Problem::at(
                    "needs-interval",
                    at.span.clone(),
                    format!(
                        "`{}` has `{key} = 1`, which gives `{metric}` no interval to judge by",
                        test.name
                    ),
                )
                .also(test.span.clone(), "this test")
                .help(format!("write `{key} = 2` or more there, or leave the bound out")),
            );
        }
    }

    /// Warns of a percentile that the planned requests can't carry: below 3/(1 − q) of them. Medians
    /// and means are judged by t and need fewer.
    fn carries(&mut self, metric: Metric, at: &At<String>, of: &[usize], tests: &[Test]) {
        let Some(percent) = metric.stat.and_then(Stat::percent).filter(|percent| *percent > 50)
        else {
            return;
        };
        let needed = 300u64.div_ceil(u64::from(100 - percent));
        for test in super::named(tests, of) {
            let (planned, key) = match (&test.kind, metric.base) {
                (TestSetting::Prefill { samples, .. }, Base::Ttft) => {
                    (u64::from(*samples), "samples")
                }
                (TestSetting::Decode(decode), Base::Ttft) => (waves(decode, test), "ttft-samples"),
                (
                    TestSetting::Serve(serve),
                    Base::Ttft
                    | Base::Tpot
                    | Base::E2eLatency
                    | Base::TtftDue
                    | Base::E2eLatencyDue,
                ) => match requests(serve, test) {
                    Some(planned) => planned,
                    None => continue,
                },
                (_, _) => continue,
            };
            if planned >= needed {
                continue;
            }
            let name = metric.base.entry().name;
            let least = match key {
                "requests-per-stream" => needed.div_ceil(least(test, "concurrency", 1)),
                _ => needed,
            };
            let help = match key {
                "duration" => "write a longer `duration` there".to_owned(),
                key => format!("write `{key} = {least}` or more there"),
            };
            self.say(
                Problem::at(
                    "few-samples",
                    at.span.clone(),
                    format!(
                        "{planned} requests of `{}` can't carry a {percent}th percentile",
                        test.name
                    ),
                )
                .help(format!("{help}, or bound the median, `{name}.p50`"))
                .warning(),
            );
        }
    }
}

/// The smallest value of an axis of a test, or what it has without one.
fn least(test: &Test, axis: &str, unsaid: u64) -> u64 {
    let values = test.axes.iter().filter(|own| own.name == axis).flat_map(|own| &own.values);
    let numbers = values.filter_map(AxisValue::number);
    numbers.min_by(f64::total_cmp).map_or(unsaid, |number| number as u64).max(1)
}

/// Measured requests of the smallest cell of a serve test, and the key that says so; `None` where it
/// depends on how fast the engine is.
fn requests(serve: &ServeSetting, test: &Test) -> Option<(u64, &'static str)> {
    match serve.amount {
        Amount::Requests(requests) => Some((requests, "requests")),
        Amount::PerStream(requests) => {
            let streams = least(test, "concurrency", serve.concurrency);
            Some((requests.saturating_mul(streams), "requests-per-stream"))
        }
        Amount::Duration(window) => {
            let rates = test.axes.iter().filter(|axis| axis.name == "request_rate");
            let rates = rates.flat_map(|axis| &axis.values).filter_map(AxisValue::number);
            let slowest = rates.min_by(f64::total_cmp)?;
            Some(((slowest * window.as_secs_f64()) as u64, "duration"))
        }
    }
}

/// Requests that the smallest cell's TTFT comes from: whole waves, three at least.
fn waves(decode: &DecodeSetting, test: &Test) -> u64 {
    let least = least(test, "concurrency", decode.concurrency);
    u64::from(decode.ttft_samples).div_ceil(least).max(defaults::TTFT_WAVES) * least
}

/// A quantity in the unit of a metric.
pub(in crate::suite) fn quantity(metric: Metric, text: &str) -> Result<f64, Unreadable> {
    let entry = metric.base.entry();
    match entry.unit {
        "ms" => parse_duration(text).map(|duration| duration.as_nanos() as f64 / 1e6),
        "s" => parse_duration(text).map(|duration| duration.as_nanos() as f64 / 1e9),
        "tokens" => text.parse::<Tokens>().map(|tokens| tokens.0 as f64),
        // The number as written: a hundredfold of a hundredth has rounding errors.
        "%" => parse_percent(text).map(|share| {
            let number = text.trim().trim_end_matches('%').trim();
            number.parse().unwrap_or(share * 100.0)
        }),
        unit => Err(Unreadable {
            message: format!("`{text}` is not a number in {}", unit_words(unit)),
            help: Some(match text.trim().replace('_', "").parse::<f64>() {
                Ok(number) => format!("write it without quotes: {number}"),
                Err(_) => {
                    format!("write a number in {}, without quotes and unit", unit_words(unit))
                }
            }),
        }),
    }
}

fn unit_words(unit: &str) -> &str {
    if unit.is_empty() { "plain counts" } else { unit }
}

/// Which tests measure a metric, in words.
fn makers(metric: Metric) -> String {
    let kinds: Vec<&str> = metric.base.entry().tests.iter().map(|kind| kind.name()).collect();
    match metric.base {
        Base::Goodput => {
            "serve tests do that say what is good: write slo = { ttft = \"500ms\" }".to_owned()
        }
        Base::TtftDue | Base::E2eLatencyDue => {
            "serve tests do whose requests are due at a time of their own: `arrival` constant or poisson"
                .to_owned()
        }
        Base::User(user) => format!("command tests do that define metrics.{}", user.name()),
        Base::OutputThroughput
        | Base::PerRequestThroughput
        | Base::Ttft
        | Base::Tpot
        | Base::Itl
        | Base::ChunkGap
        | Base::PrefillThroughput
        | Base::ActiveRequests
        | Base::CompletedRequests
        | Base::OutputTokens
        | Base::MeasuredTime
        | Base::ReadyTime
        | Base::KvCapacity
        | Base::E2eLatency
        | Base::RequestThroughput
        | Base::ErrorRate
        | Base::PowerMean
        | Base::JoulesPerToken
        | Base::GpuMemoryMax => {
            let own: Vec<&str> = kinds.iter().copied().filter(|kind| *kind != "command").collect();
            let tools = if own.len() < kinds.len() {
                ", and command tests with a `preset` whose tool tells it"
            } else {
                ""
            };
            format!("{} tests do{tools}", own.join(" and "))
        }
    }
}

/// What a test measures.
fn measures(setting: &TestSetting) -> String {
    let told = |entry: &&Entry| {
        let stats = Stat::ALL.iter().map(|stat| Some(*stat)).chain([None]);
        let mut forms = stats.filter(|stat| stat.is_some() == entry.latency);
        forms.any(|stat| setting.produces(Metric { base: entry.base, stat, per_gpu: false }))
    };
    let catalogued = CATALOGUE.iter().filter(told).map(|entry| entry.name);
    let own = match setting {
        TestSetting::Command(setting) => setting.metrics.as_slice(),
        TestSetting::Prefill { .. }
        | TestSetting::Decode(_)
        | TestSetting::Serve(_)
        | TestSetting::Startup => &[],
    };
    let names: Vec<&str> = catalogued.chain(own.iter().map(|(metric, _)| metric.name())).collect();
    hint("", &names, &format!("{} measures", setting.kind().name()))
}

/// What makes two bounds the same rule: metric, side and shape, severity, tests, and cells.
fn rules(found: &Expectation) -> Vec<String> {
    let cells = |selector: &Selector| {
        let mut predicates: Vec<String> =
            selector.predicates.iter().map(|predicate| format!("{predicate:?}")).collect();
        predicates.sort();
        predicates.join(" ")
    };
    found
        .bounds
        .iter()
        .map(|(side, limits)| {
            let shape = match limits {
                Limits::Scalar { .. } => "one",
                Limits::Grid(_) => "grid",
                Limits::Ratio { .. } => "ratio",
            };
            format!(
                "{}|{side:?}|{shape}|{:?}|{:?}|{}|{}",
                found.metric,
                found.severity,
                found.tests,
                cells(&found.filter),
                found.except.as_ref().map(cells).unwrap_or_default(),
            )
        })
        .collect()
}
