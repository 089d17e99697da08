//! Hardware that was not in order while a cell was measured: verdict, message and exit code. The runs are
//! simulated; what a machine with GPUs would have seen meanwhile is written into their journals, of which each
//! verdict follows.

use serde_json::{Value, json};

use crate::harness::{Project, Ran};

const HOT: &str = "GPU 3 throttled by heat in 62 % of the time";

/// Four cells, of which `limit` is asked.
fn suite(limit: &str, policy: &str, more: &str) -> Project {
    Project::with(&format!(
        r#"version = 1
[suite]
name = "suspect"
[engine]
kind = "sim"
clock = "virtual"
[policy]
hardware-fault = "{policy}"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 2, 3, 4]
[[expect]]
metric = "output-throughput"
min = {limit}
{more}"#
    ))
}

fn series(value: f64) -> Value {
    json!({ "min": value, "mean": value, "max": value, "points": [value, value] })
}

/// One second of two GPUs; `changed` makes of the second what it likes.
fn telemetry(changed: impl FnOnce(&mut Value)) -> Value {
    let gpu = |index: u32| {
        json!({
            "index": index, "name": "NVIDIA H200", "power": series(600.0), "utilisation": series(97.0),
            "sm-clock": series(1980.0), "temperature": series(64.0), "memory": series(1.2e11),
            "ecc-corrected": 0, "ecc-uncorrected": 0,
        })
    };
    let mut second = gpu(3);
    changed(&mut second);
    json!({
        "seconds": 1.0, "samples": 50, "gpus": [gpu(2), second],
        "host": { "cpu": series(12.0), "memory": series(1e8) },
    })
}

fn hot() -> Value {
    telemetry(|gpu| {
        gpu["throttled"] = json!({ "thermal-software": 0.62, "power-cap": 0.2 });
        gpu["sm-clock"] =
            json!({ "min": 1200.0, "mean": 1400.0, "max": 1980.0, "points": [1980.0, 1200.0] });
    })
}

/// Runs the suite, writes what `seen` says of a cell and round into its journal, and has it judged again.
fn judged(project: &Project, seen: impl Fn(u64, u64) -> Value, more: &[&str]) -> Ran {
    project.run(&[]);
    let path = project.path().join("out/journal.jsonl");
    let told = std::fs::read_to_string(&path).unwrap();
    let mut cells = 0;
    let lines = told.lines().map(|line| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        if let Some(finished) = event.pointer_mut("/cell-finished") {
            let number = |name: &str| finished[name].as_u64().unwrap_or(0);
            let telemetry = seen(number("cell"), number("round"));
            finished["state"]["measured"]["telemetry"] = telemetry;
            cells += 1;
        }
        format!("{event}\n")
    });
    let told: String = lines.collect();
    assert!(cells > 0, "{told}");
    std::fs::write(&path, told).unwrap();
    let mut arguments = vec!["run", "suite.toml", "--resume", "out", "--no-progress"];
    arguments.extend(more);
    project.tokgate(&arguments)
}

/// The judgement of a cell.
fn judgement(ran: &Ran, cell: usize) -> Value {
    ran.record()["cells"][cell]["judgement"].clone()
}

fn only_the_third_is_hot(cell: u64, _: u64) -> Value {
    if cell == 2 { hot() } else { telemetry(|_| ()) }
}

#[test]
fn throttling_in_one_failing_cell_is_said_in_its_message_and_by_policy_an_error() {
    let failing = "100_000\nwhere = { concurrency = 3 }\n[[expect]]\nmetric = \"output-throughput\"\nmin = 10";
    let said = format!("hardware was suspect: {HOT}");
    let ran = judged(&suite(failing, "warn", ""), only_the_third_is_hot, &[]).exits(10);
    assert_eq!(ran.having("fail"), ["decode concurrency=3"]);
    let third = judgement(&ran, 2);
    assert_eq!(third["class"], "limit");
    let message = third["message"].as_str().unwrap();
    assert!(
        message.contains(" tok/s < 100 000 (") && message.contains(&format!("; {said}")),
        "{message}"
    );
    assert_eq!(third["suspects"][0]["suspicion"]["gpus"], json!([3]));
    for name in ["junit.xml", "summary.md", "report.html"] {
        assert!(ran.read(name).contains(&said), "{name}");
    }
    let shown = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(&said), "{}", ran.stdout);

    let ran = judged(&suite(failing, "error", ""), only_the_third_is_hot, &[]).exits(31);
    assert_eq!(ran.having("error"), ["decode concurrency=3"]);
    assert_eq!(ran.having("pass").len(), 3);
    let third = judgement(&ran, 2);
    assert_eq!(third["class"], "hardware");
    let message = third["message"].as_str().unwrap();
    let begins = format!("{said} (SM clock 1 400 MHz, 1 980 MHz in other cells)");
    assert!(message.starts_with(&begins), "{message}");
    assert!(
        message.contains(" (an error by policy.hardware-fault); output-throughput "),
        "{message}"
    );
    let junit = ran.read("junit.xml");
    assert!(
        junit.contains("type=\"hardware\"") && junit.contains("name=\"metric.output-throughput\"")
    );
    // Rendered again, it says the same.
    let folder = ran.out.parent().unwrap();
    let (before, page) = (ran.read("junit.xml"), ran.read("report.html"));
    crate::harness::tokgate().current_dir(folder).args(["report", "out"]).output().unwrap();
    assert_eq!((ran.read("junit.xml"), ran.read("report.html")), (before, page));
}

