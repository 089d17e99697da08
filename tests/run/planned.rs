//! `tokgate plan`: what a suite can see and what it takes to see more; and what `check` says of limits
//! that can't be seen reached.

use serde_json::Value;

use crate::harness::{Project, Ran};

fn suite(pairs: u32, limit: &str, more: &str) -> String {
    format!(
        r#"version = 1
[suite]
name = "upgrade"
[engine]
kind = "vllm"
command = "serve --port {{{{ port }}}} --x {{{{ vars.x }}}}"
[vars]
x = 0
[[test]]
kind = "decode"
duration = "20s"
matrix.concurrency = [1, 4, 16]
[variant.old]
vars.x = 1
[variant.new]
vars.x = 2
[compare]
baseline = "old"
candidate = "new"
pairs = {pairs}
min-mean-ratio = 0.99
[[expect]]
metric = "output-throughput"
min-ratio = {limit}
{more}"#
    )
}

fn planned(text: &str, arguments: &[&str]) -> Ran {
    let mut all = vec!["plan", "suite.toml"];
    all.extend(arguments);
    Project::with(text).tokgate(&all)
}

fn json(text: &str, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["--format", "json"]);
    serde_json::from_str(&planned(text, &all).exits(0).stdout).unwrap()
}

#[test]
fn a_stated_noise_gives_pairs_starts_and_minutes() {
    let ran = planned(&suite(4, "0.97", ""), &["--noise", "1%"]).exits(0);
    insta::assert_snapshot!(ran.stdout);
    assert_eq!(ran.stderr, "");
}

#[test]
fn what_is_named_is_just_enough_when_it_is_written() {
    let needed = json(&suite(4, "0.97", ""), &["--noise", "1%"]);
    let pairs = needed["needed"]["pairs"].as_u64().unwrap() as u32;
    assert!(pairs > 4 && pairs.is_multiple_of(2), "{needed}");
    // Both engines, once for each pair.
    assert_eq!(needed["needed"]["effort"]["starts"], u64::from(pairs * 2));
    assert_eq!(needed["declared"]["starts"], 8);
    let of = |pairs| json(&suite(pairs, "0.97", ""), &["--noise", "1%"])["limits"][0].clone();
    let (enough, fewer) = (of(pairs), of(pairs - 2));
    assert!(enough["chance"].as_f64().unwrap() >= 0.95, "{enough}");
    assert!(enough["sees-from"].as_f64().unwrap() <= 0.05, "{enough}");
    assert!(fewer["chance"].as_f64().unwrap() < 0.95, "{fewer}");
    let said = planned(&suite(pairs, "0.97", ""), &["--noise", "1%"]).exits(0).stdout;
    assert!(said.contains("what is declared is just enough: "), "{said}");
    // Fewer cells share alpha among fewer comparisons, and need no more.
    let one = json(&suite(4, "0.97", ""), &["--noise", "1%", "-E", "concurrency=4"]);
    assert_eq!((one["limits"].as_array().unwrap().len(), &one["comparisons"]), (1, &2.into()));
    assert!(one["needed"]["pairs"].as_u64().unwrap() <= u64::from(pairs));
    // A loss that is larger, or need be seen less surely, takes less.
    let easy = json(&suite(4, "0.97", ""), &["--noise", "1%", "--loss", "10%", "--power", "80%"]);
    assert!(easy["needed"]["pairs"].as_u64().unwrap() < u64::from(pairs), "{easy}");
}

