//! Records made by hand, for the tests of this room: a whole page of results, and a small one with
//! every verdict and with text that no report survives unwashed.

use std::collections::BTreeMap;

use crate::engine;
use crate::judge::{Bound, BoundVerdict, Estimate, Method, Severity, Side, Verdict};
use crate::load::FailureClass;
use crate::measure::{Base, Check, CheckKind, Fault, Observations, TestKind};
use crate::record::run_record::*;
use crate::suite::model::{
    AxisValue, HardwareFault, InconclusivePolicy, Place, Policy, UnjudgedPolicy,
};

mod compare;
mod hardware;
pub(crate) use compare::*;
pub(crate) use hardware::*;

/// Text as hostile as an engine's log can be.
pub(crate) fn nasty() -> String {
    let bytes = b"\x1b[31mred\x1b[0m nul\0 bell\x07 back\x08 cr\rlf\n]]> <&\"'> \xff\xfe\xed\xa0\x80 \x1b[3";
    format!("{}\u{fffe}\u{ffff}\u{9b}2J\u{85}", String::from_utf8_lossy(bytes))
}

fn place(line: u32) -> Place {
    Place { file: "suites/page.toml".into(), line }
}

fn header(suite: &str) -> RunHeader {
    RunHeader {
        compare: None,
        format: 1,
        tokgate: "0.1.0".into(),
        run_id: "7f3a".into(),
        suite: suite.into(),
        path: "suites/page.toml".into(),
        tags: vec!["nightly".into()],
        plan_hash: "c0ffee".into(),
        seed: 42,
        virtual_time: false,
        started: "2026-09-17T20:47:00Z".into(),
        machine: crate::hardware::Facts {
            cuda: None,
            os: "linux".into(),
            kernel: "6.8.0".into(),
            hostname: "gpu-node-7".into(),
            boot: String::new(),
            cpu: "EPYC".into(),
            cores: 96,
            memory: 1 << 40,
            gpus: vec![],
            driver: Some("570.86".into()),
            gpu_note: None,
        },
        declared: Declared {
            model: Some("thinkingmachines/Inkling-Small".into()),
            revision: Some("main".into()),
            quantization: Some("bf16".into()),
            hardware: Some("8 × H200".into()),
            engine: "vllm 0.29.0".into(),
        },
        flags: vec!["--seed".into(), "42".into()],
        selection: Vec::new(),
        shard: None,
        merged: None,
        slowed: None,
        provenance: Default::default(),
        policy: Policy {
            alpha: 0.05,
            inconclusive: InconclusivePolicy::Warn,
            unjudged: UnjudgedPolicy::Warn,
            hardware_fault: HardwareFault::Warn,
            max_error_rate: 0.0,
            max_client_lag: std::time::Duration::from_millis(5),
            restarts: 1,
            time_limit: None,
        },
        launches: vec![],
        cells: vec![],
    }
}

fn planned(
    header: &RunHeader,
    test: (&str, TestKind, u32),
    axes: Vec<(String, AxisValue)>,
    launch: usize,
) -> PlannedCellRecord {
    let id: Vec<String> = axes.iter().map(|(k, v)| format!("{k}={v}")).collect();
    PlannedCellRecord {
        rounds: 1,
        id: if id.is_empty() { test.0.to_owned() } else { id.join(",") },
        test: test.0.into(),
        kind: test.1,
        variant: None,
        classname: format!("{}.{}", header.suite, test.0),
        axes,
        launch,
        place: place(test.2),
        bounds: vec![],
        quarantine: None,
    }
}

fn judgement(verdict: Verdict, class: Option<&str>, message: Option<&str>) -> Judgement {
    Judgement {
        verdict,
        class: class.map(Into::into),
        message: message.map(Into::into),
        bounds: vec![],
        decided_by: None,
        warnings: vec![],
        suspects: vec![],
    }
}

fn measured(observations: impl IntoIterator<Item = (Base, Observations)>) -> Measurement {
    Measurement {
        observations: observations.into_iter().collect(),
        requests: 12,
        prompt_tokens: Some((8192, Some(8192))),
        checks: vec![Check {
            kind: CheckKind::PromptLength,
            fault: None,
            message: "8 192 tokens as asked".into(),
        }],
        ..Measurement::default()
    }
}

fn batches(rate: f64) -> Observations {
    let means = (0..10).map(|i| rate * (1.0 + f64::from(i - 5) / 1000.0)).collect();
    Observations::Batches { rate, means, floor: 0.1 }
}

