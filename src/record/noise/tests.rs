//! Noise files: what launches come to by hand, their order, and each way in which a file can be wrong.

use std::path::Path;

use super::*;
use crate::judge::golden::{cases, close, number, numbers};
use crate::measure::{Metric, Observations, TestKind};
use crate::record::baseline::BaselineError;
use crate::record::run_record::{Measurement, PlannedCellRecord};
use crate::suite::model::{InconclusivePolicy, Place, Policy, UnjudgedPolicy};

pub(crate) fn policy() -> Policy {
    Policy {
        hardware_fault: crate::suite::model::HardwareFault::Warn,
        alpha: 0.05,
        inconclusive: InconclusivePolicy::Warn,
        unjudged: UnjudgedPolicy::Warn,
        max_error_rate: 0.0,
        max_client_lag: std::time::Duration::from_millis(5),
        restarts: 1,
        time_limit: None,
    }
}

pub(crate) fn planned(id: &str) -> PlannedCellRecord {
    PlannedCellRecord {
        id: id.to_owned(),
        test: "decode".into(),
        kind: TestKind::Decode,
        variant: None,
        classname: "card.decode".into(),
        axes: Vec::new(),
        launch: 0,
        place: Place::default(),
        rounds: 4,
        bounds: Vec::new(),
        quarantine: None,
    }
}

/// A launch with these batch means of the throughput.
pub(crate) fn launch(means: &[f64], floor: f64) -> Measurement {
    let rate = means.iter().sum::<f64>() / means.len() as f64;
    let throughput = Observations::Batches { rate, means: means.to_vec(), floor };
    Measurement {
        observations: BTreeMap::from([
            (Base::OutputThroughput, throughput),
            (Base::OutputTokens, Observations::Exact(400.0)),
            (Base::ErrorRate, Observations::Point(0.0)),
            (Base::MeasuredTime, Observations::Exact(30.0)),
        ]),
        ..Measurement::default()
    }
}

pub(crate) fn of(launches: &[Measurement], metric: &str) -> Option<NoiseLine> {
    let launches: Vec<&Measurement> = launches.iter().collect();
    let cell = planned("context=8K,concurrency=2");
    let metric: Metric = metric.parse().unwrap();
    let policy = policy();
    let of = Figures { cell: &cell, launches: &launches, policy: &policy, gpus: 2, run: "aa" };
    figures(of, metric)
}

#[test]
fn launches_by_hand() {
    // Values e^0, e^1, e^2 × 100: logarithms with sd 1 and df 2. Each launch has batches of ±2 % about its
    // value, so an sd of 0.02 × √(4/3), an error of half of that.
    let launches: Vec<Measurement> = [0.0, 1.0, 2.0f64]
        .map(|log| {
            let value = 100.0 * log.exp();
            launch(&[value * 0.98, value * 1.02, value * 0.98, value * 1.02], 0.0)
        })
        .to_vec();
    let line = of(&launches, "output-throughput").unwrap();
    close(line.sd, 1.0, 1e-12);
    assert_eq!((line.df, line.values.len(), line.window), (2, 3, Some(30.0)));
    let within = 0.02 * (4.0f64 / 3.0).sqrt() / 2.0;
    close(line.within.unwrap(), within, 1e-12);
    close(line.between.unwrap(), (1.0 - within * within).sqrt(), 1e-12);
    // Neighbours differ each time: three products of −1 over four squares of 1.
    close(line.lag.unwrap(), -0.75, 1e-12);
    assert_eq!(line.noise(), Noise { sd: line.sd, df: 2.0 });
    // A half of it for each of two GPUs, with the same noise.
    let each = of(&launches, "output-throughput-per-gpu").unwrap();
    close(each.values[0], 50.0, 1e-12);
    close(each.sd, line.sd, 1e-12);
    close(each.within.unwrap(), within, 1e-12);
}

#[test]
fn what_lies_within_a_launch_is_none_between_them() {
    // Two launches that differ less than their batches make them.
    let launches =
        [launch(&[90.0, 110.0, 100.0, 100.0], 0.0), launch(&[91.0, 109.0, 100.0, 100.4], 0.0)];
    let line = of(&launches, "output-throughput").unwrap();
    assert!(line.within.unwrap() > line.sd);
    assert_eq!(line.between, Some(0.0));
}

