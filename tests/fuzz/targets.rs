//! What must hold of any bytes at all: one function for each reader of foreign text. Used by the mutation run in `mod.rs`
//! and, through `#[path]`, by the targets of cargo-fuzz in `fuzz/`.
//!
//! A target panics where a property is broken. It needs the public parts of tokgate alone.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use tokgate::clock::Stamp;
use tokgate::engine::exposition::{self, Sample};
use tokgate::engine::metrics::Gauges;
use tokgate::engine::readings::Readings;
use tokgate::judge::ratio::{Noise, of_launches};
use tokgate::load::answer::{Answer, End, Head, Progress};
use tokgate::load::dataset::{self, Content, DatasetError, Entries};
use tokgate::load::event;
use tokgate::load::sse::Sse;
use tokgate::load::{Outcome, TokenEvent, Trace};
use tokgate::matrix::{Selection, expand};
use tokgate::measure::metric::CATALOGUE;
use tokgate::measure::{Metric, Preset, document, told};
use tokgate::record::baseline::Baseline;
use tokgate::record::noise::NoiseFile;
use tokgate::suite::{LoadOptions, Problem, load};

// ------------------------------------------------------------------------------------------------------ event streams

/// Event streams: the same events come out however the bytes are cut, and they are those of the grammar. The first byte
/// says how they are cut.
pub fn sse(input: &[u8]) {
    let Some((&cut, stream)) = input.split_first() else { return };
    let whole = events([stream]);
    assert_eq!(whole, by_the_grammar(stream), "other events than the grammar's");
    assert_eq!(
        events(stream.chunks(usize::from(cut) + 1)),
        whole,
        "cut every {} bytes",
        usize::from(cut) + 1
    );
    let (before, behind) = stream.split_at(usize::from(cut).min(stream.len()));
    assert_eq!(events([before, behind]), whole, "cut behind {cut} bytes");
}

/// Name and data of each event.
type Events = Vec<(Vec<u8>, Vec<u8>)>;

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Events {
    let mut sse = Sse::new();
    let mut found = Vec::new();
    for piece in pieces {
        sse.feed(piece, &mut |message| found.push((message.event.to_vec(), message.data.to_vec())));
    }
    found
}

/// The grammar of event streams in its plainest form: split into whole lines, then read line by line.
fn by_the_grammar(stream: &[u8]) -> Events {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if_eq(&b'\n');
                lines.push(std::mem::take(&mut line));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            other => line.push(other),
        }
    }
    let (mut name, mut data, mut found) = (Vec::new(), Vec::<Vec<u8>>::new(), Vec::new());
    for line in lines {
        if line.is_empty() {
            if !data.is_empty() {
                found.push((name.clone(), data.join(&b'\n')));
            }
            name.clear();
            data.clear();
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => data.push(value.to_vec()),
            b"event" => name = value.to_vec(),
            _ => {}
        }
    }
    found
}

// ------------------------------------------------------------------------------------------------------------ answers

/// Whole answers and single payloads: the same trace comes out however the body is cut, and it is sound. The first byte
/// says what the head of the answer is and how the body is cut.
pub fn event(input: &[u8]) {
    let Some((&first, body)) = input.split_first() else { return };
    let _ = event::read(body);
    let _ = event::error_message(body);
    let head = Head {
        status: [200, 200, 200, 400, 429, 500][usize::from(first) % 6],
        content_type: [Some("text/event-stream"), Some("application/json"), None]
            [usize::from(first) % 3],
        content_encoding: (first == 255).then_some("gzip"),
    };
    let end = match first % 5 {
        0 => End::Broken("reset".to_owned()),
        1 => End::Cancelled,
        _ => End::Clean,
    };
    let whole = answer(head, [body], &end);
    assert_eq!(
        answer(head, body.chunks(usize::from(first) + 1), &end),
        whole,
        "cut every {} bytes",
        usize::from(first) + 1
    );
    assert_eq!(answer(head, body.chunks(1), &end), whole, "byte by byte");
    sound(&whole.0);
}

fn answer<'a>(
    head: Head<'_>,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    end: &End,
) -> (Trace, usize) {
    let mut answer = Answer::new(head);
    let mut told = 0;
    let mut on_token = |_: TokenEvent| told += 1;
    for piece in pieces {
        if answer.feed(Stamp(7), piece, &mut on_token) == Progress::Over {
            break;
        }
    }
    let trace = answer.end(3, Stamp(5), Stamp(9), end, &mut on_token);
    (trace, told)
}

