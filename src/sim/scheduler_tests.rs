//! The scheduler without a clock: stamps in, chunks out.

use super::*;

const PROFILE: &str = r#"
max-model-len = 1024
kv-capacity = 1024
prefill = { tokens = [17, 1024], ms = [100, 100] }
admit = { at = [1, 2, 4], grid = [[512, 10, 15, 30]] }
step = { at = [1, 2, 4], grid = [[512, 4, 5, 6]] }
"#;

/// An engine with its log: request, milliseconds, tokens.
struct Bench {
    scheduler: Scheduler<u64>,
    log: Vec<(u64, f64, u32)>,
}

impl Bench {
    fn new(extra: &str) -> Bench {
        // Keys of the top level must stand before tables.
        let profile = Profile::parse(&format!("{extra}\n{PROFILE}")).unwrap();
        Bench { scheduler: Scheduler::new(Arc::new(profile), 1), log: Vec::new() }
    }

    fn with_fault(fault: &str) -> Bench {
        let profile = Profile::parse(&format!("{PROFILE}\n[[fault]]\n{fault}")).unwrap();
        Bench { scheduler: Scheduler::new(Arc::new(profile), 1), log: Vec::new() }
    }

    /// A request whose prompt belongs to a family: same family, same prefix.
    fn submit(&mut self, ordinal: u64, ms: u64, family: u64, prompt: u64, output: u64) {
        self.scheduler.submit(Job {
            ordinal,
            arrival: Stamp(ms * 1_000_000),
            prompt,
            hashes: (1..=prompt / 16).map(|block| family * 1000 + block).collect(),
            output,
            finish: Finish::Length,
            stall: None,
            reply: ordinal,
        });
    }

    fn advance(&mut self, ms: u64) {
        let log = &mut self.log;
        self.scheduler.advance(Stamp(ms * 1_000_000), &mut |ordinal, chunk| {
            log.push((*ordinal, chunk.due.0 as f64 / 1e6, chunk.tokens));
        });
    }

    /// Due times of a request's chunks in milliseconds.
    fn times(&self, ordinal: u64) -> Vec<f64> {
        self.log.iter().filter(|(one, ..)| *one == ordinal).map(|(_, at, _)| *at).collect()
    }

    /// A bench on which family 1 is cached and nothing runs.
    fn warmed(mut self) -> Bench {
        self.submit(99, 0, 1, 512, 1);
        self.advance(100);
        self.log.clear();
        self
    }
}

#[test]
fn a_cold_prompt_costs_prefill_and_a_cached_one_admission() {
    let mut bench = Bench::new("");
    bench.submit(1, 0, 1, 512, 3);
    bench.advance(1000);
    assert_eq!(bench.times(1), [100.0, 104.0, 108.0]);

    bench.submit(2, 1000, 1, 512, 2);
    bench.advance(2000);
    assert_eq!(bench.times(2), [1010.0, 1014.0]);
    let gauges = bench.scheduler.gauges();
    // 31 of 32 blocks: the last token of a prompt is always computed.
    assert_eq!((gauges.prefix_queries, gauges.prefix_hits), (1024, 496));
    assert_eq!((gauges.running, gauges.used_blocks, gauges.at_length), (0, 0, 2));
}

#[test]
fn first_tokens_of_a_burst_fall_due_together_as_the_oldest_arrival_says() {
    let mut bench = Bench::new("").warmed();
    for ordinal in 1..=4 {
        bench.submit(ordinal, 199 + ordinal, 1, 512, 2);
        bench.advance(199 + ordinal);
    }
    bench.advance(400);
    for ordinal in 1..=4 {
        assert_eq!(bench.times(ordinal), [230.0, 236.0], "oldest arrival 200 + admit for 4");
    }
}

