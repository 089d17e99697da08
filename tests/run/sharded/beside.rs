//! What merging meets: runs that go on, what it wrote before, secrets, a page, annotations.

use std::process::Stdio;

use super::{FOUR, SUITE, at, four, kill, merge, project, shard};
use crate::harness::{Project, eventually};

#[test]
fn a_shard_that_has_not_ended_is_not_merged() {
    let project = project();
    four(&project);
    let slow = SUITE.replace("\"virtual\"", "\"real\"").replace("400ms", "5m");
    project.file("suite.toml", &slow);
    let arguments = ["run", "suite.toml", "--shard", "2/4", "--out", "2-of-4", "--no-progress"];
    let mut command = project.command(&arguments);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let journal = project.path().join("2-of-4/journal.jsonl");
    eventually("its engine is started", || {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        // The one before has ended.
        text.contains("cell-started") && !text.contains("run-finished")
    });
    let refused = merge(&project, &FOUR, &[]).exits(33);
    let who =
        format!("the shard in 2-of-4 has not ended (lock held by process {} since 20", run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(refused.stderr.contains(&who), "{}", refused.stderr);
    assert!(refused.stderr.contains("wait for it; or leave it out, with --allow-missing"));
    assert!(refused.stdout.is_empty() && !refused.out.exists());
    // One that was killed has no lock, and is no shard of the suite as it was.
    let foreign = merge(&project, &FOUR, &[]).exits(20);
    assert!(foreign.stderr.contains("is no shard of the same run"), "{}", foreign.stderr);
}

#[test]
fn what_was_merged_before_moves_aside_and_shards_never_do() {
    let project = Project::with(&SUITE.replace("\"virtual\"", "\"real\""));
    project.file("engine.toml", super::ENGINE);
    let run = |of: u32| {
        for m in 1..=of {
            let (shard, out) = (format!("{m}/{of}"), format!("shard-{m}-of-{of}"));
            let run = ["run", "suite.toml", "-E", "test=startup layout=a,b", "--shard", &shard];
            project.tokgate(&[&run[..], &["--out", &out]].concat()).exits(10);
        }
    };
    run(1);
    run(2);
    let (one, two) = (["shard-1-of-1"], ["shard-1-of-2", "shard-2-of-2"]);
    merge(&project, &one, &[]).exits(10);
    let ran = merge(&project, &two, &[]).exits(10);
    assert!(ran.stderr.contains("the earlier run went to out.previous"), "{}", ran.stderr);
    assert!(!ran.out.join("shard-1-of-1").exists() && ran.out.join("shard-2-of-2").exists());
    let previous = project.path().join("out.previous");
    assert!(previous.join("shard-1-of-1").exists() && previous.join("report.html").exists());
    // And again: of two that were merged the older one gives way.
    for _ in 0..2 {
        merge(&project, &two, &[]).exits(10);
        assert!(!previous.join("shard-1-of-1").exists() && previous.join("shard-2-of-2").exists());
    }
    let refused = |dirs: &[&str], out: &str| {
        let all = [&["merge"][..], dirs, &["--out", out]].concat();
        let ran = project.tokgate(&all).exits(20);
        assert!(ran.stderr.contains("is a shard, and what is merged would be"), "{}", ran.stderr);
    };
    // Where logs go to stand the shards themselves.
    refused(&two, ".");
    refused(&two, "shard-2-of-2");
    std::fs::rename(project.path().join(two[0]), project.path().join("all.previous")).unwrap();
    std::fs::create_dir(project.path().join("all")).unwrap();
    refused(&["all.previous", two[1]], "all");
    for dir in ["all.previous", two[1]] {
        assert!(project.path().join(dir).join("journal.jsonl").exists(), "{dir}");
    }
}

#[test]
fn the_page_and_the_annotations_tell_of_shards() {
    let project = project();
    four(&project);
    let shard = std::fs::read_to_string(project.path().join("3-of-4/report.html")).unwrap();
    assert!(shard.contains("shard 3 of 4: 5 of 21 cells in 1 of 4 launches"));
    let merged = merge(&project, &FOUR, &["--annotations", "github"]).exits(10);
    let page = merged.read("report.html");
    for told in ["4 shards merged", "<h3>Shards</h3>", "<dt>shard 3</dt><dd>5 cells, run "] {
        assert!(page.contains(told), "{told}");
    }
    assert!(merged.stdout.contains("\n::error file=suite.toml,line="), "{}", merged.stdout);
    // What a record says is text to the page.
    let path = project.path().join("2-of-4/record.json");
    let record = std::fs::read_to_string(&path).unwrap();
    let mut record: serde_json::Value = serde_json::from_str(&record).unwrap();
    record["header"]["machine"]["hostname"] = "<script>alert(1)</script>".into();
    std::fs::write(&path, record.to_string()).unwrap();
    std::fs::remove_file(path.with_file_name("journal.jsonl")).unwrap();
    let page = merge(&project, &FOUR, &[]).exits(10).read("report.html");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains("<script>alert"));
}