/// A floor on throughput with 5 % slack, and what came of it.
fn judge_by_floor(
    planned: &mut PlannedCellRecord,
    base: Base,
    target: f64,
    value: f64,
    line: u32,
) -> Judgement {
    let limit = target * 0.95;
    planned.bounds = vec![BoundRecord {
        noise: None,
        name: Some("floors".into()),
        metric: crate::measure::Metric { base, stat: None, per_gpu: false },
        bound: Some(Bound { side: Side::Min, target, limit }),
        relative: None,
        slack: 0.05,
        severity: Severity::Fail,
        place: place(line),
    }];
    let failed = value < limit;
    let message = format!(
        "{} {} tok/s {} {} ({} % of {}, in this launch, suites/page.toml:{line})",
        base.entry().name,
        crate::quantity::print_number(value, 1),
        if failed { "<" } else { "≥" },
        crate::quantity::print_number(limit, 1),
        crate::quantity::print_number((value / target - 1.0) * 100.0, 1),
        crate::quantity::print_number(target, 1),
    );
    Judgement {
        verdict: if failed { Verdict::Fail } else { Verdict::Pass },
        class: failed.then(|| "limit".into()),
        message: failed.then(|| message.clone()),
        bounds: vec![BoundJudgement {
            sees: None,
            verdict: if failed { BoundVerdict::Fail } else { BoundVerdict::Clear },
            estimate: Some(Estimate {
                value,
                lower: Some(value * 0.99),
                upper: Some(value * 1.01),
                n: 10,
                method: Method::BatchMeans,
            }),
            message,
        }],
        decided_by: Some(0),
        warnings: vec![],
        suspects: vec![],
    }
}

const CONTEXTS: [u64; 8] = [8, 16, 32, 64, 128, 256, 512, 1019];

/// Total tok/s and TTFT in ms of the page's decode cells, rows by context, columns by concurrency.
const DECODE: [&[(f64, f64)]; 8] = [
    &[
        (135.5, 50.0),
        (238.0, 60.0),
        (439.4, 94.0),
        (770.4, 124.0),
        (1424.3, 183.0),
        (2466.0, 306.0),
        (4222.9, 530.0),
        (7302.0, 1044.0),
    ],
    &[
        (104.1, 73.0),
        (194.3, 90.0),
        (364.0, 132.0),
        (653.0, 180.0),
        (1221.9, 326.0),
        (2139.7, 528.0),
        (3748.5, 895.0),
    ],
    &[
        (75.0, 123.0),
        (141.4, 156.0),
        (268.9, 212.0),
        (496.5, 322.0),
        (944.6, 511.0),
        (1693.8, 946.0),
    ],
    &[(47.8, 236.0), (91.0, 309.0), (176.6, 433.0), (334.0, 635.0), (643.8, 1012.0)],
    &[(27.6, 472.0), (52.9, 630.0), (104.2, 889.0), (201.4, 1356.0)],
    &[(14.9, 973.0), (28.8, 1298.0), (57.2, 1801.0)],
    &[(7.8, 2150.0), (15.1, 2910.0)],
    &[(4.0, 4881.0)],
];

/// Prompt tok/s and TTFT in ms of the page's prefill cells.
const PREFILL: [(u64, f64, f64); 9] = [
    (8, 16_100.0, 508.0),
    (16, 32_000.0, 508.0),
    (32, 31_700.0, 1019.0),
    (64, 42_200.0, 1530.0),
    (128, 42_100.0, 3059.0),
    (256, 38_700.0, 6648.0),
    (512, 28_700.0, 17_954.0),
    (1019, 19_300.0, 53_020.0),
    (1024, 19_100.0, 53_910.0),
];

fn ready() -> LaunchOutcome {
    LaunchOutcome {
        command: vec!["vllm".into(), "serve".into(), "thinkingmachines/Inkling-Small".into()],
        log: Some("engine-engine.log".into()),
        ready_time: Some(412.5),
        facts: Some(engine::Facts {
            version: Some("0.29.0".into()),
            model: "thinkingmachines/Inkling-Small".into(),
            kv_capacity: Some(1_600_000),
            max_model_len: Some(1 << 20),
            tokenize: true,
            slots: None,
        }),
        failure: None,
        warnings: vec![],
        starts: vec![],
    }
}

