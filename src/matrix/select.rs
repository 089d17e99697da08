//! Selectors made ready for many cells: each predicate is asked once of each value of an axis, so
//! that a cell costs a few look-ups.

use crate::suite::model::{Key, Selector, Suite};

/// A selector as one test sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sieve {
    /// For each setting, whether it passes; `None`: all pass.
    settings: Option<Box<[bool]>>,
    /// For some axes of the test: its position, and for each value whether it passes.
    axes: Vec<(usize, Box<[bool]>)>,
}

impl Sieve {
    /// The selector for the test of that index; `None` where no cell of the test can match.
    pub(crate) fn new(selector: &Selector, suite: &Suite, test: usize) -> Option<Sieve> {
        let test = &suite.tests[test];
        let mut sieve = Sieve::default();
        for (key, predicate) in &selector.predicates {
            match key {
                Key::Test => {
                    if !predicate.holds_for_name(&test.name) {
                        return None;
                    }
                }
                Key::Variant => {
                    let passes: Box<[bool]> = suite
                        .settings
                        .iter()
                        .map(|setting| {
                            let variant = setting.variant.as_deref();
                            variant.is_some_and(|name| predicate.holds_for_name(name))
                        })
                        .collect();
                    if !passes.contains(&true) {
                        return None;
                    }
                    sieve.settings = Some(passes);
                }
                Key::Axis(name) => {
                    let position = test.axes.iter().position(|axis| axis.name == *name)?;
                    let passes: Box<[bool]> = test.axes[position]
                        .values
                        .iter()
                        .map(|value| predicate.holds_for(value))
                        .collect();
                    if !passes.contains(&true) {
                        return None;
                    }
                    sieve.axes.push((position, passes));
                }
            }
        }
        Some(sieve)
    }

    /// Whether a cell of the test passes.
    pub(crate) fn passes(&self, setting: u32, point: &[u16]) -> bool {
        self.settings.as_ref().is_none_or(|passes| passes[setting as usize])
            && self.axes.iter().all(|(position, passes)| passes[usize::from(point[*position])])
    }
}

/// Several selectors as all tests see them: which of them a cell passes.
#[derive(Debug, Clone)]
pub(crate) struct Sieves {
    /// For each test the selectors that can match it: their index and sieve.
    by_test: Vec<Vec<(usize, Sieve)>>,
    empty: bool,
}

impl Sieves {
    pub(crate) fn new<'a>(
        selectors: impl IntoIterator<Item = &'a Selector> + Clone,
        suite: &Suite,
    ) -> Sieves {
        let by_test = (0..suite.tests.len())
            .map(|test| {
                selectors
                    .clone()
                    .into_iter()
                    .enumerate()
                    .filter_map(|(index, selector)| {
                        Some((index, Sieve::new(selector, suite, test)?))
                    })
                    .collect()
            })
            .collect();
        Sieves { by_test, empty: selectors.into_iter().next().is_none() }
    }

    /// Whether there is no selector at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.empty
    }

    /// The indices of the selectors that a cell passes.
    pub(crate) fn passed<'a>(
        &'a self,
        test: u32,
        setting: u32,
        point: &'a [u16],
    ) -> impl Iterator<Item = usize> + 'a {
        self.by_test[test as usize]
            .iter()
            .filter(move |(_, sieve)| sieve.passes(setting, point))
            .map(|(index, _)| *index)
    }

    /// Whether a cell passes any.
    pub(crate) fn any(&self, test: u32, setting: u32, point: &[u16]) -> bool {
        self.passed(test, setting, point).next().is_some()
    }
}
