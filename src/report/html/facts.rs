//! On what the figures were taken: launches with their commands, the machine, where the run comes from.

use crate::quantity::print_number;
use crate::record::RunRecord;
use crate::record::run_record::{LaunchOutcome, PlannedLaunchRecord};
use crate::report::count::{elapsed, plural};
use crate::report::sanitise::cut;
use crate::report::{message, part};

use super::markup::{Markup, put};

/// Launches that are shown; a matrix over engine settings may have thousands.
const MOST: usize = 200;
const MOST_TEXT: usize = 4_096;

/// Each launch: command, log, what the engine says of itself.
pub fn launches(out: &mut Markup, record: &RunRecord) {
    put!(
        out,
        "<section id=\"launches\" aria-labelledby=\"launches-name\">\n<h2 id=\"launches-name\">Launches</h2>\n"
    );
    let all = record.header.launches.iter().zip(&record.launches);
    for (at, (planned, launch)) in all.enumerate().take(MOST) {
        one(out, record, at, (planned, launch));
    }
    if record.launches.len() > MOST {
        put!(out, "<p class=\"note\">" (record.launches.len() - MOST) " more launches are in record.json.</p>\n");
    }
    put!(out, "</section>\n");
}

fn one(
    out: &mut Markup,
    record: &RunRecord,
    at: usize,
    (planned, launch): (&PlannedLaunchRecord, &LaunchOutcome),
) {
    let (class, words) = match (&launch.failure, launch.ready_time) {
        (Some(_), _) => ("error", "! failed"),
        (None, Some(_)) => ("pass", "✓ ready"),
        (None, None) => ("unrun", "· not started"),
    };
    put!(out, "<article class=\"launch\" id=\"launch-" (at) "\">\n<h3>" (planned.name) " <span class=\"k " (class) "\">" (words)
        "</span></h3>\n");
    if !launch.command.is_empty() {
        put!(out, "<pre class=\"command\"><code>" (cut(&shell_words::join(&launch.command), 4 * MOST_TEXT)) "</code></pre>\n");
    }
    put!(out, "<dl class=\"facts\">\n");
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            put!(out, "<div><dt>" (name) "</dt><dd>" (cut(&value, MOST_TEXT)) "</dd></div>\n");
        }
    };
    let facts = launch.facts.as_ref();
    let tokens = |n: u64| format!("{} tokens", print_number(n as f64, 0));
    fact("model", facts.map(|facts| facts.model.clone()));
    fact("version", facts.and_then(|facts| facts.version.clone()));
    fact("ready after", launch.ready_time.map(elapsed));
    fact("KV capacity", facts.and_then(|facts| facts.kv_capacity).map(tokens));
    fact("longest sequence", facts.and_then(|facts| facts.max_model_len).map(tokens));
    fact("GPUs", (planned.gpus > 1).then(|| planned.gpus.to_string()));
    fact("variant", planned.variant.clone());
    fact("set at", Some(planned.place.to_string()));
    fact("failed at", launch.failure.as_ref().map(|failure| failure.step.clone()));
    fact("exit", launch.failure.as_ref().and_then(|failure| failure.exit.clone()));
    if let Some(log) = &launch.log {
        put!(out, "<div><dt>log</dt><dd>");
        file(out, log);
        put!(out, "</dd></div>\n");
    }
    put!(out, "</dl>\n");
    let starts = message::starts(record, at);
    if !starts.is_empty() {
        put!(out, "<details><summary>" (plural(starts.len(), "start")) " of its engine</summary>\n<ol class=\"starts\">\n");
        for start in starts.iter().take(MOST) {
            put!(out, "<li>" (cut(start, MOST_TEXT)) "</li>\n");
        }
        put!(out, "</ol>\n</details>\n");
    }
    if !launch.warnings.is_empty() {
        put!(out, "<ul class=\"warnings\">\n");
        for warning in launch.warnings.iter().take(MOST) {
            put!(out, "<li>" (cut(warning, MOST_TEXT)) "</li>\n");
        }
        put!(out, "</ul>\n");
    }
    put!(out, "</article>\n");
}

