//! Power: what the GPUs that an engine sees drew and held over its window, and for how many tokens.
//!
//! Each figure is one observation: how windows differ is told by launches. Where a part is unknown, so is the
//! sum: a figure of some of the GPUs is none of the engine's.

use std::collections::BTreeMap;

use super::{Base, Observations};
use crate::hardware::telemetry::{GpuTelemetry, Series, Telemetry};

/// Whether a metric comes out of what was seen of GPUs.
pub fn of_gpus(base: Base) -> bool {
    matches!(base, Base::PowerMean | Base::JoulesPerToken | Base::GpuMemoryMax)
}

/// Adds to the observations of a window those that the GPUs gave in it, in the place of what was known of them.
pub fn observe(found: &mut BTreeMap<Base, Observations>, seen: &Telemetry) {
    found.retain(|base, _| !of_gpus(*base));
    if seen.gpus.is_empty() || seen.gpus.iter().any(|gpu| gpu.lost.is_some()) {
        return;
    }
    let energy: Option<f64> = seen.gpus.iter().map(|gpu| gpu.energy).sum();
    if let Some(joules) = energy.filter(|_| seen.seconds > 0.0) {
        found.insert(Base::PowerMean, Observations::Point(joules / seen.seconds));
        if let Some(Observations::Exact(tokens)) = found.get(&Base::OutputTokens)
            && *tokens > 0.0
        {
            let each = joules / tokens;
            found.insert(Base::JoulesPerToken, Observations::Point(each));
        }
    }
    let most = |gpu: &GpuTelemetry| gpu.memory.as_ref().map(|Series { max, .. }| *max);
    let all: Option<Vec<f64>> = seen.gpus.iter().map(most).collect();
    if let Some(most) = all.and_then(|all| all.into_iter().reduce(f64::max)) {
        found.insert(Base::GpuMemoryMax, Observations::Exact(most));
    }
}

/// Why a window has not what GPUs give, in words.
pub fn lack(seen: Option<&Telemetry>) -> String {
    let Some(seen) = seen else {
        return "needs GPU telemetry, of which there is none where nothing is sampled or time is virtual"
            .to_owned();
    };
    let mut gpus = seen.gpus.iter();
    if let Some((gpu, why)) = gpus.find_map(|gpu| Some((gpu, gpu.lost.as_ref()?))) {
        return format!("GPU {} ({}) was lost: {why}", gpu.index, gpu.name);
    }
    let why = match (seen.notes.is_empty(), seen.gpus.is_empty()) {
        (false, _) => seen.notes.join("; "),
        (true, true) => "no GPU".to_owned(),
        (true, false) => "the driver does not tell it of every GPU".to_owned(),
    };
    format!("needs GPU telemetry: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, energy: Option<f64>, memory: f64) -> GpuTelemetry {
        let memory = Series { min: 0.0, mean: 1.0, max: memory, points: vec![1.0] };
        let name = "H200".to_owned();
        GpuTelemetry { index, name, energy, memory: Some(memory), ..GpuTelemetry::default() }
    }

    fn seen(gpus: Vec<GpuTelemetry>) -> Telemetry {
        Telemetry { seconds: 10.0, samples: 50, gpus, ..Telemetry::default() }
    }

    fn observed(seen: &Telemetry) -> Vec<(Base, Observations)> {
        let mut found = BTreeMap::from([(Base::OutputTokens, Observations::Exact(500.0))]);
        observe(&mut found, seen);
        found.into_iter().filter(|(base, _)| of_gpus(*base)).collect()
    }

    #[test]
    fn figures_are_of_all_gpus_together() {
        let two = seen(vec![gpu(0, Some(6000.0), 70e9), gpu(3, Some(4000.0), 80e9)]);
        assert_eq!(
            observed(&two),
            [
                (Base::PowerMean, Observations::Point(1000.0)),
                (Base::JoulesPerToken, Observations::Point(20.0)),
                (Base::GpuMemoryMax, Observations::Exact(80e9)),
            ]
        );
        let no_tokens = &mut BTreeMap::new();
        observe(no_tokens, &two);
        assert!(!no_tokens.contains_key(&Base::JoulesPerToken));
    }

    #[test]
    fn what_is_unknown_of_one_gpu_is_unknown_of_all() {
        let dumb = seen(vec![gpu(0, Some(1.0), 1.0), gpu(1, None, 1.0)]);
        assert_eq!(observed(&dumb).len(), 1, "memory is known");
        assert!(lack(Some(&dumb)).ends_with("the driver does not tell it of every GPU"));
        let mut lost = seen(vec![gpu(0, Some(1.0), 1.0)]);
        lost.gpus[0].lost = Some("it has fallen off the bus".to_owned());
        assert!(observed(&lost).is_empty());
        assert_eq!(lack(Some(&lost)), "GPU 0 (H200) was lost: it has fallen off the bus");
        let mut none = seen(Vec::new());
        none.notes.push("no NVIDIA driver: libnvidia-ml.so.1: no such file".to_owned());
        assert!(lack(Some(&none)).starts_with("needs GPU telemetry: no NVIDIA driver: lib"));
        assert!(lack(None).contains("virtual"));
    }
}
