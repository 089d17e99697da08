//! How fast streams are read: bytes of recorded answers to traces, beside a plain search for line ends.
//!
//! `cargo bench --bench decode` takes captures of real engines from `tests/wire`, makes long streams of them, feeds
//! them event by event and in pieces of 16 KiB, and prints MB/s and time per event.

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokgate::clock::Stamp;
use tokgate::load::Outcome;
use tokgate::load::answer::{Answer, End, Head};
use tokgate::load::sse::Sse;

/// Events of a stream, at least.
const EVENTS: usize = 4096;

const CAPTURES: [&str; 5] = [
    "vllm-completions-running-usage",
    "vllm-completions-usage",
    "vllm-chat-running-usage",
    "llama-completions",
    "llama-chat-usage",
];

fn main() -> ExitCode {
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !std::env::args().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    println!(
        "{:<32} │ {:>8} {:>9} │ {:>14} {:>9} │ {:>9} │ {:>9}",
        "capture", "bytes", "an event", "event by event", "ns each", "16 KiB", "memchr"
    );
    println!(
        "{:<32} │ {:>8} {:>9} │ {:>14} {:>9} │ {:>9} │ {:>9}",
        "", "", "bytes", "MB/s", "", "MB/s", "MB/s"
    );
    for name in CAPTURES {
        let Some(stream) = Recorded::load(name) else {
            eprintln!("tests/wire/engines/{name}.http holds no event stream");
            return ExitCode::FAILURE;
        };
        stream.bench(name);
    }
    ExitCode::SUCCESS
}

/// A long stream of one capture.
struct Recorded {
    /// Each event with its blank line.
    events: Vec<Vec<u8>>,
}

impl Recorded {
    /// The capture with its middle events repeated, and its end.
    fn load(name: &str) -> Option<Recorded> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/engines");
        let bytes = std::fs::read(folder.join(format!("{name}.http"))).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        // Chunked framing is taken off: events begin with `data:` and end at their line.
        let lines = text.lines().filter(|line| line.starts_with("data:"));
        let found: Vec<Vec<u8>> = lines.map(|line| format!("{line}\n\n").into_bytes()).collect();
        // Whatever has a finish reason, a usage alone or `[DONE]` stays at the end.
        let middle = found.get(1..found.len().checked_sub(4)?)?;
        let mut events = vec![found.first()?.clone()];
        events.extend(middle.iter().cycle().take(EVENTS).cloned());
        events.extend(found[found.len() - 4..].iter().cloned());
        Some(Recorded { events })
    }

    fn bench(&self, name: &str) {
        let whole = self.events.concat();
        let megabytes = whole.len() as f64 / 1e6;
        let each = fastest(|| feed(self.events.iter().map(Vec::as_slice)));
        let pieces = fastest(|| feed(whole.chunks(16 * 1024)));
        let search = fastest(|| memchr::memchr_iter(b'\n', black_box(&whole)).count());
        let lines = fastest(|| {
            let mut count = 0;
            let mut sse = Sse::new();
            self.events.iter().for_each(|event| sse.feed(event, &mut |_| count += 1));
            count
        });
        let events = self.events.len() as f64;
        println!(
            "{name:<32} │ {:>8} {:>9.0} │ {:>14.0} {:>9.0} │ {:>9.0} │ {:>9.0}   (lines alone {:.0} ns)",
            whole.len(),
            whole.len() as f64 / events,
            megabytes / each.as_secs_f64(),
            each.as_nanos() as f64 / events,
            megabytes / pieces.as_secs_f64(),
            megabytes / search.as_secs_f64(),
            lines.as_nanos() as f64 / events,
        );
    }
}

/// Reads a stream to its trace; events with material in it.
fn feed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> usize {
    let head =
        Head { status: 200, content_type: Some("text/event-stream"), content_encoding: None };
    let mut answer = Answer::new(head);
    let mut at = Stamp(0);
    for piece in pieces {
        at = at + Duration::from_micros(1);
        answer.feed(at, black_box(piece), &mut |event| {
            black_box(event);
        });
    }
    let trace = answer.end(0, Stamp(0), at, &End::Clean, &mut |_| {});
    assert_eq!(trace.outcome, Outcome::Complete);
    trace.events.len()
}

/// The least time of a second of tries: what else the machine does only adds.
fn fastest<T>(mut work: impl FnMut() -> T) -> Duration {
    let begun = Instant::now();
    let mut least = Duration::MAX;
    while begun.elapsed() < Duration::from_millis(700) {
        let one = Instant::now();
        black_box(work());
        least = least.min(one.elapsed());
    }
    least
}