#[test]
fn due_times_count_from_arrival_however_late_the_scheduler_looks() {
    let mut bench = Bench::new("").warmed();
    bench.submit(1, 200, 1, 512, 3);
    bench.submit(2, 201, 1, 512, 3);
    bench.advance(5000);
    assert_eq!(bench.times(1), [215.0, 220.0, 225.0]);
    assert_eq!(bench.times(2), [215.0, 220.0, 225.0]);
}

#[test]
fn prefills_are_serial_and_what_waits_is_looked_up_when_its_turn_comes() {
    let mut bench = Bench::new("");
    bench.submit(1, 0, 1, 400, 1);
    bench.submit(2, 0, 1, 400, 1); // cached by the time request 1 is done
    bench.submit(3, 0, 3, 200, 1);
    bench.advance(0);
    let gauges = bench.scheduler.gauges();
    assert_eq!((gauges.running, gauges.waiting), (1, 2));
    bench.advance(1000);
    assert_eq!(bench.times(1), [100.0]);
    assert_eq!(bench.times(2), [110.0]);
    assert_eq!(bench.times(3), [200.0]);
}

#[test]
fn a_request_read_late_did_not_begin_before_the_prefill_ahead_of_it_was_done() {
    let mut bench = Bench::new("");
    bench.submit(1, 0, 1, 512, 1);
    bench.advance(120);
    bench.submit(2, 90, 1, 512, 1);
    bench.advance(1000);
    assert_eq!(bench.times(2), [110.0]);
}

#[test]
fn a_newcomer_joins_at_the_next_step() {
    let mut bench = Bench::new("").warmed();
    bench.submit(1, 200, 1, 512, 100);
    bench.advance(211);
    bench.submit(2, 211, 1, 512, 2);
    bench.advance(240);
    // Steps of one stream at 214, 218, 222; the newcomer's first token at 221, its second with the
    // step of two streams that begins at 222.
    assert_eq!(bench.times(2), [221.0, 227.0]);
    assert_eq!(&bench.times(1)[..6], [210.0, 214.0, 218.0, 222.0, 227.0, 231.0]);
}

#[test]
fn a_request_without_room_waits_until_another_ends() {
    let mut bench = Bench::new("");
    bench.submit(1, 0, 1, 900, 3);
    bench.submit(2, 0, 2, 900, 1);
    bench.advance(105);
    assert_eq!(bench.scheduler.gauges().waiting, 1);
    bench.advance(1000);
    assert_eq!(bench.times(1), [100.0, 104.0, 108.0]);
    assert_eq!(bench.times(2), [208.0], "prefill begins when request 1 is done");
}

#[test]
fn the_youngest_gives_way_when_blocks_run_out() {
    let mut bench = Bench::new("");
    bench.submit(1, 0, 1, 512, 40);
    bench.submit(2, 0, 2, 480, 40);
    bench.advance(5000);
    assert_eq!(bench.times(1).len(), 40);
    assert_eq!(bench.times(2).len(), 40);
    let gauges = bench.scheduler.gauges();
    assert_eq!(gauges.preemptions, 1);
    assert_eq!(gauges.used_blocks, 0);
    assert!(bench.times(2)[39] > bench.times(1)[39], "request 2 had to wait for request 1");
}

#[test]
fn most_requests_at_once_is_a_limit() {
    let mut bench = Bench::new("max-num-seqs = 2").warmed();
    for ordinal in 1..=3 {
        bench.submit(ordinal, 200, 1, 512, 2);
    }
    bench.advance(200);
    assert_eq!(bench.scheduler.gauges().waiting, 1);
    bench.advance(300);
    assert_eq!(bench.times(1), [215.0, 220.0]);
    assert_eq!(bench.times(3), [230.0, 234.0], "admitted when the first two are done");
}

#[test]
fn tokens_of_a_chunk_keep_their_rate() {
    let mut bench = Bench::new("tokens-per-chunk = 3").warmed();
    bench.submit(1, 200, 1, 512, 9);
    bench.advance(300);
    let chunks: Vec<_> = bench.log.iter().map(|(_, at, tokens)| (*at, *tokens)).collect();
    assert_eq!(chunks, [(210.0, 1), (222.0, 3), (234.0, 3), (242.0, 2)]);
}

