//! Suites for tests, built by hand.

use std::time::Duration;

use serde_json::json;

use crate::engine::{Kind, ReadySpec};
use crate::judge::{Severity, Side};
use crate::load::{Api, Arrival, Length};
use crate::measure::{Direction, UserMetric};
use crate::quantity::Unreadable;
use crate::suite::model::*;

/// A suite in the making.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    suite: Suite,
}

/// A test in the making.
#[derive(Debug, Clone)]
pub(crate) struct SampleTest(Test);

pub(crate) fn at(line: u32) -> Place {
    Place { file: "s.toml".to_owned(), line }
}

fn command(line: &str) -> CommandText {
    CommandText { form: CommandForm::Line(line.to_owned()), place: at(3), span: 30..60 }
}

/// A selector in the command line's spelling, empty for all.
pub(crate) fn selector(text: &str) -> Selector {
    if text.is_empty() { Selector::default() } else { try_selector(text).unwrap() }
}

fn try_selector(text: &str) -> Result<Selector, Unreadable> {
    Selector::parse_line(text)
}

pub(crate) fn tokens(name: &str, values: &[u64]) -> Axis {
    axis(name, AxisKind::Tokens, values.iter().map(|n| AxisValue::Tokens(*n)).collect())
}

pub(crate) fn counts(name: &str, values: &[i64]) -> Axis {
    axis(name, AxisKind::Count, values.iter().map(|n| AxisValue::Integer(*n)).collect())
}

pub(crate) fn rates(name: &str, values: &[f64]) -> Axis {
    axis(name, AxisKind::Rate, values.iter().map(|n| AxisValue::Float(*n)).collect())
}

pub(crate) fn words(name: &str, values: &[&str]) -> Axis {
    let values = values.iter().map(|text| AxisValue::Text((*text).to_owned())).collect();
    axis(name, AxisKind::Free, values)
}

pub(crate) fn tables(name: &str, values: &[(&str, u64)]) -> Axis {
    let table = |(id, tp): &(&str, u64)| AxisValue::Table {
        id: (*id).to_owned(),
        fields: json!({ "tp": tp }).as_object().unwrap().clone(),
    };
    axis(name, AxisKind::Free, values.iter().map(table).collect())
}

fn axis(name: &str, kind: AxisKind, values: Vec<AxisValue>) -> Axis {
    Axis { name: name.to_owned(), kind, values, place: at(10), span: 0..0 }
}

fn test(name: &str, kind: TestSetting) -> SampleTest {
    SampleTest(Test {
        launches: 1,
        span: 0..0,
        spans: Default::default(),
        name: name.to_owned(),
        place: at(20),
        kind,
        request: Request {
            api: Api::Completions,
            body: serde_json::Map::new(),
            headers: Vec::new(),
            timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(60),
            prompt_tolerance: Some(0.005),
            output_tolerance: Some(0.01),
        },
        axes: Vec::new(),
        exclude: Vec::new(),
    })
}

pub(crate) fn prefill(name: &str) -> SampleTest {
    test(name, TestSetting::Prefill { samples: 3, context: 1024 })
}

pub(crate) fn startup(name: &str) -> SampleTest {
    test(name, TestSetting::Startup)
}

pub(crate) fn decode(name: &str) -> SampleTest {
    test(
        name,
        TestSetting::Decode(DecodeSetting {
            duration: Duration::from_secs(30),
            min_tokens: 100,
            max_output: 256,
            prefix: Prefix::Unique,
            capacity: Capacity::Reserve,
            ttft_samples: 6,
            context: 1024,
            concurrency: 1,
        }),
    )
}

pub(crate) fn serve(name: &str) -> SampleTest {
    let plain = |tokens| LengthSetting::Plain(Length::Fixed(tokens));
    test(
        name,
        TestSetting::Serve(Box::new(ServeSetting {
            arrival: Arrival::Closed,
            amount: Amount::PerStream(10),
            warmup_per_stream: 1,
            input: plain(1024),
            output: plain(256),
            dataset: None,
            prefix: Prefix::Unique,
            slo: Slo::default(),
            repeat: 1,
            concurrency: 1,
        })),
    )
}

/// A command test with the metric `score`.
pub(crate) fn tool(name: &str, line: &str, result: &str) -> SampleTest {
    test(
        name,
        TestSetting::Command(Box::new(CommandSetting {
            command: command(line),
            result: result.to_owned(),
            preset: None,
            metrics: vec![(UserMetric::new("score", "%", Direction::Higher), "/score".to_owned())],
            timeout: Duration::from_secs(3600),
            repeat: 1,
        })),
    )
}

