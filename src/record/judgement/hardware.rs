//! Hardware that was not in order while a cell was measured: what policy makes of it, and where it is said.
//!
//! What is suspicious is decided in `hardware::blame`. A pass stays one with a warning; whatever else comes of
//! the cell says at its end that hardware may be why. Of a comparison that has it on one side alone, each
//! verdict says so: the other side was then held against something else than itself.

use super::{Lack, Rounds, Sight};
use crate::hardware::blame::{Suspect, Suspicion, told};
use crate::judge::Verdict;
use crate::record::run_record::{HARDWARE, Judgement, Suspected};
use crate::record::wording;
use crate::suite::model::{HardwareFault, Policy};

/// The suspicions of each launch as a judgement keeps them; of a cell that is measured once without a number.
pub(in crate::record) fn suspected(by_launch: &[Vec<Suspicion>]) -> Vec<Suspected> {
    let several = by_launch.len() > 1;
    let each = (0..).zip(by_launch).flat_map(|(round, found)| {
        found.iter().map(move |suspicion| Suspected {
            round: several.then_some(round),
            suspicion: suspicion.clone(),
        })
    });
    each.collect()
}

/// Why nothing can be held against a cell whose hardware was not in order, where policy makes that an error.
pub(in crate::record) fn lack(policy: &Policy, by_launch: &[Vec<Suspicion>]) -> Option<Lack> {
    let spoilt = policy.hardware_fault == HardwareFault::Error;
    let said = of_launches(by_launch).filter(|_| spoilt)?;
    Some(Lack::Useless(wording::suspect(&said)))
}

impl Sight<'_> {
    /// Says what was not in order with the hardware, and makes it an error where policy does.
    pub(super) fn blame(&self, judgement: &mut Judgement) {
        let Some(rounds) = &self.rounds else { return };
        judgement.suspects = suspected(rounds.suspects);
        let error = self.policy.hardware_fault == HardwareFault::Error;
        // An error of the other side stands in the line of the bound that lacks it.
        let (sides, covered) = self.one_sided(rounds, !error);
        let own = of_launches(rounds.suspects).filter(|_| !covered);
        let one_sided = !sides.is_empty();
        if own.is_none() && !one_sided {
            return;
        }
        let said = wording::suspect_of(own.as_deref(), &sides);
        let lost = judgement.suspects.iter().any(|it| it.suspicion.what == Suspect::Lost);
        if error && !judgement.suspects.is_empty() && judgement.verdict != Verdict::Error {
            judgement.verdict = Verdict::Error;
            judgement.class = Some(HARDWARE.to_owned());
            judgement.message = Some(wording::spoilt(&said, judgement.message.as_deref()));
            return;
        }
        judgement.warnings.push(said.clone());
        let wanted = match judgement.verdict {
            Verdict::Fail | Verdict::Inconclusive | Verdict::Error => true,
            Verdict::Pass | Verdict::Measured | Verdict::Skip | Verdict::Xfail | Verdict::Xpass => {
                lost || one_sided
            }
        };
        if wanted {
            judgement.message = Some(match &judgement.message {
                Some(message) => format!("{message}; {said}"),
                None => said,
            });
        }
    }

    /// Where hardware was suspect of one side of a comparison alone, in words for each variant that the cell
    /// is held against; and whether that covers all that is suspect of the cell itself. `theirs`: also where
    /// the other side has it.
    fn one_sided(&self, rounds: &Rounds<'_>, theirs: bool) -> (Vec<String>, bool) {
        let name = self.cell.variant.as_deref().unwrap_or("this run");
        let mut words = Vec::new();
        let mut covered = Vec::new();
        let mut asked: Vec<&str> = Vec::new();
        let relative = self.cell.bounds.iter().filter_map(|bound| bound.relative.as_ref());
        for variant in relative.filter_map(|relative| relative.variant.as_ref()) {
            let Some(other) = rounds.others.get(&variant.name) else { continue };
            let waits = other.rounds.iter().all(Option::is_none);
            if waits || asked.contains(&variant.name.as_str()) {
                continue;
            }
            asked.push(&variant.name);
            let paired = variant.paired && other.suspects.len() == rounds.suspects.len();
            let what = if paired { "pair" } else { "launch" };
            let alone = |one: &[Vec<Suspicion>], other: &[Vec<Suspicion>]| -> Vec<usize> {
                let clean = |at: usize| match paired {
                    true => other.get(at).is_none_or(Vec::is_empty),
                    false => other.iter().all(Vec::is_empty),
                };
                (0..one.len()).filter(|at| !one[*at].is_empty() && clean(*at)).collect()
            };
            let own = alone(rounds.suspects, &other.suspects);
            words.extend(of_side(name, what, rounds.suspects, &own));
            covered.extend(own);
            if theirs {
                let at = alone(&other.suspects, rounds.suspects);
                words.extend(of_side(&variant.name, what, &other.suspects, &at));
            }
        }
        let all = (0..rounds.suspects.len()).filter(|at| !rounds.suspects[*at].is_empty());
        let covered = all.into_iter().all(|at| covered.contains(&at));
        (words, covered)
    }
}

/// `new alone in pair 2 of 4: GPU 3 throttled by heat in 62 % of the time`.
fn of_side(name: &str, what: &str, all: &[Vec<Suspicion>], at: &[usize]) -> Option<String> {
    let first = all.get(*at.first()?)?;
    let place = if all.len() > 1 {
        format!(" {}", wording::of_several(what, at, all.len()))
    } else {
        String::new()
    };
    Some(format!("{name} alone{place}: {}", told_of(first)))
}

/// What was suspect in which launches; `None` where nothing was.
fn of_launches(by_launch: &[Vec<Suspicion>]) -> Option<String> {
    let at: Vec<usize> = (0..by_launch.len()).filter(|at| !by_launch[*at].is_empty()).collect();
    let first = told_of(by_launch.get(*at.first()?)?);
    Some(match by_launch.len() {
        1 => first,
        of => format!("{}: {first}", wording::of_several("launch", &at, of)),
    })
}

fn told_of(suspicions: &[Suspicion]) -> String {
    told(suspicions.iter().map(|suspicion| suspicion.words.as_str()))
}
