//! The rig of the benches that measure the client: a simulated engine on one core, whoever reads from it on another,
//! the engine's truth log, and what a process has used.
//!
//! Cores and priorities are set by `taskset` and `chrt`; [`Rig::words`] says what was possible. Linux only.

// Each bench uses a part of it.
#![allow(dead_code)]

pub mod truth;

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How processes can be placed on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Rig {
    /// The cores of client and server; `None` where there are fewer than two or no `taskset`.
    cores: Option<(usize, usize)>,
    /// Whether processes may run with real-time priority.
    real_time: bool,
}

/// Who runs where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    Client,
    Server,
}

impl Rig {
    /// Finds out what is possible here.
    pub fn find() -> Rig {
        let cores: Vec<usize> = allowed_cores().into_iter().collect();
        let runs = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let cores = match cores.as_slice() {
            [client, server, ..] if runs("taskset", &["-c", &client.to_string(), "true"]) => {
                Some((*client, *server))
            }
            _ => None,
        };
        Rig { cores, real_time: runs("chrt", &["--rr", "1", "true"]) }
    }

    /// What was possible, for the head of a table.
    pub fn words(&self) -> String {
        let place = match self.cores {
            Some((client, server)) => format!("client on core {client}, server on core {server}"),
            None => "NOT PINNED (fewer than two cores, or no taskset)".to_owned(),
        };
        let priority = if self.real_time {
            "both with SCHED_RR"
        } else {
            "NO REAL-TIME PRIORITY (chrt is missing or refused)"
        };
        format!("{place}, {priority}")
    }

    /// Whether figures taken here can be held against a target.
    pub fn counts(&self) -> bool {
        self.cores.is_some() && self.real_time
    }

    /// A command for `program` at its seat. The process that it starts becomes the program, so that
    /// its id is the program's.
    pub fn command(&self, seat: Seat, program: &Path) -> Command {
        let priority = match seat {
            Seat::Client => "1",
            Seat::Server => "2",
        };
        let real_time = if self.real_time { Some(["chrt", "--rr", priority]) } else { None };
        self.placed(seat, real_time.as_ref().map_or(&[], |words| words.as_slice()), program)
    }

    /// The same without real-time priority, as nice as can be.
    pub fn meek(&self, seat: Seat, program: &Path) -> Command {
        self.placed(seat, &["nice", "-n", "19"], program)
    }

    /// The same with the priority that everything has.
    pub fn plain(&self, seat: Seat, program: &Path) -> Command {
        self.placed(seat, &[], program)
    }

    fn placed(&self, seat: Seat, priority: &[&str], program: &Path) -> Command {
        let core = self.cores.map(|(client, server)| match seat {
            Seat::Client => client.to_string(),
            Seat::Server => server.to_string(),
        });
        let mut words: Vec<String> = Vec::new();
        if let Some(core) = core {
            words.extend(["taskset".to_owned(), "-c".to_owned(), core]);
        }
        words.extend(priority.iter().map(|word| (*word).to_owned()));
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command
    }
}

fn allowed_cores() -> BTreeSet<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = list.unwrap_or_default().trim().split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.trim().parse::<usize>().ok()?..=to.trim().parse::<usize>().ok()?)
    });
    ranges.flatten().collect()
}

/// tokgate as it was built for this bench.
pub fn tokgate() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tokgate"))
}

