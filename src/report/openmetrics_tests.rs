//! What a reader of OpenMetrics takes, held strictly.

use std::collections::BTreeMap;

use super::*;
use crate::measure::metric::CATALOGUE;
use crate::measure::{Direction, Observations, UserMetric};
use crate::record::run_record::CellState;
use crate::report::fixture;
use crate::suite::model::AxisValue;

type Labels = BTreeMap<String, String>;

/// Samples by family. Panics at whatever the specification forbids.
fn read(text: &str) -> BTreeMap<String, Vec<(Labels, f64)>> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let mut families: BTreeMap<String, Vec<(Labels, f64)>> = BTreeMap::new();
    let mut kind = BTreeMap::new();
    let mut current = String::new();
    let mut before_samples: Vec<&str> = Vec::new();
    for text in body.lines() {
        assert!(text != "# EOF", "one end");
        if let Some(meta) = text.strip_prefix("# ") {
            let parts: Vec<&str> = meta.splitn(3, ' ').collect();
            let [keyword, name, value] = parts[..] else { panic!("{text}") };
            if keyword == "TYPE" {
                assert!(matches!(value, "gauge" | "info"), "{text}");
                assert!(families.insert(name.into(), vec![]).is_none(), "{name} in two places");
                kind.insert(name.to_owned(), value.to_owned());
                current = name.into();
                before_samples.clear();
            }
            assert_eq!(name, current, "{text}");
            assert!(families[name].is_empty(), "before its samples: {text}");
            assert!(!before_samples.contains(&keyword), "once: {text}");
            before_samples.push(keyword);
            match keyword {
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{value}")), "{text}");
                    assert_eq!(kind[name], "gauge");
                }
                "HELP" => {
                    unescaped(value);
                }
                keyword => assert_eq!(keyword, "TYPE", "{text}"),
            }
            continue;
        }
        let (name, rest) = text.split_once('{').expect("labels");
        let family =
            if kind[&current] == "info" { name.strip_suffix("_info").unwrap() } else { name };
        assert_eq!(family, current, "the samples of a family stand together");
        assert!(is_name(name), "{name}");
        let (labels, value) = labels_of(rest);
        let value = value.strip_prefix(' ').unwrap();
        assert!(!value.contains(' '), "no time stamp: {text}");
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite() && (kind[&current] == "gauge" || value == 1.0), "{text}");
        let samples = families.get_mut(family).unwrap();
        assert!(samples.iter().all(|(other, _)| *other != labels), "twice: {text}");
        samples.push((labels, value));
    }
    families
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Labels up to their brace, and what follows it.
fn labels_of(mut rest: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    loop {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(is_name(name) && !name.starts_with("__") && !name.is_empty(), "{name}");
        let mut end = None;
        let mut escape = false;
        for (at, c) in value.char_indices() {
            assert!(!c.is_control());
            if !escape && c == '"' {
                end = Some(at);
                break;
            }
            escape = !escape && c == '\\';
        }
        let end = end.expect("a closing quote");
        let old = labels.insert(name.to_owned(), unescaped(&value[..end]));
        assert!(old.is_none(), "label {name} twice");
        rest = &value[end + 1..];
        if let Some(after) = rest.strip_prefix('}') {
            return (labels, after);
        }
        rest = rest.strip_prefix(',').expect("a comma");
    }
}

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some(c @ ('\\' | '"')) => c,
                other => panic!("\\{other:?} in {text}"),
            },
            c => c,
        });
    }
    out
}

fn value(
    families: &BTreeMap<String, Vec<(Labels, f64)>>,
    family: &str,
    labels: &[(&str, &str)],
) -> f64 {
    let has =
        |it: &Labels| labels.iter().all(|(name, value)| it.get(*name).is_some_and(|v| v == value));
    let found: Vec<f64> =
        families[family].iter().filter(|(it, _)| has(it)).map(|(_, value)| *value).collect();
    assert_eq!(found.len(), 1, "{family} {labels:?}: {found:?}");
    found[0]
}

#[test]
fn figures_are_gauges_in_base_units() {
    let record = fixture::page();
    let families = read(&render(&record));
    let cell = [("test", "decode"), ("context", "8K"), ("concurrency", "128")];
    let of = |metric: &str| {
        let at = record.header.cells.iter().position(|it| it.id == "context=8K,concurrency=128");
        let at = at.unwrap();
        let all = figure::all(&record.header.cells[at], &record.cells[at]);
        all.iter().find(|it| it.metric.to_string() == metric).unwrap().value
    };
    let throughput = value(&families, "tokgate_output_throughput_tokens_per_second", &cell);
    assert_eq!(throughput, of("output-throughput"));
    let p50 = [&cell[..], &[("stat", "p50"), ("suite", "inkling-small-h200x8")]].concat();
    assert_eq!(value(&families, "tokgate_ttft_seconds", &p50), of("ttft.p50") / 1e3);
    assert_eq!(families["tokgate_cell"].len(), record.cells.len());
    assert_eq!(value(&families, "tokgate_complete", &[]), 1.0);
}

