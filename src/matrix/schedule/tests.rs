//! Orders of starts, as examples and properties.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::matrix::sample::{self, Sample};
use crate::matrix::{Plan, Selection, expand};
use crate::suite::model::SimClock;

fn planned(suite: &Sample, select: &[&str]) -> Plan {
    let alternatives = select.iter().map(|text| sample::selector(text)).collect();
    expand(Arc::new(suite.suite()), &Selection { alternatives, skip: Vec::new() }).unwrap()
}

/// `old 0: 3` for the first round of a variant's launch with three cells.
fn told(plan: &Plan) -> Vec<String> {
    let starts = plan.starts();
    let told = starts.iter().map(|start| {
        let launch = &plan.launches[start.launch];
        let variant = plan.suite.settings[launch.setting as usize].variant.as_deref();
        format!("{} {}: {}", variant.unwrap_or("engine"), start.round, start.cells.len())
    });
    told.collect()
}

/// Two variants that are compared in four pairs; the layout, a part of the command, makes two launches
/// of each.
fn layouts() -> Sample {
    let layout = sample::tables("layout", &[("a", 1), ("b", 2)]);
    Sample::new("serve --tp {{ axis.layout.tp }} --port {{ port }} --v {{ vars.variant }}")
        .variants(&["old", "new"])
        .compared(0, 1, 4)
        .test(sample::decode("decode").axis(sample::counts("concurrency", &[1, 2])).axis(layout))
}

#[test]
fn pairs_are_adjacent_and_in_whole_blocks() {
    let plan = planned(&layouts(), &["layout=a"]);
    assert_eq!(
        told(&plan),
        [
            "new 0: 2", "old 0: 2", // BA
            "old 1: 2", "new 1: 2", // AB
            "new 2: 2", "old 2: 2", "old 3: 2", "new 3: 2",
        ]
    );
}

#[test]
fn launches_of_one_layout_are_pairs_and_not_those_of_all() {
    let plan = planned(&layouts(), &[]);
    let starts = plan.starts();
    assert_eq!(starts.len(), 16);
    let layout =
        |launch: usize| plan.axis(&plan.cells[plan.launches[launch].cells.start], "layout");
    for pair in starts.chunks(2) {
        let [one, other] = pair else { panic!("{pair:?}") };
        assert_eq!(layout(one.launch), layout(other.launch), "{:?}", told(&plan));
        assert_ne!(plan.launches[one.launch].setting, plan.launches[other.launch].setting);
        assert_eq!(one.round, other.round);
    }
    assert_eq!(plan.bundles(), plan.together());
    let [a, b] = ["layout=a", "layout=b"].map(|only| planned(&layouts(), &[only]).starts().len());
    assert_eq!(a + b, 16);
}

#[test]
fn one_launch_may_stand_against_several() {
    // Only the candidate restarts for each layout.
    let layout = sample::tables("layout", &[("a", 1), ("b", 2)]);
    let mut suite = Sample::new("serve --port {{ port }} --v {{ vars.variant }}")
        .variants(&["old", "new"])
        .compared(0, 1, 4)
        .test(sample::decode("decode").axis(layout))
        .suite();
    let env = ("TP".to_owned(), "{{ axis.layout.tp }}".to_owned());
    suite.settings[1].engine.env.push(env);
    let plan = expand(Arc::new(suite), &Selection::default()).unwrap();
    let starts = plan.starts();
    let settings: Vec<u32> =
        starts.iter().map(|start| plan.launches[start.launch].setting).collect();
    assert_eq!(settings, [1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]);
    assert_eq!(plan.bundles(), [0, 0, 0]);
}

#[test]
fn what_only_one_variant_has_is_measured_as_often() {
    let suite = Sample::new("serve --port {{ port }} --v {{ vars.variant }}")
        .variants(&["old", "new"])
        .compared(0, 1, 4)
        .test(sample::decode("decode").axis(sample::counts("concurrency", &[1, 2])))
        .test(sample::prefill("prefill").exclude("variant=old"));
    let plan = planned(&suite, &[]);
    let lone = plan.cells.iter().position(|cell| plan.test(cell).name == "prefill").unwrap();
    let starts = plan.starts();
    assert_eq!(starts.iter().filter(|start| start.cells.contains(&lone)).count(), 4);
    assert_eq!(starts.len(), 8, "it needs no start of its own");
    // Nothing of the other variant is selected: no pairs, and as many launches.
    assert_eq!(
        told(&planned(&suite, &["test=prefill"])),
        ["new 0: 1", "new 1: 1", "new 2: 1", "new 3: 1"]
    );
    assert_eq!(told(&planned(&suite, &["variant=old"])).len(), 4);
}

