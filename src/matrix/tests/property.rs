//! What holds for every matrix, held against a slow reading of the contract.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A suite of two tests over axes of some values, with excludes.
fn any_suite() -> impl Strategy<Value = (Sample, Vec<String>)> {
    let values = |most: i64| proptest::collection::btree_set(1..=most, 1..5);
    let selectors = proptest::collection::vec(
        prop_oneof![
            (1u64..9).prop_map(|n| format!("context={n}K..")),
            (1i64..9).prop_map(|n| format!("concurrency=!{n}")),
            (1i64..9, 1u64..9).prop_map(|(n, c)| format!("concurrency=..{n} context=..{c}K")),
            Just("test=one".to_owned()),
            (1i64..4).prop_map(|n| format!("zoo={n}..")),
        ],
        0..3,
    );
    (values(8), values(8), values(3), selectors.clone(), selectors).prop_map(
        |(contexts, counts, zoo, excludes, chosen)| {
            let contexts: Vec<u64> = contexts.into_iter().map(|n| n as u64 * 1024).collect();
            let counts: Vec<i64> = counts.into_iter().collect();
            let zoo: Vec<i64> = zoo.into_iter().collect();
            let one = sample::decode("one")
                .axis(sample::tokens("context", &contexts))
                .axis(sample::counts("concurrency", &counts))
                .axis(sample::counts("zoo", &zoo));
            let two = sample::prefill("two").axis(sample::tokens("context", &contexts));
            let one = excludes.iter().fold(one, |one, text| one.exclude(text));
            (Sample::new("serve {{ axis.zoo | default(0) }}").test(one).test(two), chosen)
        },
    )
}

/// What a reader of the contract would write: every combination, asked of the selector itself.
fn naive(suite: &Suite, chosen: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for test in &suite.tests {
        let mut points: Vec<Vec<AxisValue>> = vec![Vec::new()];
        for axis in &test.axes {
            points = points
                .into_iter()
                .flat_map(|point| {
                    axis.values.iter().map(move |value| {
                        let mut point = point.clone();
                        point.push(value.clone());
                        point
                    })
                })
                .collect();
        }
        for point in points {
            let matches = |selector: &Selector| {
                selector.matches(&test.name, None, |name| {
                    test.axes.iter().position(|axis| axis.name == name).map(|at| &point[at])
                })
            };
            let kept = !test.exclude.iter().any(matches)
                && (chosen.is_empty() || chosen.iter().any(|text| matches(&selector(text))));
            if kept {
                let id: Vec<String> = test
                    .axes
                    .iter()
                    .zip(&point)
                    .map(|(axis, value)| format!("{}={value}", axis.name))
                    .collect();
                found.insert(format!("{} {}", test.name, id.join(",")));
            }
        }
    }
    found
}

proptest! {
    /// Every cell is there exactly once, no excluded one, and a selection is a part of the whole.
    #[test]
    fn the_plan_has_each_cell_of_the_suite_once((sample, chosen) in any_suite()) {
        let suite = sample.suite();
        let texts: Vec<&str> = chosen.iter().map(String::as_str).collect();
        // Some of these suites have excludes without a cell, or selectors that name nothing.
        let (Ok(whole), Ok(part)) = (try_selected(&sample, &[], &[]), try_selected(&sample, &texts, &[])) else {
            return Ok(());
        };
        let names = |plan: &Plan| -> Vec<String> {
            plan.cells.iter().map(|cell| format!("{} {}", plan.test(cell).name, plan.cell_id(cell))).collect()
        };
        let (all, some) = (names(&whole), names(&part));
        let set: BTreeSet<String> = all.iter().cloned().collect();
        prop_assert_eq!(set.len(), all.len());
        prop_assert_eq!(&set, &naive(&suite, &[]));
        prop_assert_eq!(some.iter().cloned().collect::<BTreeSet<_>>(), naive(&suite, &chosen));
        // The order is that of the whole.
        prop_assert_eq!(&all.into_iter().filter(|name| some.contains(name)).collect::<Vec<_>>(), &some);
        // Launches stand together and cover all cells.
        let covered: Vec<usize> = part.launches.iter().flat_map(|launch| launch.cells.clone()).collect();
        prop_assert_eq!(covered, (0..part.cells.len()).collect::<Vec<_>>());
        for (index, launch) in part.launches.iter().enumerate() {
            prop_assert!(part.cells[launch.cells.clone()].iter().all(|cell| cell.launch as usize == index));
        }
    }

    /// An id in canonical spelling selects exactly its cell.
    #[test]
    fn an_id_is_a_selector((sample, _) in any_suite()) {
        let Ok(whole) = try_selected(&sample, &[], &[]) else { return Ok(()) };
        for cell in whole.cells.iter().take(5) {
            let line = format!("test={} {}", whole.test(cell).name, whole.cell_id(cell).replace(',', " "));
            let one = selected(&sample, &[&line], &[]);
            prop_assert_eq!(ids(&one), [whole.cell_id(cell)]);
        }
    }
}
