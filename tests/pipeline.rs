//! `tokgate init --ci`: what is written, and that its scripts make of each exit code what they say.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{Project, shipped};

const GITHUB: &str = ".github/workflows/tokgate.yml";

fn written(service: &str, path: &str) -> (Project, String) {
    let project = Project::new();
    let ran = project.tokgate(&["init", "suites/../gate.toml", "--ci", service]);
    // A folder that is not there is no place for a suite.
    assert_eq!(ran.code, 33, "{}", ran.stderr);
    let ran = project.tokgate(&["init", "gate.toml", "--ci", service]).exits(0);
    assert!(ran.stdout.contains(&format!("{path}: written")), "{}", ran.stdout);
    let text = std::fs::read_to_string(project.path().join(path)).unwrap();
    (project, text)
}

#[test]
fn each_service_gets_its_file() {
    for (service, path) in
        [("github", GITHUB), ("gitlab", ".gitlab-ci.yml"), ("jenkins", "Jenkinsfile")]
    {
        let (project, text) = written(service, path);
        assert!(
            text.contains("tokgate run gate.toml --out tokgate-out/ci --resume auto"),
            "{text}"
        );
        for part in ["junit", "tokgate-out/ci", "baselines"] {
            assert!(text.contains(part), "{service}: {part}");
        }
        for code in [0, 10, 11, 20, 21, 22, 30, 31, 32, 33] {
            assert!(text.contains(&code.to_string()), "{service} says nothing of {code}");
        }
        assert!(!text.contains('\t') && !text.contains("SUITE"), "{text}");
        // The flags are there.
        let flags = project.tokgate(&["run", "--help"]).exits(0).stdout;
        for flag in text.split_whitespace().filter(|word| word.starts_with("--")) {
            let flag = flag.trim_end_matches(['`', '\'', ',']);
            let known = flags.contains(flag) || ["--ci", "--time-limit"].contains(&flag);
            assert!(known, "{service}: {flag}");
        }
        insta::assert_snapshot!(format!("pipeline_{service}"), text);
    }
}

#[test]
fn what_is_there_is_not_replaced() {
    let project = Project::new();
    project.file("gate.toml", "version = 1\n");
    project.file(".gitlab-ci.yml", "mine");
    project.file("Jenkinsfile", "mine");
    project.file(GITHUB, "mine");
    let refused = project.tokgate(&["init", "gate.toml", "--ci", "github", "--force"]).exits(20);
    assert!(refused.stderr.contains("not replaced"), "{}", refused.stderr);
    let ran = project.tokgate(&["init", "gate.toml", "--ci", "gitlab"]).exits(0);
    assert!(ran.stdout.contains("gate.toml: is there already and stays"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("include: [{ local: .gitlab/tokgate.gitlab-ci.yml }]"),
        "{}",
        ran.stdout
    );
    project.tokgate(&["init", "gate.toml", "--ci", "jenkins"]).exits(0);
    let again = project.tokgate(&["init", "gate.toml", "--ci", "jenkins"]).exits(20);
    assert!(again.stderr.contains("Jenkinsfile.tokgate is there already"), "{}", again.stderr);
    for name in [".gitlab-ci.yml", "Jenkinsfile", GITHUB] {
        assert_eq!(std::fs::read_to_string(project.path().join(name)).unwrap(), "mine", "{name}");
    }
    assert_eq!(std::fs::read_to_string(project.path().join("gate.toml")).unwrap(), "version = 1\n");
}

#[test]
fn a_name_that_would_break_a_script_is_refused_before_anything_is_written() {
    let project = Project::new();
    let refused = project.tokgate(&["init", "my gate.toml", "--ci", "github"]).exits(20);
    assert!(refused.stderr.contains("can't stand in a pipeline"), "{}", refused.stderr);
    assert_eq!(std::fs::read_dir(project.path()).unwrap().count(), 0);
}

/// The script of the step that runs the suite, as GitHub's runner writes it to a file.
fn github_script(text: &str) -> String {
    let (_, rest) = text.split_once("        run: |\n").unwrap();
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("          "));
    let lines = lines.map(|line| line.strip_prefix("          ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Runs a script with a `tokgate` that ends with these codes, one after the other. Its exit code, what it printed,
/// how often tokgate ran, and the step's output and summary.
fn played(script: &str, codes: &[i32]) -> (i32, String, usize, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let codes: Vec<String> = codes.iter().map(ToString::to_string).collect();
    std::fs::write(at("codes"), codes.join("\n") + "\n").unwrap();
    let tokgate = "#!/bin/sh\necho \"# summary $(head -n 1 codes)\" >> \"$GITHUB_STEP_SUMMARY\"\n\
                   echo \"$@\" >> calls\ncode=$(head -n 1 codes)\nsed -i 1d codes\nexit \"$code\"\n";
    std::fs::write(at("tokgate"), tokgate).unwrap();
    std::fs::set_permissions(at("tokgate"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(at("script.sh"), script).unwrap();
    for name in ["output", "summary"] {
        std::fs::write(at(name), "").unwrap();
    }
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    // As a step with `shell: bash` is run.
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "script.sh"])
        .current_dir(dir.path())
        .env("PATH", path)
        .env("GITHUB_OUTPUT", at("output"))
        .env("GITHUB_STEP_SUMMARY", at("summary"))
        .output()
        .unwrap();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        read(&at("calls")).lines().count(),
        read(&at("output")),
        read(&at("summary")),
    )
}

#[test]
fn github_makes_of_each_exit_code_what_the_file_says() {
    let script = github_script(&written("github", GITHUB).1);
    let ends = |codes: &[i32]| {
        let (code, said, runs, ..) = played(&script, codes);
        (code, runs, said.contains("::warning"), said.contains("::error"))
    };
    assert_eq!(ends(&[0]), (0, 1, false, false));
    assert_eq!(ends(&[10]), (10, 1, false, false));
    assert_eq!(ends(&[11]), (0, 1, true, false));
    assert_eq!(ends(&[20]), (20, 1, false, false));
    assert_eq!(ends(&[30, 0]), (0, 2, true, false));
    assert_eq!(ends(&[30, 10]), (10, 2, true, false));
    assert_eq!(ends(&[30, 30]), (30, 2, true, false));
    assert_eq!(ends(&[31]), (31, 1, false, false));
    assert_eq!(ends(&[32]), (32, 1, false, true));
    let (.., output, summary) = played(&script, &[32]);
    assert_eq!((output.as_str(), summary.as_str()), ("code=32\n", "# summary 32\n"));
    // An attempt that is repeated leaves nothing in the summary.
    let (.., summary) = played(&script, &[30, 10]);
    assert_eq!(summary, "# summary 10\n");
}

/// YAML as a reader of YAML has it; `None`, said loudly, where there is none.
fn yaml(text: &str) -> Option<serde_json::Value> {
    let reader = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin.read())))";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("in.yml"), text).unwrap();
    let file = std::fs::File::open(dir.path().join("in.yml")).unwrap();
    let output = Command::new("python3").args(["-c", reader]).stdin(file).output();
    match output {
        Ok(output) if output.status.success() => {
            Some(serde_json::from_slice(&output.stdout).unwrap())
        }
        Ok(output)
            if !String::from_utf8_lossy(&output.stderr).contains("No module named 'yaml'") =>
        {
            panic!("no YAML: {}", String::from_utf8_lossy(&output.stderr))
        }
        Ok(_) | Err(_) => {
            eprintln!("SKIPPED the reading of YAML: there is no python3 with PyYAML");
            None
        }
    }
}

