//! The workload of a test in words: what makes its figures comparable with those of another day.
//!
//! Everything that a suite says of the measurement itself, by key: what is measured, for how long,
//! with which requests. What serves them is not part of it, since that is what comparisons are for,
//! nor are the values of its axes, which tell the cells apart.

use std::collections::BTreeMap;

use super::{
    Amount, Capacity, CommandForm, DecodeSetting, LengthSetting, Prefix, Request, ServeSetting,
    Test, TestSetting,
};
use crate::load::{Arrival, Length};
use crate::measure::{Base, Direction};
use crate::quantity::print_duration;

impl Test {
    /// The workload, by key of the suite.
    pub fn workload(&self) -> BTreeMap<String, String> {
        let mut words = BTreeMap::new();
        let mut say = |key: &str, value: String| {
            words.insert(key.to_owned(), value);
        };
        say("kind", self.kind.kind().name().to_owned());
        match &self.kind {
            TestSetting::Prefill { samples, context } => {
                say("samples", samples.to_string());
                say("context", context.to_string());
            }
            TestSetting::Decode(setting) => decode(setting, &mut say),
            TestSetting::Serve(setting) => serve(setting, &mut say),
            TestSetting::Startup => {}
            TestSetting::Command(setting) => {
                say(
                    "command",
                    match &setting.command.form {
                        CommandForm::Line(line) => line.clone(),
                        CommandForm::Words(words) => words.join(" "),
                    },
                );
                say("repeat", setting.repeat.to_string());
                if let Some(preset) = setting.preset {
                    say(
                        "preset",
                        serde_json::to_value(preset).map_or_else(|_| String::new(), text),
                    );
                }
                for (metric, pointer) in &setting.metrics {
                    let entry = Base::User(*metric).entry();
                    let better = match entry.better {
                        Direction::Higher => "higher",
                        Direction::Lower => "lower",
                    };
                    let words = [pointer, entry.unit, better].join(" ");
                    say(&format!("metrics.{}", metric.name()), words);
                }
            }
        }
        match &self.kind {
            TestSetting::Prefill { .. } | TestSetting::Decode(_) | TestSetting::Serve(_) => {
                request(&self.request, &mut say);
            }
            TestSetting::Startup | TestSetting::Command(_) => {}
        }
        words
    }
}

fn decode(setting: &DecodeSetting, say: &mut impl FnMut(&str, String)) {
    say("duration", print_duration(setting.duration));
    say("min-tokens", setting.min_tokens.to_string());
    say("max-output", setting.max_output.to_string());
    say("prefix", prefix(setting.prefix));
    say("capacity", capacity(setting.capacity).to_owned());
    say("ttft-samples", setting.ttft_samples.to_string());
    say("context", setting.context.to_string());
    say("concurrency", setting.concurrency.to_string());
}

fn serve(setting: &ServeSetting, say: &mut impl FnMut(&str, String)) {
    let arrival = match setting.arrival {
        Arrival::Closed => "closed",
        Arrival::Burst => "burst",
        Arrival::Constant => "constant",
        Arrival::Poisson => "poisson",
    };
    say("arrival", arrival.to_owned());
    match setting.amount {
        Amount::Requests(n) => say("requests", n.to_string()),
        Amount::PerStream(n) => say("requests-per-stream", n.to_string()),
        Amount::Duration(time) => say("duration", print_duration(time)),
    }
    say("warmup-per-stream", setting.warmup_per_stream.to_string());
    say("output", length(setting.output));
    match &setting.dataset {
        Some(dataset) => {
            let name = dataset.file.file_name().unwrap_or_default();
            say("dataset", name.to_string_lossy().into_owned());
            let range = |(least, most): (Option<u64>, Option<u64>)| {
                let end = |end: Option<u64>| end.map(|n| n.to_string()).unwrap_or_default();
                format!("{}..{}", end(least), end(most))
            };
            say("dataset.input", range(dataset.input));
            say("dataset.output", range(dataset.output));
            say("dataset.total", range((None, dataset.total)));
        }
        None => say("input", length(setting.input)),
    }
    say("prefix", prefix(setting.prefix));
    let slo = &setting.slo;
    for (key, limit) in
        [("slo.ttft", slo.ttft), ("slo.tpot", slo.tpot), ("slo.e2e-latency", slo.e2e_latency)]
    {
        if let Some(limit) = limit {
            say(key, print_duration(limit));
        }
    }
    say("repeat", setting.repeat.to_string());
    say("concurrency", setting.concurrency.to_string());
}

fn request(request: &Request, say: &mut impl FnMut(&str, String)) {
    say("request.api", serde_json::to_value(request.api).map_or_else(|_| String::new(), text));
    if !request.body.is_empty() {
        // Keys of a map in their order, whatever the order of writing.
        let body: BTreeMap<_, _> = request.body.iter().collect();
        say("request.body", serde_json::to_string(&body).unwrap_or_default());
    }
    for (name, value) in &request.headers {
        say(&format!("request.headers.{name}"), value.clone());
    }
}

fn text(value: serde_json::Value) -> String {
    value.as_str().map(str::to_owned).unwrap_or_default()
}

fn prefix(prefix: Prefix) -> String {
    match prefix {
        Prefix::Unique => "unique".to_owned(),
        Prefix::Shared => "shared".to_owned(),
        Prefix::Cold => "cold".to_owned(),
        Prefix::Groups { groups, length } => format!("{groups} groups of {length}"),
    }
}

fn capacity(capacity: Capacity) -> &'static str {
    match capacity {
        Capacity::Reserve => "reserve",
        Capacity::Share => "share",
        Capacity::Off => "off",
    }
}

fn length(setting: LengthSetting) -> String {
    match setting {
        LengthSetting::Plain(length) => plain(length),
        LengthSetting::Jitter { around, share } => format!("jitter {share} around {around}"),
    }
}

fn plain(length: Length) -> String {
    match length {
        Length::Fixed(n) => n.to_string(),
        Length::Uniform(least, most) => format!("uniform {least}..{most}"),
        Length::Normal { mean, sd } => format!("normal {mean} ± {sd}"),
    }
}
