//! Calibration through the front door, on the simulated engine in virtual time: measured against itself,
//! told, kept in a file, judged by, and refused before anything is launched.

use serde_json::Value;

use crate::harness::{Project, Ran};

/// The upper 5 % point of Student's t with 3 degrees of freedom.
const T3: f64 = 2.353_363_434_801_823;

const ENGINE: &str = r#"
max-model-len = "32K"
kv-capacity = "512K"
start-up = "50ms"
[prefill]
tokens = [16, "1K"]
ms = [4, 4]
[admit]
at = [1]
grid = [["1K", 5]]
[step]
at = [1]
grid = [["1K", 10]]
[noise]
within = "2%"
between = "1%"
correlation = 0.6
"#;

fn text(more: &str) -> String {
    format!(
        r#"version = 1
[suite]
name = "card"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.concurrency = [1, 4]
{more}"#
    )
}

const NOISE: &str = "[baseline]\nfile = \"runs.jsonl\"\nnoise = \"noise.jsonl\"\n";
const FLOOR: &str = "[[expect]]\nmetric = \"output-throughput\"\nmin.rows = \"concurrency\"\nmin.grid = [[1, 95], [4, 370]]\n";

fn project(more: &str) -> Project {
    let project = Project::with(&text(more));
    project.file("engine.toml", ENGINE);
    project
}

/// `tokgate calibrate suite.toml` with more arguments, `--launches` among them.
fn calibrate(project: &Project, more: &[&str]) -> Ran {
    let mut arguments = vec!["calibrate", "suite.toml", "--no-progress", "--seed", "7"];
    arguments.extend(more);
    project.tokgate(&arguments)
}

fn file(project: &Project) -> String {
    std::fs::read_to_string(project.path().join("noise.jsonl")).unwrap()
}

/// The line of a metric of a cell.
fn line(text: &str, words: &[&str]) -> Value {
    let of = |line: &&str| words.iter().all(|word| line.contains(&format!("\"{word}\"")));
    let line = text.lines().filter(|line| line.starts_with("{\"cell\"")).find(of).unwrap();
    serde_json::from_str::<Value>(line).unwrap()["cell"].clone()
}

fn message(ran: &Ran, cell: usize) -> String {
    ran.record()["cells"][cell]["judgement"]["message"].as_str().unwrap().to_owned()
}

/// Half of an estimate's interval, as a logarithm.
fn half(ran: &Ran, cell: usize) -> f64 {
    let record = ran.record();
    let estimate = &record["cells"][cell]["judgement"]["bounds"][0]["estimate"];
    let bound = |key: &str| estimate[key].as_f64().unwrap();
    (bound("upper") / bound("lower")).ln() / 2.0
}

fn close(got: f64, want: f64) {
    assert!((got / want - 1.0).abs() < 1e-6, "{got} is not {want}");
}

fn launched(project: &Project) -> bool {
    project.path().join("out").exists()
}

#[test]
fn a_calibration_finds_the_noise_that_the_engine_was_given() {
    let project = project(NOISE);
    let concurrency = "matrix.concurrency = [1, 4]";
    project.file("suite.toml", &text(NOISE).replace(concurrency, "matrix.concurrency = [16]"));
    let ran = calibrate(&project, &["--launches", "20"]).exits(0);
    let told = line(&file(&project), &["output-throughput"]);
    let number = |key: &str| told[key].as_f64().unwrap();
    assert_eq!((told["df"].as_u64(), told["values"].as_array().unwrap().len()), (Some(19), 20));
    // Between launches 1 %; within one 2 % of a step, over 100 steps of which 1.6/0.4 are worth one: 0.4 %.
    assert!((0.006..0.018).contains(&number("sd")), "{told}");
    assert!((0.002..0.006).contains(&number("within")), "{told}");
    assert!((0.005..0.018).contains(&number("between")), "{told}");
    assert!(number("lag").abs() < 0.35 && (0.99..1.1).contains(&number("window")), "{told}");
    assert!(ran.stdout.contains("concurrency=16 output-throughput"), "{}", ran.stdout);
    assert!(ran.stderr.contains("calibrate: 1 cell calibrated; the noisiest is"), "{}", ran.stderr);
}

