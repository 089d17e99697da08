//! What the client costs: processor time per 1 000 streamed tokens and peak memory, beside other clients on the same
//! engine.
//!
//! `cargo bench --bench cost` runs each cell with tokgate, with `oha`, which parses nothing, and with peers that parse
//! (`vllm-bench`, `aiperf`), in turns, client and server each on a core of its own. Processor time is that between the
//! first and the last moment in which all streams emitted; tokens are those that the engine wrote in between. It ends
//! with an error where tokgate misses a target. Peers are looked for on the path and below `target/tmp/peers`; `oha` is
//! installed there where cargo can fetch it, `aiperf` (1.2 GB) with `-- --install`. Linux only.

mod rig;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rig::truth::{self, Request};
use rig::{Process, Rig, Seat, Server, Usage, median};
use serde_json::{Value, json};

/// Streams, tokens a second of each, tokens of a request.
const CELLS: [(u64, u64, u64); 3] = [(256, 50, 400), (1024, 50, 400), (256, 200, 1600)];

const ROUNDS: usize = 3;

/// Targets of tokgate at 256 × 50: seconds per 1 000 tokens, bytes, seconds from ready to the first request.
const MOST_SECONDS: f64 = 0.012;
const MOST_MEMORY: f64 = 50e6;
const MOST_WAIT: f64 = 0.1;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    match bench(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &[String]) -> std::io::Result<bool> {
    let names: Vec<&String> = arguments.iter().filter(|name| !name.starts_with('-')).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|picked| *picked == name);
    let install = arguments.iter().any(|argument| argument == "--install");
    let clients = Client::find(install);
    let rig = Rig::find();
    println!("{}; {ROUNDS} rounds in turns, median (least to most)\n", rig.words());
    println!(
        "{:<9} {:<11} │ {:>30} │ {:>9} {:>8} {:>10} │ {:>12}",
        "cell",
        "client",
        "processor s per 1 000 tokens",
        "core busy",
        "peak MB",
        "tok/s",
        "first req. s"
    );
    let mut good = true;
    for (streams, rate, output) in CELLS {
        let cell = Load { streams, rate, output };
        if !wanted(&format!("{streams}x{rate}")) {
            continue;
        }
        let mut taken: Vec<Vec<Cost>> = clients.iter().map(|_| Vec::new()).collect();
        for _ in 0..ROUNDS {
            for (client, costs) in clients.iter().zip(&mut taken) {
                match cell.run(&rig, client) {
                    Ok(cost) => costs.push(cost),
                    Err(error) => println!("{streams}x{rate} {}: {error}", client.name()),
                }
            }
        }
        for (client, costs) in clients.iter().zip(&taken) {
            good &= cell.print(client, costs, &rig);
        }
    }
    Ok(good)
}

/// Whoever drives the load.
enum Client {
    Tokgate,
    Oha(PathBuf),
    VllmBench(PathBuf),
    Aiperf(PathBuf),
}