#[test]
fn no_number_of_pairs_shows_what_the_limit_tolerates() {
    let ran = planned(&suite(4, "0.95", ""), &["--noise", "1%"]).exits(0);
    assert!(ran.stdout.contains("another limit: it tolerates 5 %"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains(
            "No number of launches shows what suite.toml:24 tolerates. `min-ratio = 0.975` there"
        ),
        "{}",
        ran.stdout
    );
    let found = json(&suite(4, "0.95", ""), &["--noise", "1%"]);
    assert_eq!(found["limits"][0]["needs"], Value::Null);
    assert_eq!((&found["needed"]["all"], &found["needed"]["pairs"]), (&false.into(), &Value::Null));
}

#[test]
fn without_a_noise_it_says_what_to_state() {
    let ran = planned(&suite(4, "0.97", ""), &[]).exits(0);
    assert!(ran.stderr.contains("like `--noise 1%`"), "{}", ran.stderr);
    assert!(ran.stdout.contains("a noise to reckon with"), "{}", ran.stdout);
    // What is not known is not called impossible.
    assert!(ran.stdout.ends_with("follows from the noise, which nobody tells\n"), "{}", ran.stdout);
    for (noise, said, code) in [
        ("0%", "write a share above 0%", 20),
        ("x%", "--noise 'x%'", 20),
        ("none.jsonl", "`--noise 1%`, or the file that `tokgate calibrate` wrote", 21),
    ] {
        let ran = planned(&suite(4, "0.97", ""), &["--noise", noise]).exits(code);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    planned(&suite(4, "0.97", ""), &["--loss", "100%"]).exits(20);
}

/// A noise file of the old engine's cells with that spread, which both sides are taken to have.
fn noise(sd: f64) -> String {
    let mut text = r#"{"noise":{"format":1,"suite":"upgrade","identity":{}}}
{"test":{"name":"decode","workload":{}}}
{"run":{"id":"aa","started":"2027-01-01T00:00:00Z","tokgate":"0.1.0","suite-hash":"abc","engines":{"old":"vllm 0.29.0"},"gpu":"none"}}
"#
    .to_owned();
    for streams in [1, 4, 16] {
        text.push_str(&format!(
            r#"{{"cell":{{"test":"decode","variant":"old","cell":"concurrency={streams}","metric":"output-throughput","unit":"tok/s","run":"aa","sd":{sd},"df":3,"values":[1.0,1.0,1.0,1.0]}}}}"#
        ));
        text.push('\n');
    }
    text
}

#[test]
fn a_noise_file_tells_it_and_where_the_suite_names_it_judges_by_it() {
    let project = Project::with(&suite(4, "0.97", ""));
    project.file("noise.jsonl", &noise(0.01));
    let read = |project: &Project, arguments: &[&str]| -> Value {
        let mut all = vec!["plan", "suite.toml", "--format", "json"];
        all.extend(arguments);
        serde_json::from_str(&project.tokgate(&all).exits(0).stdout).unwrap()
    };
    let stated = read(&project, &["--noise", "1%"]);
    let told = read(&project, &["--noise", "noise.jsonl"]);
    assert_eq!(told["limits"][0]["noise-of"], "noise-file");
    assert_eq!(told["limits"][0]["chance"], stated["limits"][0]["chance"]);
    // Judged by the file: its three degrees of freedom, and not the pairs' two.
    let project = Project::with(&suite(4, "0.97", "[baseline]\nnoise = \"noise.jsonl\"\n"));
    project.file("noise.jsonl", &noise(0.01));
    let judged = read(&project, &[]);
    assert_eq!(judged["limits"][0]["noise"], 0.01);
    assert!(
        judged["limits"][0]["sees-from"].as_f64() < told["limits"][0]["sees-from"].as_f64(),
        "{judged} {told}"
    );
    let said = project.tokgate(&["plan", "suite.toml"]).exits(0).stdout;
    assert!(said.contains("noise.jsonl tells of each cell"), "{said}");
    assert!(said.contains("judged   by the noise of "), "{said}");
}

#[test]
fn floors_and_recorded_runs_need_launches() {
    let text = r#"version = 1
[suite]
name = "card"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "20s"
matrix.concurrency = [1, 4]
[baseline]
file = "baselines/card.jsonl"
[[expect]]
metric = "output-throughput"
min = 190
slack = "3%"
[[expect]]
metric = "output-throughput"
min-ratio = 0.97
[[expect]]
metric = "active-requests"
min = 1
"#;
    let found = json(text, &["--noise", "1%"]);
    let limits = found["limits"].as_array().unwrap();
    // What is counted has no noise.
    assert_eq!(limits.len(), 4, "{found}");
    let by = |at: usize| limits[at]["by"].as_str().unwrap();
    assert_eq!((by(0), by(1)), ("launches", "launches-against-runs"));
    assert_eq!((&limits[0]["level"], &limits[1]["level"]), (&0.05.into(), &0.025.into()));
    assert_eq!((&limits[0]["chance"], &limits[1]["recorded-runs"]), (&Value::Null, &5.into()));
    let needed = found["needed"]["launches"]["decode"].as_u64().unwrap();
    assert_eq!(needed, limits.iter().map(|it| it["needs"].as_u64().unwrap()).max().unwrap());
    let said = planned(text, &["--noise", "1%"]).exits(0).stdout;
    assert!(said.contains(&format!("write `launches = {needed}` in test decode: ")), "{said}");
    assert!(said.contains("One launch does not show how launches differ"), "{said}");
    // Written, it is enough.
    let more = text.replace("duration =", &format!("launches = {needed}\nduration ="));
    let found = json(&more, &["--noise", "1%"]);
    for limit in found["limits"].as_array().unwrap() {
        assert!(limit["chance"].as_f64().unwrap() >= 0.95, "{limit}");
    }
}

#[test]
fn check_warns_where_the_pairs_can_not_see_the_limit_and_only_where_it_knows() {
    let text = suite(4, "0.97", "[baseline]\nnoise = \"noise.jsonl\"\n");
    let checked = |sd: Option<f64>| {
        let project = Project::with(&text);
        if let Some(sd) = sd {
            project.file("noise.jsonl", &noise(sd));
        }
        project.tokgate(&["check", "suite.toml"]).exits(0)
    };
    let blind = checked(Some(0.02));
    insta::assert_snapshot!(blind.stderr);
    assert!(!blind.stdout.contains("tokgate plan"), "{}", blind.stdout);
    assert_eq!(checked(Some(0.003)).stderr, "");
    // Where nobody knows the noise it points to who can tell.
    let unknown = checked(None);
    assert_eq!(unknown.stderr, "");
    assert!(
        unknown.stdout.ends_with("1 expectation; `tokgate plan` says what 4 pairs can see\n"),
        "{}",
        unknown.stdout
    );
    let denied = Project::with(&text);
    denied.file("noise.jsonl", &noise(0.02));
    denied.tokgate(&["check", "suite.toml", "--deny-warnings"]).exits(11);
}

/// `min = 1` tells no loss that is to be seen: how far the engine is from it nobody says.
#[test]
fn a_number_without_slack_is_not_called_blind() {
    let floor = |slack: &str| {
        let more = format!(
            "[[expect]]\nmetric = \"output-throughput\"\nmin = 1\n{slack}\n[baseline]\nnoise = \"noise.jsonl\"\n"
        );
        let project = Project::with(&suite(4, "0.7", &more));
        project.file("noise.jsonl", &noise(0.02));
        project
    };
    let checked = floor("").tokgate(&["check", "suite.toml"]).exits(0);
    assert_eq!(checked.stderr, "");
    let checked = floor("slack = \"1%\"").tokgate(&["check", "suite.toml"]).exits(0);
    assert!(checked.stderr.contains("a loss of 2 % can go unseen"), "{}", checked.stderr);
    // And the plan says from where its loss counts.
    let planned = floor("").tokgate(&["plan", "suite.toml"]).exits(0);
    let said = "the loss is one from the number as written";
    assert!(planned.stdout.contains(said), "{}", planned.stdout);
}
