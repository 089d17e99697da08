//! The profile of the result page, held to the page: every row of `tests/data/seed-measurements.csv`.

use std::sync::Arc;

use super::profile::Profile;
use super::scheduler::{Finish, Job, Scheduler};
use crate::clock::Stamp;
use crate::quantity::Tokens;

const PAGE: &str = include_str!("../../tests/data/seed-measurements.csv");
const MAX_OUTPUT: u64 = 4096;
const BLOCK: u64 = 256;

/// A row of the page.
struct Row {
    phase: &'static str,
    name: String,
    context: u64,
    concurrency: u64,
    over: bool,
    total: f64,
    per_request: f64,
    ttft: f64,
}

fn page() -> Vec<Row> {
    let number = |text: &str| text.parse().unwrap_or(f64::NAN);
    let rows: Vec<Row> = PAGE
        .lines()
        .skip(1)
        .map(|line| {
            let field: Vec<&'static str> = line.split(',').collect();
            Row {
                phase: field[0],
                name: format!("{} {} × {}", field[0], field[1], field[2]),
                context: field[1].parse::<Tokens>().unwrap().0,
                concurrency: field[2].parse().unwrap(),
                over: field[3] == "over_capacity",
                total: number(field[4]),
                per_request: number(field[5]),
                ttft: number(field[6]),
            }
        })
        .collect();
    assert_eq!(rows.len(), 73);
    rows
}

/// The profile, with larger blocks: their size changes no time, and the test is done sooner.
fn inkling() -> Profile {
    let mut profile = Profile::parse(include_str!("../../suites/sim/inkling.toml")).unwrap();
    profile.block_size = BLOCK;
    profile
}

/// An engine that answers bursts, one after another, and says when tokens were due.
struct Engine {
    scheduler: Scheduler<usize>,
    now: u64,
    ordinal: u64,
}

impl Engine {
    /// Due times in ms since the burst was sent: those of each request.
    fn burst(&mut self, family: u64, prompt: u64, count: u64, output: u64) -> Vec<Vec<f64>> {
        let sent = self.now;
        for index in 0..count as usize {
            self.ordinal += 1;
            self.scheduler.submit(Job {
                ordinal: self.ordinal,
                arrival: Stamp(sent),
                prompt,
                hashes: (1..=prompt / BLOCK).map(|block| (family << 32) | block).collect(),
                output,
                finish: Finish::Length,
                stall: None,
                reply: index,
            });
        }
        let mut times = vec![Vec::new(); count as usize];
        let mut last = sent;
        self.scheduler.advance(Stamp(u64::MAX / 4), &mut |index, chunk| {
            times[*index].push((chunk.due.0 - sent) as f64 / 1e6);
            last = last.max(chunk.due.0);
        });
        self.now = last;
        times
    }
}

fn within(value: f64, page: f64, tolerance: f64) -> bool {
    (value / page - 1.0).abs() <= tolerance
}

#[test]
fn every_row_of_the_page_comes_back() {
    for seed in [1, 2] {
        let scheduler = Scheduler::new(Arc::new(inkling()), seed);
        let mut engine = Engine { scheduler, now: 0, ordinal: 0 };
        let mut rows = page();
        // Prefill comes first; its last prompt is a token shorter, since one must be generated.
        for (family, row) in rows.iter_mut().filter(|row| row.phase == "prefill").enumerate() {
            let prompt = row.context.min((1 << 20) - 1);
            let ttft = engine.burst(100 + family as u64, prompt, 1, 1)[0][0];
            assert!(within(ttft, row.ttft, 0.015), "{}: {ttft} ms for {}", row.name, row.ttft);
        }
        for row in rows.iter().filter(|row| row.phase == "decode" && !row.over) {
            engine.burst(row.context, row.context, 1, 1);
            let times = engine.burst(row.context, row.context, row.concurrency, 301);
            let ttft = times[0][0];
            let step = (times[0][300] - ttft) / 300.0;
            assert!(times.iter().all(|one| one == &times[0]), "{}: one batch", row.name);
            let near = (ttft - row.ttft).abs() <= 3.0 || within(ttft, row.ttft, 0.02);
            assert!(near, "{}: TTFT {ttft} ms for {}", row.name, row.ttft);
            // Two cells are short enough that a stream ends in a 30 s window and begins anew.
            let ends = row.context == 8192 && row.concurrency <= 2;
            let gap = if ends { (ttft - step) / MAX_OUTPUT as f64 } else { 0.0 };
            let total = row.concurrency as f64 * 1000.0 / (step + gap);
            assert!(
                within(total, row.total, 0.015),
                "{}: {total} tok/s for {}",
                row.name,
                row.total
            );
            let single = 1000.0 / step;
            let good = ends || within(single, row.per_request, 0.02);
            assert!(good, "{}: {single} tok/s a request for {}", row.name, row.per_request);
        }
    }
}

#[test]
fn capacity_leaves_out_what_the_page_leaves_out_and_a_tenth_less_one_cell_more() {
    let profile = inkling();
    let over = |capacity: u64| -> Vec<String> {
        let decode = page().into_iter().filter(|row| row.phase == "decode");
        decode
            .filter(|row| row.concurrency * (row.context + MAX_OUTPUT) > capacity)
            .map(|row| row.name)
            .collect()
    };
    let page_over: Vec<String> =
        page().into_iter().filter(|row| row.over).map(|row| row.name).collect();
    assert_eq!(page_over.len(), 28);
    assert_eq!(over(profile.kv_capacity), page_over);
    let mut less = over(profile.kv_capacity * 9 / 10);
    less.retain(|name| !page_over.contains(name));
    assert_eq!(less, ["decode 8K × 128"]);
}

#[test]
fn no_cell_that_fits_is_preempted_or_queued() {
    let scheduler = Scheduler::new(Arc::new(inkling()), 1);
    let mut engine = Engine { scheduler, now: 0, ordinal: 0 };
    engine.burst(1, 8192, 1, 1);
    let times = engine.burst(1, 8192, 128, MAX_OUTPUT);
    assert!(times.iter().all(|one| one.len() == MAX_OUTPUT as usize));
    assert_eq!(engine.scheduler.gauges().preemptions, 0);
}