#[test]
fn verdicts_are_counted() {
    let record = fixture::every_verdict();
    let families = read(&render(&record));
    assert_eq!(families["tokgate_cells"].len(), 8);
    for (verdict, count) in record.counts() {
        let labels = [("verdict", verdict_name(verdict))];
        assert_eq!(value(&families, "tokgate_cells", &labels), count as f64);
    }
    let families = read(&render(&fixture::compare()));
    let mean = value(&families, "tokgate_mean_ratio", &[("variant", "new"), ("against", "old")]);
    assert!(mean > 0.0 && !families["tokgate_relative_ratio"].is_empty());
}

#[test]
fn names_are_stable() {
    let names: Vec<String> = CATALOGUE
        .iter()
        .map(|entry| Metric { base: entry.base, stat: None, per_gpu: entry.per_gpu })
        .map(|metric| named(metric).name)
        .collect();
    insta::assert_snapshot!(names.join("\n"));
}

#[test]
fn hostile_names_stay_in_their_labels() {
    let mut record = fixture::page();
    record.header.suite = format!("a\"}} 1\\\n# EOF{}", fixture::nasty());
    let taken = ["suite", "le", "é-1", "9"]
        .map(|name| (name.to_owned(), AxisValue::Text(format!("{name}\\\""))));
    record.header.cells[2].axes = taken.into();
    let odd = [("exact_match", "%"), ("energy", "kWh"), ("exact_match", "")];
    let CellState::Measured(measured) = &mut record.cells[2].state else { panic!() };
    for (name, unit) in odd {
        let metric = Base::User(UserMetric::new(name, unit, Direction::Higher));
        measured.observations.insert(metric, Observations::Point(91.2));
    }
    // Two cells alike stay two.
    record.header.cells[11].axes = record.header.cells[10].axes.clone();
    let families = read(&render(&record));
    let suite = [("suite", &*line(&record.header.suite)), ("axis_suite", "suite\\\"")];
    assert_eq!(value(&families, "tokgate_command_exact_match_ratio", &suite), 0.912);
    assert_eq!(value(&families, "tokgate_command_energy", &[("axis_le", "le\\\"")]), 91.2);
    assert_eq!(families["tokgate_cell"].len(), record.cells.len());
}

#[test]
fn a_very_large_run_says_that_figures_are_left_out() {
    let record = fixture::page();
    let all = render(&record);
    let most = all.len() - 1;
    let text = within(&record, most);
    assert!(text.len() <= most);
    let incomplete = "tokgate_complete{suite=\"inkling-small-h200x8\"} 0\n";
    assert!(all.contains(&incomplete.replace(" 0\n", " 1\n")) && text.contains(incomplete));
    // What a limit stands on is there.
    let families = read(&text);
    assert_eq!(families["tokgate_cell"].len(), record.cells.len());
    assert!(!families["tokgate_output_throughput_tokens_per_second"].is_empty());
    let count = |text: &str| read(text).get("tokgate_ttft_seconds").map_or(0, Vec::len);
    assert!(count(&text) < count(&all));
    let counts = within(&record, text.len() - 1);
    assert!(counts.len() < 2_000 && counts.contains(incomplete));
    assert_eq!(read(&counts)["tokgate_cells"].len(), 8);
}

#[test]
fn what_was_seen_of_the_hardware_is_in_base_units() {
    let record = fixture::throttled();
    let families = read(&render(&record));
    let planned = &record.header.cells[fixture::hot_cell(&record)];
    let concurrency = planned.axes[1].1.to_string();
    let of = |family: &str| {
        let samples = families.get(family).unwrap_or_else(|| panic!("{family}"));
        let own = samples
            .iter()
            .find(|(labels, _)| labels["context"] == "8K" && labels["concurrency"] == concurrency);
        own.unwrap().1
    };
    let names: Vec<&str> =
        families.keys().filter_map(|name| name.strip_prefix("tokgate_hardware_")).collect();
    assert_eq!(
        names,
        [
            "cpu_mean_ratio",
            "ecc_corrected",
            "ecc_uncorrected",
            "host_memory_max_bytes",
            "memory_max_bytes",
            "power_capped_ratio",
            "power_mean_watts",
            "sm_clock_mean_hertz",
            "sm_clock_min_hertz",
            "suspects",
            "temperature_max_celsius",
            "throttled_ratio",
            "utilisation_mean_ratio",
            "xid",
        ]
    );
    assert_eq!(of("tokgate_hardware_sm_clock_min_hertz"), 1.29e9);
    assert_eq!(of("tokgate_hardware_throttled_ratio"), 0.62);
    assert_eq!(of("tokgate_hardware_power_mean_watts"), 5000.0);
}
