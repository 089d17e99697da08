//! A slowed run: a self-test in which everything took longer, and which limits noticed.
//!
//! It decides what counts as noticed, which limits it says nothing about, and which cells stayed green.

use std::collections::{BTreeMap, BTreeSet};

use super::RunRecord;
use super::run_record::RunHeader;
use super::sensitivity::{
    Blindness, Limit, MeanLimit, Notice, Sight, Watched, limits, mean_sensitivity,
};
use crate::judge::Verdict;
use crate::measure::{Base, TestKind};

/// `10%`.
pub fn percent(share: f64) -> String {
    let text = format!("{:.6}", share * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// What reports say of such a run.
pub fn words(header: &RunHeader, share: f64) -> String {
    let percent = percent(share);
    let spared = spared(header);
    let but = match spared.is_empty() {
        true => String::new(),
        false => format!(", but of {}, which others are held against", list(&spared)),
    };
    format!(
        "a self-test: whatever the engine answered was held back until it had taken {percent} longer{but} \
         (`tokgate selftest --slow {percent}`); these are not the engine's figures"
    )
}

/// The variants that other cells of the run are held against, which are not slowed: a ratio of two that lose
/// as much stays as it is.
pub fn spared(header: &RunHeader) -> Vec<&str> {
    let bounds = header.cells.iter().flat_map(|cell| &cell.bounds);
    let named = bounds.filter_map(|rule| Some(&*rule.relative.as_ref()?.variant.as_ref()?.name));
    let compared = header.compare.as_ref().filter(|compare| {
        header.cells.iter().any(|cell| cell.variant.as_deref() == Some(&*compare.candidate))
    });
    let compared = compared.map(|compare| &*compare.baseline);
    named.chain(compared).collect::<BTreeSet<&str>>().into_iter().collect()
}

/// `old`, `a and b`.
pub fn list(names: &[&str]) -> String {
    names.join(" and ")
}

/// What each limit that can fail a cell said of the delay, in the order of the suite's lines. A limit that
/// sees has one notice.
fn felt(record: &RunRecord) -> Vec<Limit> {
    let spared = spared(&record.header);
    limits(record, |cell, bound, rule| {
        if cell.planned.variant.as_deref().is_some_and(|it| spared.contains(&it)) {
            let why = "not slowed: others are held against it";
            return Sight::Blind(Blindness::NotSlowed(why.to_owned()));
        }
        if let Some(why) = unmoved(cell.planned.kind, rule.metric.base) {
            return Sight::Blind(Blindness::NotSlowed(why.to_owned()));
        }
        let outcome = cell.outcome();
        let excused = cell.planned.quarantine.as_ref().is_some_and(|it| it.max_loss.is_none());
        match cell.figures(bound, rule) {
            Err(why) => Sight::Blind(why),
            Ok(_) if excused || outcome.judgement.verdict == Verdict::Xfail => {
                Sight::Blind(Blindness::Quarantined)
            }
            Ok(_) => {
                let notices = vec![cell.notice(&outcome.judgement, bound)];
                Sight::Open { notices, from: None }
            }
        }
    })
}

/// Cells, by index, that a limit looked at and that are not red all the same.
fn green(record: &RunRecord, limits: &[Limit]) -> Vec<usize> {
    let mut seen: BTreeMap<usize, bool> = BTreeMap::new();
    for watched in limits.iter().flat_map(|limit| &limit.cells) {
        match &watched.sight {
            Sight::Open { notices, .. } => {
                *seen.entry(watched.cell).or_default() |= notices.contains(&Notice::Fails);
            }
            Sight::Blind(_) => {}
        }
    }
    let is_green = |(cell, failed): (usize, bool)| {
        (!failed && record.cells[cell].judgement.verdict != Verdict::Fail).then_some(cell)
    };
    seen.into_iter().filter_map(is_green).collect()
}

/// What became of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// It failed at least one of its cells.
    Noticed,
    /// None of its cells failed by it, and at least one was to.
    Overlooked,
    /// None of its cells could be judged, which the run itself tells as an error.
    Unproven,
    /// It says nothing by intent: in quarantine, or of what was not slowed.
    Excused,
}

/// What became of one of the limits of a record.
fn response(record: &RunRecord, limit: &Limit) -> Response {
    let is_error = |watched: &Watched| match &watched.sight {
        Sight::Open { .. } => false,
        Sight::Blind(Blindness::Quarantined | Blindness::NotSlowed(_)) => true,
        Sight::Blind(
            Blindness::Unmeasured(_)
            | Blindness::Unobserved(_)
            | Blindness::Invalid(_)
            | Blindness::Exempt,
        ) => record.cells[watched.cell].judgement.verdict == Verdict::Error,
    };
    if limit.notices() {
        Response::Noticed
    } else if limit.is_excused() {
        Response::Excused
    } else if limit.cells.iter().all(is_error) {
        Response::Unproven
    } else {
        Response::Overlooked
    }
}

/// What the record of a slowed run shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// The limits that can fail a cell, each with what became of it.
    pub limits: Vec<(Limit, Response)>,
    /// The limit on the mean ratio, if there is one.
    pub mean: Option<(MeanLimit, Response)>,
    /// Cells, by index, that were looked at and stayed green.
    pub green: Vec<usize>,
}

