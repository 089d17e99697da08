//! Shards: the launches of a plan split over several machines.
//!
//! Which shard carries out which launch is a pure function of the plan and of the times that a record
//! tells, so that every machine comes to the same split without asking another. A launch is never split.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Cell, Plan, PlannedLaunch};
use crate::suite::model::EngineSource;

/// A start of a launched engine that nobody has timed is taken to be so long.
const START: Duration = Duration::from_secs(120);
/// More shards than anyone has machines.
const MOST: u32 = 10_000;

/// One of several parts of a plan: `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which, from 1.
    pub index: u32,
    /// Of how many.
    pub of: u32,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Why a text names no shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShardError {
    /// Not two numbers with a stroke between them.
    #[error("a shard is written m/n, like 2/4 for the second of four")]
    Form,
    /// There are no shards to choose from.
    #[error("a suite can't be split into 0 shards; write m/n, like 2/4 for the second of four")]
    None,
    /// The number is none of theirs.
    #[error("there is no shard {index} of {of}; the first is 1/{of}, the last {of}/{of}")]
    Beyond {
        /// Which was asked for.
        index: u32,
        /// Of how many.
        of: u32,
    },
    /// A number that stands for a mistake.
    #[error("{of} shards are too many; at most {MOST} can be")]
    TooMany {
        /// How many were asked for.
        of: u32,
    },
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Shard, ShardError> {
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u32>().ok()).flatten().ok_or(ShardError::Form)
        };
        let (index, of) = text.split_once('/').ok_or(ShardError::Form)?;
        let (index, of) = (number(index)?, number(of)?);
        if of == 0 {
            Err(ShardError::None)
        } else if index == 0 || index > of {
            Err(ShardError::Beyond { index, of })
        } else if of > MOST {
            Err(ShardError::TooMany { of })
        } else {
            Ok(Shard { index, of })
        }
    }
}

/// How long launches and cells took in an earlier run, as far as it tells.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timings {
    /// From start to ready, by the launch's name.
    pub starts: BTreeMap<String, Duration>,
    /// By class name and id of the cell.
    pub cells: BTreeMap<(String, String), Duration>,
}

/// The shard of each launch, from 1: the longest launch first, each to the shard that has least to do so
/// far. Where several have as little, the one with fewest launches gets it, then the first; of launches
/// that take as long, the first of the plan comes first.
///
/// No shard takes longer than 4/3 − 1/(3 × `shards`) of what the best split would.
pub fn split(times: &[Duration], shards: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|launch| std::cmp::Reverse(times[*launch]));
    // Of more shards than launches, those behind stay empty.
    let filled = times.len().min(shards as usize);
    let mut work = vec![(Duration::ZERO, 0usize); filled];
    let mut owners = vec![0; times.len()];
    for launch in order {
        let least = (0..filled).min_by_key(|shard| work[*shard]).unwrap_or(0);
        work[least].0 = work[least].0.saturating_add(times[launch]);
        work[least].1 += 1;
        owners[launch] = least as u32 + 1;
    }
    owners
}

impl Plan {
    /// How long each launch may take, its start included: as recorded, else as [`Plan::estimate`] has it.
    /// In whole milliseconds, so that the last digit of a float decides nothing.
    pub fn times(&self, recorded: &Timings) -> Vec<Duration> {
        let whole = |time: Duration| Duration::from_millis(time.as_millis() as u64);
        let cell = |cell: &Cell| {
            // A record tells of all rounds together. Without one no key has to be made for each cell.
            let known = (!recorded.cells.is_empty())
                .then(|| recorded.cells.get(&(self.classname(cell), self.cell_id(cell))))
                .flatten();
            whole(known.copied().unwrap_or_else(|| self.estimate(cell) * self.rounds(cell)))
        };
        let launch = |launch: &PlannedLaunch| {
            let guess = match self.suite.settings[launch.setting as usize].engine.source {
                EngineSource::Command(_) => START,
                EngineSource::Url(_) | EngineSource::Sim { .. } => Duration::ZERO,
            };
            let start = recorded.starts.get(&launch.name).copied().unwrap_or(guess);
            let cells = &self.cells[launch.cells.clone()];
            let rounds = cells.iter().map(|cell| self.rounds(cell)).max().unwrap_or(1);
            let start = whole(start).saturating_mul(rounds);
            cells.iter().map(cell).fold(start, Duration::saturating_add)
        };
        self.launches.iter().map(launch).collect()
    }

