//! Secrets: given by every route, echoed by everybody who gets them, and found in no file and on no stream.

mod bare;
mod gossip;
mod left;
mod log;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::harness::{Project, Ran, eventually};

/// With everything in it that one kind of text or another writes differently.
const KEY: &str = r#"sk-p+q/r==s&t"u\v'w%x"#;
const WORDS: &str = "schlüssel für <alles>";
const PEM: &str = "-----BEGIN KEY-----\nMIIBVgIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n";

/// What gives a secret away, written down here once more, without the program's own code.
fn spellings(secret: &str) -> Vec<String> {
    let json = serde_json::to_string(secret).unwrap();
    let percent = |format: fn(u8) -> String| {
        let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let letter = |byte| if kept(byte) { char::from(byte).to_string() } else { format(byte) };
        secret.bytes().map(letter).collect::<String>()
    };
    let mut all = vec![
        secret.to_owned(),
        json.trim_matches('"').to_owned(),
        percent(|byte| format!("%{byte:02X}")),
        percent(|byte| format!("%{byte:02x}")),
        secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"),
    ];
    for before in ["", "x", "xx"] {
        let bytes = [before, secret, "x"].concat();
        for text in [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)] {
            // Without the characters at the edges that others may have written otherwise.
            all.push(text[4..text.len() - 6].to_owned());
        }
    }
    all
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.push(path);
    }
    found
}

/// Asserts that no spelling of these secrets stands in what a run has left, said and printed.
#[track_caller]
fn nothing_of(secrets: &[&str], ran: &Ran) {
    let mut texts =
        vec![("stdout".to_owned(), ran.stdout.clone()), ("stderr".to_owned(), ran.stderr.clone())];
    for path in files(&ran.out) {
        texts.push(("a name".to_owned(), path.to_string_lossy().into_owned()));
        let bytes = std::fs::read(&path).unwrap_or_default();
        texts.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    for spelling in secrets.iter().flat_map(|secret| spellings(secret)) {
        for (place, text) in &texts {
            if let Some(at) = text.find(&spelling) {
                let around = String::from_utf8_lossy(
                    &text.as_bytes()[at.saturating_sub(80)..(at + 120).min(text.len())],
                )
                .into_owned();
                panic!("{spelling} in {place}: …{around}…");
            }
        }
    }
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Command lines of the tokgate processes in a folder, supervisors among them.
fn command_lines(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| {
        let dir = entry.path();
        let here = std::fs::read_link(dir.join("cwd")).ok()? == folder.canonicalize().ok()?;
        let exe = std::fs::read_link(dir.join("exe")).ok()?;
        let line = std::fs::read(dir.join("cmdline")).ok()?;
        (here && exe.file_name()?.to_str()?.starts_with("tokgate"))
            .then(|| String::from_utf8_lossy(&line).replace('\0', " "))
    });
    // The simulated engine was given the key as an argument, by the suite's wish.
    lines.filter(|line| line.contains(" run ") || line.contains("__supervise")).collect()
}

/// Prints what it was given, in every way that it can think of.
const ECHO: &str = r#"
printf '%s\n' "arguments: $*"
env
printf '%s\n' "$KEY" "$WORDS" "$PEM" "also: $KEY, $WORDS; on stderr" >&2
for text in "$KEY" "$WORDS" "$GENERATED"; do
    for before in '' x xx; do
        printf '%s%sx' "$before" "$text" | base64 -w0; echo
        printf '%s%sx' "$before" "$text" | base64 -w0 | tr '+/' '-_'; echo
    done
    for form in %02X %02x; do
        printf %s "$text" | od -An -v -tx1 -w1 | while read -r hex; do
            byte=$(printf "\\x$hex")
            case "$byte" in [a-zA-Z0-9._~-]) printf %s "$byte" ;; *) printf "%%$form" "0x$hex" ;; esac
        done; echo
    done
    printf '{"key": "%s"}\n' "$(printf %s "$text" | sed 's/[\\"]/\\&/g')"
    # In three writes, so far apart that they are read one by one.
    printf 'in pieces: %s' "${text:0:3}"; sleep 0.05
    printf %s "${text:3:4}"; sleep 0.05
    printf '%s\n' "${text:7}"
done
"#;

