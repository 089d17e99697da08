//! Shards merged: the records of all shards of one run, joined to the record of the whole.
//!
//! It decides which records belong together and what they come to; pure, and the same whatever the order in
//! which they are given. Cells are not judged again: every shard has judged them by the same rules.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::provenance::Provenance;
use super::run_record::{
    CellOutcome, CellState, NOT_RUN, PlannedCellRecord, RelativeRecord, RunHeader, RunRecord,
};
use super::shard::{Merged, MergedShard, Part, ShardRun, Whole};

/// A record to be merged, and what it is called in messages: the directory that it stands in.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The record.
    pub record: RunRecord,
}

/// Why records can't be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// It was not run with `--shard`.
    #[error("{name} holds a whole run, no shard")]
    Whole {
        /// Which.
        name: String,
    },
    /// It is the outcome of a merge.
    #[error("{name} holds shards that are merged already")]
    Merged {
        /// Which.
        name: String,
    },
    /// It is a shard of another run.
    #[error("{name} is no shard of the same run as {first}: {}", differences.join("; "))]
    Foreign {
        /// Which.
        name: String,
        /// The one that it was compared with.
        first: String,
        /// How it differs.
        differences: Vec<String>,
    },
    /// One shard in several directories.
    #[error("shard {shard} of {of} is there more than once: {}", names.join(", "))]
    Doubled {
        /// Which shard.
        shard: u32,
        /// Of how many.
        of: u32,
        /// Where.
        names: Vec<String>,
    },
    /// A shard with launches is not there.
    #[error("{} missing", are(shards, *of))]
    Missing {
        /// Which.
        shards: Vec<u32>,
        /// Of how many.
        of: u32,
    },
    /// Figures of different GPUs are not those of one run.
    #[error("the shards ran on different GPUs: {}", told.join(", "))]
    OtherGpus {
        /// Each set of GPUs with its shards.
        told: Vec<String>,
    },
}

/// `shard 3 of 4 is`, `shards 3 and 4 of 4 are`.
fn are(shards: &[u32], of: u32) -> String {
    match shards {
        [one] => format!("shard {one} of {of} is"),
        several => format!("{} of {of} are", named(several)),
    }
}

/// `shard 3`, `shards 2, 3 and 4`.
pub fn named(shards: &[u32]) -> String {
    match shards {
        [] => "no shard".to_owned(),
        [one] => format!("shard {one}"),
        [all @ .., last] => {
            let all: Vec<String> = all.iter().map(u32::to_string).collect();
            format!("shards {} and {last}", all.join(", "))
        }
    }
}