impl Findings {
    /// Looks at the record of a slowed run.
    pub fn of(record: &RunRecord) -> Findings {
        let limits = felt(record);
        let green = green(record, &limits);
        let limits = limits.into_iter().map(|limit| {
            let response = response(record, &limit);
            (limit, response)
        });
        let mean = mean_sensitivity(record, &[]).map(|limit| {
            let response = match &limit.sight {
                Sight::Blind(_) => Response::Unproven,
                Sight::Open { .. } if limit.notices() => Response::Noticed,
                Sight::Open { .. } => Response::Overlooked,
            };
            (limit, response)
        });
        Findings { limits: limits.collect(), mean, green }
    }

    /// How many limits became this.
    pub fn count(&self, response: Response) -> usize {
        let limits = self.limits.iter().map(|(_, became)| became);
        let mean = self.mean.iter().map(|(_, became)| became);
        limits.chain(mean).filter(|became| **became == response).count()
    }

    /// Whether the gate is at fault: a limit or a cell let the delay pass, or none looked.
    pub fn let_pass(&self) -> bool {
        let none_looked = self.count(Response::Noticed) == 0 && self.count(Response::Unproven) == 0;
        self.count(Response::Overlooked) > 0 || !self.green.is_empty() || none_looked
    }
}

/// Why a metric is not what a delay on the way to the client makes worse; `None` where it is.
fn unmoved(kind: TestKind, base: Base) -> Option<&'static str> {
    match kind {
        TestKind::Startup => return Some("not slowed: the launch itself"),
        TestKind::Command => return Some("not slowed: an external tool"),
        TestKind::Prefill | TestKind::Decode | TestKind::Serve => {}
    }
    match base {
        Base::ActiveRequests
        | Base::CompletedRequests
        | Base::OutputTokens
        | Base::MeasuredTime
        | Base::ErrorRate
        | Base::ReadyTime
        | Base::KvCapacity
        | Base::PowerMean
        | Base::GpuMemoryMax
        | Base::User(_) => Some("not slowed: nothing that a delay need change"),
        Base::OutputThroughput
        | Base::PerRequestThroughput
        | Base::Ttft
        | Base::Tpot
        | Base::Itl
        | Base::ChunkGap
        | Base::PrefillThroughput
        | Base::E2eLatency
        | Base::TtftDue
        | Base::E2eLatencyDue
        | Base::RequestThroughput
        | Base::Goodput
        | Base::JoulesPerToken => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_reads_as_it_was_written() {
        for (share, text) in [(0.1, "10%"), (0.005, "0.5%"), (0.125, "12.5%"), (2.0, "200%")] {
            assert_eq!(percent(share), text);
        }
    }
}