/// A suite that gives three secrets by every route to who echoes them.
fn every_route() -> Project {
    let project = Project::with(
        r##"version = 1
[suite]
name = "routes"
[secrets]
key = { env = "TG_KEY" }
words = { env = "TG_WORDS" }
pem = { env = "TG_PEM" }
generated = { generate = true }
[vars]
note = "none"
[engine]
kind = "vllm"
command = ["bash", "engine.sh", "{{ host }}", "{{ port }}", "{{ launch.dir }}", "--api-key", "{{ secret.key }}",
  "--other={{ secret.words }}", "{{ secret.generated }}", "{{ vars.note }}"]
env = { KEY = "{{ secret.key }}", WORDS = "{{ secret.words }}", PEM = "{{ secret.pem }}", GENERATED = "{{ secret.generated }}" }
setup = [["bash", "echo.sh", "{{ secret.key }}"]]
stop = { grace = "2s", command = ["bash", "-c", "printf '%s\\n' \"$0\" \"$KEY\"; exit 4", "{{ secret.key }}"] }
metrics-url = ["http://{{ host }}:{{ port }}/metrics?key={{ secret.generated }}"]
log-must-contain = ["the file has it"]
[[engine.file]]
path = "conf/keys.txt"
content = "key = {{ secret.key }}\nwords = {{ secret.words }}\n{{ secret.pem }}"
[[engine.file]]
path = "profile.toml"
content = """
version = "1.0+{{ secret.generated }}"
max-model-len = 32768
kv-capacity = 1000000
prefill = { tokens = [1024], ms = [5] }
admit = { at = [1], grid = [[1024, 2]] }
step = { at = [1], grid = [[1024, 2]] }
[[fault]]
kind = "stream-error"
requests = { every = 3, min-output = 2 }
at-token = 3
message = "who has {{ secret.generated }} is let in"
[[fault]]
kind = "status"
requests = { every = 4, min-output = 2 }
status = 500
message = "the key {{ secret.generated }} is right and all else is wrong"
"""
[request]
headers = { x-key = "{{ secret.generated }}" }
body = { user = "{{ secret.key }}", note = "{{ secret.words }}" }
[policy]
max-error-rate = "90%"
[[test]]
kind = "decode"
duration = "500ms"
ttft-samples = 3
[[test]]
name = "serve"
kind = "serve"
requests = 12
[[test]]
name = "good"
kind = "command"
command = ["bash", "tool.sh", "{{ cell.dir }}", "{{ secret.key }}", "--key={{ secret.generated }}"]
result = "out*.json"
metrics.score = { pointer = "/score", better = "higher" }
[[test]]
name = "bad"
kind = "command"
command = ["bash", "-c", "source echo.sh; printf 'Error: %s is no key, nor is %s\\n' \"$0\" \"$WORDS\"; exit 3", "{{ secret.key }}"]
result = "out.json"
metrics.score = { pointer = "/score", better = "higher" }
"##,
    );
    project.file("echo.sh", ECHO);
    project.file(
        "engine.sh",
        &format!(
            r#"source echo.sh
for text in "$KEY" "$WORDS" MIIBVgIBADANBgkq; do
    grep -qF "$text" "$3/conf/keys.txt" || exit 7
done
echo the file has it
touch "$3/running-$GENERATED"
exec {} sim --host "$1" --port "$2" --profile "$3/profile.toml" --model "model-$GENERATED"
"#,
            env!("CARGO_BIN_EXE_tokgate")
        ),
    );
    project.file(
        "tool.sh",
        r#"source echo.sh
mkdir "$1/of $GENERATED"
printf '%s\n' "$KEY" > "$1/of $GENERATED/$WORDS.txt"
printf '{"score": 1, "words": "%s", "generated": "%s"}' "$WORDS" "$GENERATED" > "$1/out-$WORDS.json"
"#,
    );
    project
}

fn run(project: &Project, more: &[&str]) -> Command {
    let mut arguments = vec!["run", "suite.toml", "--out", "out", "--no-progress"];
    arguments.extend(more);
    let mut command = project.command(&arguments);
    command.env("TG_KEY", KEY).env("TG_WORDS", WORDS).env("TG_PEM", PEM);
    command
}

/// The secret that a run made for itself, as its engine has it.
fn generated(project: &Project) -> String {
    let mut value = None;
    eventually("the engine runs", || {
        value = files(&project.path().join("out")).iter().find_map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.strip_prefix("running-").map(str::to_owned)
        });
        value.is_some()
    });
    value.unwrap()
}

fn is_nowhere(more: &[&str]) -> Ran {
    let project = every_route();
    let child = start(run(&project, &[more, &["--set", &format!("vars.note={WORDS}")]].concat()));
    let generated = generated(&project);
    let lines = command_lines(project.path());
    let ran = project.ran(child.wait_with_output().unwrap());
    assert_eq!(generated.len(), 32, "{}", ran.stderr);
    let secrets = [KEY, WORDS, "MIIBVgIBADANBgkq", "hkiG9w0BAQEFAASC", &generated];
    nothing_of(&secrets, &ran);
    assert!(lines.len() >= 2, "tokgate and a supervisor: {lines:?}");
    for line in lines.iter().filter(|line| line.contains("__supervise")) {
        assert!(secrets.iter().all(|secret| !line.contains(secret)), "{line}");
    }
    ran
}

