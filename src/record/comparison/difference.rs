//! What differs beside the figures: suite, engine, model, machine, tokgate.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::side::Side;

/// Digits of a hash that are shown.
const DIGITS: usize = 12;

/// Something that is not the same on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Change {
    /// What: a key of the suite, or a word.
    pub what: String,
    /// Of A; `unknown` where it does not say.
    pub a: String,
    /// Of B.
    pub b: String,
}

/// Everything that differs, in an order for readers: suite, measurement, engine, model and machine, tokgate.
///
/// `alone`: each side has one variant, and they are compared whatever their names.
pub(super) fn changes(a: &Side<'_>, b: &Side<'_>, alone: bool) -> Vec<Change> {
    let mut found = Vec::new();
    let (of_a, of_b) = (facts(a, alone), facts(b, alone));
    // In the order of the side that tells more.
    let (longer, other) = if of_a.len() >= of_b.len() { (&of_a, &of_b) } else { (&of_b, &of_a) };
    let get = |facts: &[(String, String)], what: &str| {
        facts.iter().find(|(key, _)| key == what).map(|(_, value)| value.clone())
    };
    let rest = other.iter().filter(|(key, _)| get(longer, key).is_none());
    for (what, _) in longer.iter().chain(rest) {
        let (in_a, in_b) = (get(&of_a, what), get(&of_b, what));
        // A baseline keeps less than a record; what it does not keep has not changed.
        let untold =
            (in_a.is_none() && a.baseline.is_some()) || (in_b.is_none() && b.baseline.is_some());
        if in_a != in_b && !untold {
            let [in_a, in_b] = [in_a, in_b].map(|it| it.unwrap_or_else(|| "unknown".to_owned()));
            found.push(Change { what: what.clone(), a: in_a, b: in_b });
        }
    }
    // What the suite knows a machine by says the same in other words.
    for (key, property) in
        [("hardware.cpu", "CPU"), ("hardware.driver", "GPU driver"), ("hardware.gpu", "GPUs")]
    {
        if found.iter().any(|change| change.what == property) {
            found.retain(|change| change.what != key);
        }
    }
    workloads(a, b, &mut found);
    commands(a, b, &mut found);
    found
}

/// What a side says of itself, by name.
fn facts(side: &Side<'_>, alone: bool) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut say = |what: &str, value: String| found.push((what.to_owned(), value));
    say("suite", side.label.suite.clone());
    if let Some(record) = side.record {
        say("suite file", record.header.path.clone());
    }
    let hashes = joined(side.runs.iter().map(|run| run.suite_hash.chars().take(DIGITS).collect()));
    if !hashes.is_empty() {
        say("suite hash", hashes);
    }
    let variant = side.variants.iter().next().cloned().flatten();
    if alone && let Some(variant) = variant {
        say("variant", variant);
    }
    let engines = side.runs.iter().flat_map(|run| run.engines.values().cloned());
    say("engine", joined(engines));
    if let Some(record) = side.record {
        let header = &record.header;
        for (key, value) in &header.provenance.facts {
            say(key, value.clone());
        }
        // Records of earlier versions have it here alone.
        let declared = &header.declared;
        for (key, value) in [
            ("model.name", &declared.model),
            ("model.revision", &declared.revision),
            ("model.quantization", &declared.quantization),
        ] {
            if let Some(value) = value
                && !header.provenance.facts.contains_key(key)
            {
                say(key, value.clone());
            }
        }
        // Virtual time passes alike on every machine.
        if !header.virtual_time {
            say("host", header.machine.hostname.clone());
            say("kernel", header.machine.kernel.clone());
            for (what, value) in header.machine.properties() {
                say(what, if value.is_empty() { "none".to_owned() } else { value });
            }
        }
        say("clock", if header.virtual_time { "virtual" } else { "real" }.to_owned());
        say("seed", header.seed.to_string());
        let shown = |words: String| if words.is_empty() { "none".to_owned() } else { words };
        say("flags", shown(shell_words::join(telling(&header.flags))));
        say("selection", shown(shell_words::join(&header.selection)));
    }
    if let Some(baseline) = side.baseline {
        for (key, value) in &baseline.head.identity {
            say(key, value.clone());
        }
        let drivers = joined(side.runs.iter().filter_map(|run| run.driver.clone()));
        if !drivers.is_empty() {
            say("GPU driver", drivers);
        }
    }
    say("tokgate", joined(side.runs.iter().map(|run| run.tokgate.clone())));
    found
}

/// Flags, each with its value, without the seed, which has a line of its own, and without where results went.
fn telling(flags: &[String]) -> Vec<&String> {
    let tells = |pair: &&[String]| !["--seed", "--out"].contains(&pair[0].as_str());
    flags.chunks(2).filter(tells).flatten().collect()
}

/// Different words, each once.
fn joined(words: impl Iterator<Item = String>) -> String {
    words.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// How tests of both sides are measured in another way.
fn workloads(a: &Side<'_>, b: &Side<'_>, found: &mut Vec<Change>) {
    fn of<'s>(side: &Side<'s>) -> Option<&'s BTreeMap<String, BTreeMap<String, String>>> {
        match side.record {
            Some(record) => Some(&record.header.provenance.workloads),
            None => side.baseline.map(|baseline| &baseline.tests),
        }
    }
    let (Some(of_a), Some(of_b)) = (of(a), of(b)) else { return };
    for (test, in_a) in of_a {
        let Some(in_b) = of_b.get(test) else { continue };
        for key in in_a.keys().chain(in_b.keys()).collect::<BTreeSet<_>>() {
            let (one, other) = (in_a.get(key), in_b.get(key));
            if one != other {
                let [a, b] =
                    [one, other].map(|it| it.cloned().unwrap_or_else(|| "not set".to_owned()));
                found.push(Change { what: format!("test {test}: {key}"), a, b });
            }
        }
    }
}

/// In which words commands differ: of a baseline those of its last run.
fn commands(a: &Side<'_>, b: &Side<'_>, found: &mut Vec<Change>) {
    let none = BTreeMap::new();
    let [of_a, of_b] = [a, b].map(|side| side.runs.last().map_or(&none, |run| &run.commands));
    let pairs: Vec<(String, &String, &String)> = match (of_a.len(), of_b.len()) {
        (1, 1) => {
            of_a.values().zip(of_b.values()).map(|(a, b)| ("command".to_owned(), a, b)).collect()
        }
        (_, _) => of_a
            .iter()
            .filter_map(|(name, a)| Some((format!("command of {name}"), a, of_b.get(name)?)))
            .collect(),
    };
    for (what, a, b) in pairs {
        if a != b {
            let [a, b] = apart(a, b);
            found.push(Change { what, a, b });
        }
    }
}

/// Two commands without what they begin and end alike with. An option stays with its value.
fn apart(a: &str, b: &str) -> [String; 2] {
    let words = |text: &str| shell_words::split(text).unwrap_or_else(|_| vec![text.to_owned()]);
    let (a, b) = (words(a), words(b));
    let mut front = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    if front > 0 && a[front - 1].starts_with('-') {
        front -= 1;
    }
    let (rest_a, rest_b) = (&a[front..], &b[front..]);
    let back = rest_a.iter().rev().zip(rest_b.iter().rev()).take_while(|(a, b)| a == b).count();
    [rest_a, rest_b].map(|rest| {
        let middle = shell_words::join(&rest[..rest.len() - back]);
        let middle = if middle.is_empty() { "–".to_owned() } else { middle };
        let before = if front > 0 { "… " } else { "" };
        format!("{before}{middle}{}", if back > 0 { " …" } else { "" })
    })
}
