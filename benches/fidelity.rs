//! How true the figures are: a decode cell by tokgate against what the simulated engine wrote down.
//!
//! `cargo bench --bench fidelity` runs cells of 1 to 1 024 streams, client and server each on a core of its own, and
//! prints what tokgate reported, what the engine's truth log says, and how far they are apart; then a cell in which one
//! stream stalls for half a second, one whose client shares its core with others who want all of it, and two in turns
//! with and without sampling of eight GPUs (a stub of the driver's library). It ends with an error where a target is
//! missed. Names of cells (`-- 256x50 stall busy sampling`) pick some. Linux only.

mod rig;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rig::truth::{self, Request};
use rig::{Process, Rig, Seat, Server, Usage, quantile};
use serde_json::Value;

/// Streams, tokens a second of each, seconds of the window.
const CELLS: [(u64, u64, u64); 6] =
    [(1, 50, 5), (16, 50, 5), (64, 50, 5), (256, 50, 8), (1024, 50, 8), (256, 200, 8)];

/// Time to first token of the engine, in milliseconds.
const FIRST: u64 = 200;

/// Requests of a decode cell ask for so many tokens; all others for one.
const OUTPUT: u64 = 16_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let picked: Vec<&String> = arguments.iter().filter(|name| !name.starts_with('-')).collect();
    let wanted = |name: &str| picked.is_empty() || picked.iter().any(|picked| *picked == name);
    match bench(&wanted) {
        Ok(missed) if missed.is_empty() => ExitCode::SUCCESS,
        Ok(missed) => {
            missed.iter().for_each(|words| println!("MISSED: {words}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(wanted: &dyn Fn(&str) -> bool) -> std::io::Result<Vec<String>> {
    let rig = Rig::find();
    println!(
        "{}; TTFT {FIRST} ms, all streams on one step; errors are reported − truth\n",
        rig.words()
    );
    println!(
        "{:<9} │ {:>7} {:>7} {:>7} {:>7} │ {:>7} {:>7} {:>7} {:>7} │ {:>7} {:>8} {:>7} │ {:>6} {:>6}",
        "cell",
        "ttft50",
        "error",
        "ttft99",
        "error",
        "itl50",
        "error",
        "itl99",
        "error",
        "tok/s",
        "of truth",
        "ideal",
        "client",
        "server"
    );
    let mut missed = Vec::new();
    for (streams, rate, seconds) in CELLS {
        if wanted(&format!("{streams}x{rate}")) {
            let row = Row::measure(&rig, streams, rate, seconds, Hardware::AsItIs)?;
            row.print("");
            missed.extend(row.missed());
        }
    }
    if wanted("stall") {
        missed.extend(stall(&rig)?);
    }
    if wanted("sampling") {
        missed.extend(sampling(&rig)?);
    }
    if wanted("busy") {
        missed.extend(busy(&rig)?);
    }
    if !rig.counts() && !missed.is_empty() {
        println!("\nWITHOUT a core of its own and priority for each side, this says little:");
    }
    Ok(missed)
}

fn profile(rate: u64, more: &str) -> String {
    let step = 1000.0 / rate as f64;
    format!(
        "max-model-len = \"32K\"\nkv-capacity = \"64M\"\nmax-num-seqs = 2048\n\
         [prefill]\ntokens = [16, \"1K\"]\nms = [0.5, 0.5]\n\
         [admit]\nat = [1]\ngrid = [[\"1K\", {FIRST}]]\n[step]\nat = [1]\ngrid = [[\"1K\", {step}]]\n{more}"
    )
}

fn suite(port: u16, streams: u64, seconds: u64, more: &str) -> String {
    format!(
        "version = 1\n[suite]\nname = \"fidelity\"\n\
         [engine]\nkind = \"vllm\"\nurl = \"http://127.0.0.1:{port}\"\n\
         [[test]]\nkind = \"decode\"\nduration = \"{seconds}s\"\nmax-output = {OUTPUT}\ncapacity = \"off\"\n\
         matrix.context = [256]\nmatrix.concurrency = [{streams}]\n{more}"
    )
}

/// What a run came to.
struct Ran {
    code: Option<i32>,
    record: Value,
    usage: Usage,
}

impl Ran {
    /// Runs tokgate, started as `command` says, to its end.
    fn of(mut command: Command, folder: &Path, suite: &str) -> std::io::Result<Ran> {
        std::fs::write(folder.join("suite.toml"), suite)?;
        command.current_dir(folder).args(["run", "suite.toml", "--out", "out", "--no-progress"]);
        let mut process = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        let (usage, status) = Usage::watch(&mut process)?;
        let record = std::fs::read_to_string(folder.join("out/record.json"))?;
        Ok(Ran { code: status.code(), record: serde_json::from_str(&record)?, usage })
    }

    fn cell(&self) -> &Value {
        &self.record["cells"][0]
    }

    fn observed(&self, metric: &str) -> &Value {
        &self.cell()["state"]["measured"]["observations"][metric]
    }

    fn number(&self, metric: &str, form: &str) -> f64 {
        let observed = &self.observed(metric)[form];
        observed["rate"].as_f64().or_else(|| observed.as_f64()).unwrap_or(f64::NAN)
    }

    /// Time to first token of every request of the waves.
    fn ttft(&self) -> Vec<f64> {
        let waves = self.observed("ttft")["waves"].as_array().into_iter().flatten();
        waves
            .flat_map(|wave| wave.as_array().into_iter().flatten())
            .filter_map(Value::as_f64)
            .collect()
    }

    /// A quantile of a metric that the record has as samples or as a histogram.
    fn quantile(&self, metric: &str, q: f64) -> f64 {
        let observed = self.observed(metric);
        if let Some(samples) = observed["samples"].as_array() {
            let mut samples: Vec<f64> = samples.iter().filter_map(Value::as_f64).collect();
            return quantile(&mut samples, q);
        }
        let bins: Vec<(f64, f64)> = observed["histogram"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|bin| Some((bin[0].as_f64()?, bin[1].as_f64()?)))
            .collect();
        let rank = (bins.iter().map(|(_, count)| count).sum::<f64>() * q).ceil();
        let mut before = 0.0;
        let bin = bins.iter().find(|(_, count)| {
            before += count;
            before >= rank
        });
        bin.map_or(f64::NAN, |(value, _)| *value)
    }
}

/// What tokgate meets of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hardware {
    /// What there is.
    AsItIs,
    /// Eight GPUs, which are looked at five times a second.
    Sampled,
    /// Eight GPUs, which are not looked at.
    Unsampled,
}

/// A row of the table. Latencies are (reported, truth) in ms.
struct Row {
    streams: u64,
    rate: u64,
    ttft: [(f64, f64); 2],
    itl: [(f64, f64); 2],
    throughput: (f64, f64),
    client: f64,
    server: f64,
}

impl Row {
    fn measure(
        rig: &Rig,
        streams: u64,
        rate: u64,
        seconds: u64,
        hardware: Hardware,
    ) -> std::io::Result<Row> {
        let folder = rig::folder("fidelity")?;
        let server = Server::start(rig, &folder, &profile(rate, ""))?;
        let more = "[policy]\nunjudged = \"allow\"\nmax-client-lag = \"1s\"\n";
        let mut command = rig.command(Seat::Client, rig::tokgate());
        let more = match hardware {
            Hardware::AsItIs => more.to_owned(),
            Hardware::Sampled | Hardware::Unsampled => {
                command.envs(rig::eight_gpus(&folder)?);
                let sampling = if hardware == Hardware::Sampled { "200ms" } else { "off" };
                format!("{more}[hardware]\nwhere = \"here\"\nsampling = \"{sampling}\"\n")
            }
        };
        let suite = suite(server.port, streams, seconds, &more);
        let before = rig::Used::of(server.id());
        let ran = Ran::of(command, &folder, &suite)?;
        let after = rig::Used::of(server.id());
        let requests = server.stop()?;
        let looping: Vec<&Request> = requests.iter().filter(|one| one.output == OUTPUT).collect();
        let mut ttft = ran.ttft();
        // The waves are the last requests for one token; warm-up and canary come before.
        let single: Vec<&Request> = requests.iter().filter(|one| one.output == 1).collect();
        let waves = &single[single.len().saturating_sub(ttft.len())..];
        let mut true_ttft: Vec<f64> = waves.iter().filter_map(|one| one.ttft()).collect();

        // The truth of a window of the same length by the same rule: from one token of a stream to
        // another of the same stream.
        let (from, to) = truth::steady(&looping);
        let length = (ran.number("measured-time", "exact") * 1e9) as u64;
        let stamps = looping.first().map(|one| one.tokens.as_slice()).unwrap_or_default();
        let begin = stamps.iter().map(|(at, _)| *at).find(|at| *at >= from + 100_000_000);
        let begin = begin.unwrap_or(from);
        let nearest = |at: &u64| at.abs_diff(begin + length);
        let end = stamps.iter().map(|(at, _)| *at).min_by_key(nearest).unwrap_or(to);
        let truth = truth::tokens(&looping, begin, end) as f64 / ((end - begin) as f64 / 1e9);
        let mut gaps = truth::gaps(&looping, begin, end);
        let share = |looks: Option<(rig::Used, rig::Used)>| {
            looks.map_or(f64::NAN, |(a, b)| {
                (b.processor - a.processor) / ((b.at - a.at) as f64 / 1e9)
            })
        };
        let pair = |reported: f64, true_values: &mut [f64], q| (reported, quantile(true_values, q));
        Ok(Row {
            streams,
            rate,
            ttft: [0.5, 0.99].map(|q| (quantile(&mut ttft, q), quantile(&mut true_ttft, q))),
            itl: [0.5, 0.99].map(|q| pair(ran.quantile("itl", q), &mut gaps, q)),
            throughput: (ran.number("output-throughput", "batches"), truth),
            client: share(ran.usage.within(begin, end)),
            server: share(before.zip(after)),
        })
    }

    fn ideal(&self) -> f64 {
        self.throughput.0 / (self.streams * self.rate) as f64
    }

    fn of_truth(&self) -> f64 {
        self.throughput.0 / self.throughput.1
    }

    fn print(&self, more: &str) {
        let latency =
            |(reported, truth): (f64, f64)| format!("{reported:>7.2} {:>+7.2}", reported - truth);
        println!(
            "{:<9} │ {} {} │ {} {} │ {:>7.0} {:>7.2}% {:>6.2}% │ {:>5.1}% {:>5.1}%",
            format!("{}x{}{more}", self.streams, self.rate),
            latency(self.ttft[0]),
            latency(self.ttft[1]),
            latency(self.itl[0]),
            latency(self.itl[1]),
            self.throughput.0,
            self.of_truth() * 100.0,
            self.ideal() * 100.0,
            self.client * 100.0,
            self.server * 100.0,
        );
    }

    /// Targets that it misses.
    fn missed(&self) -> Vec<String> {
        let name = format!("{}x{}", self.streams, self.rate);
        let mut missed = Vec::new();
        let mut hold = |holds: bool, words: String| {
            if !holds {
                missed.push(format!("{name}: {words}"));
            }
        };
        if matches!((self.streams, self.rate), (1024, 50) | (256, 200)) {
            hold((self.of_truth() - 1.0).abs() <= 0.01, "tok/s within 1 % of the truth".to_owned());
            hold(self.ideal() >= 0.98, "at least 98 % of the ideal tok/s".to_owned());
        }
        if (self.streams, self.rate) == (256, 50) {
            let off = |(reported, truth): (f64, f64)| (reported - truth).abs();
            hold(off(self.ttft[1]) <= 5.0, "TTFT p99 within 5 ms".to_owned());
            hold(
                off(self.itl[1]) <= f64::max(1.0, 0.02 * self.itl[1].1),
                "ITL p99 within 1 ms or 2 %".to_owned(),
            );
        }
        missed
    }
}

/// The same cells in turns with and without looking at eight GPUs: neither may miss a target.
fn sampling(rig: &Rig) -> std::io::Result<Vec<String>> {
    println!();
    let mut missed = Vec::new();
    for (streams, rate, seconds) in [(64, 50, 5), (256, 50, 8), (256, 200, 8)] {
        for _ in 0..3 {
            for (hardware, name) in [(Hardware::Unsampled, ""), (Hardware::Sampled, "+")] {
                let row = Row::measure(rig, streams, rate, seconds, hardware)?;
                row.print(name);
                missed.extend(row.missed());
            }
        }
    }
    println!("+ with eight GPUs looked at five times a second");
    Ok(missed)
}

/// One stream of sixteen stalls for 500 ms: the longest gaps must show it.
fn stall(rig: &Rig) -> std::io::Result<Vec<String>> {
    let folder = rig::folder("fidelity")?;
    let fault = format!(
        "[[fault]]\nkind = \"stall\"\nrequests = {{ nth = [70], min-output = {OUTPUT} }}\nat-token = 150\nfor = \"500ms\"\n"
    );
    let server = Server::start(rig, &folder, &profile(50, &fault))?;
    let suite =
        suite(server.port, 16, 5, "[policy]\nunjudged = \"allow\"\nmax-client-lag = \"1s\"\n");
    let ran = Ran::of(rig.command(Seat::Client, rig::tokgate()), &folder, &suite)?;
    let requests = server.stop()?;
    let looping: Vec<&Request> = requests.iter().filter(|one| one.output == OUTPUT).collect();
    let truth = truth::gaps(&looping, 0, u64::MAX).into_iter().fold(0.0, f64::max);
    let seen = ["chunk-gap", "itl"].map(|metric| ran.quantile(metric, 1.0));
    println!(
        "\none stall of 500 ms: truth {truth:.1} ms, chunk-gap.max {:.1} ms, itl.max {:.1} ms",
        seen[0], seen[1]
    );
    let whole = truth > 500.0 && seen.iter().all(|gap| (gap - truth).abs() < 5.0);
    Ok(if whole { Vec::new() } else { vec!["stall: seen in chunk-gap.max and itl.max".to_owned()] })
}

/// The client's core is wanted by others: the cell must be an error.
fn busy(rig: &Rig) -> std::io::Result<Vec<String>> {
    let folder = rig::folder("fidelity")?;
    let server = Server::start(rig, &folder, &profile(50, ""))?;
    let _others: Vec<Process> = (0..2)
        .map(|_| {
            let mut command = rig.plain(Seat::Client, Path::new("sh"));
            command.args(["-c", "while :; do :; done"]).spawn().map(Process)
        })
        .collect::<std::io::Result<_>>()?;
    let suite = suite(server.port, 64, 3, "[[expect]]\nmetric = \"ttft.p50\"\nmax = \"202ms\"\n");
    let ran = Ran::of(rig.meek(Seat::Client, rig::tokgate()), &folder, &suite)?;
    let judgement = &ran.cell()["judgement"];
    let words = judgement["message"].as_str().unwrap_or_default();
    println!("client on a busy core: exit {:?}, {}: {words}", ran.code, judgement["verdict"]);
    let right = ran.code == Some(31) && words.contains("the client was the limit");
    Ok(if right {
        Vec::new()
    } else {
        vec!["busy: an error, \"the client was the limit\"".to_owned()]
    })
}