#[test]
fn no_file_and_no_stream_has_a_secret() {
    let ran = is_nowhere(&["-v"]);
    assert_eq!(ran.having("error"), ["bad bad"], "{}", ran.stderr);
    // What stands around them can still be read.
    let log = ran.read("engine-engine.log");
    assert!(log.contains("--api-key [redacted] --other=[redacted]"), "{log}");
    assert!(log.contains("\nKEY=[redacted]\n") && log.contains("in pieces: [redacted]\n"), "{log}");
    let record = ran.record();
    let command: Vec<&str> = record["launches"][0]["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    assert_eq!(command[5..8], ["--api-key", "[redacted]", "--other=[redacted]"]);
    let bad = record["cells"][3]["state"]["broken"]["message"].as_str().unwrap();
    assert!(bad.contains("Error: [redacted] is no key, nor is [redacted]"), "{bad}");
    assert!(ran.read("junit.xml").contains("the key [redacted] is right"));
    let conf = ran.read("engine-engine/conf/keys.txt");
    assert!(conf.starts_with("key = [redacted]***") && conf.contains("\nwords = [redacted]***"));
    let results: Vec<_> = files(&ran.out.join("cells"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|it| it == "json"))
        .collect();
    let result = std::fs::read_to_string(&results[0]).unwrap();
    let result: serde_json::Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result["words"], format!("[redacted]{}", "*".repeat(WORDS.len() - 10)));
}

#[test]
fn nor_has_it_in_few_words_or_for_jenkins() {
    is_nowhere(&["-q", "--junit-dialect", "strict", "--skip", "test=decode"]);
}

#[test]
fn a_value_that_is_no_secret_or_part_of_a_name_is_refused() {
    let suite = "version = 1\n[suite]\nname = \"s\"\n[secrets]\nkey = { env = \"TG_KEY\" }\n\
                 [engine]\nkind = \"sim\"\n[[test]]\nname = \"prefill-x\"\nkind = \"prefill\"\n";
    let project = Project::with(suite);
    let refused = |value: &str| {
        let mut command = project.command(&["run", "suite.toml", "--out", "out"]);
        project.ran(command.env("TG_KEY", value).output().unwrap()).exits(20).stderr
    };
    let said = refused("abc");
    assert!(said.contains("`key` has 3 characters: that is no secret, put it in [vars]"), "{said}");
    let said = refused("prefill-x");
    assert!(said.contains("the value of the secret `key` is part of the name <key>"), "{said}");
    assert!(!said.contains("prefill-x"), "{said}");
    assert!(!project.path().join("out").exists());
    // One that is a common word garbles words, and neither structure nor names.
    let mut command = project.command(&["run", "suite.toml", "--out", "out", "--no-progress"]);
    let ran = project.ran(command.env("TG_KEY", "prefill-throughput").output().unwrap()).exits(0);
    assert_eq!(ran.having("measured"), ["prefill-x prefill-x"]);
    assert!(ran.read("junit.xml").contains("metric.prefill-throughput"));
}

#[test]
fn only_its_owner_reads_a_log_whatever_the_umask() {
    for (umask, made) in [("000", false), ("077", false), ("022", false), ("000", true)] {
        let project = every_route();
        let out = project.path().join("out");
        if made {
            std::fs::create_dir(&out).unwrap();
            std::fs::set_permissions(&out, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let line = format!("umask {umask}; exec \"$0\" run suite.toml --out out -q -E test=bad");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line, env!("CARGO_BIN_EXE_tokgate")]).current_dir(project.path());
        shell.env("TG_KEY", KEY).env("TG_WORDS", WORDS).env("TG_PEM", PEM);
        let ran = project.ran(shell.output().unwrap()).exits(31);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&ran.out), if made { 0o755 } else { 0o700 }, "{umask}");
        let all = files(&ran.out);
        let logs: Vec<_> =
            all.iter().filter(|it| it.extension().is_some_and(|e| e == "log")).collect();
        assert_eq!(logs.len(), 3, "of the engine, its setup and the tool");
        let private = logs.into_iter().chain(all.iter().filter(|it| it.ends_with("keys.txt")));
        private.for_each(|path| assert_eq!(mode(path), 0o600, "{umask} {}", path.display()));
        assert_eq!(mode(&ran.out.join("engine-engine")), 0o700);
    }
}
