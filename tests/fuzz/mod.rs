//! The readers of foreign text against text that nobody would write: seeds out of this project, mutated, and whatever once
//! broke one of them, again.
//!
//! The numbers are the same on each machine, so a run is repeatable. `TOKGATE_FUZZ_SECONDS=60` makes each target run for
//! that long, with other mutations every time. An input that breaks a target is left in `tests/fuzz/crashes/TARGET`, where
//! the next run finds it; it is committed with what mends it. The same targets run under cargo-fuzz: see `fuzz/README.md`.

mod targets;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::harness::{Project, shipped};

pub use targets::suite;

/// The longest input that mutation makes, in bytes.
const LONGEST: usize = 16 * 1024;

/// Takes an input, and panics where it breaks a property.
type Reader = Box<dyn Fn(&[u8])>;

/// A reader under test.
struct Target {
    name: &'static str,
    run: Reader,
    seeds: Vec<Vec<u8>>,
    /// Pieces that mutation puts in.
    words: &'static [&'static str],
    /// Inputs of a run that is not asked to be longer.
    inputs: u32,
}

#[test]
fn event_streams_of_any_bytes_are_those_of_the_grammar() {
    let run = Box::new(targets::sse);
    Target { name: "sse", run, seeds: headed(&answers()), words: SSE, inputs: 4000 }.hunt();
}

#[test]
fn answers_of_any_bytes_end_in_a_sound_trace() {
    let run = Box::new(targets::event);
    Target { name: "event", run, seeds: headed(&answers()), words: JSON, inputs: 1500 }.hunt();
}

#[test]
fn metrics_of_any_bytes_are_numbers_or_nothing() {
    let run = Box::new(targets::prometheus);
    let mut seeds = files("tests/data/engine", "prom");
    // Few lines each, so that a mutation meets one that matters.
    let short: Vec<Vec<u8>> = seeds
        .iter()
        .flat_map(|text| {
            text.split(|byte| *byte == b'\n')
                .collect::<Vec<_>>()
                .chunks(4)
                .map(|few| few.join(&b'\n'))
                .collect::<Vec<_>>()
        })
        .filter(|few| few.iter().any(|byte| *byte != b'#'))
        .collect();
    seeds.extend(short);
    Target { name: "prometheus", run, seeds, words: METRICS, inputs: 4000 }.hunt();
}

#[test]
fn suites_of_any_bytes_are_plans_or_problems() {
    let project = Project::new();
    for name in ["default.toml", "inkling.toml", "smoke.toml"] {
        let text = std::fs::read_to_string(shipped(&format!("suites/sim/{name}"))).unwrap();
        project.file(&format!("sim/{name}"), &text);
    }
    let run = Box::new(move |text: &[u8]| targets::suite(project.path(), text));
    let mut seeds = files("suites", "toml");
    seeds.extend(files("tests/rejected", "toml"));
    seeds.extend(files("tests/wild", "toml"));
    Target { name: "suite", run, seeds, words: SUITE, inputs: 250 }.hunt();
}

#[test]
fn data_sets_of_any_bytes_are_prompts_or_a_refusal() {
    let run = Box::new(targets::dataset);
    let mut files = files("tests/fuzz/seeds/dataset", "json");
    files.extend(self::files("tests/fuzz/seeds/dataset", "jsonl"));
    Target { name: "dataset", run, seeds: headed(&files), words: DATASET, inputs: 3000 }.hunt();
}

#[test]
fn results_of_tools_of_any_bytes_are_figures_or_a_refusal() {
    let run = Box::new(targets::tool);
    let mut seeds = files("tests/data/results", "json");
    seeds.extend(files("tests/data/results", "jsonl"));
    Target { name: "tool", run, seeds, words: RESULT, inputs: 1000 }.hunt();
}

#[test]
fn files_beside_a_suite_of_any_bytes_read_back_or_are_refused() {
    let run = Box::new(targets::kept);
    let seeds = files("tests/fuzz/seeds/kept", "jsonl");
    Target { name: "kept", run, seeds, words: KEPT, inputs: 6000 }.hunt();
}

