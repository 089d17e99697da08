//! Records of very large runs, made of a small one: what people see of ten thousand cells must fit where they look.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Columns of a matrix.
const ACROSS: usize = 100;

/// A suite whose cells are measured in virtual time: prefill, and a decode of two axes, half of which is too slow, one in
/// doubt, one over capacity.
pub const SUITE: &str = r#"version = 1
[suite]
name = "large"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.context = ["1K", "8K", "30K"]
matrix.concurrency = [1, 2, 4]
[[expect]]
metric = "output-throughput"
where = { concurrency = 1 }
slack = "5%"
min = 1
[[expect]]
metric = "output-throughput"
where = { concurrency = 2 }
slack = "5%"
min = 100_000
[[expect]]
metric = "ttft.mean"
where = { concurrency = "2.." }
max = "10s"
[[expect]]
metric = "ttft.p90"
where = { concurrency = 4, context = "1K" }
max = "1ms"
"#;

/// A record of so many cells: those of another again and again, each in a place of its own with all that was observed.
pub fn record(source: &Value, cells: usize) -> Value {
    let mut record = source.clone();
    let like = |list: &Value, at: usize| {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        list[at % list.len()].clone()
    };
    let (mut planned, mut outcomes) = (Vec::new(), Vec::new());
    for at in 0..cells {
        let (context, concurrency) = (1 + at / ACROSS, 1 + at % ACROSS);
        let mut cell = like(&source["header"]["cells"], at);
        cell["axes"] = json!([
            ["context", { "tokens": 1024 * context }],
            ["concurrency", { "integer": concurrency }]
        ]);
        cell["id"] = json!(format!("context={context}K,concurrency={concurrency}"));
        planned.push(cell);
        outcomes.push(like(&source["cells"], at));
    }
    record["header"]["cells"] = Value::Array(planned);
    record["cells"] = Value::Array(outcomes);
    record
}

/// Runs a command to its end: how long it took, and the most memory that it had.
///
/// # Errors
/// It can't be started or does not end well.
#[allow(unsafe_code)]
pub fn child(command: &mut Command) -> Result<(Duration, u64), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let pid = i32::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: both are written by the call and hold no pointers; all zeros is a value of `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let ended = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    if ended != pid {
        return Err(std::io::Error::last_os_error().into());
    }
    let status = ExitStatus::from_raw(status);
    if !status.success() {
        return Err(format!("{command:?}: {status}").into());
    }
    Ok((began.elapsed(), u64::try_from(usage.ru_maxrss)? * 1024))
}
