//! The soak: one run with many launches whose engines go wrong as a seed says, and what it leaves.
//!
//! Engines are processes of the simulated engine behind a shell. Each notes, before it becomes the
//! engine, what tokgate itself holds at that moment: always the same one, in which nothing is measured.
//! `benches/soak.rs` runs it at length, `faults::crashed` in short.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Cells of each launch.
pub const CELLS: usize = 10;
/// Launches in which the program may still grow: allocators keep what they were given once.
const SETTLING: usize = 20;
/// Bytes of memory that a launch may cost for each byte that it adds to the record, which the program
/// holds by design: as values, as text while reports are written, and room of the allocator. A run with
/// one launch and as many cells takes about five.
const PER_RECORD_BYTE: f64 = 7.0;

/// What becomes of the engines of one launch.
struct Fault {
    name: &'static str,
    /// `[[fault]]` tables of the profile.
    table: String,
    /// What its shell does to it besides.
    shell: String,
}

/// Numbers that look like chance and are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, from: u64, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from + (self.0 >> 33) % (below - from)
    }
}

/// Draws a fault; about a third of the engines have none.
fn draw(dice: &mut Dice) -> Fault {
    let share = dice.roll(2, 20);
    let token = dice.roll(1, 900);
    let one = |name, table: String| Fault { name, table, shell: String::new() };
    let table = |kind: &str, keys: String| format!("[[fault]]\nkind = \"{kind}\"\n{keys}\n");
    let requests = format!("requests = {{ share = \"{share}%\", min-output = 2 }}");
    match dice.roll(0, 24) {
        0..=7 => one("none", String::new()),
        8..=10 => {
            let code = [1, 0, 139, 137][dice.roll(0, 4) as usize];
            let log = "log = [\"torch.OutOfMemoryError: CUDA out of memory.\"]";
            let keys = format!("at-token = {token}\nexit-code = {code}\n{log}");
            one("crash", table("crash", keys))
        }
        11 => one("die while loading", table("die-while-loading", "exit-code = 3".to_owned())),
        12 | 13 => {
            let signal = ["KILL", "SEGV", "ABRT", "TERM"][dice.roll(0, 4) as usize];
            let (seconds, hundredths) = (dice.roll(0, 3), dice.roll(10, 100));
            let shell =
                format!("(sleep {seconds}.{hundredths}; kill -{signal} $$; kill -{signal} $$) &");
            Fault { name: "signal", table: String::new(), shell }
        }
        14 => {
            let shell = format!("(sleep 1.{}; kill -STOP $$) &", dice.roll(10, 100));
            Fault { name: "stopped", table: String::new(), shell }
        }
        15 => one("hang", table("hang", format!("at-token = {token}"))),
        16 => one("pause", table("hang", format!("at-token = {token}\nfor = \"200ms\""))),
        17 => one("stall", table("stall", format!("at-token = 2\n{requests}\nfor = \"2s\""))),
        18 => one("refuse", table("refuse", requests)),
        19 => {
            let status = [429, 503, 500][dice.roll(0, 3) as usize];
            one("status", table("status", format!("status = {status}\n{requests}")))
        }
        20 => {
            // It ends after a while, for good.
            let begin = dice.roll(2, 80);
            let nth: Vec<u64> = (begin..begin + 30).collect();
            one("burst", table("status", format!("status = 429\nrequests = {{ nth = {nth:?} }}")))
        }
        21 => one("stream error", table("stream-error", format!("at-token = 2\n{requests}"))),
        22 => one("truncate", table("truncate", format!("at-token = 1\n{requests}"))),
        _ => {
            let slow = table("slow", format!("by = \"{share}%\""));
            one("slow, leaks", slow + &table("leak", "tokens = \"1K\"".to_owned()))
        }
    }
}

const PROFILE: &str = r#"
max-model-len = "8K"
kv-capacity = "128K"
[prefill]
tokens = [16, "1K"]
ms = [1, 2]
[admit]
at = [1]
grid = [["1K", 1]]
[step]
at = [1]
grid = [["1K", 1]]
"#;