#[test]
fn launches_that_agree_to_the_digit_are_no_proof_of_no_noise() {
    let launches = [launch(&[100.0; 10], 1.0), launch(&[100.0; 10], 1.0)];
    let line = of(&launches, "output-throughput").unwrap();
    assert_eq!((line.sd, line.between, line.lag), (LEAST_SPREAD, Some(0.0), Some(0.0)));
    // One token more or less in each batch would not show: 1 of 100 over √10.
    close(line.within.unwrap(), 0.01 / 10f64.sqrt(), 1e-12);
}

#[test]
fn what_has_no_noise_to_tell_has_no_line() {
    let launches = [launch(&[100.0, 101.0], 0.0), launch(&[102.0, 103.0], 0.0)];
    assert_eq!(of(&launches, "output-tokens"), None, "a count");
    assert_eq!(of(&launches, "error-rate"), None, "of 0 there is no logarithm");
    assert_eq!(of(&launches, "ttft.p50"), None, "not observed");
    assert_eq!(of(&launches[..1], "output-throughput"), None, "one launch");
}

#[test]
fn correlations_are_those_of_forty_digits() {
    for case in cases("batch_mean_intervals") {
        close(lag_one(&numbers(&case, "batch_means")).unwrap(), number(&case, "lag1"), 1e-8);
    }
    assert_eq!(lag_one(&[1.0]), None);
}

fn run(id: &str, started: &str) -> Run {
    Run {
        id: id.into(),
        started: started.into(),
        tokgate: "0.1.0".into(),
        suite_hash: "abc".into(),
        engines: BTreeMap::from([("engine".into(), "vllm 0.29.0".into())]),
        gpu: "NVIDIA H200".into(),
        ..Run::default()
    }
}

pub(crate) fn provenance() -> Provenance {
    let words = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Provenance {
        suite_hash: "abc".into(),
        facts: words(&[("hardware.gpu", "NVIDIA H200"), ("engine.kind", "vllm")]),
        workloads: BTreeMap::from([("decode".to_owned(), words(&[("duration", "30s")]))]),
        identity: vec!["hardware.gpu".into()],
        baseline: None,
    }
}

fn line(cell: &str, run: &str, values: &[f64]) -> NoiseLine {
    let launches: Vec<Measurement> =
        values.iter().map(|value| launch(&[value - 1.0, *value, value + 1.0], 0.0)).collect();
    let cell = planned(cell);
    let launches: Vec<&Measurement> = launches.iter().collect();
    let metric = "output-throughput".parse().unwrap();
    let policy = policy();
    let of = Figures { cell: &cell, launches: &launches, policy: &policy, gpus: 1, run };
    figures(of, metric).unwrap()
}

/// A file of three cells and two calibrations.
pub(crate) fn file() -> NoiseFile {
    let mut file = NoiseFile::new("card", &provenance());
    let workloads = || provenance().workloads;
    let cells = ["context=64K,concurrency=1", "context=8K,concurrency=16"];
    let lines = |run: &str| cells.map(|cell| line(cell, run, &[100.0, 102.0, 99.0])).to_vec();
    file.add(run("aa", "2027-01-01T00:00:00Z"), workloads(), lines("aa"));
    let later = vec![line("context=8K,concurrency=2", "bb", &[98.0, 102.0])];
    file.add(run("bb", "2027-01-02T00:00:00Z"), workloads(), later);
    file
}

fn parse(text: &str) -> Result<NoiseFile, BaselineError> {
    NoiseFile::parse(Path::new("x.jsonl"), text)
}

#[test]
fn a_file_has_one_order_and_reads_back_as_itself() {
    let text = file().render();
    insta::assert_snapshot!(text);
    assert_eq!(parse(&text).unwrap(), file());
    let mut lines: Vec<&str> = text.lines().collect();
    let last = lines.len() - 1;
    lines.swap(last, last - 1);
    assert_eq!(parse(&format!("{}\n", lines.join("\n"))).unwrap().render(), text);
}

#[test]
fn a_calibration_of_some_cells_leaves_the_others() {
    let mut after = file();
    let cells = [line("context=8K,concurrency=2", "cc", &[100.0, 101.0, 103.0])];
    after.add(run("cc", "2027-01-03T00:00:00Z"), provenance().workloads, cells.to_vec());
    let runs: Vec<&str> = after.runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(runs, ["aa", "cc"], "what nothing refers to is gone");
    let key = cells[0].key();
    assert_eq!(after.find(&key), Some(&cells[0]));
    let each = Key { metric: "output-throughput-per-gpu".into(), ..key.clone() };
    assert_eq!(after.find(&each), Some(&cells[0]), "a share has the noise of the whole");
    assert_eq!(after.find(&Key { variant: Some("old".into()), ..key.clone() }), None);
    assert_eq!(after.find(&Key { metric: "ttft.p50".into(), ..key }), None);
}

