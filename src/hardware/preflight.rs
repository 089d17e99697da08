//! Preflight: whether an engine may be started on the GPUs that it will see.
//!
//! They must be what the suite declares, and free: what others compute there makes figures worse and can't
//! be told from a slow engine later. Pure; who asks the driver, and what a mismatch leads to, is decided by
//! the run.

use std::collections::BTreeSet;

use super::need::Need;
use super::occupancy::{Occupancy, Tenant};
use super::probe::Probe;

/// Memory that belongs to nobody up to here is the driver's own.
const ROOM: u64 = 1 << 30;
/// The same, as a share of a GPU's memory; the greater of the two counts.
const ROOM_SHARE: u64 = 50;
/// Processes of a GPU that a message names.
const NAMED: usize = 4;
/// The server by which processes share a GPU (MPS): it computes nothing itself. Names have 15 bytes at most.
const SHARING: &str = "nvidia-cuda-mps";

/// Who may compute on the GPUs already.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expected {
    /// Processes of this run, and of an engine that runs.
    pub processes: BTreeSet<u32>,
    /// Whether the engine runs already. Where none of `processes` is on the GPUs it is behind some other
    /// program, and whoever computes there is taken for it.
    pub engine_runs: bool,
}

/// What comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Why no engine is to be started.
    pub mismatch: Option<String>,
    /// What is worth a word.
    pub warnings: Vec<String>,
}

/// Holds what was found where an engine is to run against what the suite declares, if it declares anything.
pub fn judge(need: Option<&Need>, found: &Probe, expected: &Expected) -> Findings {
    let mut findings = Findings::default();
    let mut mismatches = Vec::new();
    let facts = &found.facts;
    let need = need.filter(|need| need.is_checked());
    let wanted = need.is_some_and(Need::wants_gpus);
    if let Some(need) = need {
        let problems = need.problems(facts);
        if !problems.is_empty() {
            mismatches.push(format!("hardware is not as declared: {}", problems.join("; ")));
        }
        findings.warnings.extend(need.doubts(facts));
    }
    if mismatches.is_empty() {
        findings.warnings.extend(found.lost.iter().map(ToString::to_string));
    }
    let occupied = || found.gpus.iter().map(|gpu| &gpu.occupancy);
    let busy: Vec<String> =
        others(occupied(), expected).into_iter().map(|(gpu, by)| held_by(gpu, &by)).collect();
    if !busy.is_empty() {
        let busy = format!("GPUs are busy: {}", busy.join("; "));
        match need {
            Some(need) if wanted && !need.allow_busy => mismatches.push(format!(
                "{busy}; end what runs there, or write `allow-busy = true` in [hardware] to go on"
            )),
            Some(_) | None => findings.warnings.push(format!("{busy}; figures may suffer")),
        }
    }
    for (gpu, memory) in occupied().zip(facts.gpus.iter().map(|gpu| gpu.memory)) {
        findings.warnings.extend(besides(gpu, memory));
    }
    findings.mismatch = (!mismatches.is_empty()).then(|| mismatches.join("; "));
    findings
}

/// GPUs on which others compute, with these.
fn others<'a>(
    gpus: impl Iterator<Item = &'a Occupancy> + Clone,
    expected: &Expected,
) -> Vec<(&'a Occupancy, Vec<&'a Tenant>)> {
    let is_expected = |tenant: &&Tenant| expected.processes.contains(&tenant.pid);
    let known = gpus.clone().flat_map(computing).any(|tenant| is_expected(&tenant));
    if expected.engine_runs && !known {
        return Vec::new();
    }
    gpus.map(|gpu| (gpu, computing(gpu).filter(|it| !is_expected(it)).collect::<Vec<_>>()))
        .filter(|(_, others)| !others.is_empty())
        .collect()
}

/// Those on a GPU who compute and do not draw: what draws may compute a little, as browsers do.
fn computing(gpu: &Occupancy) -> impl Iterator<Item = &Tenant> {
    gpu.tenants.iter().filter(|tenant| {
        let draws = gpu.graphics.iter().any(|other| other.pid == tenant.pid);
        let shares = tenant.name.as_deref().is_some_and(|name| name.starts_with(SHARING));
        !draws && !shares
    })
}

fn held_by(gpu: &Occupancy, by: &[&Tenant]) -> String {
    let mut words: Vec<String> = by.iter().take(NAMED).map(|it| it.to_string()).collect();
    if let Some(more) = by.len().checked_sub(NAMED).filter(|more| *more > 0) {
        words.push(format!("{more} more"));
    }
    format!("GPU {} ({}): {}", gpu.index, gpu.name, words.join(", "))
}