#[test]
fn a_run_is_judged_by_the_noise_of_the_file() {
    let ratio = "[[expect]]\nmetric = \"output-throughput\"\nmin-ratio = 0.9\n";
    let tpot = "[[expect]]\nmetric = \"tpot.p50\"\nmax = \"20ms\"\n";
    let project = project(&format!("{NOISE}{FLOOR}{tpot}"));
    calibrate(&project, &["--launches", "4"]).exits(0);
    let sd = |concurrency: u32| {
        let cell = format!("concurrency={concurrency}");
        line(&file(&project), &[&cell, "output-throughput"])["sd"].as_f64().unwrap()
    };
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert_eq!(ran.having("pass").len(), 2);
    close(half(&ran, 0), T3 * sd(1));
    close(half(&ran, 1), T3 * sd(4));
    let said = message(&ran, 0);
    assert!(said.contains("clear, 1 launch, noise of noise.jsonl, suite.toml:"), "{said}");
    assert!(!ran.stdout.contains("in this launch"), "{}", ran.stdout);
    assert!(!ran.read("junit.xml").contains("in this launch"));
    // Several launches share the noise among them, and are not judged by their own spread.
    let launches = text(&format!("{NOISE}{FLOOR}")).replace("duration", "launches = 2\nduration");
    project.file("suite.toml", &launches);
    let ran = project.run(&["--seed", "3"]).exits(0);
    close(half(&ran, 0), T3 * sd(1) / 2f64.sqrt());
    assert!(message(&ran, 0).contains("2 launches, noise of noise.jsonl"), "{}", message(&ran, 0));

    project.file("suite.toml", &text(&format!("{NOISE}{ratio}")));
    project.tokgate(&["baseline", "record", "suite.toml", "--runs", "3", "--seed", "11"]).exits(0);
    let ran = project.run(&["--seed", "3"]).exits(0);
    let said = message(&ran, 0);
    assert!(said.contains("(3 runs, noise of noise.jsonl, clear, sees losses from"), "{said}");
    // Two comparisons share the level: the upper 2.5 % point.
    close(half(&ran, 0), 3.182_446_305_284_263 * sd(1) * (4.0f64 / 3.0).sqrt());
}

#[test]
fn what_is_beyond_a_limit_within_the_noise_is_in_doubt_and_not_extended() {
    // Of 100 tok/s: beyond the limit, and by less than launches differ.
    let floor = FLOOR.replace("95", "101.5").replace("370", "101.5");
    let project = project(&format!("{NOISE}{floor}"));
    calibrate(&project, &["--launches", "4", "-E", "concurrency=1"]).exits(0);
    // A wide noise, so that nothing is proven whatever the seed.
    let known = file(&project);
    let sd = format!("\"sd\":{}", line(&known, &["output-throughput"])["sd"]);
    project.file("noise.jsonl", &known.replacen(&sd, "\"sd\":0.05", 1));
    let ran = project.run(&["--seed", "3", "-E", "concurrency=1"]).exits(0);
    assert_eq!(ran.having("inconclusive"), ["decode concurrency=1"]);
    let cell = &ran.record()["cells"][0];
    assert_eq!(cell["state"]["measured"]["extended"], false);
    // By its own noise the same launch is extended.
    project.file("suite.toml", &text(&floor));
    let ran = project.run(&["--seed", "3", "-E", "concurrency=1"]);
    let verdict = &ran.record()["cells"][0]["judgement"]["verdict"];
    let extended = &ran.record()["cells"][0]["state"]["measured"]["extended"];
    assert!(verdict == "fail" || extended == true, "{verdict} {extended}");
}

const VARIANTS: &str = r#"
[variant.old]
[variant.new]
vars.x = 1
[compare]
baseline = "old"
candidate = "new"
[[expect]]
metric = "output-throughput"
min-ratio = 0.9
"#;

