//! Occupancy: what GPUs hold, and whether an engine that ended has given its memory back.
//!
//! A driver returns memory late, and a worker that outlived its engine keeps it: the next launch would
//! run out of memory and be blamed for it. Pure: `nvml` looks, the run waits and warns.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// By how much more than before a GPU may be occupied: contexts and caches of the driver come and go.
const ROOM: u64 = 512 << 20;

/// What one GPU, or a slice of one, holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Occupancy {
    /// Its place in the driver's order.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// Bytes in use by anybody.
    pub used: u64,
    /// The processes that compute on it, as far as the driver names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<Tenant>,
    /// The processes that draw with it and do not compute, as every desktop has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub graphics: Vec<Tenant>,
}

/// A process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Tenant {
    /// Its id as the driver numbers it, which in a container may be the host's.
    pub pid: u32,
    /// Bytes that it holds, where the driver says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its name; `None` where no such process is to be seen from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl std::fmt::Display for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.pid)?;
        match &self.name {
            Some(name) => write!(f, " ({name})")?,
            None => f.write_str(" (not to be seen from here)")?,
        }
        match self.bytes {
            Some(bytes) => write!(f, " {}", super::gibibytes(bytes)),
            None => Ok(()),
        }
    }
}

/// Memory that an engine has not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The GPU's place in the driver's order.
    pub index: u32,
    /// Its product name.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Who may hold it: processes of the engine, else those that were not there before.
    pub by: Vec<Tenant>,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "GPU {} ({}) still holds {}",
            self.index,
            self.name,
            super::gibibytes(self.bytes)
        )?;
        if self.by.is_empty() {
            return f.write_str(", of no process that the driver names");
        }
        let by: Vec<String> = self.by.iter().map(ToString::to_string).collect();
        write!(f, ": {}", by.join(", "))
    }
}

/// How warm a GPU is.
#[derive(Debug, Clone, PartialEq)]
pub struct Warmth {
    /// Its place in the driver's order.
    pub index: u32,
    /// Product name.
    pub name: String,
    /// Temperature in °C.
    pub celsius: f64,
}

impl std::fmt::Display for Warmth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GPU {} ({}) has {} °C", self.index, self.name, self.celsius)
    }
}

/// What of the memory that was taken since `before` the engine has not given back, whose processes
/// were `tree`. What others took meanwhile is theirs: those who were there before, and those who are to
/// be seen and are none of the engine's.
pub fn held(before: &[Occupancy], now: &[Occupancy], tree: &BTreeSet<u32>) -> Vec<Held> {
    now.iter()
        .filter_map(|gpu| {
            let was = before.iter().find(|was| was.index == gpu.index)?;
            let bytes_of = |tenant: &Tenant| tenant.bytes.unwrap_or(0);
            let was_there = |pid: u32| was.tenants.iter().find(|tenant| tenant.pid == pid);
            let (ours, others): (Vec<&Tenant>, Vec<&Tenant>) =
                gpu.tenants.iter().partition(|tenant| tree.contains(&tenant.pid));
            let grown: u64 = others
                .iter()
                .filter(|tenant| was_there(tenant.pid).is_some() || tenant.name.is_some())
                .map(|tenant| {
                    bytes_of(tenant).saturating_sub(was_there(tenant.pid).map_or(0, bytes_of))
                })
                .sum();
            let more = gpu.used.saturating_sub(was.used).saturating_sub(grown);
            if ours.is_empty() && more <= ROOM {
                return None;
            }
            let told: u64 = ours.iter().map(|tenant| bytes_of(tenant)).sum();
            let new = || others.iter().filter(|tenant| was_there(tenant.pid).is_none());
            let by = if ours.is_empty() {
                new().map(|tenant| (*tenant).clone()).collect()
            } else {
                ours.into_iter().cloned().collect()
            };
            Some(Held { index: gpu.index, name: gpu.name.clone(), bytes: more.max(told), by })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn gpu(index: u32, used: u64, tenants: &[(u32, u64, Option<&str>)]) -> Occupancy {
        let tenants = tenants.iter().map(|(pid, bytes, name)| Tenant {
            pid: *pid,
            bytes: Some(*bytes * GIB),
            name: name.map(str::to_owned),
        });
        Occupancy {
            index,
            name: "H200".to_owned(),
            used: used * GIB,
            tenants: tenants.collect(),
            ..Occupancy::default()
        }
    }

    fn words(before: &[Occupancy], now: &[Occupancy], tree: &[u32]) -> Vec<String> {
        let tree = tree.iter().copied().collect();
        held(before, now, &tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn memory_that_came_back_is_not_held() {
        let before = [gpu(0, 1, &[]), gpu(1, 0, &[])];
        assert!(words(&before, &before, &[7]).is_empty());
        let mut almost = before.clone();
        almost[0].used += ROOM;
        assert!(words(&before, &almost, &[7]).is_empty());
        almost[0].used += 1;
        assert_eq!(
            words(&before, &almost, &[7]),
            ["GPU 0 (H200) still holds 0.5 GiB, of no process that the driver names"]
        );
    }

    #[test]
    fn a_process_of_the_engine_holds_whatever_the_sum() {
        let before = [gpu(0, 20, &[(5, 20, Some("other"))])];
        let now = [gpu(0, 19, &[(5, 1, Some("other")), (7, 18, None)])];
        assert_eq!(
            words(&before, &now, &[7, 8]),
            ["GPU 0 (H200) still holds 18.0 GiB: process 7 (not to be seen from here) 18.0 GiB"]
        );
    }

    #[test]
    fn what_others_take_is_theirs() {
        let before = [gpu(0, 20, &[(5, 20, None)])];
        // One that was there takes more, another comes.
        let now = [gpu(0, 60, &[(5, 30, None), (6, 30, Some("train"))])];
        assert!(words(&before, &now, &[7]).is_empty());
        // A newcomer that can't be seen may be the engine by its number outside of this container.
        let now = [gpu(0, 60, &[(5, 20, None), (4711, 40, None)])];
        assert_eq!(
            words(&before, &now, &[7]),
            ["GPU 0 (H200) still holds 40.0 GiB: process 4711 (not to be seen from here) 40.0 GiB"]
        );
    }

    #[test]
    fn a_gpu_that_was_not_looked_at_before_is_not_judged() {
        assert!(words(&[], &[gpu(0, 60, &[])], &[7]).is_empty());
    }
}