fn suite(engines: &[String]) -> String {
    format!(
        r#"version = 1
[suite]
name = "soak"
[policy]
max-client-lag = "10s"
unjudged = "allow"
restarts = 1
[engine]
kind = "vllm"
command = ["bash", "engine.sh", "{{{{ axis.engine }}}}", "{{{{ host }}}}", "{{{{ port }}}}"]
ready = {{ timeout = "20s" }}
stop = {{ grace = "1s" }}
[request]
timeout = "1s"
idle-timeout = "500ms"
[matrix]
engine = {engines:?}
[[test]]
kind = "startup"
[[test]]
kind = "prefill"
samples = 2
matrix.context = [128, 256]
[[test]]
kind = "decode"
duration = "40ms"
min-tokens = 10
max-output = 128
ttft-samples = 3
matrix.context = [128]
matrix.concurrency = [1, 2, 4]
[[test]]
name = "closed"
kind = "serve"
requests = 16
input = 64
output = 8
matrix.concurrency = [1, 4]
[[test]]
name = "open"
kind = "serve"
arrival = "poisson"
requests = 12
input = 64
output = 8
matrix.request_rate = [100]
[[test]]
name = "tool"
kind = "command"
command = ["sh", "-c", "echo '{{\"score\": 1}}' > {{{{ cell.dir }}}}/out.json"]
result = "out.json"
metrics.score = {{ pointer = "/score", better = "higher" }}
[[expect]]
test = ["prefill"]
metric = "prefill-throughput"
min = 1
[[expect]]
test = ["decode"]
metric = "output-throughput"
min = 1
[[expect]]
test = ["closed", "open"]
metric = "request-throughput"
min = 0.1
[[expect]]
test = "tool"
metric = "score"
min = 1
"#
    )
}

/// Before it becomes the engine: file descriptors, KiB of memory, threads and children of tokgate, which
/// is the parent of the supervisor's guard.
const ENGINE: &str = r#"
read -r _ _ _ guard _ < /proc/$PPID/stat
read -r _ _ _ tokgate _ < /proc/$guard/stat
case $(tr '\0' ' ' < /proc/$tokgate/cmdline) in *" run "*) ;; *) echo "that is not tokgate"; exit 9 ;; esac
# Not those of the files that the thread of the reports may be writing just then.
descriptors=$(ls -l /proc/$tokgate/fd | while read -r line; do
  case $line in *"$(pwd -P)/out"* | total*) ;; *) echo one ;; esac