#[test]
fn pairs_are_judged_by_the_noise_of_both_variants_or_of_the_one_that_is_known() {
    let project = project(&format!("{NOISE}{VARIANTS}"));
    let one = "concurrency=1 variant=old";
    calibrate(&project, &["--launches", "4", "-E", one]).exits(0);
    let sd = |variant: &str| {
        line(&file(&project), &[variant, "output-throughput"])["sd"].as_f64().unwrap()
    };
    let pairs = ["--seed", "3", "-E", "concurrency=1"];
    let ran = project.run(&pairs).exits(0);
    let candidate = ran.record()["header"]["cells"].as_array().unwrap().len() - 1;
    // A pair has the noise of two launches, and there are four pairs.
    close(half(&ran, candidate), T3 * sd("old") * (2.0f64 / 4.0).sqrt());
    let said = message(&ran, candidate);
    assert!(said.contains("(4 pairs, noise of noise.jsonl, clear, sees losses from"), "{said}");

    // What a later calibration tells of the other variant stands beside it.
    calibrate(&project, &["--launches", "4", "-E", "concurrency=1 variant=new"]).exits(0);
    let (old, new) = (sd("old").powi(2), sd("new").powi(2));
    let ran = project.run(&pairs).exits(0);
    let noise = &ran.record()["header"]["cells"][candidate]["bounds"][0]["noise"];
    close(noise["sd"].as_f64().unwrap(), ((old + new) / 2.0).sqrt());
    close(
        noise["df"].as_f64().unwrap(),
        (old + new).powi(2) / (old.powi(2) / 3.0 + new.powi(2) / 3.0),
    );
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_anything_is_launched() {
    let project = project(&format!("{NOISE}{FLOOR}"));
    calibrate(&project, &["--launches", "3"]).exits(0);
    let whole = file(&project);
    let first = whole.lines().position(|line| line.starts_with("{\"cell\"")).unwrap();
    let cell = whole.lines().nth(first).unwrap().to_owned();
    let values = &cell[cell.find("\"values\"").unwrap()..cell.len() - 2];
    let sd = &cell[cell.find("\"sd\"").unwrap()..cell.find(",\"df\"").unwrap()];
    let conflict = format!("<<<<<<< HEAD\n{cell}\n=======\n{cell}\n>>>>>>> nightly");
    let without = |words: &str| -> String {
        whole.lines().filter(|it| !it.contains(words)).map(|it| format!("{it}\n")).collect()
    };
    for (words, text) in [
        (
            "does not fit: it is of hardware.gpu = `NVIDIA H200`, and this is `simulated`",
            whole.replacen("\"hardware.gpu\":\"simulated\"", "\"hardware.gpu\":\"NVIDIA H200\"", 1),
        ),
        (
            "does not fit: it is of engine.kind = `vllm`, and this is `sim`",
            whole.replacen("\"engine.kind\":\"sim\"", "\"engine.kind\":\"vllm\"", 1),
        ),
        (
            "does not fit: it is of suite `dart`, and this is `card`",
            whole.replacen("\"suite\":\"card\"", "\"suite\":\"dart\"", 1),
        ),
        (
            "test `decode` was recorded with another version of the suite: duration was 30s, is 1s",
            whole.replacen("\"duration\":\"1s\"", "\"duration\":\"30s\"", 1),
        ),
        (
            "the cells of test `decode` were recorded by the axes streams, and have concurrency now",
            whole.replace("concurrency=", "streams="),
        ),
        ("has a value that is no number (`NaN`)", whole.replacen(sd, "\"sd\":NaN", 1)),
        ("has a spread of 0: by it every", whole.replacen(sd, "\"sd\":0.0", 1)),
        ("is cut short", whole[..whole.len() - 40].to_owned()),
        ("is a marker of a merge conflict, `<<<<<<<`", whole.replacen(&cell, &conflict, 1)),
        (
            "has format 9, this tokgate reads format 1",
            whole.replacen("\"format\":1", "\"format\":9", 1),
        ),
        (
            "has fewer than two launches: one shows no noise",
            whole.replacen(values, "\"values\":[100.0]", 1),
        ),
        (
            "lacks 1 value: decode concurrency=4 output-throughput",
            without("concurrency=4\",\"metric\":\"output-throughput"),
        ),
    ] {
        project.file("noise.jsonl", &text);
        let ran = project.run(&[]).exits(21);
        let seen = ran.stderr.contains(words) && ran.stderr.contains("noise.jsonl");
        assert!(seen, "{words}:\n{}", ran.stderr);
        assert!(ran.stderr.contains("  help: "), "{}", ran.stderr);
        assert!(!launched(&project), "{words}");
    }
    std::fs::remove_file(project.path().join("noise.jsonl")).unwrap();
    let ran = project.run(&[]).exits(21);
    assert!(ran.stderr.contains("error: there is no noise file noise.jsonl"), "{}", ran.stderr);
    assert!(!launched(&project));
}

#[test]
fn what_the_file_lacks_is_judged_by_its_own_noise_where_the_suite_lets_it() {
    let project = project(&format!("{NOISE}on-missing = \"skip\"\n{FLOOR}"));
    calibrate(&project, &["--launches", "3", "-E", "concurrency=1"]).exits(0);
    let ran = project.run(&["--seed", "3"]).exits(0);
    assert!(message(&ran, 0).contains("noise of noise.jsonl"), "{}", message(&ran, 0));
    assert!(message(&ran, 1).contains("in this launch"), "{}", message(&ran, 1));
    let warnings = ran.record()["warnings"].to_string();
    let note = "judged by its own noise, since the noise file noise.jsonl lacks it: 1 value: decode concurrency=4 output-throughput";
    assert!(warnings.contains(note), "{warnings}");
    std::fs::remove_file(project.path().join("noise.jsonl")).unwrap();
    let ran = project.run(&["--seed", "3"]).exits(0);
    let warnings = ran.record()["warnings"].to_string();
    assert!(warnings.contains("every cell is judged by its own noise"), "{warnings}");
}

#[test]
fn a_limit_that_fails_although_nothing_changed_is_named_and_fails_no_calibration() {
    let tight = FLOOR.replace("95", "100").replace("370", "420");
    let project = project(&format!("{NOISE}{tight}"));
    let ran = calibrate(&project, &["--launches", "8", "--format", "json"]).exits(0);
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let limits = told["limits"].as_array().unwrap();
    let of = |cell: &str| limits.iter().find(|limit| limit["cell"] == cell).unwrap();
    assert_eq!(
        (&of("concurrency=4")["tried"], &of("concurrency=4")["failed"]),
        (&8.into(), &8.into())
    );
    assert_eq!(of("concurrency=4")["sees"], 0.0);
    let named = "decode concurrency=4 output-throughput ≥ 420 (suite.toml:20) fails in 8 of 8 unchanged launches: it lies beyond what is measured";
    assert!(ran.stderr.contains(named), "{}", ran.stderr);
    // No verdict was made of it.
    let record = project.path().join("tokgate-out/card.calibration/record.json");
    let record: Value = serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    assert_eq!(record["cells"][1]["judgement"]["verdict"], "measured");
    assert_eq!(record["cells"][1]["rounds"].as_array().unwrap().len(), 8);
}

#[test]
fn ratios_are_tried_on_the_launches_themselves() {
    let project = project(&format!("{NOISE}{VARIANTS}"));
    let more = ["--launches", "8", "-E", "concurrency=1", "--format", "json", "--write", "x.jsonl"];
    let ran = calibrate(&project, &more).exits(0);
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let noise = told["noise"].as_array().unwrap();
    let throughput = |variant: &str| {
        let of = |it: &&Value| it["variant"] == variant && it["metric"] == "output-throughput";
        noise.iter().find(of).unwrap()["sd"].as_f64().unwrap()
    };
    assert!(throughput("old") > 0.0 && throughput("new") > 0.0, "each variant by itself");
    let limits = told["limits"].as_array().unwrap();
    assert_eq!(limits.len(), 1, "what others are held against is held against nothing");
    let limit = &limits[0];
    assert_eq!((&limit["judges"], &limit["of"]), (&"pairs".into(), &4.into()));
    assert_eq!((&limit["tried"], &limit["failed"]), (&2.into(), &0.into()));
    let sees = limit["sees"].as_f64().unwrap();
    assert!(sees > 0.1 && sees < 0.2, "{sees}: beyond the limit by what the noise hides");
}

#[test]
fn an_engine_that_breaks_is_told_as_in_a_run_and_nothing_is_written() {
    let project = project(&format!("{NOISE}{FLOOR}"));
    project.file("engine.toml", &format!("{ENGINE}[[fault]]\nkind = \"crash\"\nat-token = 20\n"));
    let ran = calibrate(&project, &["--launches", "2"]).exits(30);
    assert!(ran.stderr.contains("error: card has nothing to calibrate by"), "{}", ran.stderr);
    assert!(!project.path().join("noise.jsonl").exists());
    let without = project.file("suite.toml", &text(FLOOR));
    assert!(without.exists());
    let ran = calibrate(&project, &[]).exits(20);
    assert!(ran.stderr.contains("names no noise file to write"), "{}", ran.stderr);
}

#[test]
fn a_calibration_goes_on_after_an_interruption_as_what_it_was() {
    let project = project(NOISE);
    calibrate(&project, &["--launches", "3"]).exits(0);
    let whole = file(&project);
    let journal = project.path().join("tokgate-out/card.calibration/journal.jsonl");
    let events = std::fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = events.lines().collect();
    let kept: String = lines[..lines.len() / 2].iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&journal, &kept).unwrap();
    let dir = "tokgate-out/card.calibration";
    let ran = calibrate(&project, &["--launches", "4", "--resume", dir]).exits(20);
    assert!(ran.stderr.contains("--launches 3"), "{}", ran.stderr);
    let ran = project.tokgate(&["run", "suite.toml", "--seed", "7", "--resume", dir]).exits(20);
    assert!(
        ran.stderr.contains("the run in tokgate-out/card.calibration is another one"),
        "{}",
        ran.stderr
    );
    std::fs::remove_file(project.path().join("noise.jsonl")).unwrap();
    calibrate(&project, &["--launches", "3", "--resume", dir]).exits(0);
    let again = file(&project);
    let values = |text: &str| line(text, &["concurrency=4", "output-throughput"])["values"].clone();
    assert_eq!(values(&again).as_array().unwrap().len(), 3);
    assert_eq!(values(&again)[0], values(&whole)[0], "what was measured is not measured again");
}

