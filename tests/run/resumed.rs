//! Runs that go on after an interruption.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::junit::{Counts, read_by_all};
use super::written::facts_agree;
use crate::harness::{Project, Ran, eventually};

/// Two launches with four cells each, of which the first fails.
const SUITE: &str = r#"version = 1
[suite]
name = "cut"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
profile = "engine.toml"
clock = "CLOCK"
setup = ["sh -c 'echo ready >> setups'"]
env.LAYOUT = "{{ axis.layout }}"
[[test]]
kind = "startup"
matrix.layout = ["a", "b"]
[[test]]
kind = "prefill"
samples = 2
matrix.layout = ["a", "b"]
[[test]]
kind = "decode"
duration = "400ms"
min-tokens = 10
matrix.layout = ["a", "b"]
matrix.concurrency = [1, 2]
[[expect]]
test = "decode"
metric = "output-throughput"
min = 10
[[expect]]
test = "startup"
metric = "kv-capacity"
min = "1M"
"#;

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
"#;

/// The whole run has a launch case and four cells twice; the capacity fails in each launch.
const WHOLE: Counts = Counts { cases: 10, failures: 2, errors: 0, skipped: 0 };

/// In real time, with engines that are processes.
pub fn real() -> Project {
    let project = Project::with(&SUITE.replace("CLOCK", "real"));
    project.file("engine.toml", ENGINE);
    project
}

/// In virtual time, where a run takes no time and is cut by cutting its journal.
fn virtually() -> Project {
    let project = Project::with(&SUITE.replace("CLOCK", "virtual"));
    project.file("engine.toml", ENGINE);
    project
}

pub fn start(project: &Project, arguments: &[&str]) -> Child {
    let mut command = project.command(&["run", "suite.toml", "--no-progress"]);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn resume(project: &Project, arguments: &[&str]) -> Ran {
    let mut all = vec!["run", "suite.toml", "--no-progress"];
    all.extend(arguments);
    project.tokgate(&all)
}

pub fn journal(project: &Project) -> PathBuf {
    project.path().join("out/journal.jsonl")
}

pub fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// The whole lines of a journal.
pub fn whole(journal: &[u8]) -> &[u8] {
    let end = journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &journal[..end]
}

/// How often each cell was finished.
pub fn finished(journal: &[u8]) -> Vec<usize> {
    let lines = std::str::from_utf8(whole(journal)).unwrap().lines();
    let mut counts = Vec::new();
    for line in lines {
        let event: Value = serde_json::from_str(line).unwrap();
        if let Some(cell) = event["cell-finished"]["cell"].as_u64() {
            let cell = usize::try_from(cell).unwrap();
            counts.resize(counts.len().max(cell + 1), 0);
            counts[cell] += 1;
        }
    }
    counts
}

/// Cuts the journal before the line that would have finished another cell than the first `n`, as a kill
/// would have.
fn cut_after(project: &Project, n: usize) -> Vec<u8> {
    let path = journal(project);
    let text = String::from_utf8(bytes(&path)).unwrap();
    let mut seen = 0;
    let kept: String = text
        .split_inclusive('\n')
        .take_while(|line| {
            seen += usize::from(line.contains("\"cell-finished\""));
            seen <= n
        })
        .collect();
    std::fs::write(&path, &kept).unwrap();
    kept.into_bytes()
}

/// Changes the header of the journal.
fn rewrite(project: &Project, change: impl Fn(&mut Value)) {
    let path = journal(project);
    let text = String::from_utf8(bytes(&path)).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(first).unwrap();
    change(&mut header["run-started"]);
    std::fs::write(&path, format!("{header}\n{rest}")).unwrap();
}

/// What two runs of one plan have in common, whatever their figures.
pub fn structure(ran: &Ran) -> Vec<String> {
    let record = ran.record();
    let planned = record["header"]["cells"].as_array().unwrap();
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().map(|it| it.keys().cloned().collect()).unwrap_or_default()
    };
    let words = |list: &Value, key: &str| -> Vec<String> {
        list.as_array().into_iter().flatten().map(|it| it[key].to_string()).collect()
    };
    let cells = planned.iter().zip(record["cells"].as_array().unwrap()).map(|(planned, cell)| {
        let measured = &cell["state"]["measured"];
        format!(
            "{} {} {:?} {:?} {:?} {} {} {:?}",
            planned["classname"],
            planned["id"],
            keys(&cell["state"]),
            keys(&measured["observations"]),
            words(&measured["checks"], "kind"),
            cell["judgement"]["verdict"],
            cell["judgement"]["class"],
            words(&cell["judgement"]["bounds"], "verdict"),
        )
    });
    let launches =
        record["launches"].as_array().unwrap().iter().map(|it| format!("{:?}", keys(it)));
    let junit = ran.read("junit.xml");
    let cases = junit.split("<testcase ").skip(1).map(|case| {
        let name = |key: &str| case.split(&format!("{key}=\"")).nth(1).unwrap().split('"').next();
        format!("{:?} {:?}", name("classname"), name("name"))
    });
    cells.chain(launches).chain(cases).collect()
}