impl SampleTest {
    /// Changes the setting of a serve test.
    pub(crate) fn serving(mut self, change: impl Fn(&mut ServeSetting)) -> SampleTest {
        if let TestSetting::Serve(setting) = &mut self.0.kind {
            change(setting);
        }
        self
    }

    pub(crate) fn axis(mut self, axis: Axis) -> SampleTest {
        self.0.axes.push(axis);
        self
    }

    pub(crate) fn launches(mut self, launches: u32) -> SampleTest {
        self.0.launches = launches;
        self
    }

    pub(crate) fn exclude(mut self, text: &str) -> SampleTest {
        self.0.exclude.push(selector(text));
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> SampleTest {
        self.0.request.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(mut self, name: &str, value: serde_json::Value) -> SampleTest {
        self.0.request.body.insert(name.to_owned(), value);
        self
    }
}

impl Sample {
    /// A suite without tests whose engine is that command.
    pub(crate) fn new(line: &str) -> Sample {
        Sample {
            suite: Suite {
                compare: None,
                name: "suite".to_owned(),
                tags: Vec::new(),
                path: "suites/s.toml".to_owned(),
                hash: "5u17e".to_owned(),
                hardware: None,
                hardware_probe: None,
                settings: vec![Setting {
                    place: at(3),
                    spans: Default::default(),
                    variant: None,
                    model: Model::default(),
                    engine: Engine {
                        kind: Kind::Vllm,
                        version: None,
                        gpus: None,
                        source: EngineSource::Command(command(line)),
                        host: "127.0.0.1".to_owned(),
                        port: None,
                        env: Vec::new(),
                        setup: Vec::new(),
                        setup_timeout: Duration::from_secs(3600),
                        ready: ReadySpec {
                            timeout: Duration::from_secs(600),
                            models: true,
                            completion: true,
                        },
                        stop_grace: Duration::from_secs(30),
                        stop_command: None,
                        metrics_url: None,
                        log_must_contain: Vec::new(),
                        shell: false,
                        files: Vec::new(),
                    },
                    vars: Vec::new(),
                    secrets: Vec::new(),
                }],
                tests: Vec::new(),
                expectations: Vec::new(),
                baseline: Default::default(),
                quarantines: Vec::new(),
                policy: Policy {
                    hardware_fault: crate::suite::model::HardwareFault::Warn,
                    alpha: 0.05,
                    inconclusive: InconclusivePolicy::default(),
                    unjudged: UnjudgedPolicy::default(),
                    max_error_rate: 0.0,
                    max_client_lag: Duration::from_millis(5),
                    restarts: 1,
                    time_limit: None,
                },
                select: Vec::new(),
            },
        }
    }

    pub(crate) fn suite(&self) -> Suite {
        self.suite.clone()
    }

    /// Changes the setting of every variant.
    pub(crate) fn setting(mut self, change: impl Fn(&mut Setting)) -> Sample {
        self.suite.settings.iter_mut().for_each(change);
        self
    }

    pub(crate) fn model(self, name: &str) -> Sample {
        self.setting(|setting| setting.model.name = Some(name.to_owned()))
    }

    pub(crate) fn secret(self, name: &str) -> Sample {
        self.setting(|setting| setting.secrets.push((name.to_owned(), SecretSource::Generate)))
    }

    pub(crate) fn env(self, name: &str, value: &str) -> Sample {
        self.setting(|setting| setting.engine.env.push((name.to_owned(), value.to_owned())))
    }

    pub(crate) fn var(self, name: &str, value: serde_json::Value) -> Sample {
        self.setting(|setting| setting.vars.push((name.to_owned(), value.clone())))
    }

    pub(crate) fn shell(self) -> Sample {
        self.setting(|setting| setting.engine.shell = true)
    }

    pub(crate) fn setup(self, line: &str) -> Sample {
        self.setting(|setting| setting.engine.setup.push(command(line)))
    }

    pub(crate) fn stop(self, line: &str) -> Sample {
        self.setting(|setting| setting.engine.stop_command = Some(command(line)))
    }

    pub(crate) fn file(self, path: &str, content: &str) -> Sample {
        self.setting(|setting| setting.engine.files.push((path.to_owned(), content.to_owned())))
    }

    pub(crate) fn url(self, url: &str) -> Sample {
        self.setting(|setting| setting.engine.source = EngineSource::Url(url.to_owned()))
    }

    pub(crate) fn sim(self, clock: SimClock) -> Sample {
        self.setting(|setting| {
            setting.engine.kind = Kind::Sim;
            let profile = Some("sim/p.toml".into());
            setting.engine.source = EngineSource::Sim { profile, clock };
        })
    }

    /// A setting for each name, alike but for `vars.variant`.
    pub(crate) fn variants(mut self, names: &[&str]) -> Sample {
        let base = self.suite.settings[0].clone();
        self.suite.settings = names
            .iter()
            .map(|name| {
                let mut setting = base.clone();
                setting.variant = Some((*name).to_owned());
                setting.vars.push(("variant".to_owned(), json!(name)));
                setting
            })
            .collect();
        self
    }

    /// Compares two variants, by their index, in so many pairs.
    pub(crate) fn compared(mut self, baseline: u32, candidate: u32, pairs: u32) -> Sample {
        let (place, span) = (at(30), 0..0);
        let compare = Compare { baseline, candidate, pairs, min_mean_ratio: None, place, span };
        self.suite.compare = Some(compare);
        self
    }

    /// At least that share of what a variant, by its index, has.
    pub(crate) fn share_of(self, variant: u32, test: &str, metric: &str, filter: &str) -> Sample {
        let against = Against { reference: Reference::Variant(variant), place: at(31) };
        let limits = Limits::Ratio { value: 0.97, against, place: at(32), span: 0..0 };
        self.expect(test, metric, Side::Min, limits, 0.0, filter)
    }

    pub(crate) fn test(mut self, test: SampleTest) -> Sample {
        self.suite.tests.push(test.0);
        self
    }

    fn test_index(&self, name: &str) -> usize {
        self.suite.tests.iter().position(|test| test.name == name).unwrap()
    }

    fn expect(
        mut self,
        test: &str,
        metric: &str,
        side: Side,
        limits: Limits,
        slack: f64,
        filter: &str,
    ) -> Sample {
        let line = 100 + self.suite.expectations.len() as u32;
        self.suite.expectations.push(Expectation {
            span: 0..0,
            name: None,
            place: at(line),
            tests: vec![self.test_index(test)],
            metric: metric.parse().unwrap(),
            bounds: vec![(side, limits)],
            slack,
            filter: selector(filter),
            except: None,
            severity: Severity::Fail,
        });
        self
    }

    pub(crate) fn floor(
        self,
        test: &str,
        metric: &str,
        value: f64,
        slack: f64,
        filter: &str,
    ) -> Sample {
        let place = at(100 + self.suite.expectations.len() as u32);
        self.expect(
            test,
            metric,
            Side::Min,
            Limits::Scalar { value, place, span: 0..0 },
            slack,
            filter,
        )
    }

    pub(crate) fn ceiling(self, test: &str, metric: &str, value: f64, filter: &str) -> Sample {
        let place = at(100 + self.suite.expectations.len() as u32);
        self.expect(
            test,
            metric,
            Side::Max,
            Limits::Scalar { value, place, span: 0..0 },
            0.0,
            filter,
        )
    }

    pub(crate) fn except(mut self, text: &str) -> Sample {
        self.suite.expectations.last_mut().unwrap().except = Some(selector(text));
        self
    }

    /// A grid of floors; entries are rows of row value, column value, limit.
    pub(crate) fn grid(
        self,
        test: &str,
        axes: (&str, Option<&str>),
        entries: &[(&str, Option<&str>, GridLimit)],
    ) -> Sample {
        let grid = Grid {
            rows: axes.0.to_owned(),
            columns: axes.1.map(str::to_owned),
            entries: (200..)
                .zip(entries)
                .map(|(line, (row, column, limit))| GridEntry {
                    span: 0..0,
                    row: (*row).to_owned(),
                    column: column.map(str::to_owned),
                    limit: *limit,
                    place: at(line),
                })
                .collect(),
        };
        self.expect(test, "output-throughput", Side::Min, Limits::Grid(grid), 0.05, "")
    }

    pub(crate) fn over(
        self,
        test: &str,
        rows: &str,
        row: &str,
        columns: &str,
        column: &str,
    ) -> Sample {
        self.grid(test, (rows, Some(columns)), &[(row, Some(column), GridLimit::Over)])
    }

    pub(crate) fn quarantine(mut self, text: &str) -> Sample {
        self.suite.quarantines.push(Quarantine {
            span: 0..0,
            filter: selector(text),
            reason: "known".to_owned(),
            issue: None,
            expires: jiff::civil::date(2099, 1, 1),
            max_loss: None,
            place: at(300),
        });
        self
    }

    pub(crate) fn select(mut self, text: &str) -> Sample {
        self.suite.select.push(selector(text));
        self
    }
}