#[test]
fn engines_that_are_running_are_asked_in_turn_for_each_cell() {
    let suite = Sample::new("")
        .url("http://127.0.0.1:9/{{ vars.variant }}")
        .variants(&["old", "new"])
        .compared(0, 1, 4)
        .test(sample::decode("decode").axis(sample::counts("concurrency", &[1, 2])))
        .test(sample::prefill("prefill").exclude("variant=old"));
    let plan = planned(&suite, &[]);
    let starts = plan.starts();
    assert!(starts.iter().all(|start| start.cells.len() == 1));
    let of = |start: &Start| {
        let cell = &plan.cells[start.cells[0]];
        format!("{} {} {}", plan.variant(cell).unwrap(), plan.cell_id(cell), start.round)
    };
    let told: Vec<String> = starts.iter().map(of).collect();
    assert_eq!(
        told[..8],
        [
            "new concurrency=1 0",
            "old concurrency=1 0",
            "old concurrency=1 1",
            "new concurrency=1 1",
            "new concurrency=1 2",
            "old concurrency=1 2",
            "old concurrency=1 3",
            "new concurrency=1 3",
        ]
    );
    assert_eq!(told.len(), 20);
    assert_eq!(told.iter().filter(|it| it.contains("prefill")).count(), 4);
    // Where only one runs already, a start of the other is shared by its cells.
    let mut suite = suite.suite();
    suite.settings[1].engine = layouts().suite().settings[1].engine.clone();
    let text = "serve --port {{ port }}";
    suite.settings[1].engine.source = Sample::new(text).suite().settings[0].engine.source.clone();
    let plan = expand(Arc::new(suite), &Selection::default()).unwrap();
    assert_eq!(plan.starts().len(), 8);
}

#[test]
fn launches_of_a_test_are_one_after_the_other_and_shared() {
    let suite = Sample::new("serve --port {{ port }}")
        .test(sample::startup("startup").launches(3))
        .test(sample::decode("decode").axis(sample::counts("concurrency", &[1, 2])));
    assert_eq!(told(&planned(&suite, &[])), ["engine 0: 3", "engine 1: 1", "engine 2: 1"]);
}

#[test]
fn what_is_held_against_comes_before_what_is_held() {
    let suite = |held: u32| {
        Sample::new("serve --port {{ port }} --v {{ vars.variant }}")
            .variants(&["one", "two"])
            .test(sample::decode("decode").launches(2))
            .share_of(held, "decode", "output-throughput", "")
    };
    assert_eq!(told(&planned(&suite(0), &[])), ["one 0: 1", "one 1: 1", "two 0: 1", "two 1: 1"]);
    assert_eq!(told(&planned(&suite(1), &[])), ["two 0: 1", "two 1: 1", "one 0: 1", "one 1: 1"]);
    // No pairs, and yet one machine.
    let plan = planned(&suite(1), &[]);
    assert_eq!((plan.bundles(), plan.together()), (vec![0, 1], vec![0, 0]));
    // Selection brings along what is needed, and what that needs.
    let chain = Sample::new("serve --port {{ port }} --v {{ vars.variant }}")
        .variants(&["a", "b", "c"])
        .test(sample::decode("decode").launches(2))
        .share_of(0, "decode", "output-throughput", "variant=b")
        .share_of(1, "decode", "output-throughput", "variant=c");
    assert_eq!(planned(&chain, &["variant=c"]).cells.len(), 3);
    assert_eq!(planned(&chain, &["variant=b"]).cells.len(), 2);
    assert_eq!(planned(&chain, &["variant=a"]).cells.len(), 1);
}

#[test]
fn variants_that_are_compared_get_the_same_prompts_unless_engines_remember_them() {
    let plan = planned(&layouts(), &[]);
    let prompts = |setting: u32| -> Vec<u32> {
        let own = (0..plan.launches.len()).filter(|it| plan.launches[*it].setting == setting);
        own.map(|launch| plan.prompts(launch)).collect()
    };
    assert_eq!(prompts(0), prompts(1));
    assert_ne!(prompts(0)[0], prompts(0)[1]);
    let running = planned(&layouts().url("http://127.0.0.1:9/{{ axis.layout.tp }}"), &[]);
    let mut all: Vec<u32> = (0..running.launches.len()).map(|it| running.prompts(it)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), running.launches.len());
    // In the part that a shard carries out they are the same as in the whole.
    let part = plan.only(|launch| plan.bundles()[launch] == plan.bundles()[1]);
    let whole =
        (0..plan.launches.len()).find(|it| plan.launches[*it].name == part.launches[1].name);
    assert_eq!(part.prompts(1), plan.prompts(whole.unwrap()));
}