/// A file beside this page as a link; any other name is only a name.
fn file(out: &mut Markup, name: &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // The log of a merged shard stands in a folder.
    let below = |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain);
    if name.split('/').all(below) {
        put!(out, "<a href=\"./" (name) "\">" (name) "</a>");
    } else {
        put!(out, "<code>" (name) "</code>");
    }
}

/// Machine and provenance.
pub fn run(out: &mut Markup, record: &RunRecord) {
    let header = &record.header;
    let machine = &header.machine;
    put!(
        out,
        "<section id=\"run\" aria-labelledby=\"run-name\">\n<h2 id=\"run-name\">Run</h2>\n<div class=\"columns\">\n<div>\n<h3>Hardware</h3>\n<dl class=\"facts\">\n"
    );
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            put!(out, "<div><dt>" (name) "</dt><dd>" (cut(&value, MOST_TEXT)) "</dd></div>\n");
        }
    };
    // Shards have machines and seeds of their own, told below.
    let whole = header.merged.is_none();
    if whole {
        fact("host", machine.hostname.clone());
        fact("system", format!("{} {}", machine.os, machine.kernel).trim().to_owned());
    }
    if !machine.cpu.is_empty() {
        fact("CPU", format!("{}, {} cores", machine.cpu, machine.cores));
    }
    if machine.memory > 0 {
        fact("memory", gibibytes(machine.memory));
    }
    let mut at = 0;
    while let Some(gpu) = machine.gpus.get(at) {
        let alike = machine.gpus[at..].iter().take_while(|other| other.alike(gpu)).count();
        fact("GPU", format!("{alike} × {} ({})", gpu.full_name(), gibibytes(gpu.memory)));
        at += alike;
    }
    fact("GPU", machine.gpu_note.clone().unwrap_or_default());
    fact("driver", machine.driver.clone().unwrap_or_default());
    let declared = &header.declared;
    fact("declared", declared.hardware.clone().unwrap_or_default());
    put!(out, "</dl>\n</div>\n<div>\n<h3>Provenance</h3>\n<dl class=\"facts\">\n");
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            put!(out, "<div><dt>" (name) "</dt><dd>" (cut(&value, MOST_TEXT)) "</dd></div>\n");
        }
    };
    fact("suite", header.path.clone());
    fact("tags", header.tags.join(", "));
    fact("model", declared.model.clone().unwrap_or_default());
    fact("revision", declared.revision.clone().unwrap_or_default());
    fact("quantization", declared.quantization.clone().unwrap_or_default());
    fact("engine", declared.engine.clone());
    fact("plan", header.plan_hash.clone());
    fact("run", header.run_id.clone());
    if whole {
        fact("seed", header.seed.to_string());
    }
    fact("started", header.started.clone());
    for resumption in &record.resumptions {
        fact("resumed", format!("{}, after {}", resumption.started, elapsed(resumption.after)));
    }
    fact("took", record.seconds.map(elapsed).unwrap_or_default());
    fact("clock", if header.virtual_time { "virtual".to_owned() } else { String::new() });
    fact("flags", shell_words::join(&header.flags));
    fact("selected by", shell_words::join(&header.selection));
    fact("alpha", header.policy.alpha.to_string());
    fact("tokgate", header.tokgate.clone());
    put!(out, "</dl>\n</div>\n</div>\n");
    shards(out, record);
    put!(out, "</section>\n");
}

/// What each shard of a merged run was.
fn shards(out: &mut Markup, record: &RunRecord) {
    let shards = part::shards(record);
    if shards.is_empty() {
        return;
    }
    put!(out, "<h3>Shards</h3>\n<dl class=\"facts\">\n");
    for (name, said) in shards.iter().take(MOST) {
        put!(out, "<div><dt>" (name) "</dt><dd>" (cut(said, MOST_TEXT)) "</dd></div>\n");
    }
    put!(out, "</dl>\n");
    if shards.len() > MOST {
        put!(out, "<p class=\"note\">" (shards.len() - MOST) " more shards are in record.json.</p>\n");
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{} GiB", print_number(bytes as f64 / f64::from(1 << 30), 1))
}