#[test]
fn each_way_to_be_wrong_has_words_of_its_own() {
    let text = file().render();
    let lines: Vec<&str> = text.lines().collect();
    let conflict = text.replacen(
        lines[4],
        &format!("<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> nightly", lines[4], lines[4]),
        1,
    );
    let cell = "decode context=8K,concurrency=16 output-throughput";
    let values = "\"values\":[100.0,102.0,99.0]";
    assert!(lines[5].contains(values), "{}", lines[5]);
    let sd = &lines[5][lines[5].find("\"sd\":").unwrap()..lines[5].find(",\"df\"").unwrap()];
    for (text, words) in [
        (conflict, "x.jsonl:5 is a marker of a merge conflict, `<<<<<<<`".to_owned()),
        (text[..text.len() - 9].into(), "x.jsonl is cut short: line 7 ends in the midst".into()),
        (text[..text.len() - 1].into(), "x.jsonl is cut short: line 7 ends in the midst".into()),
        (text[..20].to_owned(), "x.jsonl is cut short: line 1 ends in the midst".into()),
        (
            text.replacen(sd, "\"sd\":NaN", 1),
            "x.jsonl:6 has a value that is no number (`NaN`)".into(),
        ),
        (
            text.replacen(sd, "\"sd\":0.0", 1),
            "x.jsonl:6 has a spread of 0: by it every difference would be proven, or none".into(),
        ),
        (
            text.replacen(sd, "\"sd\":-0.5", 1),
            "x.jsonl:6 has a spread of -0.5: by it every difference would be proven, or none"
                .into(),
        ),
        (
            text.replacen(values, "\"values\":[100.0]", 1),
            "x.jsonl:6 has fewer than two launches: one shows no noise".into(),
        ),
        (
            text.replacen(values, "\"values\":[100.0,102.0]", 1),
            "x.jsonl:6 is no line of a noise file: `df` is 2 of 2 values, and it is one less"
                .into(),
        ),
        (
            text.replacen("\"format\":1", "\"format\":9", 1),
            "x.jsonl has format 9, this tokgate reads format 1".into(),
        ),
        (
            lines[1..].join("\n") + "\n",
            "x.jsonl is no noise file: its first line does not say what it is of".into(),
        ),
        (
            String::new(),
            "x.jsonl is no noise file: its first line does not say what it is of".into(),
        ),
        (format!("{text}{}\n", lines[5]), format!("x.jsonl:8 says again what line 6 says: {cell}")),
        (
            text.replacen(lines[1], "", 1),
            "x.jsonl:5 is of test `decode`, of which the file has no line".into(),
        ),
        (
            text.replacen(lines[2], "", 1),
            "x.jsonl:6 has a value of run aa, of which the file has no line".into(),
        ),
    ] {
        assert_eq!(parse(&text).unwrap_err().to_string(), words, "{text}");
    }
    let baseline = crate::record::baseline::tests::baseline().render();
    let said = parse(&baseline).unwrap_err().to_string();
    assert!(said.starts_with("x.jsonl:1 is no line of a noise file: unknown variant `baseline`"));
}

#[test]
fn a_spread_by_which_nothing_can_be_judged_is_refused() {
    let text = file().render();
    let at = text.find("\"sd\":").unwrap() + 5;
    let end = at + text[at..].find(',').unwrap();
    let with = |sd: &str| {
        let text = format!("{}{sd}{}", &text[..at], &text[end..]);
        NoiseFile::parse(Path::new("x.jsonl"), &text).map_err(|error| error.to_string())
    };
    for sd in ["0.0001", "0.01", "10.0"] {
        assert!(with(sd).is_ok(), "{sd}");
    }
    for sd in ["0", "-0.01", "1e-200", "0.00009", "11", "1e200"] {
        let said = with(sd).unwrap_err();
        assert!(said.starts_with("x.jsonl:5 has a spread of "), "{said}");
    }
}

