//! What a run's figures belong to, as far as suite and machine tell before the first launch.

use std::collections::BTreeMap;

use crate::hardware;
use crate::hardware::need::Count;
use crate::matrix::Plan;
use crate::record::provenance::Provenance;
use crate::suite::model::Setting;

/// What stands for the machine of an engine that runs in virtual time, where it does not matter.
const SIMULATED: &str = "simulated";

/// The provenance of a plan on a machine.
pub fn of(plan: &Plan, machine: &hardware::Facts) -> Provenance {
    let suite = &plan.suite;
    let mut facts = BTreeMap::new();
    let mut say = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.to_owned(), value);
        }
    };
    let name = |kind| {
        let value = serde_json::to_value(kind).ok();
        value.and_then(|value| value.as_str().map(str::to_owned))
    };
    let settings = &suite.settings;
    say("engine.kind", joined(settings, |setting| name(setting.engine.kind)));
    say("engine.gpus", joined(settings, |setting| setting.engine.gpus.map(|n| n.to_string())));
    say("model.name", joined(settings, |setting| setting.model.name.clone()));
    say("model.revision", joined(settings, |setting| setting.model.revision.clone()));
    say("model.quantization", joined(settings, |setting| setting.model.quantization.clone()));
    let need = suite.hardware.as_ref();
    let elsewhere = match need {
        Some(need) => !need.is_checked(),
        None => settings.iter().any(|setting| {
            matches!(setting.engine.source, crate::suite::model::EngineSource::Url(_))
        }),
    };
    if crate::run::in_virtual_time(plan) {
        for key in ["hardware.gpu", "hardware.count", "hardware.cpu", "hardware.driver"] {
            say(key, Some(SIMULATED.to_owned()));
        }
    } else if elsewhere {
        // Of a machine that can't be asked there is what the suite declares.
        say("hardware.gpu", need.and_then(|need| need.gpu.clone()));
        let count = need.and_then(|need| need.count).map(|count| match count {
            Count::Exactly(n) => n.to_string(),
            Count::AtLeast(n) => format!(">={n}"),
        });
        say("hardware.count", count);
    } else {
        let mut names: Vec<String> = machine.gpus.iter().map(hardware::Gpu::full_name).collect();
        names.sort();
        names.dedup();
        let gpus = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        say("hardware.gpu", Some(gpus));
        say("hardware.count", Some(machine.gpus.len().to_string()));
        say("hardware.cpu", Some(machine.cpu.clone()).filter(|cpu| !cpu.is_empty()));
        say("hardware.driver", machine.driver.clone());
    }
    let workloads = suite.tests.iter().map(|test| (test.name.clone(), test.workload()));
    Provenance {
        suite_hash: suite.hash.clone(),
        facts,
        workloads: workloads.collect(),
        identity: suite.baseline.identity.clone(),
        baseline: suite.baseline.file.as_ref().map(|against| against.file.display().to_string()),
    }
}

/// What all variants say, or what each says where they differ; `None` where none says it.
fn joined(settings: &[Setting], of: impl Fn(&Setting) -> Option<String>) -> Option<String> {
    let first = of(settings.first()?);
    if settings.iter().all(|setting| of(setting) == first) {
        return first;
    }
    let each = settings.iter().map(|setting| {
        let variant = setting.variant.as_deref().unwrap_or_default();
        format!("{variant}: {}", of(setting).unwrap_or_else(|| "not said".to_owned()))
    });
    Some(each.collect::<Vec<_>>().join(", "))
}