/// The command that a run says to go on with, run in its project.
fn as_told(project: &Project, ran: &Ran) -> Ran {
    let told = ran.stderr.lines().find_map(|line| line.split_once("to go on")).map(|(_, it)| it);
    let (_, command) =
        told.and_then(|it| it.split_once(": ")).unwrap_or_else(|| panic!("{}", ran.stderr));
    let words = shell_words::split(command).unwrap();
    assert_eq!(words[0], "tokgate");
    project.tokgate(&words[1..].iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn an_interrupted_run_says_how_it_goes_on_and_does() {
    let project = real();
    let child =
        start(&project, &["--out", "out", "-E", "test=decode", "--skip", "layout=b concurrency=2"]);
    eventually("a cell is finished", || {
        String::from_utf8_lossy(&bytes(&journal(&project))).contains("cell-finished")
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let cut = project.ran(child.wait_with_output().unwrap()).exits(130);
    assert!(!cut.having("error").is_empty());
    let (first, before) = (bytes(&journal(&project)), cut.record());
    let ran = as_told(&project, &cut).exits(0);
    assert_eq!(ran.having("pass").len(), 3, "{:?}", ran.verdicts());
    assert!(bytes(&journal(&project)).starts_with(&first));
    let after = ran.record();
    assert_eq!(after["cells"][0], before["cells"][0], "a finished cell stays as it is");
    assert_eq!((&after["signal"], &after["stopped"]), (&Value::Null, &Value::Null));
    assert_eq!(after["resumptions"].as_array().unwrap().len(), 1);
    assert!(after["seconds"].as_f64() > before["seconds"].as_f64());
    assert_eq!(after["header"]["run-id"], before["header"]["run-id"]);
    assert_eq!(after["header"]["seed"], before["header"]["seed"]);
    // The log of a killed engine stays beside that of the one that came after it.
    let logs = |name: &str| ran.out.join(name).exists();
    assert!(logs("engine-layout=a.log"));
    for launch in after["launches"].as_array().unwrap() {
        assert!(logs(launch["log"].as_str().unwrap()), "{launch}");
    }
    let setups = std::fs::read_to_string(project.path().join("setups"));
    assert_eq!(setups.unwrap_or_default().lines().count(), 2, "once in each session");
}

#[test]
fn a_time_limit_is_that_of_one_session() {
    let project = real();
    let first = project.run(&["-E", "test=decode", "--time-limit", "900ms"]).exits(32);
    let second = as_told(&project, &first).exits(0);
    assert_eq!(second.having("pass").len(), 4, "{:?}", second.verdicts());
    assert_eq!(finished(&bytes(&journal(&project))), [1; 4]);
}

#[test]
fn a_journal_torn_at_any_byte_is_cut_and_goes_on() {
    let project = virtually();
    let once = structure(&project.run(&[]).exits(10));
    let path = journal(&project);
    let all = bytes(&path);
    let lines: Vec<usize> = (0..all.len()).filter(|at| all[*at] == b'\n').collect();
    // All bytes of the last two lines; of those of the last finished cell some.
    let last = lines[lines.len() - 3] + 1;
    let cell = lines[lines.len() - 4] + 1;
    let cuts = (cell..last).step_by(211).chain(last - 2..all.len());
    for at in cuts {
        std::fs::write(&path, &all[..at]).unwrap();
        let kept = whole(&all[..at]);
        let ran = resume(&project, &["--resume", "out"]).exits(10);
        let torn = at - kept.len();
        assert_eq!(ran.stderr.contains("was cut short"), torn > 0, "{}", ran.stderr);
        assert!(bytes(&path).starts_with(kept));
        assert_eq!(finished(&bytes(&path)), [1; 8], "cut at {at}");
        assert_eq!(structure(&ran), once);
        facts_agree(&ran);
    }
}

#[test]
fn after_any_finished_cell_a_run_ends_as_if_it_had_not_been_cut() {
    let project = virtually();
    let once = structure(&project.run(&[]).exits(10));
    for n in 0..8 {
        let kept = cut_after(&project, n);
        let ran = resume(&project, &["--resume", "out"]).exits(10);
        assert!(ran.stderr.contains(&format!("{n} of 8 cells finished")), "{}", ran.stderr);
        assert!(bytes(&journal(&project)).starts_with(&kept));
        assert_eq!(finished(&bytes(&journal(&project))), [1; 8]);
        assert_eq!(structure(&ran), once);
    }
    let ran = resume(&project, &["--resume", "out"]).exits(10);
    read_by_all(&project, &ran, WHOLE);
}

#[test]
fn a_run_goes_on_from_its_journal_alone() {
    let project = virtually();
    let once = structure(&project.run(&[]).exits(10));
    let kept = cut_after(&project, 3);
    for entry in std::fs::read_dir(project.path().join("out")).unwrap().flatten() {
        if entry.file_name() != "journal.jsonl" {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let ran = resume(&project, &["--resume", "out"]).exits(10);
    assert!(bytes(&journal(&project)).starts_with(&kept));
    assert_eq!(structure(&ran), once);
    facts_agree(&ran);
}

#[test]
fn a_run_goes_on_as_often_as_it_is_cut() {
    let project = virtually();
    project.run(&[]).exits(10);
    for n in [1, 3, 6] {
        let kept = cut_after(&project, n);
        // Cut again before it got anywhere.
        resume(&project, &["--resume", "out", "--time-limit", "1ms"]);
        assert!(bytes(&journal(&project)).starts_with(&kept));
        resume(&project, &["--resume", "out"]).exits(10);
    }
    let ran = resume(&project, &["--resume", "out"]).exits(10);
    assert_eq!(finished(&bytes(&journal(&project))), [1; 8]);
    facts_agree(&ran);
}

#[test]
fn a_finished_run_has_nothing_to_resume_and_renders_its_reports() {
    let project = virtually();
    let first = project.run(&[]).exits(10);
    let (record, told) = (first.read("record.json"), bytes(&journal(&project)));
    std::fs::remove_file(first.out.join("junit.xml")).unwrap();
    std::fs::write(first.out.join("summary.md"), "stale").unwrap();
    let ran = resume(&project, &["--resume", "out", "--junit-dialect", "strict"]).exits(10);
    assert!(ran.stderr.contains("nothing to resume: the run in out is finished"), "{}", ran.stderr);
    assert!(ran.stdout.contains("FAILED: cut"), "{}", ran.stdout);
    assert!(ran.read("junit.xml").contains("<testcase ") && ran.read("summary.md").len() > 9);
    assert_eq!((ran.read("record.json"), bytes(&journal(&project))), (record, told));
}

#[test]
fn another_suite_is_refused_with_what_differs() {
    let project = virtually();
    project.run(&[]).exits(10);
    let kept = cut_after(&project, 3);
    let suite = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
    for (from, to, told) in [
        ("min = 10", "min = 20", "4 cells with other limits: decode concurrency=1 layout=a, "),
        ("400ms", "500ms", "something in the suite differs that neither cells, limits"),
        ("samples = 2", "samples = 3", "something in the suite differs"),
        ("concurrency = [1, 2]", "concurrency = [1, 2, 4]", "2 cells more: decode concurrency=4"),
        ("concurrency = [1, 2]", "concurrency = [1]", "2 cells less: decode concurrency=2"),
        ("[policy]", "[policy]\nrestarts = 2", "the policy differs"),
        ("name = \"cut\"", "name = \"sliced\"", "the suite was `cut`, is `sliced`"),
    ] {
        assert!(suite.contains(from));
        project.file("suite.toml", &suite.replacen(from, to, 1));
        let ran = resume(&project, &["--resume", "out"]).exits(20);
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
    }
    project.file("engine.toml", &ENGINE.replace("[[\"1K\", 10]]", "[[\"1K\", 11]]"));
    project.file("suite.toml", &suite);
    let ran = resume(&project, &["--resume", "out"]).exits(20);
    assert!(ran.stderr.contains("the profile of a simulated engine"), "{}", ran.stderr);
    project.file("engine.toml", ENGINE);
    for (flags, told) in [
        (&["-E", "test=decode"][..], "the selection was none, is `-E 'test=decode'`"),
        (
            &["--set", "test.decode.duration=1s"],
            "flags was none, is `--set 'test.decode.duration=1s'`",
        ),
        (&["--seed", "1"], "--seed was "),
    ] {
        let ran = resume(&project, &[flags, &["--resume", "out"]].concat()).exits(20);
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
    }
    assert_eq!(bytes(&journal(&project)), kept, "a refusal changes nothing");
    project.file("suite.toml", &format!("# A comment is no change.\n{suite}"));
    resume(&project, &["--resume", "out"]).exits(10);
}

#[test]
fn another_machine_is_refused_and_another_version_too() {
    let project = virtually();
    project.run(&[]).exits(10);
    cut_after(&project, 3);
    let began = bytes(&journal(&project));
    rewrite(&project, |header| header["machine"]["cpu"] = "Z80".into());
    let kept = bytes(&journal(&project));
    let ran = resume(&project, &["--resume", "out"]).exits(22);
    assert!(ran.stderr.contains("the CPU was Z80, is "), "{}", ran.stderr);
    assert_eq!(bytes(&journal(&project)), kept);
    let ran = resume(&project, &["--resume", "auto", "--out", "out"]).exits(10);
    assert!(ran.stderr.contains("a new run begins"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the CPU was Z80"), "{}", ran.stderr);
    std::fs::write(journal(&project), &began).unwrap();
    rewrite(&project, |header| {
        header["machine"]["hostname"] = "elsewhere".into();
        header["machine"]["boot"] = "another".into();
    });
    let ran = resume(&project, &["--resume", "out"]).exits(22);
    assert!(ran.stderr.contains("the host was elsewhere, is "), "{}", ran.stderr);
    rewrite(&project, |header| header["tokgate"] = "0.0.1".into());
    let ran = resume(&project, &["--resume", "out"]).exits(20);
    assert!(ran.stderr.contains("it began with tokgate 0.0.1, this is "), "{}", ran.stderr);
}

#[test]
fn auto_goes_on_where_it_can_and_says_which() {
    let project = virtually();
    let auto = ["--out", "out", "--resume", "auto"];
    let says =
        |ran: Ran, words: &str| assert!(ran.stderr.contains(words), "{words}: {}", ran.stderr);
    says(resume(&project, &auto).exits(10), "a new run begins: there is none in out");
    says(resume(&project, &auto).exits(10), "a new run begins: the one in out is finished");
    cut_after(&project, 5);
    says(resume(&project, &auto).exits(10), "resumes the run in out: 5 of 8 cells finished");
    cut_after(&project, 5);
    let other = [&auto[..], &["-E", "test=decode"]].concat();
    says(resume(&project, &other).exits(0), "a new run begins: the run in out is another one");
    // A line that is whole and no event is no torn one.
    let damaged = [&bytes(&journal(&project))[..], b"{}\n"].concat();
    std::fs::write(journal(&project), damaged).unwrap();
    says(resume(&project, &["--resume", "out"]).exits(20), "is damaged in line ");
    says(resume(&project, &auto).exits(10), "is damaged in line ");
    // Nothing had begun before the first line was whole; the run before that is not given up for it.
    let before = bytes(&project.path().join("out.previous/journal.jsonl"));
    std::fs::write(journal(&project), "{\"run-sta").unwrap();
    says(resume(&project, &["--resume", "out"]).exits(10), "was interrupted before it began");
    assert_eq!(bytes(&project.path().join("out.previous/journal.jsonl")), before);
}

#[test]
fn a_plain_run_says_how_the_unfinished_one_goes_on() {
    let project = virtually();
    project.run(&["-E", "test=decode"]).exits(0);
    cut_after(&project, 2);
    let ran = project.run(&[]).exits(10);
    assert!(ran.stderr.contains("it is unfinished (2 of 4 cells finished)"), "{}", ran.stderr);
    let mut other = as_told(&project, &ran).exits(0);
    other.out = project.path().join("out.previous");
    assert_eq!(other.having("pass").len(), 4);
    let again = project.run(&[]).exits(10);
    assert!(!again.stderr.contains("unfinished"), "{}", again.stderr);
}

#[test]
fn a_directory_without_a_run_is_refused_and_stays_as_it_is() {
    let project = virtually();
    let ran = resume(&project, &["--resume", "nowhere"]).exits(20);
    assert!(ran.stderr.contains("nowhere is no directory"), "{}", ran.stderr);
    project.file("out/notes.txt", "mine");
    let ran = resume(&project, &["--resume", "out"]).exits(20);
    assert!(ran.stderr.contains("out has no journal.jsonl"), "{}", ran.stderr);
    assert!(!project.path().join("nowhere").exists());
    let names = |dir: &str| std::fs::read_dir(project.path().join(dir)).unwrap().count();
    assert_eq!(names("out"), 1);
    // Beside a run, other people's files are nobody's business.
    project.run(&[]).exits(10);
    cut_after(&project, 2);
    resume(&project, &["--resume", "out"]).exits(10);
    assert_eq!(std::fs::read_to_string(project.path().join("out/notes.txt")).unwrap(), "mine");
    assert!(!project.path().join("out.previous").exists());
    let ran = resume(&project, &["--resume", "out", "--out", "other"]).exits(20);
    assert!(ran.stderr.contains("--resume and --out name two directories"), "{}", ran.stderr);
}

#[test]
fn a_run_that_is_going_on_is_not_resumed_beside() {
    let project = real();
    let mut child = start(&project, &["--out", "out"]);
    eventually("the run begins", || !whole(&bytes(&journal(&project))).is_empty());
    for asked in [&["--resume", "out"][..], &["--resume", "auto", "--out", "out"]] {
        let ran = resume(&project, asked).exits(33);
        assert!(ran.stderr.contains("another tokgate run writes to"), "{}", ran.stderr);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    resume(&project, &["--resume", "out"]).exits(10);
}

#[test]
fn what_an_earlier_run_has_left_alive_is_waited_for() {
    let project = virtually();
    project.run(&[]).exits(10);
    cut_after(&project, 3);
    let log = std::fs::File::create(project.path().join("out/engine-a.log")).unwrap();
    let mut engine = std::process::Command::new("sleep").arg("1").stderr(log).spawn().unwrap();
    let reaper = std::thread::spawn(move || engine.wait().unwrap());
    resume(&project, &["--resume", "out"]).exits(10);
    assert!(reaper.is_finished(), "it was alive while the run went on");
}

#[test]
fn failures_before_the_interruption_count() {
    let project = virtually();
    let first = project.run(&["--max-fail", "1"]).exits(10);
    assert_eq!(first.having("fail").len(), 1);
    let kept = bytes(&journal(&project));
    let same = resume(&project, &["--resume", "out", "--max-fail", "1"]).exits(10);
    assert_eq!(same.having("fail").len(), 1, "nothing more is measured");
    assert!(bytes(&journal(&project)).starts_with(&kept));
    let ran = as_told(&project, &same).exits(10);
    assert_eq!(ran.having("fail").len(), 2);
    read_by_all(&project, &ran, WHOLE);
}

#[test]
fn a_dead_engine_is_a_verdict_that_stands_and_its_restarts_count() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "mortal"
[policy]
max-client-lag = "10s"
[engine]
kind = "sim"
profile = "crash.toml"
[[test]]
kind = "decode"
duration = "300ms"
min-tokens = 10
matrix.concurrency = [1, 2, 3, 4]
"#,
    );
    let crash = "[[fault]]\nkind = \"crash\"\nat-token = 20\n";
    project.file("crash.toml", &format!("{ENGINE}\n{crash}"));
    // Each engine dies in its first cell; one restart gives a second one. The rest is not run.
    let first = project.run(&[]).exits(30);
    let died =
        |ran: &Ran| ran.stdout.matches("the engine died").count() + ran.having("error").len();
    assert_eq!(first.having("error").len(), 4);
    let deaths = died(&first);
    assert_eq!(finished(&bytes(&journal(&project))), [1, 1]);
    // Cut behind the first death, the restart that followed it is known.
    let text = String::from_utf8(bytes(&journal(&project))).unwrap();
    let second = text.match_indices("{\"launch-started\"").nth(1).unwrap().0;
    let end = second + text[second..].find('\n').unwrap() + 1;
    std::fs::write(journal(&project), &text[..end]).unwrap();
    let ran = resume(&project, &["--resume", "out"]).exits(30);
    assert_eq!(finished(&bytes(&journal(&project))), [1, 1], "no restart is left: {}", ran.stderr);
    assert_eq!(died(&ran), deaths);
    assert!(bytes(&journal(&project)).starts_with(&text.as_bytes()[..end]));
}

#[test]
fn prompts_are_not_those_that_a_running_engine_remembers() {
    let project = Project::with(
        r#"version = 1
[suite]
name = "remote"
[policy]
max-client-lag = "10s"
[engine]
kind = "vllm"
url = "http://127.0.0.1:1"
[[test]]
kind = "prefill"
samples = 6
matrix.context = ["1K"]
"#,
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut engine = crate::harness::tokgate()
        .args(["sim", "--port", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let first = project.run(&["--url", &url]).exits(0).verdicts();
    // As if it had been killed just before its only cell was written down.
    cut_after(&project, 0);
    let ran = resume(&project, &["--url", &url, "--resume", "out"]);
    engine.kill().unwrap();
    engine.wait().unwrap();
    assert_eq!(ran.exits(0).verdicts(), first, "a cached prompt is an error");
}