impl Client {
    fn name(&self) -> &'static str {
        match self {
            Client::Tokgate => "tokgate",
            Client::Oha(_) => "oha",
            Client::VllmBench(_) => "vllm-bench",
            Client::Aiperf(_) => "aiperf",
        }
    }

    /// Those that are to be had.
    fn find(install: bool) -> Vec<Client> {
        let peers = Path::new(env!("CARGO_TARGET_TMPDIR")).join("peers");
        let mut found = vec![Client::Tokgate];
        let oha = look(&peers, "oha").or_else(|| {
            let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
            cargo.args(["install", "--locked", "--quiet", "oha", "--root"]).arg(&peers);
            cargo.env("CARGO_TARGET_DIR", peers.join("build"));
            println!("installing oha below {}", peers.display());
            cargo.status().ok().filter(|status| status.success())?;
            look(&peers, "oha")
        });
        match oha {
            Some(path) => found.push(Client::Oha(path)),
            None => println!("SKIPPED oha: it is not on the path and cargo can't install it"),
        }
        match look(&peers, "vllm-bench") {
            Some(path) => found.push(Client::VllmBench(path)),
            None => println!("SKIPPED vllm-bench: put it on the path"),
        }
        let aiperf = look(&peers, "aiperf").or_else(|| {
            let folder = install.then(|| peers.join("venv"))?;
            let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
            println!("installing aiperf below {}", folder.display());
            let made = run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
                && run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "aiperf"]));
            made.then(|| look(&peers, "aiperf"))?
        });
        match aiperf {
            Some(path) => found.push(Client::Aiperf(path)),
            None => println!(
                "SKIPPED aiperf: put it on the path, or let `-- --install` fetch it (1.2 GB)"
            ),
        }
        found
    }

    fn command(
        &self,
        rig: &Rig,
        load: &Load,
        port: u16,
        folder: &Path,
    ) -> std::io::Result<Command> {
        let url = format!("http://127.0.0.1:{port}");
        let (streams, output) = (load.streams.to_string(), load.output.to_string());
        let tokenizer = folder.join("tokenizer");
        if matches!(self, Client::VllmBench(_) | Client::Aiperf(_)) {
            write_tokenizer(&tokenizer)?;
        }
        let command = match self {
            Client::Tokgate => {
                std::fs::write(folder.join("suite.toml"), load.suite(port))?;
                let mut command = rig.command(Seat::Client, rig::tokgate());
                command.args(["run", "suite.toml", "--out", "out", "--no-progress"]);
                command
            }
            Client::Oha(path) => {
                let body = format!(
                    r#"{{"model":"sim","prompt":"Hello","max_tokens":{output},"ignore_eos":true,"stream":true}}"#
                );
                let mut command = rig.command(Seat::Client, path);
                command.args([
                    "-n",
                    &streams,
                    "-c",
                    &streams,
                    "-m",
                    "POST",
                    "-T",
                    "application/json",
                ]);
                command.args(["--no-tui", "--output-format", "json", "-d", &body]);
                command.arg(format!("{url}/v1/completions"));
                command
            }
            Client::VllmBench(path) => {
                let mut command = rig.command(Seat::Client, path);
                command.args(["--backend", "openai", "--base-url", &url, "--model", "sim"]);
                command.arg("--tokenizer").arg(&tokenizer);
                command.args(["--dataset-name", "random", "--random-input-len", "64"]);
                command.args(["--random-output-len", &output, "--num-prompts", &streams]);
                command.args(["--max-concurrency", &streams, "--ignore-eos", "--disable-tqdm"]);
                command
            }
            Client::Aiperf(path) => {
                let mut command = rig.command(Seat::Client, path);
                command.args(["profile", "-m", "sim", "--url", &url]);
                command.arg("--tokenizer").arg(&tokenizer);
                command.args(["--endpoint-type", "completions", "--streaming", "--ui", "none"]);
                command.args(["--concurrency", &streams, "--request-count", &streams]);
                command.args([
                    "--isl",
                    "64",
                    "--isl-stddev",
                    "0",
                    "--osl",
                    &output,
                    "--osl-stddev",
                    "0",
                ]);
                command.args(["--extra-inputs", "ignore_eos:true"]);
                command
            }
        };
        Ok(command)
    }
}

/// A tokenizer for those who can't do without: each pair of letters is a token.
fn write_tokenizer(folder: &Path) -> std::io::Result<()> {
    let pairs = ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| format!("{a}{b}")));
    let vocabulary: Value = pairs.zip(0..).map(|(pair, id)| (pair, Value::from(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "aa"},
    });
    let config =
        json!({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "aa", "eos_token": "ab"});
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string())
}