#[test]
fn secrets_are_hidden_in_what_other_shards_run_too() {
    let secret = "tok-5f0e9d8c7b6a";
    let head = SUITE.replace("[engine]", "[secrets]\nkey = { env = \"TG_KEY\" }\n[engine]");
    let quarantine = |layout: &str| {
        format!(
            "[[quarantine]]\nwhere = {{ test = \"startup\", layout = \"{layout}\" }}\nreason = \"{secret} is wrong\"\nexpires = 2999-01-01\n"
        )
    };
    let project = Project::with(&(head + &quarantine("a") + &quarantine("d")));
    project.file("engine.toml", super::ENGINE);
    let run = |more: &[&str], out: &str| {
        let all = [&["run", "suite.toml", "--out", out][..], more].concat();
        let ran = project.ran(project.command(&all).env("TG_KEY", secret).output().unwrap());
        at(&project, ran, out)
    };
    run(&[], "first").exits(10);
    let times = format!("{secret}.json");
    std::fs::copy(project.path().join("first/record.json"), project.path().join(&times)).unwrap();
    for m in 1..=2 {
        let shard = format!("{m}/2");
        let ran = run(&["--shard", &shard, "--timings", &times], &format!("{m}-of-2")).exits(10);
        for name in ["record.json", "journal.jsonl", "junit.xml", "summary.md", "report.html"] {
            assert!(!ran.read(name).contains(secret), "{name} of shard {m}");
        }
        assert!(ran.read("record.json").matches("[redacted]").count() >= 3);
        assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret));
    }
    let merged = merge(&project, &["1-of-2", "2-of-2"], &[]).exits(10);
    for name in ["record.json", "junit.xml", "summary.md", "report.html"] {
        assert!(!merged.read(name).contains(secret), "{name}");
    }
}

#[test]
fn what_was_resumed_twice_and_merged_reads_as_one_run_in_every_report() {
    let project = project();
    (1..=2).for_each(|m| drop(shard(&project, m, 2, &[]).exits(10)));
    for _ in 0..2 {
        kill(&project, "2-of-2");
        let resume = ["run", "suite.toml", "--shard", "2/2", "--resume", "2-of-2"];
        let ran = project.tokgate(&resume).exits(10);
        assert!(ran.stderr.contains("resumes the run in 2-of-2: 1 of "), "{}", ran.stderr);
    }
    let resumed = std::fs::read_to_string(project.path().join("2-of-2/junit.xml")).unwrap();
    assert!(resumed.contains("name=\"run.resumed\" value=\"2\""), "{resumed}");
    assert!(!resumed.contains("run.shards"));
    // Of another machine than the first.
    let path = project.path().join("1-of-2/record.json");
    let mut record: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    record["header"]["machine"]["hostname"] = "elsewhere".into();
    std::fs::write(&path, record.to_string()).unwrap();
    std::fs::remove_file(path.with_file_name("journal.jsonl")).unwrap();

    let merged = merge(&project, &["1-of-2", "2-of-2"], &[]).exits(10);
    let words = "2 shards merged; resumed 2 times";
    assert!(merged.stdout.contains(&format!("\n{words}")), "{}", merged.stdout);
    assert!(merged.read("summary.md").contains(&format!("\n{words}")));
    assert!(merged.read("report.html").contains(words));
    for report in ["summary.md", "report.html"] {
        let text = merged.read(report);
        assert!(text.contains("on elsewhere, ") && text.contains("resumed 2 times"), "{report}");
    }
    let junit = merged.read("junit.xml");
    for property in ["name=\"run.shards\" value=\"2\"", "name=\"run.resumed\" value=\"2\""] {
        assert!(junit.contains(property), "{property} in {junit}");
    }
    let record = merged.record();
    assert_eq!(record["resumptions"].as_array().unwrap().len(), 2);
    // Each planned cell once, whoever measured it and how often.
    let cells = merged.read("report.html").matches("<article class=\"cell ").count();
    assert_eq!(cells, record["header"]["cells"].as_array().unwrap().len());
}