#[test]
fn an_aborted_request_leaves_nothing_behind() {
    let mut bench = Bench::new("");
    bench.submit(1, 0, 1, 900, 500);
    bench.submit(2, 0, 2, 900, 1);
    bench.advance(150);
    bench.scheduler.abort(1, Stamp(150_000_000));
    bench.advance(1000);
    assert_eq!(bench.times(2), [250.0]);
    assert_eq!(bench.scheduler.due(), None);
    assert_eq!(bench.scheduler.gauges().used_blocks, 0);
    bench.scheduler.abort(1, Stamp(0)); // twice is once
    assert_eq!(bench.scheduler.gauges().aborted, 1);
}

#[test]
fn a_crash_comes_with_its_token_and_nothing_after_it() {
    let mut bench = Bench::with_fault("kind = \"crash\"\nat-token = 4");
    bench.submit(1, 0, 1, 512, 100);
    bench.advance(10_000);
    assert_eq!(bench.times(1).len(), 4);
    assert!(bench.scheduler.dead());
    assert_eq!(bench.scheduler.due(), None);
}

#[test]
fn a_hang_is_one_long_step() {
    let mut bench = Bench::with_fault("kind = \"hang\"\nat-token = 2\nfor = \"1s\"");
    bench.submit(1, 0, 1, 512, 4);
    bench.advance(10_000);
    assert_eq!(bench.times(1), [100.0, 104.0, 1108.0, 1112.0]);
}

#[test]
fn a_hang_for_ever_outlasts_those_who_give_up() {
    let mut bench = Bench::with_fault("kind = \"hang\"\nat-token = 2");
    bench.submit(1, 0, 1, 512, 4);
    bench.advance(1000);
    bench.scheduler.abort(1, Stamp(1_000_000_000));
    bench.submit(2, 1000, 2, 512, 4);
    bench.advance(100_000);
    assert_eq!((bench.times(1).len(), bench.times(2).len()), (2, 0));
    assert_eq!(bench.scheduler.due(), None);
}

#[test]
fn a_stalled_stream_pauses_alone() {
    let mut bench = Bench::new("").warmed();
    bench.submit(1, 200, 1, 512, 5);
    bench.scheduler.submit(Job {
        ordinal: 2,
        arrival: Stamp(200_000_000),
        prompt: 512,
        hashes: (1..=32).map(|block| 1000 + block).collect(),
        output: 3,
        finish: Finish::Stop,
        stall: Some((2, Some(Duration::from_millis(500)))),
        reply: 2,
    });
    bench.advance(1000);
    assert_eq!(bench.times(1), [215.0, 220.0, 224.0, 228.0, 232.0]);
    assert_eq!(bench.times(2), [215.0, 220.0, 724.0]);
}

#[test]
fn a_leak_eats_the_cache() {
    let mut bench = Bench::with_fault("kind = \"leak\"\ntokens = 500");
    bench.submit(1, 0, 1, 512, 1);
    bench.submit(2, 0, 2, 512, 1);
    bench.submit(3, 0, 3, 512, 1);
    bench.advance(10_000);
    // Each leaves 32 of 64 blocks lost: the third never fits.
    assert_eq!((bench.times(1).len(), bench.times(2).len(), bench.times(3).len()), (1, 1, 0));
    assert_eq!(bench.scheduler.gauges().waiting, 1);
}

#[test]
fn steps_follow_an_absolute_schedule() {
    let mut bench = Bench::new("").warmed();
    bench.submit(1, 200, 1, 512, 400);
    // Looked at every 7 ms, the 400th token is due when 399 steps of 4 ms say.
    for ms in (200..3000).step_by(7) {
        bench.advance(ms);
    }
    assert_eq!(bench.times(1)[399], 210.0 + 399.0 * 4.0);
}