/// What a random suite is made of: engine, variants, layouts, launches of the tests, pairs, what is selected.
type Shape = (u8, bool, usize, u32, u32, Option<&'static str>);

fn shaped((engine, compare, layouts, launches, blocks, _): Shape) -> Sample {
    let tables: Vec<(&str, u64)> = [("a", 1), ("b", 2), ("c", 3)][..layouts].to_vec();
    let suite = Sample::new("serve --tp {{ axis.layout.tp }} --port {{ port }}");
    let suite = match engine {
        0 => suite,
        1 => suite.sim(SimClock::Virtual).env("TP", "{{ axis.layout.tp }}"),
        _ => suite.url("http://127.0.0.1:9/{{ axis.layout.tp }}"),
    };
    let suite = suite.env("V", "{{ vars.variant }}").variants(&["old", "new", "third"]);
    let suite = if compare { suite.compared(0, 1, 2 + 2 * blocks) } else { suite };
    let suite = suite
        .test(
            sample::decode("decode")
                .axis(sample::counts("concurrency", &[1, 2, 4]))
                .axis(sample::tables("layout", &tables))
                .launches(launches)
                .exclude("variant=new concurrency=4"),
        )
        .test(sample::prefill("prefill").axis(sample::tables("layout", &tables)));
    let held = |suite: Sample, whose: &str| {
        let filter = format!("variant={whose} concurrency=1");
        suite.share_of(0, "decode", "output-throughput", &filter)
    };
    let suite = if compare { held(suite, "new") } else { suite };
    // Single launches show no noise to be held against each other.
    if launches > 1 || compare { held(suite, "third") } else { suite }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_cell_stands_in_each_of_its_rounds_once(
        engine in 0u8..3,
        compare in any::<bool>(),
        layouts in 1usize..4,
        launches in 1u32..4,
        blocks in 1u32..4,
        select in prop::sample::select(vec![
            None, Some("variant=new"), Some("variant=third"), Some("concurrency=1,2"), Some("layout=a"),
        ]),
    ) {
        let shape = (engine, compare, layouts, launches, blocks, select);
        let plan = planned(&shaped(shape), &select.into_iter().collect::<Vec<_>>());
        let starts = plan.starts();
        let mut seen: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for start in &starts {
            prop_assert!(!start.cells.is_empty());
            prop_assert!(start.cells.is_sorted());
            for cell in &start.cells {
                prop_assert_eq!(plan.cells[*cell].launch as usize, start.launch);
                seen.entry(*cell).or_default().push(start.round);
            }
        }
        for (index, cell) in plan.cells.iter().enumerate() {
            let rounds: Vec<u32> = (0..plan.rounds(cell)).collect();
            prop_assert_eq!(seen.get(&index), Some(&rounds), "each once, and in order");
        }
        // A pure function of the plan.
        prop_assert_eq!(&starts, &plan.clone().starts());
        // A shard that has whole bundles does the same in the same order.
        let together = plan.together();
        for first in together.iter().copied().collect::<std::collections::BTreeSet<_>>() {
            let part = plan.only(|launch| together[launch] == first);
            let name = |plan: &Plan, start: &Start| {
                (plan.launches[start.launch].name.clone(), start.round, start.cells.len())
            };
            let own = starts.iter().filter(|start| together[start.launch] == first);
            let own: Vec<_> = own.map(|start| name(&plan, start)).collect();
            let theirs: Vec<_> = part.starts().iter().map(|start| name(&part, start)).collect();
            prop_assert_eq!(own, theirs);
        }
    }

    #[test]
    fn between_the_two_of_a_pair_nothing_else_is_measured(
        layouts in 1usize..4,
        blocks in 1u32..4,
        engine in 0u8..3,
    ) {
        let plan = planned(&shaped((engine, true, layouts, 1, blocks, None)), &[]);
        // By what is compared: where in the order each side stands in each round.
        let mut turns: HashMap<_, Vec<(usize, u32)>> = HashMap::new();
        let starts = plan.starts();
        for (at, start) in starts.iter().enumerate() {
            for cell in &start.cells {
                let cell = &plan.cells[*cell];
                if cell.setting < 2 {
                    let key = (cell.test, cell.point.to_vec(), start.round);
                    turns.entry(key).or_default().push((at, cell.setting));
                }
            }
        }
        for ((_, _, round), sides) in turns {
            if let [(first, setting), (second, other)] = sides[..] {
                prop_assert_eq!(second, first + 1);
                prop_assert_eq!(setting + other, 1);
                let candidate_first = order(round) == Order::CandidateFirst;
                prop_assert_eq!(setting == 1, candidate_first);
            }
        }
    }
}