const KEPT: &[&str] = &[
    "{",
    "}",
    ",",
    ":",
    "\"",
    "\n",
    "\r\n",
    "null",
    "NaN",
    "0",
    "-1",
    "1e-300",
    "1e308",
    "1e999",
    "4294967296",
    "\"sd\":1e-200,",
    "\"df\":0,",
    "\"values\":{}",
    "\"values\":[1,2,3]",
    "<<<<<<< HEAD\n",
    "=======\n",
    "{\"cell\":",
    "{\"run\":",
    "{\"noise\":",
    "\u{feff}",
];
const SSE: &[&str] = &[
    "data: ",
    "data:",
    "data",
    "event: error\n",
    "event:",
    ":",
    ": ping\n",
    "\n",
    "\n\n",
    "\r",
    "\r\n",
    "\u{feff}",
    "id: 1\n",
    "retry: 10\n",
    "[DONE]",
    " ",
    "\0",
];
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "-1",
    "1e999",
    "18446744073709551616",
    "0.5",
    "\\u0000",
    "\\ud800",
    "\"error\":",
    "\"error\":{\"message\":\"x\"}",
    "\"object\":\"error\"",
    "\"choices\":",
    "[{\"text\":\"a\"}]",
    "\"delta\":{\"content\":\"a\"}",
    "\"finish_reason\":\"length\"",
    "\"finish_reason\":\"abort\"",
    "\"usage\":",
    "{\"completion_tokens\":2,\"prompt_tokens\":1}",
    "\"completion_tokens\":4294967296",
    "\"timings\":{\"predicted_n\":3}",
    "data: [DONE]\n\n",
    "data: ",
    "\n\n",
    "event: error\n",
];
const DATASET: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\n",
    " ",
    "null",
    "0",
    "-1",
    "1e999",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\"\"",
    "\"conversations\":",
    "{\"from\":\"human\",\"value\":\"a\"}",
    "{\"from\":\"gpt\",\"value\":\"b\"}",
    "\"prompt\":",
    "\"messages\":",
    "{\"role\":\"user\",\"content\":\"a\"}",
    "\"output-tokens\":",
    "\"max_tokens\":18446744073709551616",
];
const RESULT: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\n",
    "\\",
    "null",
    "NaN",
    "-Infinity",
    "0",
    "-1",
    "-0.0",
    "1e308",
    "1e999",
    "18446744073709551616",
    "\"12\"",
    "\"completed\":",
    "\"failed\":",
    "\"errors\":",
    "\"median_ttft_ms\":",
    "\"benchmarks\":[",
    "\"request_totals\":",
    "\u{feff}",
];
const METRICS: &[&str] = &[
    "{",
    "}",
    "\"",
    "\\",
    "\\n",
    ",",
    "=",
    " ",
    "\n",
    "\t",
    "NaN",
    "+Inf",
    "-Inf",
    "1e999",
    "-0",
    "1.5e-3",
    "# EOF",
    "# TYPE x y",
    "vllm:num_requests_running",
    "vllm:num_preemptions_total 1\n",
    "_created",
    "_bucket{le=\"+Inf\"} 1",
    "engine=\"1\"",
    "tp_rank=\"1\"",
    "num_gpu_blocks=\"99999999999\"",
    "block_size=\"99999999999\"",
    "kv_cache_size_tokens=\"-1\"",
    "vllm:cache_config_info{num_gpu_blocks=\"8\",block_size=\"16\"} 1\n",
    "sglang:spec_accept_length 2\n",
    "} 1 17 # {a=\"b\"} 1",
];
const SUITE: &[&str] = &[
    "\"",
    "'",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\"\"\"",
    "nan",
    "-1",
    "\"8k\"",
    "\"..\"",
    "[[test]]\n",
    "[[expect]]\n",
    "kind = \"decode\"\n",
    "matrix.",
    "min",
    "max",
    "\u{202e}",
    "é",
    "\0",
    "1979-05-27",
];