/// Memory of a GPU, which has so many bytes, that is taken without anybody computing there.
fn besides(gpu: &Occupancy, memory: u64) -> Option<String> {
    let room = ROOM.max(memory / ROOM_SHARE);
    // Without its figure, whose memory it is can't be told.
    let sum = |tenants: &mut dyn Iterator<Item = &Tenant>| {
        tenants.map(|tenant| tenant.bytes).sum::<Option<u64>>()
    };
    let drawn = sum(&mut gpu.graphics.iter());
    if let Some(drawn) = drawn.filter(|drawn| *drawn > room) {
        let by: Vec<&Tenant> = gpu.graphics.iter().collect();
        return Some(format!("graphics take {} of {}", super::gibibytes(drawn), held_by(gpu, &by)));
    }
    let named = sum(&mut gpu.tenants.iter().chain(&gpu.graphics))?;
    let rest = gpu.used.saturating_sub(named);
    (computing(gpu).next().is_none() && rest > room).then(|| {
        format!(
            "GPU {} ({}) has {} in use by no process that the driver names, perhaps of another container",
            gpu.index,
            gpu.name,
            super::gibibytes(rest)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::need::Count;
    use crate::hardware::probe::GpuNow;
    use crate::hardware::{Facts, Gpu};

    const GIB: u64 = 1 << 30;

    fn tenant(pid: u32, gib: u64, name: Option<&str>) -> Tenant {
        Tenant { pid, bytes: Some(gib * GIB), name: name.map(str::to_owned) }
    }

    /// GPUs of 141 GiB in the driver's order, each with the GiB in use, who computes and who draws.
    fn machine(gpus: &[(u64, Vec<Tenant>, Vec<Tenant>)]) -> Probe {
        let whole = |index: u32| Gpu {
            name: "NVIDIA H200".to_owned(),
            memory: 141 * GIB,
            index: Some(index),
            ..Gpu::default()
        };
        let now = |index: u32, (used, tenants, graphics): &(u64, Vec<Tenant>, Vec<Tenant>)| {
            let occupancy = Occupancy {
                index,
                name: "NVIDIA H200".to_owned(),
                used: used * GIB,
                tenants: tenants.clone(),
                graphics: graphics.clone(),
            };
            GpuNow { occupancy, ..GpuNow::default() }
        };
        let indices = 0..u32::try_from(gpus.len()).unwrap();
        Probe {
            facts: Facts { gpus: indices.clone().map(whole).collect(), ..Facts::default() },
            gpus: indices.zip(gpus).map(|(index, gpu)| now(index, gpu)).collect(),
            ..Probe::default()
        }
    }

    fn need(count: u32) -> Need {
        Need { here: true, count: Some(Count::Exactly(count)), ..Need::default() }
    }

    fn nobody() -> Expected {
        Expected::default()
    }

    fn known(processes: &[u32], engine_runs: bool) -> Expected {
        Expected { processes: processes.iter().copied().collect(), engine_runs }
    }

    #[test]
    fn who_computes_on_a_declared_gpu_is_named_and_stops_the_run() {
        let found = machine(&[
            (0, vec![], vec![]),
            (130, vec![tenant(4711, 120, Some("python3")), tenant(4712, 9, None)], vec![]),
        ]);
        let findings = judge(Some(&need(2)), &found, &nobody());
        assert_eq!(
            findings.mismatch.as_deref(),
            Some(
                "GPUs are busy: GPU 1 (NVIDIA H200): process 4711 (python3) 120.0 GiB, process 4712 (not to be \
                 seen from here) 9.0 GiB; end what runs there, or write `allow-busy = true` in [hardware] to go on"
            )
        );
        assert!(findings.warnings.is_empty(), "{findings:?}");
        let both = judge(Some(&need(8)), &found, &nobody()).mismatch.unwrap();
        assert!(both.starts_with(
            "hardware is not as declared: hardware.count: declared 8, found 2; GPUs are busy: "
        ));
    }

    #[test]
    fn a_busy_gpu_is_a_warning_where_that_is_allowed_or_no_gpu_is_asked_for() {
        let found = machine(&[(9, vec![tenant(4711, 9, Some("python3"))], vec![])]);
        let allowed = Need { allow_busy: true, ..need(1) };
        let system = Need { here: true, os: Some("linux".to_owned()), ..Need::default() };
        let mut linux = found.clone();
        linux.facts.os = "linux".to_owned();
        for (need, found) in [(Some(&allowed), &found), (Some(&system), &linux), (None, &found)] {
            let findings = judge(need, found, &nobody());
            assert_eq!(findings.mismatch, None);
            assert_eq!(
                findings.warnings,
                [
                    "GPUs are busy: GPU 0 (NVIDIA H200): process 4711 (python3) 9.0 GiB; figures may suffer"
                ]
            );
        }
        let elsewhere = Need { here: false, ..need(8) };
        assert_eq!(judge(Some(&elsewhere), &found, &nobody()).mismatch, None);
    }

    #[test]
    fn ours_are_expected() {
        let found = machine(&[(9, vec![tenant(4711, 9, Some("python3"))], vec![])]);
        assert_eq!(judge(Some(&need(1)), &found, &known(&[4711], false)), Findings::default());
    }

    #[test]
    fn an_engine_that_runs_is_expected_and_others_beside_it_are_not() {
        let engine = || tenant(50, 100, Some("VLLM::Worker"));
        let alone = machine(&[(100, vec![engine()], vec![])]);
        // Behind a container's proxy nobody can tell whose process it is.
        assert_eq!(judge(Some(&need(1)), &alone, &known(&[], true)), Findings::default());
        assert_eq!(judge(Some(&need(1)), &alone, &known(&[50], true)), Findings::default());
        let beside = machine(&[(120, vec![engine(), tenant(60, 20, Some("train"))], vec![])]);
        let said = judge(Some(&need(1)), &beside, &known(&[50], true)).mismatch.unwrap();
        assert!(said.contains("process 60 (train)") && !said.contains("process 50"), "{said}");
    }

    #[test]
    fn desktops_are_no_mismatch_and_a_warning_only_where_they_take_much() {
        let little = vec![tenant(800, 1, Some("Xorg"))];
        assert_eq!(
            judge(Some(&need(1)), &machine(&[(1, vec![], little)]), &nobody()),
            Findings::default()
        );
        // It computes as well as it draws.
        let browser = tenant(900, 5, Some("chrome"));
        let found = machine(&[(6, vec![browser.clone()], vec![browser])]);
        let findings = judge(Some(&need(1)), &found, &nobody());
        assert_eq!(findings.mismatch, None);
        assert_eq!(
            findings.warnings,
            ["graphics take 5.0 GiB of GPU 0 (NVIDIA H200): process 900 (chrome) 5.0 GiB"]
        );
        let sharing = vec![tenant(70, 0, Some("nvidia-cuda-mps"))];
        assert_eq!(
            judge(Some(&need(1)), &machine(&[(0, sharing, vec![])]), &nobody()),
            Findings::default()
        );
    }

    #[test]
    fn memory_of_no_named_process_is_a_warning_beyond_what_drivers_take() {
        let of = |used: u64| judge(Some(&need(1)), &machine(&[(used, vec![], vec![])]), &nobody());
        assert_eq!(of(2), Findings::default(), "2 % of 141 GiB are the driver's");
        assert_eq!(
            of(3).warnings,
            [
                "GPU 0 (NVIDIA H200) has 3.0 GiB in use by no process that the driver names, perhaps of another container"
            ]
        );
        // The memory of this one is not told, and may be all of it.
        let mute = Tenant { bytes: None, ..tenant(5, 0, Some("Xwayland")) };
        assert_eq!(
            judge(None, &machine(&[(30, vec![], vec![mute])]), &nobody()),
            Findings::default()
        );
    }

    #[test]
    fn a_slice_is_held_against_its_own_memory_and_said_where_nothing_asks() {
        let mut found = machine(&[(0, vec![], vec![])]);
        found.facts.gpus[0].slice = Some("3g.71gb".to_owned());
        found.facts.gpus[0].memory = 69 * GIB;
        let vram =
            crate::hardware::need::Vram::About(crate::quantity::parse_size("141GB").unwrap());
        let whole = Need { vram: Some(vram), ..need(1) };
        assert_eq!(
            judge(Some(&whole), &found, &nobody()).mismatch.as_deref(),
            Some(
                "hardware is not as declared: hardware.vram: declared 141 GB (or 141 GiB), within 5 %, found 69 GiB \
                 (GPU 0 slice 3g.71gb)"
            )
        );
        let counted = judge(Some(&need(1)), &found, &nobody());
        assert_eq!(counted.mismatch, None);
        assert!(
            counted.warnings[0]
                .starts_with("the engine sees GPU 0 (NVIDIA H200 MIG 3g.71gb), and no whole GPU")
        );
        let asked = Need { gpu: Some("h200 mig 3g".to_owned()), ..need(1) };
        assert_eq!(judge(Some(&asked), &found, &nobody()).mismatch, None);
    }
}