fn sound(trace: &Trace) {
    assert_eq!(trace.stream, 3);
    assert!(trace.ended >= trace.sent, "it ended before it was sent: {trace:?}");
    match &trace.outcome {
        Outcome::Complete => {
            assert!(!trace.events.is_empty(), "complete without a token: {trace:?}")
        }
        Outcome::Failed(failure) => assert!(!failure.message.is_empty(), "no words: {trace:?}"),
        Outcome::Cancelled => {}
    }
    assert!(
        trace.events.iter().all(|event| event.at >= trace.sent),
        "a token before its request: {trace:?}"
    );
}

// ------------------------------------------------------------------------------------------------------------ metrics

/// Metrics: what is read can be written and read again, and no figure is anything but a number.
pub fn prometheus(text: &[u8]) {
    let samples = exposition::parse(text);
    let written: String = samples.iter().map(written).collect();
    let again = exposition::parse(written.as_bytes());
    assert_eq!(again.len(), samples.len(), "{samples:?}\n{written}");
    for (one, other) in samples.iter().zip(&again) {
        let number = one.value == other.value || (one.value.is_nan() && other.value.is_nan());
        assert!(
            number && one.name == other.name && one.labels == other.labels,
            "{one:?}\n{other:?}"
        );
    }
    let (half, rest) = samples.split_at(samples.len() / 2);
    let readings = [
        Gauges::of(std::slice::from_ref(&samples)),
        Gauges::of(&[half.to_vec(), rest.to_vec()]),
        Gauges::of(&[samples.clone(), samples.clone()]),
        Gauges::of(&[rest.to_vec()]),
    ];
    let mut all = Readings::begin(Some(&readings[0]));
    for gauges in &readings {
        let figures = [
            gauges.running,
            gauges.waiting,
            gauges.preemptions,
            gauges.prefix_queries,
            gauges.prefix_hits,
        ];
        assert!(figures.iter().flatten().all(|figure| figure.is_finite()), "{gauges:?}");
        for share in [gauges.draft_acceptance, gauges.prefix_share].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&share), "{gauges:?}");
        }
        all.see(gauges);
        let _ = all.figures();
    }
}

fn written(sample: &Sample) -> String {
    let labels: Vec<String> = sample
        .labels
        .iter()
        .map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{name}=\"{value}\"")
        })
        .collect();
    format!("{}{{{}}} {}\n", sample.name, labels.join(","), sample.value)
}

// ---------------------------------------------------------------------------------------------------------- data sets

/// The longest that a refusal may be, in characters: a screen, not the file.
const LONGEST_REFUSAL: usize = 1500;