done | wc -l)
memory=$(awk '/^VmRSS/ { print $2 }' /proc/$tokgate/status)
threads=$(ls /proc/$tokgate/task | wc -l)
children=$(cat /proc/$tokgate/task/*/children | wc -w)
echo "$1 $descriptors $memory $threads $children" >> samples
. ./$1.sh
exec TOKGATE sim --profile $1.toml --host "$2" --port "$3" --seed SEED
"#;

/// What tokgate held when an engine was started.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    launch: usize,
    descriptors: u64,
    /// KiB.
    memory: u64,
    threads: u64,
    children: u64,
}

/// What a soak came to.
pub struct Soaked {
    took: Duration,
    code: i32,
    launches: usize,
    /// Names of the faults, by how many launches had them.
    faults: BTreeMap<&'static str, usize>,
    /// Cells by verdict and class.
    verdicts: BTreeMap<String, usize>,
    samples: Vec<Sample>,
    /// Bytes of the files in the output directory.
    journal: u64,
    record: u64,
    logs: u64,
    /// Processes that were left.
    left: Vec<String>,
    /// What does not hold.
    pub broken: Vec<String>,
}

/// Runs a soak of so many launches in a folder of its own, and looks at what it leaves.
#[allow(unsafe_code)]
pub fn soak(tokgate: &Path, folder: &Path, seed: u64, launches: usize) -> Soaked {
    // Faults are signals too, which whoever started this may ignore.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: no handler is installed, only the default is restored.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut dice = Dice(seed);
    let mut faults = BTreeMap::new();
    let mut engines = Vec::new();
    for launch in 0..launches {
        let fault = draw(&mut dice);
        *faults.entry(fault.name).or_default() += 1;
        let name = format!("e{launch:03}");
        std::fs::write(folder.join(format!("{name}.toml")), PROFILE.to_owned() + &fault.table)
            .unwrap();
        std::fs::write(folder.join(format!("{name}.sh")), fault.shell).unwrap();
        engines.push(name);
    }
    let script = ENGINE.replace("TOKGATE", &tokgate.to_string_lossy());
    std::fs::write(folder.join("engine.sh"), script.replace("SEED", &seed.to_string())).unwrap();
    std::fs::write(folder.join("suite.toml"), suite(&engines)).unwrap();
    let said = std::fs::File::create(folder.join("said")).unwrap();
    let began = Instant::now();
    let mut child = Command::new(tokgate)
        .args(["run", "suite.toml", "--out", "out", "--no-progress", "--seed", &seed.to_string()])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .spawn()
        .unwrap();
    // Longer than any launch of it may take: a run that hangs is killed, and does not hold.
    let patience = Duration::from_secs(60) * u32::try_from(launches).unwrap();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed() > patience => {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let took = began.elapsed();
    let left = left(folder);
    let out = folder.join("out");
    let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let logs = std::fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|it| it == "log")).map(size).sum();
    let mut soaked = Soaked {
        took,
        code: status.code().unwrap_or(-1),
        launches,
        faults,
        verdicts: BTreeMap::new(),
        samples: samples(folder),
        journal: size(out.join("journal.jsonl")),
        record: size(out.join("record.json")),
        logs,
        left,
        broken: Vec::new(),
    };
    soaked.look(&out);
    soaked
}

/// Processes that live in a folder.
fn left(folder: &Path) -> Vec<String> {
    let folder = folder.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let here = std::fs::read_link(entry.path().join("cwd")).ok()? == folder;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (here && !line.is_empty()).then_some(line)
        })
        .collect()
}

fn samples(folder: &Path) -> Vec<Sample> {
    let text = std::fs::read_to_string(folder.join("samples")).unwrap_or_default();
    let sample = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let mut numbers = rest.split(' ').map_while(|word| word.parse().ok());
        Some(Sample {
            launch: name.strip_prefix('e')?.parse().ok()?,
            descriptors: numbers.next()?,
            memory: numbers.next()?,
            threads: numbers.next()?,
            children: numbers.next()?,
        })
    };
    text.lines().filter_map(sample).collect()
}

/// Slope and end of the straight line through points by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let above: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    let below: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    if below == 0.0 { 0.0 } else { above / below }
}

impl Soaked {
    fn must(&mut self, holds: bool, words: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(words());
        }
    }

    /// Looks for what does not hold.
    fn look(&mut self, out: &Path) {
        let code = self.code;
        self.must([0, 10, 30, 31].contains(&code), || format!("exit code {code}"));
        let left = self.left.clone();
        self.must(left.is_empty(), || format!("processes left: {left:?}"));
        self.cells(out);
        self.growth();
    }

    /// Every cell has one verdict, in record, journal and JUnit alike.
    fn cells(&mut self, out: &Path) {
        let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
        let record: Value = serde_json::from_str(&read("record.json")).unwrap_or_default();
        let empty = Vec::new();
        let cells = record["cells"].as_array().unwrap_or(&empty);
        let planned = self.launches * CELLS;
        self.must(cells.len() == planned, || format!("{} of {planned} cells", cells.len()));
        let mut by_verdict: BTreeMap<&str, usize> = BTreeMap::new();
        let mut not_run = 0;
        for cell in cells {
            let verdict = cell["judgement"]["verdict"].as_str().unwrap_or("none");
            *by_verdict.entry(verdict).or_default() += 1;
            let kind = cell["state"]["broken"]["class"].as_str();
            let class = kind.or(cell["judgement"]["class"].as_str()).unwrap_or_default();
            *self.verdicts.entry(format!("{verdict} {class}").trim().to_owned()).or_default() += 1;
            if let Some(reason) = cell["state"]["not-run"]["reason"].as_str() {
                not_run += 1;
                self.must(reason.starts_with("not run: launch "), || reason.to_owned());
            }
        }
        let mut finished = vec![0; cells.len()];
        for line in read("journal.jsonl").lines() {
            let event: Value = serde_json::from_str(line).unwrap_or_default();
            if let Some(cell) = event["cell-finished"]["cell"].as_u64() {
                finished[cell as usize] += 1;
            }
        }
        let (twice, once) = (
            finished.iter().filter(|count| **count > 1).count(),
            finished.iter().filter(|count| **count == 1).count(),
        );
        self.must(twice == 0, || format!("{twice} cells finished twice"));
        self.must(once + not_run == cells.len(), || {
            format!("{once} cells finished and {not_run} not run, of {}", cells.len())
        });
        // JUnit has a case more for each launch.
        let junit = read("junit.xml");
        let cases: Vec<&str> = junit.split("<testcase ").skip(1).collect();
        let names: BTreeSet<_> = cases.iter().map(|case| case.split(" time=").next()).collect();
        let all = planned + self.launches;
        self.must(cases.len() == all && names.len() == all, || {
            format!("JUnit has {} cases, {} different ones, of {all}", cases.len(), names.len())
        });
        let count = |tag: &str| cases.iter().filter(|case| case.contains(tag)).count();
        let failed = by_verdict.get("fail").copied().unwrap_or(0);
        let launches = record["launches"].as_array().unwrap_or(&empty);
        let lost = launches.iter().filter(|launch| launch["failure"].is_object()).count();
        let errors = by_verdict.get("error").copied().unwrap_or(0) + lost;
        let told = (count("<failure "), count("<error "));
        self.must(told == (failed, errors), || {
            format!("JUnit has {told:?} failures and errors, the record {:?}", (failed, errors))
        });
    }

    /// Nothing that tokgate holds grows with the launches but its record.
    fn growth(&mut self) {
        let begun: BTreeSet<usize> = self.samples.iter().map(|sample| sample.launch).collect();
        let (begun, launches) = (begun.len(), self.launches);
        self.must(begun == launches, || format!("{begun} of {launches} launches were begun"));
        // The first engine is started before anything has been connected.
        let later = self.samples.get(1..).unwrap_or_default().to_vec();
        let range = |of: fn(&Sample) -> u64| {
            (later.iter().map(of).min().unwrap_or(0), later.iter().map(of).max().unwrap_or(0))
        };
        // A report may be open that is being written just then.
        for (what, momentary, (least, most)) in [
            ("file descriptors", 1, range(|sample| sample.descriptors)),
            ("children", 0, range(|sample| sample.children)),
        ] {
            self.must(most - least <= momentary, || format!("from {least} to {most} {what}"));
        }
        let settled: Vec<_> = self.settled().collect();
        if settled.len() < SETTLING {
            return;
        }
        let (grows, allowed) = (slope(&settled), self.allowed());
        self.must(grows <= allowed, || {
            format!("memory grows by {grows:.1} KiB a launch, the record accounts for {allowed:.1}")
        });
        let threads: Vec<_> =
            later.iter().map(|it| (it.launch as f64, it.threads as f64)).collect();
        let grows = slope(&threads) * self.launches as f64;
        self.must(grows < 2.0, || format!("{grows:.1} threads more"));
    }

    /// Launch and KiB, once the program has settled.
    fn settled(&self) -> impl Iterator<Item = (f64, f64)> {
        let settled = self.samples.iter().filter(|sample| sample.launch >= SETTLING);
        settled.map(|sample| (sample.launch as f64, sample.memory as f64))
    }

    /// KiB that a launch may add.
    fn allowed(&self) -> f64 {
        PER_RECORD_BYTE * self.record as f64 / 1024.0 / self.launches as f64
    }

    /// What it came to.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<28} {value}");
        };
        let of = |counts: &BTreeMap<&'static str, usize>| {
            let words = counts.iter().map(|(name, count)| format!("{name} {count}"));
            words.collect::<Vec<_>>().join(", ")
        };
        row("launches", self.launches.to_string());
        row("engines by fault", of(&self.faults));
        let started = self.samples.len();
        row("engines started again", (started.saturating_sub(self.launches)).to_string());
        row("cells", (self.launches * CELLS).to_string());
        for (verdict, count) in &self.verdicts {
            row(&format!("  {verdict}"), count.to_string());
        }
        row("minutes", format!("{:.1}", self.took.as_secs_f64() / 60.0));
        row("exit code", self.code.to_string());
        if let (Some(first), Some(second), Some(last)) =
            (self.samples.first(), self.samples.get(1), self.samples.last())
        {
            let three = |of: fn(&Sample) -> u64| {
                format!(
                    "{} at the first start, {} at the second, {} at the last",
                    of(first),
                    of(second),
                    of(last)
                )
            };
            row("file descriptors", three(|sample| sample.descriptors));
            row("threads", three(|sample| sample.threads));
            row("children", three(|sample| sample.children));
            let settled = self.samples.iter().find(|sample| sample.launch >= SETTLING);
            let settled = settled.map_or(String::new(), |sample| {
                format!("{} after {SETTLING} launches, ", sample.memory)
            });
            row(
                "memory, KiB",
                format!("{} at first, {settled}{} at last", first.memory, last.memory),
            );
        }
        let settled: Vec<_> = self.settled().collect();
        if settled.len() >= SETTLING {
            let words = format!("{:.1}, at most {:.1}", slope(&settled), self.allowed());
            row("memory, KiB a launch", words);
        }
        let kib = |bytes: u64| bytes / 1024;
        row(
            "on disk, KiB",
            format!(
                "journal {}, record {}, logs {}",
                kib(self.journal),
                kib(self.record),
                kib(self.logs)
            ),
        );
        row("processes left", self.left.len().to_string());
        for words in &self.broken {
            row("DOES NOT HOLD", words.clone());
        }
        out
    }
}
