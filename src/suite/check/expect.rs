//! `[[expect]]`: which metric of which tests is bounded, on which side, by how much.

use std::collections::HashMap;
use std::ops::Range;

use super::filter::Scope;
use super::{Checker, hint};
use crate::judge::Side;
use crate::measure::metric::{Direction, Stat};
use crate::measure::{Base, Metric, TestKind};
use crate::quantity::{Tokens, Unreadable, parse_duration};
use crate::suite::defaults;
use crate::suite::file::{At, ExpectTable, File, LimitValue};
use crate::suite::model::{
    AxisValue, DecodeSetting, Expectation, Limits, Selector, Test, TestSetting,
};
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
        let metric = match at.value.parse::<Metric>() {
            Ok(metric) => metric,
            Err(unknown) => {
                self.say(
                    Problem::at("unknown-metric", at.span.clone(), unknown.message)
                        .help(unknown.help),
                );
                return None;
            }
        };
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

    /// Indices of the tests that an expectation holds for.
    fn tests_of(
        &mut self,
        expect: &ExpectTable,
        metric: Metric,
        at: &At<String>,
        tests: &[Test],
    ) -> Option<Vec<usize>> {
        let makers = metric.base.entry().tests;
        let produces = |test: &Test| makers.contains(&test.kind.kind());
        let kinds = || makers.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and ");
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
                        .help(format!("{} tests do", kinds())),
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
                    .help(format!("{} tests do; {}", kinds(), measures(kind))),
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
                LimitValue::Number(number) => self.positive(*number, side, &value.span),
                LimitValue::Text(text) => {
                    let read = quantity(metric, text);
                    self.read(&value.span, read)
                        .and_then(|number| self.positive(number, side, &value.span))
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
        if !written && !self.known.lost.contains("min") && !self.known.lost.contains("max") {
            let key = if right == Side::Min { "min" } else { "max" };
            self.say(
                Problem::at("no-bound", table.span.clone(), "this expectation expects nothing")
                    .help(format!("write `{key} = …`, a number in {}", unit_words(entry.unit))),
            );
        }
        (!bounds.is_empty()).then_some(bounds)
    }

    /// A bound can't be negative, and one of nothing can't be broken.
    pub(super) fn positive(&mut self, number: f64, side: Side, span: &Range<usize>) -> Option<f64> {
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
            if let TestSetting::Prefill { samples: 1, .. } = test.kind {
                self.say(
                    Problem::at("needs-interval", at.span.clone(), format!("`{}` has `samples = 1`, which gives `{metric}` no interval to judge by", test.name))
                        .also(test.span.clone(), "this test")
                        .help("write `samples = 2` or more there, or leave the bound out"),
                );
            }
        }
    }

    /// Warns of a percentile that the planned requests can't carry: below 3/(1 − q) of them. Medians
    /// and means are judged by t and need fewer.
    fn carries(&mut self, metric: Metric, at: &At<String>, of: &[usize], tests: &[Test]) {
        let Some(percent) = metric.stat.and_then(Stat::percent).filter(|percent| *percent > 50)
        else {
            return;
        };
        if metric.base != Base::Ttft {
            return;
        }
        let needed = 300u64.div_ceil(u64::from(100 - percent));
        for test in super::named(tests, of) {
            let planned = match &test.kind {
                TestSetting::Prefill { samples, .. } => u64::from(*samples),
                TestSetting::Decode(decode) => waves(decode, test),
                TestSetting::Serve(_) | TestSetting::Startup | TestSetting::Command(_) => continue,
            };
            if planned < needed {
                let key = match test.kind.kind() {
                    TestKind::Decode => "ttft-samples",
                    TestKind::Prefill | TestKind::Serve | TestKind::Startup | TestKind::Command => {
                        "samples"
                    }
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
                    .help(format!(
                        "write `{key} = {needed}` or more there, or bound the median, `{}.p50`",
                        metric.base.entry().name
                    ))
                    .warning(),
                );
            }
        }
    }
}

/// Requests that the smallest cell's TTFT comes from: whole waves, three at least.
fn waves(decode: &DecodeSetting, test: &Test) -> u64 {
    let least = test
        .axes
        .iter()
        .filter(|axis| axis.name == "concurrency")
        .flat_map(|axis| axis.values.iter())
        .filter_map(|value| match value {
            AxisValue::Integer(n) => u64::try_from(*n).ok(),
            AxisValue::Tokens(n) => Some(*n),
            AxisValue::Float(_)
            | AxisValue::Text(_)
            | AxisValue::Bool(_)
            | AxisValue::Table { .. } => None,
        })
        .min()
        .unwrap_or(decode.concurrency)
        .max(1);
    u64::from(decode.ttft_samples).div_ceil(least).max(defaults::TTFT_WAVES) * least
}

/// A quantity in the unit of a metric.
pub(super) fn quantity(metric: Metric, text: &str) -> Result<f64, Unreadable> {
    let entry = metric.base.entry();
    match entry.unit {
        "ms" => parse_duration(text).map(|duration| duration.as_nanos() as f64 / 1e6),
        "s" => parse_duration(text).map(|duration| duration.as_nanos() as f64 / 1e9),
        "tokens" => text.parse::<Tokens>().map(|tokens| tokens.0 as f64),
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

/// What tests of a kind measure.
fn measures(kind: TestKind) -> String {
    let names: Vec<&str> = crate::measure::metric::CATALOGUE
        .iter()
        .filter(|entry| entry.tests.contains(&kind))
        .map(|entry| entry.name)
        .collect();
    hint("", &names, &format!("{} measures", kind.name()))
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