/// An empty folder of this name for a bench's files.
pub fn folder(name: &str) -> std::io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A machine with eight GPUs for whoever loads the driver's library by these variables: a stub of it and a script
/// in `folder`. An error where there is no C compiler.
pub fn eight_gpus(folder: &Path) -> std::io::Result<[(&'static str, PathBuf); 2]> {
    let (library, script) = (folder.join("nvml-stub.so"), folder.join("gpus"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml/nvml.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source);
    if !cc.status()?.success() {
        return Err(std::io::Error::other("the stub of the driver's library can't be built"));
    }
    let lines = [
        "name NVIDIA H200",
        "total 151397597184",
        "used 140000000000",
        "series power 0:300000 3600:700000",
        "energy counter",
        "utilisation 99",
        "sm-clock 1980",
        "memory-clock 3201",
        "temperature 60",
        "throttle 4",
        "ecc-corrected 0",
        "ecc-uncorrected 0",
        "process 999999999 130000000000",
    ];
    let gpus = (0..8).flat_map(|gpu| lines.map(|line| format!("gpu {gpu} {line}\n")));
    let text: String = std::iter::once("driver 580.65.06\n".to_owned()).chain(gpus).collect();
    std::fs::write(&script, text)?;
    Ok([("TOKGATE_NVML", library), ("NVML_STUB", script)])
}

/// Nanoseconds of the clock that the truth log has.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A child process that does not outlive its owner.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The simulated engine, serving.
pub struct Server {
    process: Process,
    pub port: u16,
    pub truth: PathBuf,
}

impl Server {
    /// Starts one on the server's core with a profile; its truth log lies in `folder`.
    pub fn start(rig: &Rig, folder: &Path, profile: &str) -> std::io::Result<Server> {
        let (file, truth) = (folder.join("profile.toml"), folder.join("truth.jsonl"));
        std::fs::write(&file, profile)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = rig.command(Seat::Server, tokgate());
        command.arg("sim").arg("--profile").arg(&file).arg("--truth").arg(&truth);
        command.args(["--port", &port.to_string()]).stderr(Stdio::null());
        let process = Process(command.spawn()?);
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(std::io::Error::other("the simulated engine does not serve"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Server { process, port, truth })
    }

    /// Ends it, so that its log is whole; what the log says.
    pub fn stop(mut self) -> std::io::Result<Vec<truth::Request>> {
        let mut kill = Command::new("kill");
        kill.arg(self.process.0.id().to_string()).status()?;
        self.process.0.wait()?;
        truth::read(&self.truth)
    }

    pub fn id(&self) -> u32 {
        self.process.0.id()
    }
}

/// What a process has used.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// When this was read, in nanoseconds of [`now`].
    pub at: u64,
    /// Processor time of its present threads in seconds.
    pub processor: f64,
    /// Greatest resident size in bytes.
    pub memory: f64,
}

impl Used {
    /// What it and its children have used by now; `None` once it has ended.
    pub fn of(process: u32) -> Option<Used> {
        let mut used = Used { at: now(), processor: 0.0, memory: 0.0 };
        let mut children = Vec::new();
        for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
            let Ok(stat) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
            used.processor += stat.split(' ').next()?.parse::<f64>().ok()? / 1e9;
            let found = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            children.extend(found.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        used.memory = line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()? * 1024.0;
        for child in children.into_iter().filter_map(Used::of) {
            used.processor += child.processor;
            used.memory += child.memory;
        }
        Some(used)
    }
}

/// What a process used over its life, looked at every 50 ms.
#[derive(Debug, Default)]
pub struct Usage(Vec<Used>);

impl Usage {
    /// Watches a process to its end.
    pub fn watch(process: &mut Process) -> std::io::Result<(Usage, std::process::ExitStatus)> {
        let mut usage = Usage::default();
        loop {
            if let Some(status) = process.0.try_wait()? {
                return Ok((usage, status));
            }
            usage.0.extend(Used::of(process.0.id()));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Greatest resident size in bytes.
    pub fn memory(&self) -> f64 {
        self.0.iter().map(|used| used.memory).fold(0.0, f64::max)
    }

    /// The first and the last look within a stretch of time.
    pub fn within(&self, from: u64, to: u64) -> Option<(Used, Used)> {
        let mut inside = self.0.iter().filter(|used| used.at >= from && used.at <= to);
        let first = inside.next()?;
        inside.next_back().map(|last| (*first, *last))
    }
}

/// The quantile `q` of some values, by nearest rank; NaN of none.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let rank = (values.len() as f64 * q).ceil().max(1.0) as usize - 1;
    values.get(rank).copied().unwrap_or(f64::NAN)
}

/// The middle of some values.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}