/// Joins the records of all shards of one run.
///
/// Where `allow_missing`, the cells of shards that are not there are errors, not run.
///
/// # Errors
/// Everything that hinders it at once: records that are no shards or those of another run, shards that are
/// there twice or missing, machines with different GPUs.
pub fn merge(mut sources: Vec<Source>, allow_missing: bool) -> Result<RunRecord, Vec<MergeError>> {
    sources.sort_by_key(|it| {
        (it.record.header.shard.as_ref().map(|part| part.shard), it.name.clone())
    });
    let mut errors = Vec::new();
    let mut shards: Vec<(&Source, &Part)> = Vec::new();
    for source in &sources {
        match (&source.record.header.shard, &source.record.header.merged) {
            (_, Some(_)) => errors.push(MergeError::Merged { name: source.name.clone() }),
            (Some(part), None) => shards.push((source, part)),
            (None, None) => errors.push(MergeError::Whole { name: source.name.clone() }),
        }
    }
    let Some((first, part)) = shards.first().copied() else { return Err(errors) };
    let whole = first.record.header.whole();
    for (other, _) in &shards[1..] {
        let differences = differences(&first.record.header, &other.record.header, &whole);
        if !differences.is_empty() {
            let (name, first) = (other.name.clone(), first.name.clone());
            errors.push(MergeError::Foreign { name, first, differences });
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut by_shard: BTreeMap<u32, Vec<&Source>> = BTreeMap::new();
    for (source, part) in &shards {
        by_shard.entry(part.shard).or_default().push(source);
    }
    for (shard, sources) in by_shard.iter().filter(|(_, sources)| sources.len() > 1) {
        let names = sources.iter().map(|source| source.name.clone()).collect();
        errors.push(MergeError::Doubled { shard: *shard, of: part.of, names });
    }
    let mut missing: Vec<u32> = part.owners.clone();
    missing.sort_unstable();
    missing.dedup();
    missing.retain(|shard| !by_shard.contains_key(shard));
    if !missing.is_empty() && !allow_missing {
        errors.push(MergeError::Missing { shards: missing.clone(), of: part.of });
    }
    let (unlike, gpus) = machines(&shards);
    errors.extend(gpus);
    if !errors.is_empty() {
        return Err(errors);
    }
    let present: Vec<&Source> = shards.iter().map(|(source, _)| *source).collect();
    let mut record = RunRecord::new(header(&present, part, whole, &missing));
    join(&mut record, &shards, &missing);
    for warning in unlike {
        record.warnings.push(warning);
    }
    Ok(record)
}

/// The header of the whole: what all shards share from the first, what differs from each.
fn header(
    sources: &[&Source],
    part: &Part,
    (launches, cells): Whole,
    missing: &[u32],
) -> RunHeader {
    // A shard in which nothing was launched tells nothing of where the figures were taken.
    let measured: Vec<&RunHeader> =
        sources.iter().filter(|it| measured(&it.record)).map(|it| &it.record.header).collect();
    let first = measured.first().copied().unwrap_or(&sources[0].record.header);
    let mut shards: Vec<MergedShard> = sources.iter().map(|it| told(&it.record)).collect();
    shards.extend(missing.iter().map(|shard| MergedShard { shard: *shard, run: None }));
    shards.sort_by_key(|shard| shard.shard);
    // One identity, whoever merges them.
    let mut identity = Sha256::new();
    sources.iter().for_each(|it| identity.update(format!("{}\n", it.record.header.run_id)));
    let identity = identity.finalize();
    let started = sources.iter().map(|it| &it.record.header.started).min();
    RunHeader {
        run_id: identity.iter().take(6).map(|byte| format!("{byte:02x}")).collect(),
        started: started.unwrap_or(&first.started).clone(),
        flags: without_out(&first.flags),
        shard: None,
        merged: Some(Merged {
            of: part.of,
            timings: part.timings.clone(),
            owners: part.owners.clone(),
            shards,
        }),
        provenance: Provenance { facts: facts(&measured, first), ..first.provenance.clone() },
        launches,
        cells,
        ..first.clone()
    }
}

/// What the figures of all shards belong to: what they agree on, and of the rest what each has, so that no
/// baseline takes the one for the other.
fn facts(measured: &[&RunHeader], first: &RunHeader) -> BTreeMap<String, String> {
    let keys: BTreeSet<&String> =
        measured.iter().flat_map(|it| it.provenance.facts.keys()).collect();
    if keys.is_empty() {
        return first.provenance.facts.clone();
    }
    let mut facts = BTreeMap::new();
    for key in keys {
        let values = measured.iter().map(|header| {
            let shard = header.shard.as_ref().map_or(0, |part| part.shard);
            (shard, header.provenance.facts.get(key).map_or("not said", String::as_str))
        });
        facts.insert(key.clone(), told_apart(values));
    }
    facts
}

/// `A` where all shards say so, else `A in shard 1, B in shards 2 and 3`, in the order of the first that says each.
fn told_apart<'v>(values: impl Iterator<Item = (u32, &'v str)>) -> String {
    match grouped(values).as_slice() {
        [(value, _)] => (*value).to_owned(),
        groups => in_words(groups).join(", "),
    }
}

/// Values with the shards that have each.
fn grouped<'v>(values: impl Iterator<Item = (u32, &'v str)>) -> Vec<(&'v str, Vec<u32>)> {
    let mut groups: Vec<(&str, Vec<u32>)> = Vec::new();
    for (shard, value) in values {
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, shards)) => shards.push(shard),
            None => groups.push((value, vec![shard])),
        }
    }
    groups
}

fn in_words(groups: &[(&str, Vec<u32>)]) -> Vec<String> {
    groups.iter().map(|(value, shards)| format!("{value} in {}", named(shards))).collect()
}