/// Bodies of answers: wire cases and captures.
fn answers() -> Vec<Vec<u8>> {
    let mut found = files("tests/wire/cases", "sse");
    found.extend(files("tests/data", "sse"));
    for capture in files("tests/wire/engines", "http") {
        let body = capture.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        found.push(capture[body..].to_vec());
    }
    found.retain(|body| body.len() <= LONGEST);
    found
}

/// Bodies behind a byte that says how they come.
fn headed(bodies: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let firsts = (0..=255u8).step_by(5).cycle();
    let seeds = firsts.zip(bodies.iter().cycle()).take(4 * bodies.len());
    seeds.map(|(first, body)| [&[first], body.as_slice()].concat()).collect()
}

fn files(folder: &str, extension: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(shipped(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no seeds in {folder}");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

impl Target {
    /// Replays what once broke it, then the seeds as they are, then mutations of them.
    fn hunt(&self) {
        let crashes = shipped("tests/fuzz/crashes").join(self.name);
        if let Ok(entries) = std::fs::read_dir(&crashes) {
            let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            for path in paths {
                let input = std::fs::read(&path).unwrap();
                self.one(&input, Err(&path));
            }
        }
        self.seeds.iter().for_each(|seed| self.one(seed, Ok(&crashes)));
        let seconds = std::env::var("TOKGATE_FUZZ_SECONDS").ok().map(|text| {
            text.parse()
                .unwrap_or_else(|_| panic!("TOKGATE_FUZZ_SECONDS={text}: write whole seconds"))
        });
        let begun = Instant::now();
        let mut dice = Dice(20_270_630);
        if seconds.is_some() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            dice = Dice(now.as_nanos() as u64 | 1);
        }
        let mut inputs = 0;
        while match seconds {
            Some(seconds) => begun.elapsed() < Duration::from_secs(seconds),
            None => inputs < self.inputs,
        } {
            self.one(&self.mutated(&mut dice), Ok(&crashes));
            inputs += 1;
        }
    }

    /// Runs the target on an input; where that breaks, the input is kept in `kept`, or stands there already.
    fn one(&self, input: &[u8], kept: Result<&Path, &Path>) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.run)(input))) else { return };
        match kept {
            Ok(folder) => {
                let mut hasher = DefaultHasher::new();
                input.hash(&mut hasher);
                let path = folder.join(format!("{:016x}", hasher.finish()));
                std::fs::create_dir_all(folder).unwrap();
                std::fs::write(&path, input).unwrap();
                println!("{}: the input is kept in {}", self.name, path.display());
            }
            Err(path) => println!("{}: broken again by {}", self.name, path.display()),
        }
        resume_unwind(panic);
    }

    fn mutated(&self, dice: &mut Dice) -> Vec<u8> {
        let mut input = self.seeds[dice.below(self.seeds.len())].clone();
        for _ in 0..=dice.below(4) {
            let at = dice.below(input.len() + 1);
            let longest = if dice.below(4) == 0 { 200 } else { 12 };
            let length = 1 + dice.below(longest);
            let upto = (at + length).min(input.len());
            match dice.below(9) {
                0 if at < input.len() => input[at] ^= 1 << dice.below(8),
                1 if at < input.len() => input[at] = dice.below(256) as u8,
                2 => drop(input.drain(at..upto)),
                3 => {
                    let again = input[at..upto].to_vec();
                    input.splice(at..at, again);
                }
                4 | 5 => {
                    let word = self.words[dice.below(self.words.len())];
                    input.splice(at..at, word.bytes());
                }
                6 => {
                    let word = self.words[dice.below(self.words.len())];
                    input.splice(at..upto, word.bytes());
                }
                7 => {
                    let other = &self.seeds[dice.below(self.seeds.len())];
                    let from = dice.below(other.len() + 1);
                    let piece = &other[from..(from + length * 8).min(other.len())];
                    input.splice(at..at, piece.iter().copied());
                }
                _ => input.truncate(at),
            }
        }
        input.truncate(LONGEST);
        input
    }
}

/// Numbers that look random and are the same on each machine (xorshift64*).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}