/// Data sets: prompts that can be sent, however the file is read, or a refusal with a place. The first byte says which
/// form is read, and how many bytes at a time.
pub fn dataset(input: &[u8]) {
    let Some((&first, text)) = input.split_first() else { return };
    let read = |text: &[u8], at_once: usize| -> Result<Entries, DatasetError> {
        let file = BufReader::with_capacity(at_once, text);
        if first % 2 == 0 { dataset::sharegpt(file) } else { dataset::jsonl(file) }
    };
    let whole = read(text, text.len() + 1);
    assert_eq!(
        read(text, usize::from(first) + 1),
        whole,
        "read {} bytes at once",
        u16::from(first) + 1
    );
    match whole {
        Ok(found) => {
            assert!(!found.entries.is_empty(), "neither prompts nor a refusal");
            for entry in &found.entries {
                assert!(entry.output != Some(0), "an output of nothing: {entry:?}");
                match &entry.content {
                    Content::Text(text) => assert!(!text.is_empty(), "an empty prompt: {entry:?}"),
                    Content::Messages(json) => {
                        let messages: Vec<serde_json::Value> =
                            serde_json::from_str(json).expect("messages are a list in JSON");
                        assert!(!messages.is_empty(), "no message: {entry:?}");
                    }
                }
            }
            // Lines stand for themselves: twice the file is twice the prompts.
            if first % 2 == 1 {
                let again = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
                let twice = read(&[text, b"\n", again].concat(), 64);
                let twice = twice.expect("each line was read before");
                assert_eq!(twice.entries.len(), 2 * found.entries.len());
            }
        }
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &dyn std::fmt::Display) {
    let words = error.to_string();
    assert!(!words.is_empty() && words.chars().count() <= LONGEST_REFUSAL, "{words}");
}

// ---------------------------------------------------------------------------------------------------- results of tools

const PRESETS: [Preset; 5] = [
    Preset::VllmBenchServe,
    Preset::Guidellm,
    Preset::Aiperf,
    Preset::SglangBenchServing,
    Preset::LlamaBench,
];

/// Results of tools: figures that are numbers, all that were wanted among them, or a refusal.
pub fn tool(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let documents = match document::read(&text) {
        Ok(documents) => documents,
        Err(error) => return refusal(&error),
    };
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(&text) {
        assert_eq!(documents, [value], "JSON is read as it stands");
    }
    for pointer in ["", "/0", "/median_ttft_ms", "/a~1b/~0", "/benchmarks/0/metrics"] {
        match document::number(&documents[0], pointer) {
            Ok(number) => assert!(number.is_finite(), "{pointer}: {number}"),
            Err(error) => refusal(&error),
        }
    }
    for preset in PRESETS {
        let every = every_metric().filter(|metric| preset.produces(*metric));
        let mut wishes: Vec<Vec<Metric>> = every.map(|metric| vec![metric]).collect();
        wishes.push(Vec::new());
        for wanted in &wishes {
            let found = match preset.read(&documents, wanted) {
                Ok(found) => found,
                Err(error) => {
                    refusal(&error);
                    continue;
                }
            };
            for (metric, value) in &found.figures {
                assert!(preset.produces(*metric), "{preset:?} has no {metric}");
                assert!(value.is_finite() && *value >= 0.0, "{preset:?} {metric} {value}");
            }
            assert!(wanted.iter().all(|metric| found.figures.contains_key(metric)), "{wanted:?}");
            let sane = found.requests.is_none_or(|(failed, all)| failed < all || all == 0);
            assert!(sane, "{preset:?}: {:?}", found.requests);
            let repeats: [BTreeMap<Metric, f64>; 2] = [found.figures.clone(), found.figures];
            let _ = told::observations(&repeats);
        }
    }
}

// ------------------------------------------------------------------------------------------- files beside a suite

/// Baselines and noise files: what reads back as itself and can be judged by, or a refusal.
pub fn kept(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let path = Path::new("kept.jsonl");
    match Baseline::parse(path, &text) {
        Ok(read) => {
            let again = Baseline::parse(path, &read.render());
            assert_eq!(again.ok().as_ref(), Some(&read), "it does not read back");
            for line in &read.cells {
                assert!(line.values.values().all(|value| value.is_finite()), "{line:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty() && !error.help().is_empty()),
    }
    match NoiseFile::parse(path, &text) {
        Ok(read) => {
            let again = NoiseFile::parse(path, &read.render());
            assert_eq!(again.ok().as_ref(), Some(&read), "it does not read back");
            let noises: Vec<Noise> = read.lines().iter().map(|line| line.noise()).collect();
            for (one, other) in noises.iter().zip(noises.iter().rev()) {
                let both = of_launches(&[1.0], Some(one.with(*other)), 0.05).unwrap();
                let (lower, upper) = (both.lower.unwrap(), both.upper.unwrap());
                assert!(lower < 1.0 && 1.0 < upper, "{one:?} {other:?}: {both:?}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty() && !error.help().is_empty()),
    }
}

fn every_metric() -> impl Iterator<Item = Metric> {
    let suffixes = ["", ".p50", ".p90", ".p95", ".p99", ".mean", ".max"];
    let names =
        CATALOGUE.iter().flat_map(move |entry| suffixes.map(|it| format!("{}{it}", entry.name)));
    names.filter_map(|name| name.parse().ok())
}

// ------------------------------------------------------------------------------------------------------------- suites

/// Suites: a plan, or problems that each say where and what to write instead. `folder` is where it is put; files that it
/// extends are looked for there.
pub fn suite(folder: &Path, text: &[u8]) {
    let path = folder.join("suite.toml");
    std::fs::write(&path, text).expect("the folder can be written to");
    let text = String::from_utf8_lossy(text);
    match load(&path, &LoadOptions::default()) {
        Err(problems) => {
            assert!(problems.has_errors(), "{text}");
            assert!(!problems.render(false).is_empty());
            for problem in &problems.list {
                if let Some(lack) = lacking(problem, problems.source.end()) {
                    panic!("{lack}: {problem:?}\n{text}");
                }
            }
        }
        Ok(loaded) => {
            let Err(troubles) = expand(Arc::new(loaded.suite), &Selection::default()) else {
                return;
            };
            for trouble in &troubles {
                let place =
                    trouble.span.is_some() || trouble.place.is_some() || trouble.key.is_some();
                // A matrix is too large as a whole.
                let place = place || trouble.code == "too-many-cells";
                assert!(place, "no place: {trouble:?}\n{text}");
                assert!(trouble.help.is_some(), "no help: {trouble:?}\n{text}");
            }
        }
    }
}

/// What is wrong with a problem.
fn lacking(problem: &Problem, end: usize) -> Option<&'static str> {
    let inside = |span: &std::ops::Range<usize>| span.start <= span.end && span.end <= end;
    let nowhere = problem.span.is_none() && !problem.message.contains(".toml");
    if !problem.span.as_ref().is_none_or(inside) {
        Some("its place is outside of the text")
    } else if !problem.warning && nowhere {
        Some("it has no place")
    } else if problem.help.as_ref().is_none_or(String::is_empty) {
        Some("it does not help")
    } else {
        None
    }
}