/// Whether an engine was ready, so that figures may have come of it.
fn measured(record: &RunRecord) -> bool {
    record.launches.iter().any(|it| it.ready_time.is_some())
}

fn told(record: &RunRecord) -> MergedShard {
    let header = &record.header;
    MergedShard {
        shard: header.shard.as_ref().map_or(0, |part| part.shard),
        run: Some(ShardRun {
            run_id: header.run_id.clone(),
            seed: header.seed,
            started: header.started.clone(),
            machine: header.machine.clone(),
            flags: without_out(&header.flags),
            resumptions: record.resumptions.clone(),
            seconds: record.seconds,
            signal: record.signal,
            stopped: record.stopped,
        }),
    }
}

/// Flags of a rerun, each with its value, without the directory of the shard.
fn without_out(flags: &[String]) -> Vec<String> {
    flags.chunks(2).filter(|pair| pair[0] != "--out").flatten().cloned().collect()
}

/// Puts what came of each shard in its place.
fn join(record: &mut RunRecord, shards: &[(&Source, &Part)], missing: &[u32]) {
    let owners = match &record.header.merged {
        Some(merged) => merged.owners.clone(),
        None => return,
    };
    let of = shards[0].1.of;
    for (source, part) in shards {
        let theirs = &source.record;
        let places = owners.iter().enumerate().filter(|(_, owner)| **owner == part.shard);
        for ((place, _), outcome) in places.zip(&theirs.launches) {
            let mut outcome = outcome.clone();
            let place_log = |log: String| format!("{}/{log}", folder(part.shard, of));
            outcome.log = outcome.log.map(place_log);
            for start in &mut outcome.starts {
                start.log = start.log.take().map(place_log);
            }
            record.launches[place] = outcome;
        }
        let own = |cell: &usize| owners[record.header.cells[*cell].launch] == part.shard;
        let cells: Vec<usize> = (0..record.header.cells.len()).filter(own).collect();
        for (place, outcome) in cells.into_iter().zip(&theirs.cells) {
            // A shard that was killed could not say why what is left of it has not run.
            let cut = matches!(&outcome.state, CellState::NotRun { reason } if reason == NOT_RUN);
            if cut && theirs.seconds.is_none() {
                let reason = format!("{NOT_RUN}: shard {} of {of} did not end", part.shard);
                let state = CellState::NotRun { reason };
                record.adopt(place, &CellOutcome { state, ..outcome.clone() });
            } else {
                record.adopt(place, outcome);
            }
        }
        for warning in &theirs.warnings {
            if !record.warnings.contains(warning) {
                record.warnings.push(warning.clone());
            }
        }
        record.resumptions.extend(theirs.resumptions.iter().cloned());
        record.signal = record.signal.or(theirs.signal);
        record.stopped = record.stopped.or(theirs.stopped);
    }
    record.resumptions.sort_by(|a, b| a.started.cmp(&b.started));
    for place in 0..record.header.cells.len() {
        let owner = owners[record.header.cells[place].launch];
        if missing.contains(&owner) {
            let reason = format!("{NOT_RUN}: shard {owner} of {of} is missing");
            record.finish(place, &CellState::NotRun { reason }, 0.0);
        }
    }
    record.settle_all_hardware();
    let seconds: Option<f64> = shards.iter().map(|(source, _)| source.record.seconds).sum();
    record.seconds = seconds.filter(|_| missing.is_empty());
}

/// The folder of a shard's logs in the directory of the merged record: `shard-2-of-4`.
pub fn folder(shard: u32, of: u32) -> String {
    format!("shard-{shard}-of-{of}")
}