/// The result page: 1 startup cell, 9 of prefill, 8 × 8 of decode of which 28 are over capacity.
pub(crate) fn page() -> RunRecord {
    let mut header = header("inkling-small-h200x8");
    header.launches = vec![PlannedLaunchRecord {
        name: "engine".into(),
        variant: None,
        gpus: 8,
        place: place(12),
    }];
    let mut cells = vec![];
    let mut startup = planned(&header, ("startup", TestKind::Startup, 20), vec![], 0);
    startup.id = "startup".into();
    header.cells.push(startup);
    cells.push(CellOutcome {
        rounds: Vec::new(),
        state: CellState::Measured(Box::new(measured([
            (Base::ReadyTime, Observations::Point(412.5)),
            (Base::KvCapacity, Observations::Exact(1_600_000.0)),
        ]))),
        judgement: judgement(Verdict::Pass, None, None),
        seconds: 412.5,
    });
    for (k, rate, ttft) in PREFILL {
        let axes = vec![("context".to_owned(), AxisValue::Tokens(k * 1024))];
        let mut cell = planned(&header, ("prefill", TestKind::Prefill, 24), axes, 0);
        let judgement = judge_by_floor(&mut cell, Base::PrefillThroughput, rate, rate, 41);
        header.cells.push(cell);
        cells.push(CellOutcome {
            rounds: Vec::new(),
            state: CellState::Measured(Box::new(measured([
                (
                    Base::PrefillThroughput,
                    Observations::Samples(vec![rate * 0.99, rate, rate * 1.01]),
                ),
                (Base::Ttft, Observations::Samples(vec![ttft - 1.0, ttft, ttft + 2.0])),
            ]))),
            judgement,
            seconds: ttft / 1000.0 * 3.0,
        });
    }
    for (row, k) in CONTEXTS.into_iter().enumerate() {
        for column in 0..8usize {
            let axes = vec![
                ("context".to_owned(), AxisValue::Tokens(k * 1024)),
                ("concurrency".to_owned(), AxisValue::Integer(1 << column)),
            ];
            let mut cell = planned(&header, ("decode", TestKind::Decode, 30), axes, 0);
            let outcome = match DECODE[row].get(column) {
                Some((rate, ttft)) => CellOutcome {
                    rounds: Vec::new(),
                    judgement: judge_by_floor(
                        &mut cell,
                        Base::OutputThroughput,
                        *rate,
                        *rate,
                        58 + row as u32,
                    ),
                    state: CellState::Measured(Box::new(measured([
                        (Base::OutputThroughput, batches(*rate)),
                        (Base::PerRequestThroughput, batches(rate / f64::from(1 << column))),
                        (Base::Ttft, Observations::Waves(vec![vec![*ttft; 2]; 3])),
                        (Base::Itl, Observations::Histogram(vec![(7.0, 60), (8.0, 40)])),
                    ]))),
                    seconds: 30.02,
                },
                None => CellOutcome {
                    rounds: Vec::new(),
                    state: CellState::Unfit {
                        class: UnfitClass::OverCapacity,
                        message: over_capacity(k, 1 << column),
                    },
                    judgement: judgement(
                        Verdict::Skip,
                        Some("capacity"),
                        Some(&over_capacity(k, 1 << column)),
                    ),
                    seconds: 0.0,
                },
            };
            header.cells.push(cell);
            cells.push(outcome);
        }
    }
    RunRecord {
        compare: None,
        header,
        launches: vec![ready()],
        cells,
        warnings: vec![],
        resumptions: Vec::new(),
        seconds: Some(750.4),
        signal: None,
        stopped: None,
        kin: Default::default(),
    }
}

fn over_capacity(k: u64, streams: u64) -> String {
    let need = streams * (k * 1024 + 4096);
    format!(
        "over capacity: {streams} × ({k}K + 4096) = {} tokens > 1 600 000",
        crate::quantity::print_number(need as f64, 0)
    )
}

/// The page with its cell 8K × 128 too slow.
pub(crate) fn page_with_a_loss() -> RunRecord {
    let mut record = page();
    let at = record.header.cells.iter().position(|c| c.id == "context=8K,concurrency=128").unwrap();
    record.cells[at].judgement =
        judge_by_floor(&mut record.header.cells[at], Base::OutputThroughput, 7302.0, 6871.0, 58);
    if let CellState::Measured(m) = &mut record.cells[at].state {
        m.observations.insert(Base::OutputThroughput, batches(6871.0));
    }
    record
}

