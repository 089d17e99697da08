//! What nobody declared as a secret and plainly is one.

use super::nothing_of;
use crate::harness::Project;

const KEY: &str = "sk-literal-0123456789";
const TOKEN: &str = "hf_Abcdefgh01234567";
const PASSWORD: &str = "passw0rd-of-many";

fn suite() -> Project {
    let project = Project::with(&format!(
        r#"version = 1
[suite]
name = "bare"
[vars]
innocent = "{TOKEN}"
[engine]
kind = "vllm"
command = "bash engine.sh {{{{ port }}}} --api-key {KEY} --max-num-batched-tokens 81920000 --tokenizer org/model-70B"
env = {{ MY_SERVICE_TOKEN = "{{{{ vars.innocent }}}}", MAX_TOKENS = "81920000" }}
metrics-url = ["http://user:{PASSWORD}@127.0.0.1:{{{{ port }}}}/metrics"]
[request]
headers = {{ authorization = "Bearer {KEY}" }}
[[test]]
kind = "prefill"
"#
    ));
    project.file(
        "engine.sh",
        &format!(
            "echo \"$@\" $MY_SERVICE_TOKEN {PASSWORD} $HF_TOKEN $SORT_KEY\nexec {} sim --port \"$1\"",
            env!("CARGO_BIN_EXE_tokgate")
        ),
    );
    project
}

#[test]
fn a_literal_key_is_warned_of_and_hidden_all_the_same() {
    let ran = suite().run(&[]).exits(0);
    nothing_of(&[KEY, TOKEN, PASSWORD], &ran);
    let log = ran.read("engine-engine.log");
    assert!(
        log.contains("--api-key [redacted] --max-num-batched-tokens 81920000 --tokenizer org/model-70B [redacted]"),
        "{log}"
    );
    for said in [
        "`--api-key` is given a secret for all to read",
        "`MY_SERVICE_TOKEN` is given a secret for all to read",
        "this url has a password or a key in it",
        "a key stands here for all to read",
        "--api-key [redacted]***********",
        "put it in [secrets], such as `api_key = { env = \"API_KEY\" }`",
    ] {
        assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
    }
    assert!(ran.read("record.json").contains("\"--api-key\""));
}

#[test]
fn check_and_list_show_none() {
    let project = suite();
    let ran = project.tokgate(&["check", "suite.toml"]).exits(0);
    nothing_of(&[KEY, TOKEN, PASSWORD], &ran);
    assert!(ran.stderr.ends_with("warnings\n"), "{}", ran.stderr);
    project.tokgate(&["check", "suite.toml", "--deny-warnings"]).exits(11);
    for arguments in [
        &["list", "suite.toml"][..],
        &["list", "suite.toml", "--format", "json"],
        &["list", "suite.toml", "--explain", "engine.command"],
        &["list", "suite.toml", "--explain", "vars.innocent"],
    ] {
        let ran = project.tokgate(arguments).exits(0);
        nothing_of(&[KEY, TOKEN, PASSWORD], &ran);
        assert!(ran.stdout.contains("[redacted]"), "{arguments:?}: {}", ran.stdout);
    }
    // A suite that can't be read, with the line that is to blame.
    for (right, wrong, word) in [
        ("{{ port }} --api", "{{ prot }} --api", "prot"),
        ("[[test]]", "bearing = \"Bearer sk-literal-0123456789\"\n[[test]]", "bearing"),
        ("kind = \"prefill\"", "kind = ", "kind"),
    ] {
        let project = suite();
        let text = std::fs::read_to_string(project.path().join("suite.toml")).unwrap();
        assert!(text.contains(right));
        project.file("suite.toml", &text.replace(right, wrong));
        let ran = project.tokgate(&["check", "suite.toml"]).exits(20);
        nothing_of(&[KEY, TOKEN, PASSWORD], &ran);
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}

#[test]
fn the_caret_stays_where_it_was() {
    let said = |key: &str| {
        let project = Project::with(&format!(
            "version = 1\n[suite]\nname = \"s\"\n[engine]\nkind = \"vllm\"\n\
             command = \"serve --api-key {key} {{{{ prot }}}}\"\n[[test]]\nkind = \"prefill\"\n"
        ));
        let ran = project.tokgate(&["check", "suite.toml"]).exits(20);
        let (_, part) = ran.stderr.split_once("`prot` is not known").unwrap();
        let lines = part.lines().skip_while(|line| !line.contains("prot }}"));
        lines.take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let (hidden, plain) = (said("sk-literal-012345"), said("{{ port }}-012345"));
    assert!(hidden[0].contains("--api-key [redacted]******* {{ prot }}"), "{hidden:?}");
    assert_eq!(hidden[1], plain[1]);
}

#[test]
fn flags_with_a_secret_in_them_are_not_repeated() {
    let project = suite();
    let with = |arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.env("MY_API_KEY", KEY);
        let ran = project.ran(command.output().unwrap());
        assert!(ran.code > 0);
        nothing_of(&[KEY], &ran);
        assert!(ran.stderr.contains("[redacted]"), "{}", ran.stderr);
    };
    let run = ["run", "suite.toml", "--out", "out"];
    for flags in [
        &["-E", &format!("key={KEY}")][..],
        &["--skip", &format!("!!{KEY}")],
        &["--set", &format!("engine.{KEY}=1")],
        &["--url", &format!("gopher://{KEY}@host")],
        &["--seed", KEY],
        &[&format!("--{KEY}")],
        &["--resume", KEY],
    ] {
        with(&[&run[..], flags].concat());
    }
    with(&["check", &format!("{KEY}.toml")]);
}

#[test]
fn a_token_of_the_environment_is_hidden_and_a_setting_is_not() {
    let project = suite();
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
    command.env("HF_TOKEN", "hf_inheritedABC123").env("SORT_KEY", "disabled");
    let ran = project.ran(command.output().unwrap()).exits(0);
    nothing_of(&["hf_inheritedABC123"], &ran);
    assert!(ran.read("engine-engine.log").contains("[redacted] disabled"));
}