/// In which ways `other` is no shard of the run that `first` is one of; empty where it is.
fn differences(first: &RunHeader, other: &RunHeader, whole: &Whole) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, here: &str, there: &str| {
        let or_none =
            |text: &str| if text.is_empty() { "none".into() } else { format!("`{text}`") };
        if here != there {
            found.push(format!("{what} is {}, not {}", or_none(there), or_none(here)));
        }
    };
    let words = |words: &[String]| shell_words::join(words);
    let shaping = |flags: &[String]| {
        let pairs = flags.chunks(2).filter(|pair| pair[0] != "--seed" && pair[0] != "--out");
        words(&pairs.flatten().cloned().collect::<Vec<_>>())
    };
    compare("its suite", &first.suite, &other.suite);
    compare("its version of tokgate", &first.tokgate, &other.tokgate);
    let (Some(one), Some(two)) = (&first.shard, &other.shard) else { return found };
    compare("the number of its shards", &one.of.to_string(), &two.of.to_string());
    compare("its selection", &words(&first.selection), &words(&other.selection));
    if first.plan_hash != other.plan_hash {
        compare("what else shapes it", &shaping(&first.flags), &shaping(&other.flags));
    }
    if found.is_empty() && first.plan_hash != other.plan_hash {
        found.push("its suite has the same name and another content".to_owned());
    }
    if !found.is_empty() {
        return found;
    }
    let hash = |part: &Part| part.timings.as_ref().map(|file| file.hash.clone());
    if hash(one) != hash(two) {
        let file = |part: &Part| match &part.timings {
            Some(file) => {
                format!("`--timings {}` ({})", file.path, file.hash.get(..12).unwrap_or_default())
            }
            None => "estimates".to_owned(),
        };
        found.push(format!("its launches were split by {}, not by {}", file(two), file(one)));
        return found;
    }
    let (launches, cells) = other.whole();
    let same_launches = launches.iter().map(|it| &it.name).eq(whole.0.iter().map(|it| &it.name));
    let key = |cell: &PlannedCellRecord| (cell.classname.clone(), cell.id.clone(), cell.launch);
    let same_cells = cells.iter().map(key).eq(whole.1.iter().map(key));
    if !same_launches || !same_cells || one.owners != two.owners {
        found.push(
            "its cells, their launches or the split are others; does the suite read a variable of the \
             environment that differs?"
                .to_owned(),
        );
        return found;
    }
    // `sees` follows from these, but for the last digit of a logarithm.
    let held = |cell: &PlannedCellRecord| -> Vec<Option<(Vec<f64>, u64, bool)>> {
        let of = |relative: &RelativeRecord| {
            (relative.runs.clone(), relative.comparisons, relative.recorded)
        };
        cell.bounds.iter().map(|bound| bound.relative.as_ref().map(of)).collect()
    };
    let unlike = cells.iter().zip(&whole.1).find(|(there, here)| held(there) != held(here));
    if let Some((cell, _)) = unlike {
        let files = cell.bounds.iter().filter_map(|bound| bound.relative.as_ref());
        let mut files: Vec<&str> = files.map(|relative| relative.file.as_str()).collect();
        files.dedup();
        found.push(format!("it was held against other runs of the baseline {}", files.join(", ")));
    }
    found
}

/// How the machines differ on which something was measured: as warnings, and as what forbids a merge.
/// Nothing where engines run elsewhere or in virtual time.
fn machines(shards: &[(&Source, &Part)]) -> (Vec<String>, Option<MergeError>) {
    let matters = |source: &Source, part: &Part| {
        part.here && !source.record.header.virtual_time && measured(&source.record)
    };
    let mut on: Vec<(u32, BTreeMap<&'static str, String>)> = Vec::new();
    for (source, part) in shards.iter().filter(|(source, part)| matters(source, part)) {
        on.push((part.shard, source.record.header.machine.properties().into_iter().collect()));
    }
    let mut warnings = Vec::new();
    let mut error = None;
    let Some((_, first)) = on.first() else { return (warnings, error) };
    for what in first.keys() {
        let values = grouped(on.iter().map(|(shard, properties)| {
            let value = properties.get(what).map_or("", String::as_str);
            (*shard, if value.is_empty() { "none" } else { value })
        }));
        if values.len() < 2 {
            continue;
        }
        let told = in_words(&values);
        if *what == crate::hardware::GPUS {
            error = Some(MergeError::OtherGpus { told });
        } else {
            warnings.push(format!(
                "the shards ran on machines that differ: {what}: {}",
                told.join(", ")
            ));
        }
    }
    (warnings, error)
}

#[cfg(test)]
mod tests;