/// Twelve cells over two launches, each verdict at least once; the second launch did not start and
/// printed what no report should repeat.
pub(crate) fn every_verdict() -> RunRecord {
    let mut header = header("small");
    header.launches = ["layout=tp8", "layout=dp8"]
        .map(|name| PlannedLaunchRecord {
            name: name.into(),
            variant: None,
            gpus: 8,
            place: place(12),
        })
        .into();
    let mut cells = vec![];
    let axes = |layout: &str, concurrency: i64| {
        let layout = AxisValue::Table { id: layout.into(), fields: serde_json::Map::new() };
        vec![
            ("concurrency".to_owned(), AxisValue::Integer(concurrency)),
            ("layout".to_owned(), layout),
        ]
    };
    let figures = || {
        measured([
            (Base::OutputThroughput, batches(100.0)),
            (
                Base::Ttft,
                Observations::Waves(vec![vec![50.0, 52.0], vec![51.0, 51.0], vec![50.0, 60.0]]),
            ),
        ])
    };
    let verdicts: [(Verdict, Option<&str>, String); 10] = [
        (Verdict::Pass, None, String::new()),
        (Verdict::Fail, Some("limit"), String::new()),
        (Verdict::Fail, Some("degraded"), "3 of 12 requests failed: server-error".into()),
        (
            Verdict::Inconclusive,
            None,
            "output-throughput 94 tok/s < 95 (noise ± 3, suites/page.toml:41)".into(),
        ),
        (Verdict::Error, Some("invalid"), "client lag 9 ms p99 > 5 ms".into()),
        (Verdict::Measured, None, String::new()),
        (
            Verdict::Xfail,
            Some("limit"),
            "output-throughput 80 tok/s < 95 (−20 % of 100, suites/page.toml:41)".into(),
        ),
        (Verdict::Xpass, None, String::new()),
        (Verdict::Skip, Some("capacity"), over_capacity(8, 256)),
        (Verdict::Skip, Some("too-long"), "too long: 8192 + 256 tokens > 8192".into()),
    ];
    for (i, (verdict, class, message)) in verdicts.into_iter().enumerate() {
        let mut cell = planned(&header, ("decode", TestKind::Decode, 30), axes("tp8", 1 << i), 0);
        let message = (!message.is_empty()).then_some(message.as_str());
        let mut judged = match (verdict, class) {
            (Verdict::Pass, _) => {
                judge_by_floor(&mut cell, Base::OutputThroughput, 100.0, 100.0, 41)
            }
            (Verdict::Fail, Some("limit")) => {
                judge_by_floor(&mut cell, Base::OutputThroughput, 110.0, 100.0, 42)
            }
            (verdict, class) => judgement(verdict, class, message),
        };
        if verdict == Verdict::Pass {
            judged.warnings.push("capacity grew: expected over, and it fits".into());
        }
        if matches!(verdict, Verdict::Xfail | Verdict::Xpass) {
            cell.quarantine = Some(QuarantineRecord {
                reason: "page fault storm".into(),
                issue: Some("https://example.org/issues/7".into()),
                expires: "2099-12-31".into(),
                max_loss: None,
                place: place(70),
            });
        }
        let state = match (verdict, class) {
            (Verdict::Skip, Some(class)) => CellState::Unfit {
                class: if class == "capacity" {
                    UnfitClass::OverCapacity
                } else {
                    UnfitClass::TooLong
                },
                message: message.unwrap_or_default().into(),
            },
            (Verdict::Fail, Some("degraded")) => {
                let mut figures = figures();
                figures.failures =
                    BTreeMap::from([(FailureClass::ServerError, (3, format!("boom {}", nasty())))]);
                figures.checks.push(Check {
                    kind: CheckKind::ErrorRate,
                    fault: Some(Fault::Degraded),
                    message: "3 of 12 requests failed".into(),
                });
                CellState::Measured(Box::new(figures))
            }
            (_, _) => CellState::Measured(Box::new(figures())),
        };
        header.cells.push(cell);
        cells.push(CellOutcome { rounds: Vec::new(), state, judgement: judged, seconds: 5.001 });
    }
    for i in 0..2 {
        let cell = planned(&header, ("decode", TestKind::Decode, 30), axes("dp8", 1 << i), 1);
        header.cells.push(cell);
        let reason = "not run: launch layout=dp8 failed";
        cells.push(CellOutcome {
            rounds: Vec::new(),
            state: CellState::NotRun { reason: reason.into() },
            judgement: judgement(Verdict::Error, Some("not-run"), Some(reason)),
            seconds: 0.0,
        });
    }
    let failed = LaunchOutcome {
        log: Some("engine-layout-dp8.log".into()),
        failure: Some(LaunchFailure {
            step: "process".into(),
            message: format!("launch layout=dp8 failed: exited with 1: {}", nasty()),
            exit: Some("exit status 1".into()),
            log_tail: vec!["loading".into(), nasty(), "CUDA out of memory".into()],
            mismatch: false,
            seconds: 12.5,
        }),
        ..LaunchOutcome::default()
    };
    RunRecord {
        compare: None,
        header,
        launches: vec![ready(), failed],
        cells,
        warnings: vec!["the suite has no floors for prefill".into()],
        resumptions: Vec::new(),
        seconds: Some(72.2),
        signal: None,
        stopped: None,
        kin: Default::default(),
    }
}