#[test]
fn what_a_calibration_could_not_write_is_said_before_it_measures() {
    let project = project(&format!("{NOISE}{FLOOR}"));
    let measured = || project.path().join("tokgate-out").exists();
    let runs = "{\"baseline\":{\"format\":1}}\n";
    project.file("runs.jsonl", runs);
    project.file("notes", "\n# of mine\n");
    std::fs::create_dir(project.path().join("folder")).unwrap();
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    for name in ["suite.toml", "runs.jsonl", "notes", "folder"] {
        let ran = calibrate(&project, &["--launches", "2", "--write", name]).exits(21);
        assert!(!measured(), "{name}");
        if name != "folder" {
            let lost = "help: name another file: what stands there would be lost";
            assert!(ran.stderr.contains(lost), "{}", ran.stderr);
        }
    }
    for (name, text) in [("suite.toml", suite.as_str()), ("runs.jsonl", runs)] {
        assert_eq!(std::fs::read_to_string(project.path().join(name)).unwrap(), text);
    }
    std::os::unix::fs::symlink("nowhere", project.path().join("link")).unwrap();
    let ran = calibrate(&project, &["--launches", "2", "--write", "link/noise.jsonl"]).exits(33);
    assert!(ran.stderr.contains("nothing was measured") && !measured(), "{}", ran.stderr);
    // What is empty or broken begins anew.
    for text in ["", "<<<<<<< HEAD\n", "{\"noise\":{\"format\":9"] {
        project.file("noise.jsonl", text);
        calibrate(&project, &["--launches", "2", "-E", "concurrency=1"]).exits(0);
        assert!(file(&project).starts_with("{\"noise\":{\"format\":1,"));
    }
}
