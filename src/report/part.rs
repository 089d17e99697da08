//! A run in parts, in words: which part of its plan a record is, what each shard of a merged record was, how often it was
//! resumed.
//!
//! Every text that leaves here has been washed.

use crate::record::RunRecord;
use crate::record::event::StopReason;
use crate::record::merge::named;
use crate::record::run_record::CellState;
use crate::record::shard::{Merged, ShardRun};

use super::count::{elapsed, plural};
use super::sanitise::line;

/// `shard 2 of 4: 9 of 36 cells in 2 of 8 launches`, or `4 shards merged`; none of a run that was not split.
pub fn words(record: &RunRecord) -> Option<String> {
    let header = &record.header;
    if let Some(part) = &header.shard {
        return Some(format!(
            "shard {} of {}: {} of {} in {} of {}",
            part.shard,
            part.of,
            header.cells.len(),
            plural(header.planned_cells(), "cell"),
            header.launches.len(),
            plural(header.planned_launches(), "launch"),
        ));
    }
    let merged = header.merged.as_ref()?;
    let missing = missing(merged);
    let merged = match missing.len() {
        0 => format!("{} merged", plural(merged.of as usize, "shard")),
        n => {
            format!("{} of {} merged", merged.of as usize - n, plural(merged.of as usize, "shard"))
        }
    };
    Some(match missing.as_slice() {
        [] => merged,
        [_] => format!("{merged}; {} is missing", named(&missing)),
        _ => format!("{merged}; {} are missing", named(&missing)),
    })
}

/// What was done to make one run of this: of which shards it is, how often it was resumed, how many cells were measured
/// on; none of a run that went through at once.
pub fn told(record: &RunRecord) -> Option<String> {
    let resumed = match record.resumptions.len() {
        0 => None,
        1 => Some("resumed once".to_owned()),
        n => Some(format!("resumed {n} times")),
    };
    let extended = record.cells.iter().filter(|cell| match &cell.state {
        CellState::Measured(measured) => measured.extended,
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => false,
    });
    let extended = match extended.count() {
        0 => None,
        n => Some(format!(
            "{} measured on, since the first look was inconclusive",
            plural(n, "cell")
        )),
    };
    let told: Vec<String> = [words(record), resumed, extended].into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// What the last line of a run adds: ` (shard 2 of 4)`, ` in 4 shards`; empty for a run that was not split.
pub fn suffix(record: &RunRecord) -> String {
    match (&record.header.shard, &record.header.merged) {
        (Some(part), _) => format!(" (shard {} of {})", part.shard, part.of),
        (None, Some(merged)) => format!(" in {}", plural(merged.of as usize, "shard")),
        (None, None) => String::new(),
    }
}

/// For each shard of a merged record its name, and what its run was in one line.
pub fn shards(record: &RunRecord) -> Vec<(String, String)> {
    let Some(merged) = &record.header.merged else { return Vec::new() };
    let told = |shard: u32| {
        let cells = &record.header.cells;
        let own = cells.iter().filter(|cell| merged.owners.get(cell.launch) == Some(&shard));
        plural(own.count(), "cell")
    };
    let rows = merged.shards.iter().map(|shard| {
        let cells = told(shard.shard);
        let said = match &shard.run {
            Some(run) => format!("{cells}, {}", of_run(run)),
            None => format!("{cells}, missing"),
        };
        (format!("shard {}", shard.shard), line(&said))
    });
    rows.collect()
}

fn of_run(run: &ShardRun) -> String {
    let gpu = run.machine.gpus_in_words();
    let ended = match (run.stopped, run.signal, run.seconds) {
        (Some(StopReason::Signal), Some(signal), _) => Some(format!("ended by signal {signal}")),
        (Some(reason), _, _) => Some(stopped(reason).to_owned()),
        (None, _, None) => Some("did not end".to_owned()),
        (None, _, Some(_)) => None,
    };
    let resumed = match run.resumptions.len() {
        0 => None,
        1 => Some("resumed once".to_owned()),
        n => Some(format!("resumed {n} times")),
    };
    let host = Some(run.machine.hostname.clone()).filter(|host| !host.is_empty());
    let parts = [
        Some(format!("run {}", run.run_id)),
        Some(format!("seed {}", run.seed)),
        host.map(|host| format!("on {host}")),
        gpu,
        Some(format!("from {}", run.started)),
        run.seconds.map(elapsed),
        resumed,
        ended,
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn stopped(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Signal => "interrupted",
        StopReason::TimeLimit => "ended by its time limit",
        StopReason::MaxFail => "ended after too many failures",
        StopReason::Unwritable => "ended since results could not be written",
    }
}

/// Shards that a merge went on without.
fn missing(merged: &Merged) -> Vec<u32> {
    merged.shards.iter().filter(|shard| shard.run.is_none()).map(|shard| shard.shard).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::run_record::Resumption;
    use crate::report::{console, fixture, html, markdown};

    #[test]
    fn what_was_done_is_told_and_nothing_of_a_run_that_went_through() {
        let mut record = fixture::page();
        assert_eq!(told(&record), None);
        let measured = record.cells.iter_mut().filter_map(|cell| match &mut cell.state {
            CellState::Measured(measured) => Some(measured),
            CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => None,
        });
        measured.take(2).for_each(|measured| measured.extended = true);
        record.resumptions =
            vec![Resumption { started: "2026-09-17T21:00:00Z".into(), after: 60.0 }];
        let words = "resumed once; 2 cells measured on, since the first look was inconclusive";
        assert_eq!(told(&record).as_deref(), Some(words));
        let shown = console::render(&record, 200, false, console::Extent::Whole);
        for report in [shown, markdown::render(&record), html::render(&record)] {
            assert!(report.contains(words), "{report}");
        }
    }
}