#[test]
fn a_file_of_something_else_says_both_sides() {
    let misfits = |provenance: &Provenance, suite: &str| {
        let found = file().misfits(suite, provenance, ["decode"].into_iter());
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(misfits(&provenance(), "card").is_empty());
    assert_eq!(misfits(&provenance(), "dart"), ["it is of suite `card`, and this is `dart`"]);
    let mut other = provenance();
    other.facts.insert("hardware.gpu".into(), "NVIDIA H100 PCIe".into());
    other.facts.insert("engine.kind".into(), "sglang".into());
    other.workloads.get_mut("decode").unwrap().insert("duration".into(), "5s".into());
    assert_eq!(
        misfits(&other, "card"),
        [
            "it is of hardware.gpu = `NVIDIA H200`, and this is `NVIDIA H100 PCIe`",
            "it is of engine.kind = `vllm`, and this is `sglang`",
            "test `decode` was recorded with another version of the suite: duration was 30s, is 5s",
        ]
    );
    assert_eq!(file().other_axes("decode", "context=16K,concurrency=2"), None);
    assert_eq!(
        file().other_axes("decode", "ctx=8K,concurrency=2").unwrap().to_string(),
        "the cells of test `decode` were recorded by the axes context, concurrency, and have ctx, concurrency now"
    );
}

#[test]
fn the_schema_takes_what_is_written() {
    let (name, text) = NoiseFile::schema_file();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(name);
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == there, "{} is stale: run `tokgate schema`", path.display());
    let schema = serde_json::from_str(&text).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for line in file().render().lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(validator.is_valid(&line), "{line}");
        line.as_object_mut().unwrap().insert("other".into(), 1.into());
        assert!(!validator.is_valid(&line), "{line}");
    }
}

/// Launches that differ by 1 % and steps within that differ by 2 %, correlated: over many cells the
/// estimates are right on average, each within three standard errors.
#[test]
fn simulated_launches_tell_the_noise_they_have() {
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand_distr::{Distribution, StandardNormal};
    const CELLS: usize = 400;
    const LAUNCHES: usize = 8;
    const STEPS: usize = 2_000;
    let (between, within, correlation) = (0.01, 0.02, 0.5f64);
    let mut random = StdRng::seed_from_u64(42);
    let mut normal = move || -> f64 { StandardNormal.sample(&mut random) };
    let mut cell = || {
        let launches: Vec<Measurement> = (0..LAUNCHES)
            .map(|_| {
                let speed = 100.0 * (between * normal()).exp();
                let mut last = normal();
                let steps: Vec<f64> = (0..STEPS)
                    .map(|_| {
                        last = correlation * last + (1.0 - correlation.powi(2)).sqrt() * normal();
                        speed * (1.0 + within * last)
                    })
                    .collect();
                let batch = STEPS / 10;
                let means = steps.chunks(batch).map(|it| it.iter().sum::<f64>() / batch as f64);
                launch(&means.collect::<Vec<_>>(), 0.0)
            })
            .collect();
        of(&launches, "output-throughput").unwrap()
    };
    let lines: Vec<NoiseLine> = (0..CELLS).map(|_| cell()).collect();
    // Of correlated steps (1 − ρ)/(1 + ρ) are worth one each.
    let worth = STEPS as f64 * (1.0 - correlation) / (1.0 + correlation);
    let (launch, window) = (between * between, within * within / worth);
    let agrees = |of: &dyn Fn(&NoiseLine) -> f64, want: f64| {
        let values: Vec<f64> = lines.iter().map(of).collect();
        let mean = values.iter().sum::<f64>() / CELLS as f64;
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        let error = (squares / (CELLS - 1) as f64 / CELLS as f64).sqrt();
        assert!((mean - want).abs() < 3.0 * error, "{mean} ± {error} is not {want}");
    };
    agrees(&|line| line.sd.powi(2), launch + window);
    agrees(&|line| line.sd.powi(2) - line.within.unwrap().powi(2), launch);
    // Batches of 200 steps are correlated a little, and hide so much of it.
    let found = lines.iter().map(|it| it.within.unwrap().powi(2)).sum::<f64>() / CELLS as f64;
    assert!((found / window - 1.0).abs() < 0.05, "{found} is not {window}");
    let lag = lines.iter().map(|line| line.lag.unwrap()).sum::<f64>() / CELLS as f64;
    assert!((lag + 0.1).abs() < 0.03, "independent batches have −1/10 on average, not {lag}");
}