    /// The plan with no other launches than those that `keep` keeps, by their place in this one, and their
    /// cells; its hash is that of the whole.
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Plan {
        let mut part = Plan { launches: Vec::new(), cells: Vec::new(), ..self.clone() };
        for (_, launch) in self.launches.iter().enumerate().filter(|(at, _)| keep(*at)) {
            let start = part.cells.len();
            let here = part.launches.len() as u32;
            let cells = self.cells[launch.cells.clone()].iter();
            part.cells.extend(cells.map(|cell| Cell { launch: here, ..cell.clone() }));
            part.launches.push(PlannedLaunch { cells: start..part.cells.len(), ..launch.clone() });
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::matrix::sample::{self, Sample};
    use crate::matrix::{Selection, expand};

    fn seconds(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|time| Duration::from_secs(*time)).collect()
    }

    #[test]
    fn a_shard_is_written_m_of_n() {
        assert_eq!("2/4".parse(), Ok(Shard { index: 2, of: 4 }));
        assert_eq!(Shard { index: 2, of: 4 }.to_string(), "2/4");
        let said = |text: &str| text.parse::<Shard>().unwrap_err().to_string();
        for wrong in ["", "2", "/", "2/", "a/b", "+1/2", "1/-2", "1/2/3", "1 / 2", "1/99999999999"]
        {
            assert!(said(wrong).contains("like 2/4"), "{wrong}: {}", said(wrong));
        }
        assert!(said("2/0").starts_with("a suite can't be split into 0 shards"));
        assert_eq!(said("0/4"), "there is no shard 0 of 4; the first is 1/4, the last 4/4");
        assert_eq!(said("5/4"), "there is no shard 5 of 4; the first is 1/4, the last 4/4");
        assert!(said("1/4000000000").contains("too many"));
    }

    #[test]
    fn the_longest_goes_first_to_whoever_has_least() {
        assert_eq!(split(&seconds(&[1, 9, 5, 3]), 2), [2, 1, 2, 2]);
        // Both have nine to do, and the first has one launch of them.
        assert_eq!(split(&seconds(&[1, 9, 5, 4]), 2), [1, 1, 2, 2]);
        // Nothing to tell them apart: in turn, in the order of the plan.
        assert_eq!(split(&seconds(&[0, 0, 0, 0, 0]), 2), [1, 2, 1, 2, 1]);
        assert_eq!(split(&seconds(&[3, 3, 3]), 5), [1, 2, 3]);
        assert_eq!(split(&seconds(&[3, 3, 3]), 1), [1, 1, 1]);
        assert_eq!(split(&[], 3), [0u32; 0]);
        assert_eq!(split(&[Duration::MAX; 3], 1), [1, 1, 1]);
    }

    proptest! {
        #[test]
        fn every_launch_is_in_one_shard_and_none_has_much_more_than_another(
            times in prop::collection::vec(0u64..10_000, 0..60),
            shards in 1u32..12,
        ) {
            let owners = split(&seconds(&times), shards);
            prop_assert_eq!(owners.len(), times.len());
            prop_assert!(owners.iter().all(|owner| (1..=shards).contains(owner)));
            let work = |shard: u32| -> u64 {
                owners.iter().zip(&times).filter(|(owner, _)| **owner == shard).map(|it| it.1).sum()
            };
            let longest = (1..=shards).map(work).max().unwrap_or(0);
            // No split does better than the mean, the longest launch, or two launches of one shard where
            // there is one launch more than shards.
            let mut sorted = times.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let n = shards as usize;
            let two = if sorted.len() > n { sorted[n - 1] + sorted[n] } else { 0 };
            let mean = times.iter().sum::<u64>().div_ceil(u64::from(shards));
            let least = mean.max(sorted.first().copied().unwrap_or(0)).max(two);
            // Greedy never leaves a shard more than a launch ahead of the mean …
            let last = sorted.get(n).copied().unwrap_or(0);
            prop_assert!(longest <= least + last, "{} of {} + {}", longest, least, last);
            // … and moving any launch from the busiest shard to another would make none shorter.
            for shard in 1..=shards {
                let shortest = owners.iter().zip(&times).filter(|(owner, _)| work(**owner) == longest);
                let shortest = shortest.map(|it| *it.1).min().unwrap_or(0);
                prop_assert!(work(shard) + shortest >= longest);
            }
        }

        #[test]
        fn four_thirds_of_the_best_split_is_never_exceeded(
            times in prop::collection::vec(1u64..50, 1..8),
            shards in 1u32..4,
        ) {
            let longest = |owners: &[u32]| {
                (1..=shards).map(|shard| {
                    let own = owners.iter().zip(&times).filter(|(owner, _)| **owner == shard);
                    own.map(|it| it.1).sum::<u64>()
                }).max().unwrap_or(0)
            };
            let mut best = u64::MAX;
            for mut code in 0..shards.pow(times.len() as u32) {
                let owners: Vec<u32> = times.iter().map(|_| {
                    let owner = code % shards + 1;
                    code /= shards;
                    owner
                }).collect();
                best = best.min(longest(&owners));
            }
            let ours = longest(&split(&seconds(&times), shards));
            let n = u64::from(shards);
            prop_assert!(ours * 3 * n <= best * (4 * n - 1), "{} against {}", ours, best);
        }
    }

    /// Four launches, of which the second has most to do.
    fn plan(select: &[&str]) -> Plan {
        let suite = Sample::new("serve --tp {{ axis.layout.tp }} --port {{ port }}")
            .test(
                sample::decode("decode")
                    .axis(sample::counts("concurrency", &[1, 2, 4]))
                    .axis(sample::tables("layout", &[("a", 1), ("b", 2), ("c", 3), ("d", 4)])),
            )
            .test(
                sample::prefill("prefill")
                    .axis(sample::tokens("context", &[1024, 1 << 20]))
                    .axis(sample::tables("layout", &[("b", 2)])),
            );
        let alternatives = select.iter().map(|text| sample::selector(text)).collect();
        let selection = Selection { alternatives, skip: Vec::new() };
        expand(Arc::new(suite.suite()), &selection).unwrap()
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.launches.iter().map(|launch| launch.name.as_str()).collect()
    }

    #[test]
    fn a_part_of_a_plan_has_its_launches_whole() {
        let whole = plan(&[]);
        let owners = split(&whole.times(&Timings::default()), 2);
        assert_eq!(owners, [2, 1, 2, 2]);
        let mut seen = Vec::new();
        for shard in 1..=3 {
            let part = whole.only(|launch| owners[launch] == shard);
            assert_eq!(part.hash, whole.hash);
            for (at, launch) in part.launches.iter().enumerate() {
                let cells = &part.cells[launch.cells.clone()];
                assert!(cells.iter().all(|cell| cell.launch as usize == at));
                let (name, number) = (&launch.name, launch.number);
                assert_eq!(&whole.launches[number as usize].name, name);
                seen.extend(cells.iter().map(|cell| (whole.classname(cell), whole.cell_id(cell))));
            }
            assert_eq!(part.launches.is_empty(), shard == 3);
        }
        let key = |cell: &Cell| (whole.classname(cell), whole.cell_id(cell));
        let mut all: Vec<_> = whole.cells.iter().map(key).collect();
        seen.sort();
        all.sort();
        assert_eq!(seen, all, "every cell in one shard");
    }

    #[test]
    fn the_split_follows_what_is_selected_and_not_how_it_is_said() {
        let split = |select: &[&str]| {
            let plan = plan(select);
            let owners = split(&plan.times(&Timings::default()), 2);
            let named = names(&plan).into_iter().map(str::to_owned).zip(owners);
            named.collect::<Vec<_>>()
        };
        let (one, other) = ("layout=b,c", "layout=d test=decode");
        assert_eq!(split(&[one, other]), split(&[other, one]));
        assert_eq!(split(&[one, other]).len(), 3);
    }

    #[test]
    fn numbers_and_names_of_launches_are_the_same_whatever_is_selected() {
        let some = plan(&["layout=c,d"]);
        let numbers: Vec<u32> = some.launches.iter().map(|launch| launch.number).collect();
        assert_eq!((names(&some), numbers), (vec!["layout=c", "layout=d"], vec![2, 3]));
    }

    #[test]
    fn recorded_times_count_before_estimated_ones() {
        let plan = plan(&[]);
        let estimated = plan.times(&Timings::default());
        let mut recorded = Timings::default();
        recorded.starts.insert("layout=a".into(), Duration::from_secs(7));
        for cell in &plan.cells[plan.launches[0].cells.clone()] {
            let key = (plan.classname(cell), plan.cell_id(cell));
            recorded.cells.insert(key, Duration::from_secs(1));
        }
        let times = plan.times(&recorded);
        assert_eq!(times[0], Duration::from_secs(7 + 3));
        assert_eq!(times[1..], estimated[1..]);
        let cells = plan.launches[1].cells.clone().map(|cell| plan.estimate(&plan.cells[cell]));
        assert!(estimated[1] > START && estimated[1] <= START + cells.sum::<Duration>());
    }
}