#[test]
fn throttling_in_a_passing_cell_only_warns() {
    let ran = judged(&suite("10", "warn", ""), only_the_third_is_hot, &[]).exits(0);
    assert_eq!(ran.having("pass").len(), 4);
    assert!(ran.read("summary.md").contains(&format!("hardware was suspect: {HOT}")));
    assert_eq!(judgement(&ran, 1)["warnings"], json!([]));
    let project = suite("10", "warn", "");
    judged(&project, only_the_third_is_hot, &["--deny-warnings"]).exits(11);
    judged(&project, |_, _| telemetry(|_| ()), &["--deny-warnings"]).exits(0);
}

#[test]
fn each_thing_that_is_not_in_order_has_its_words() {
    let of = |changed: fn(&mut Value)| {
        let seen = |cell, _: u64| if cell == 0 { telemetry(changed) } else { telemetry(|_| ()) };
        let ran = judged(&suite("10", "warn", ""), seen, &[]).exits(0);
        let judged = judgement(&ran, 0);
        let words =
            judged["suspects"][0]["suspicion"]["words"].as_str().unwrap_or("nothing").to_owned();
        assert!(judged["warnings"].to_string().contains(&words), "{judged}");
        (words, judged["message"].as_str().unwrap().contains("suspect"))
    };
    let (lost, in_message) = of(|gpu| gpu["lost"] = "GPU is lost".into());
    assert_eq!((lost.as_str(), in_message), ("GPU 3 was lost: GPU is lost", true));
    let (busy, in_message) = of(|gpu| gpu["foreign"] = json!(["process 4711 (train.py)"]));
    assert_eq!(
        (busy.as_str(), in_message),
        ("GPU 3 also computed for process 4711 (train.py)", false)
    );
    let (xid, _) = of(|gpu| gpu["xid"] = json!([79]));
    assert_eq!(xid, "GPU 3 had an error, Xid 79 (it has fallen off the bus)");
    let (ecc, _) = of(|gpu| gpu["ecc-uncorrected"] = 2.into());
    assert_eq!(ecc, "GPU 3 had 2 memory errors that ECC could not correct");
    let (clocks, _) = of(|gpu| {
        gpu["sm-clock"] = series(1500.0);
        gpu["power"] = series(400.0);
        gpu["throttled"] = json!({ "power-cap": 1.0 });
    });
    assert!(clocks.starts_with("GPU 3 ran 24 % below its clocks in other cells ("), "{clocks}");
}

#[test]
fn a_pair_of_which_one_side_was_held_back_says_which() {
    let project = suite(
        "10",
        "warn",
        r#"[variant.old.engine]
env = { BUILD = "old" }
[variant.new.engine]
env = { BUILD = "new" }
[compare]
baseline = "old"
candidate = "new"
pairs = 4
[[expect]]
metric = "output-throughput"
min-ratio = 0.5
"#,
    );
    // The first of both variants' cells: old's in its second launch.
    let ran = judged(
        &project,
        |cell, round| if (cell, round) == (0, 1) { hot() } else { telemetry(|_| ()) },
        &[],
    );
    let record = ran.record();
    let planned = record["header"]["cells"].as_array().unwrap();
    let twin = planned.iter().position(|cell| cell["variant"] == "new").unwrap();
    assert_eq!(
        (planned[0]["variant"].as_str(), &planned[0]["id"]),
        (Some("old"), &planned[twin]["id"])
    );
    let said = "hardware was suspect of old alone in pair 2 of 4: GPU 3 throttled by heat in 62 % of the time";
    let message = judgement(&ran, twin)["message"].as_str().unwrap().to_owned();
    assert!(message.contains(said), "{message}");
    let old = judgement(&ran, 0)["warnings"].to_string();
    assert!(old.contains("hardware was suspect: in launch 2 of 4: GPU 3 throttled"), "{old}");
}