#[test]
fn github_reads_a_workflow() {
    let Some(workflow) = yaml(&written("github", GITHUB).1) else { return };
    let keys: Vec<&String> = workflow.as_object().unwrap().keys().collect();
    // `on` is a boolean to YAML 1.1.
    for key in keys {
        let known = ["name", "on", "true", "permissions", "concurrency", "jobs"];
        assert!(known.contains(&key.as_str()), "{key}");
    }
    let job = &workflow["jobs"]["performance"];
    assert!(job["runs-on"].is_array() && job["timeout-minutes"].is_u64());
    let mut ids = Vec::new();
    for step in job["steps"].as_array().unwrap() {
        assert!(step["uses"].is_string() != step["run"].is_string(), "one of both: {step}");
        if let Some(action) = step["uses"].as_str() {
            let (_, version) = action.split_once('@').unwrap();
            assert!(version.starts_with('v'), "{action}");
        }
        ids.extend(step["id"].as_str().map(str::to_owned));
        if let Some(condition) = step["if"].as_str()
            && let Some((_, rest)) = condition.split_once("steps.")
        {
            let named = rest.split('.').next().unwrap();
            assert!(ids.iter().any(|id| id == named), "a step before it has that id: {condition}");
        }
    }
    let uploads = job["steps"].as_array().unwrap().iter().filter(|step| {
        step["uses"].as_str().is_some_and(|it| it.starts_with("actions/upload-artifact"))
    });
    assert!(uploads.clone().all(|step| step["if"] == "always()") && uploads.count() == 1);
}

#[test]
fn gitlab_reads_a_job() {
    let Some(file) = yaml(&written("gitlab", ".gitlab-ci.yml").1) else { return };
    let job = &file["performance"];
    assert_eq!(job["allow_failure"]["exit_codes"], serde_json::json!([11]));
    assert_eq!(job["retry"]["exit_codes"], serde_json::json!([30, 32]));
    // GitLab takes 0, 1 or 2.
    assert!(job["retry"]["max"].as_u64().unwrap() <= 2);
    assert_eq!(job["artifacts"]["when"], "always");
    assert_eq!(job["artifacts"]["reports"]["junit"], "tokgate-out/ci/junit.xml");
    assert_eq!(job["cache"].as_array().unwrap().len(), 2);
    assert!(job["cache"].as_array().unwrap().iter().all(|cache| cache["when"] == "always"));
    let known = [
        "stage",
        "tags",
        "timeout",
        "resource_group",
        "rules",
        "cache",
        "script",
        "allow_failure",
        "retry",
        "artifacts",
    ];
    for key in job.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{key}");
    }
}

#[test]
fn the_jenkinsfile_is_balanced() {
    let text = std::fs::read_to_string(shipped("src/cli/pipeline/Jenkinsfile")).unwrap();
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    for (open, close) in [('{', '}'), ('(', ')'), ('[', ']')] {
        assert_eq!(code.matches(open).count(), code.matches(close).count(), "{open}{close}");
    }
    assert_eq!(code.matches('\'').count() % 2, 0);
}