fn look(peers: &Path, name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = [peers.join("bin"), peers.join("venv/bin")];
    own.into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// One cell.
struct Load {
    streams: u64,
    rate: u64,
    output: u64,
}

/// What one run cost.
struct Cost {
    /// Processor seconds per 1 000 tokens.
    seconds: f64,
    /// Share of a core.
    busy: f64,
    /// Greatest resident size in bytes.
    memory: f64,
    /// Tokens a second.
    rate: f64,
    /// Seconds from the start of the client to its first request.
    start: f64,
    /// Seconds from the first answer (tokgate's canary: the engine is ready) to the next request.
    next: f64,
}

impl Load {
    fn profile(&self) -> String {
        let step = 1000.0 / self.rate as f64;
        format!(
            "max-model-len = \"32K\"\nkv-capacity = \"64M\"\nmax-num-seqs = 2048\n\
             [prefill]\ntokens = [16, \"1K\"]\nms = [0.1, 0.1]\n\
             [admit]\nat = [1]\ngrid = [[\"1K\", 200]]\n[step]\nat = [1]\ngrid = [[\"1K\", {step}]]\n"
        )
    }

    fn suite(&self, port: u16) -> String {
        let Load { streams, rate, output } = self;
        // As long as the other clients' one wave of requests.
        let seconds = output / rate;
        format!(
            "version = 1\n[suite]\nname = \"cost\"\n[engine]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:{port}\"\n\
             [[test]]\nkind = \"decode\"\nduration = \"{seconds}s\"\nmax-output = 16_000\ncapacity = \"off\"\n\
             matrix.context = [64]\nmatrix.concurrency = [{streams}]\n\
             [policy]\nunjudged = \"allow\"\nmax-client-lag = \"1s\"\n"
        )
    }

    fn run(&self, rig: &Rig, client: &Client) -> std::io::Result<Cost> {
        let folder = rig::folder("cost")?;
        let server = Server::start(rig, &folder, &self.profile())?;
        let mut command = client.command(rig, self, server.port, &folder)?;
        command.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = rig::now();
        let mut process = Process(command.spawn()?);
        let (usage, _) = Usage::watch(&mut process)?;
        let requests = server.stop()?;
        let looping: Vec<&Request> =
            requests.iter().filter(|one| one.output >= self.output).collect();
        let (from, to) = truth::steady(&looping);
        let none = || std::io::Error::other("its streams never emitted all at once");
        let (first, last) = usage.within(from, to).ok_or_else(none)?;
        let tokens = truth::tokens(&looping, first.at, last.at) as f64;
        let (seconds, length) =
            (last.processor - first.processor, (last.at - first.at) as f64 / 1e9);
        if tokens == 0.0 || looping.len() as u64 != self.streams {
            return Err(none());
        }
        let ready = requests.first().and_then(|one| one.tokens.first()).map_or(0, |(at, _)| *at);
        let next = requests.get(1).map_or(f64::NAN, |one| (one.read as f64 - ready as f64) / 1e9);
        Ok(Cost {
            seconds: seconds / tokens * 1e3,
            busy: seconds / length,
            memory: usage.memory(),
            rate: tokens / length,
            start: requests.first().map_or(f64::NAN, |one| (one.read - begun) as f64 / 1e9),
            next,
        })
    }

    /// Prints a row; false where tokgate misses a target.
    fn print(&self, client: &Client, costs: &[Cost], rig: &Rig) -> bool {
        if costs.is_empty() {
            return !matches!(client, Client::Tokgate);
        }
        let all = |of: fn(&Cost) -> f64| costs.iter().map(of).collect::<Vec<f64>>();
        let middle = |of: fn(&Cost) -> f64| median(&mut all(of));
        let seconds = all(|cost| cost.seconds);
        let (least, most) = seconds
            .iter()
            .fold((f64::MAX, f64::MIN), |(least, most), s| (least.min(*s), most.max(*s)));
        let (cost, memory) = (middle(|cost| cost.seconds), middle(|cost| cost.memory));
        println!(
            "{:<9} {:<11} │ {:>12.4} ({least:.4} to {most:.4}) │ {:>8.1}% {:>8.1} {:>10.0} │ {:>12.2}",
            format!("{}x{}", self.streams, self.rate),
            client.name(),
            cost,
            middle(|cost| cost.busy) * 100.0,
            memory / 1e6,
            middle(|cost| cost.rate),
            middle(|cost| cost.start),
        );
        if !matches!(client, Client::Tokgate) || (self.streams, self.rate) != (256, 50) {
            return true;
        }
        let next = middle(|cost| cost.next);
        println!("{:21} │ ready to first request: {next:.3} s", "");
        let targets = [
            (cost <= MOST_SECONDS, format!("{MOST_SECONDS} s per 1 000 tokens")),
            (memory <= MOST_MEMORY, format!("{} MB", MOST_MEMORY / 1e6)),
            (next <= MOST_WAIT, format!("{MOST_WAIT} s from ready to the first request")),
        ];
        let missed = targets.iter().filter(|(holds, _)| !holds);
        let missed: Vec<_> = missed.inspect(|(_, words)| println!("MISSED: {words}")).collect();
        if !missed.is_empty() && !rig.counts() {
            println!("(without a core of its own and priority for each side, this says little)");
        }
        missed.is_empty()
    }
}
