//! Kin: the same cell of several variants, found without asking every other cell.
//!
//! A record is judged again with each cell that finishes, and a plan may have ten thousand of them. What
//! is looked up follows from the header alone; it is made once, when it is first asked for.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{PlannedCellRecord, RunHeader, VariantRecord};
use crate::hardware::blame::Peers;

/// What a record remembers of its header. Two records are equal whatever they remember.
#[derive(Debug, Clone, Default)]
pub struct Kin {
    known: OnceLock<Arc<Known>>,
    /// How many of the compared cells, from the first, are known to have figures on both sides.
    pub(in crate::record) settled: usize,
    /// Clocks of the cells of each test of a launch, once it has stopped: by launch and test.
    pub(super) clocks: HashMap<usize, Arc<HashMap<String, Peers>>>,
}

impl PartialEq for Kin {
    fn eq(&self, _: &Kin) -> bool {
        true
    }
}

/// What follows from a header.
#[derive(Debug, Default)]
pub(in crate::record) struct Known {
    /// For each cell the family that it belongs to.
    family: Vec<usize>,
    /// The cells of the same test and id, in the order of the plan.
    families: Vec<Vec<usize>>,
    /// Whether any cell is held against a variant, or two variants are compared.
    pub(in crate::record) variants: bool,
    /// The cells in the mean ratio: of the candidate, with the same of the baseline.
    pub(in crate::record) compared: Vec<(usize, Option<usize>)>,
    /// For each cell its place in `compared`.
    pub(in crate::record) place: HashMap<usize, usize>,
    /// The cells of each launch.
    pub(super) launches: Vec<Vec<usize>>,
}

impl Kin {
    /// What follows from that header.
    pub(in crate::record) fn of(&self, header: &RunHeader) -> Arc<Known> {
        let known = self.known.get_or_init(|| Arc::new(Known::of(header)));
        // A header that was changed by hand is looked at anew.
        if known.family.len() == header.cells.len() {
            Arc::clone(known)
        } else {
            Arc::new(Known::of(header))
        }
    }
}

impl Known {
    fn of(header: &RunHeader) -> Known {
        let mut known =
            Known { launches: vec![Vec::new(); header.launches.len()], ..Known::default() };
        let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
        for (index, cell) in header.cells.iter().enumerate() {
            let next = known.families.len();
            let family = *seen.entry((&cell.test, &cell.id)).or_insert(next);
            if family == next {
                known.families.push(Vec::new());
            }
            known.families[family].push(index);
            known.family.push(family);
            if let Some(cells) = known.launches.get_mut(cell.launch) {
                cells.push(index);
            }
            known.variants |= variants_of(cell).next().is_some();
        }
        let Some(compare) = &header.compare else { return known };
        known.variants = true;
        for (index, cell) in header.cells.iter().enumerate() {
            let against =
                |variant: &VariantRecord| variant.paired && variant.name == compare.baseline;
            if cell.variant.as_deref() != Some(&compare.candidate)
                // What is known to fail is in no mean either.
                || cell.quarantine.is_some()
                || !variants_of(cell).any(against)
            {
                continue;
            }
            let twin = known.twin(header, index, &compare.baseline);
            for one in std::iter::once(index).chain(twin) {
                known.place.insert(one, known.compared.len());
            }
            known.compared.push((index, twin));
        }
        known
    }

    /// The cells of the same test and id as that one, itself included.
    fn family(&self, index: usize) -> &[usize] {
        self.family.get(index).map_or(&[], |family| &self.families[*family])
    }

    /// The index of the same cell of another variant.
    pub(in crate::record) fn twin(
        &self,
        header: &RunHeader,
        index: usize,
        variant: &str,
    ) -> Option<usize> {
        let of = |at: &&usize| header.cells[**at].variant.as_deref() == Some(variant);
        self.family(index).iter().find(of).copied()
    }

    /// The cells that are held against that one.
    pub(in crate::record) fn dependents(&self, header: &RunHeader, index: usize) -> Vec<usize> {
        let Some(changed) = header.cells.get(index) else { return Vec::new() };
        let holds = |at: &&usize| {
            **at != index
                && variants_of(&header.cells[**at])
                    .any(|variant| Some(&variant.name) == changed.variant.as_ref())
        };
        self.family(index).iter().filter(holds).copied().collect()
    }
}

/// The variants that a cell is held against.
pub(in crate::record) fn variants_of(
    cell: &PlannedCellRecord,
) -> impl Iterator<Item = &VariantRecord> {
    let relative = cell.bounds.iter().filter_map(|bound| bound.relative.as_ref());
    relative.filter_map(|relative| relative.variant.as_ref())
}

impl RunHeader {
    /// A cell with the bounds of other variants' cells that it is held against: what spoils its figures
    /// spoils those comparisons too.
    pub fn with_those_held(&self, index: usize) -> PlannedCellRecord {
        let mut cell = self.cells[index].clone();
        for other in &self.cells {
            if other.variant == cell.variant || other.id != cell.id || other.test != cell.test {
                continue;
            }
            let held = other.bounds.iter().filter(|bound| {
                let relative = bound.relative.as_ref();
                let variant = relative.and_then(|relative| relative.variant.as_ref());
                variant.is_some_and(|it| Some(&it.name) == cell.variant.as_ref())
            });
            cell.bounds.extend(held.cloned());
        }
        cell
    }
}
