//! The sizes of a trial: what to measure, so that it fits the engine and the time.
//!
//! Pure: what the engine says and its rough pace go in. Costs are reckoned as a run has them, always on the slow
//! side: a batch is no quicker than what was seen of one, and where nothing is known of a prefix cache each
//! request reads its prompt anew.

use std::time::Duration;

use super::pace::Pace;
use super::portrait::Portrait;
use crate::engine::Kind;

/// Context lengths to choose from, in tokens.
const CONTEXTS: [u64; 7] = [32, 128, 512, 2048, 8192, 32_768, 131_072];
/// How many of them a prefill test has at most.
const MOST_CONTEXTS: usize = 4;
/// Numbers of streams to choose from.
const STREAMS: [u64; 4] = [1, 4, 16, 64];
/// Streams that are to fit beside the longest context of a decode test, where the engine serves as many.
const MANY: u64 = 16;
/// Where nothing says how many streams an engine serves at once.
const UNKNOWN_STREAMS: u64 = 16;
/// Longest request, in tokens, where the engine does not say.
const UNKNOWN_LENGTH: u64 = 2048;
/// Longest context of a decode test: more tells little more, and is dear to warm.
const DECODE_CONTEXT: u64 = 8192;
/// Longest output.
const OUTPUT: u64 = 256;
/// Part of the time that prefill has.
const PREFILL_SHARE: f64 = 0.3;
/// Seconds of a cell that are neither load nor waiting for it: connecting, fitting prompts, waiting for idle.
const CELL: f64 = 0.6;
/// Longest window, in seconds.
const LONGEST_WINDOW: f64 = 30.0;
/// Requests of one token before a decode window: a first wave and the measured ones.
const WAVES: f64 = 5.0;
/// Tokens of each stream in the wave that shares out the slots.
const TOGETHER: f64 = 8.0;

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// Context lengths of the prefill test, in tokens.
    pub prefill: Vec<u64>,
    /// Requests of each of its cells.
    pub samples: u64,
    /// Context lengths of the decode test.
    pub contexts: Vec<u64>,
    /// Numbers of streams.
    pub streams: Vec<u64>,
    /// Shortest window of a decode cell.
    pub window: Duration,
    /// Tokens that each stream has in it at least.
    pub min_tokens: u64,
    /// Longest output of a request.
    pub max_output: u64,
    /// Seconds that all of it takes, about.
    pub seconds: f64,
}

impl Sizes {
    /// The least that can be measured, whatever the engine.
    pub fn least() -> Sizes {
        Sizes {
            prefill: vec![CONTEXTS[0]],
            samples: 3,
            contexts: vec![CONTEXTS[0]],
            streams: vec![1],
            window: Duration::from_secs(1),
            min_tokens: 2,
            max_output: 16,
            seconds: 0.0,
        }
    }

    /// Chooses sizes for so many seconds.
    pub fn choose(portrait: &Portrait, pace: &Pace, seconds: f64) -> Sizes {
        Choice { room: Room::of(portrait), pace: *pace, seconds: seconds.max(1.0) }.choose()
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.prefill.len() + self.contexts.len() * self.streams.len()
    }
}

/// What fits the engine.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// Longest prompt and output together.
    length: u64,
    /// Tokens that all requests may hold together.
    cache: u64,
    /// Streams that it serves at once.
    streams: u64,
    /// Whether a prompt that was sent before is surely not read again.
    caches: bool,
}

impl Room {
    fn of(portrait: &Portrait) -> Room {
        let facts = &portrait.facts;
        let length = facts.max_model_len.unwrap_or(UNKNOWN_LENGTH);
        let length = facts.kv_capacity.map_or(length, |cache| length.min(cache));
        let caches = match portrait.kind {
            Kind::Vllm | Kind::Sglang | Kind::LlamaCpp | Kind::Sim => true,
            Kind::Openai => false,
        };
        Room {
            length,
            cache: facts.kv_capacity.unwrap_or(length.saturating_mul(UNKNOWN_STREAMS)),
            streams: facts.slots.unwrap_or(match facts.kv_capacity {
                Some(_) => STREAMS[STREAMS.len() - 1],
                None => UNKNOWN_STREAMS,
            }),
            caches,
        }
    }

    /// Longest output: half of what fits at most, so that a prompt fits beside it.
    fn output(&self) -> u64 {
        OUTPUT.min(self.length / 2).max(1)
    }

    fn fits(&self, context: u64, output: u64, streams: u64) -> bool {
        context + output <= self.length
            && streams.saturating_mul(context + output) <= self.cache
            && (streams <= self.streams || streams == 1)
    }
}

struct Choice {
    room: Room,
    pace: Pace,
    seconds: f64,
}

impl Choice {
    fn choose(&self) -> Sizes {
        let output = self.room.output();
        let mut fitting: Vec<u64> =
            CONTEXTS.into_iter().filter(|context| self.room.fits(*context, output, 1)).collect();
        if fitting.is_empty() {
            fitting.push(self.room.length.saturating_sub(output).max(1));
        }
        let (prefill, samples) = self.prefill(&fitting);
        let spent = self.prefill_seconds(&prefill, samples);
        let mut sizes =
            Sizes { prefill, samples, max_output: output, ..self.decode(&fitting, output, spent) };
        sizes.seconds = spent + self.decode_seconds(&sizes);
        sizes
    }

    /// Seconds of one prompt that is read.
    fn read(&self, context: u64) -> f64 {
        // Attention grows with the square: far beyond what was seen each token takes longer.
        let beyond = context as f64 / self.pace.seen_at.max(1) as f64;
        let dearer = 1.0 + beyond / 16.0;
        self.pace.overhead + dearer * context as f64 / self.pace.prefill.max(1e-3)
    }

    fn prefill_seconds(&self, contexts: &[u64], samples: u64) -> f64 {
        // One more warms up.
        let requests = (samples + 1) as f64;
        contexts.iter().map(|context| CELL + requests * self.read(*context)).sum()
    }

    fn prefill(&self, fitting: &[u64]) -> (Vec<u64>, u64) {
        let share = self.seconds * PREFILL_SHARE;
        let mut samples = 3;
        let mut chosen: Vec<u64> = Vec::new();
        for context in fitting {
            let mut more = chosen.clone();
            more.push(*context);
            if chosen.is_empty() || self.prefill_seconds(&more, samples) <= share {
                chosen = more;
            }
        }
        let few = chosen.len().saturating_sub(MOST_CONTEXTS);
        chosen.drain(..few);
        while samples < 10 && self.prefill_seconds(&chosen, samples + 1) <= share {
            samples += 1;
        }
        (chosen, samples)
    }

    /// Tokens a second of so many streams together, at least.
    fn rate(&self, streams: u64) -> f64 {
        let decode = self.pace.decode.max(1e-3);
        match self.pace.crowd {
            Some((crowd, together)) if streams >= crowd => together.max(decode),
            Some((crowd, together)) => {
                let gain = (together - decode).max(0.0) / (crowd - 1).max(1) as f64;
                decode + gain * (streams - 1) as f64
            }
            None => decode,
        }
    }

    /// Seconds of a cell besides its window.
    fn around(&self, context: u64, streams: u64) -> f64 {
        let n = streams as f64;
        let token = n / self.rate(streams);
        let waves = WAVES * (self.pace.overhead + token) + TOGETHER * token + self.pace.overhead;
        // Warmed once, or read again in each wave and by the streams.
        let reads = if self.room.caches { 1.3 } else { WAVES + 3.0 };
        CELL + waves + reads * n * self.read(context)
    }

    fn around_all(&self, contexts: &[u64], streams: &[u64]) -> f64 {
        let pairs = contexts.iter().flat_map(|it| streams.iter().map(move |n| (*it, *n)));
        pairs.map(|(context, n)| self.around(context, n)).sum()
    }

    fn decode_seconds(&self, sizes: &Sizes) -> f64 {
        let window = |n: u64| {
            let tokens = (sizes.min_tokens * n) as f64 / self.rate(n);
            sizes.window.as_secs_f64().max(tokens)
        };
        let windows: f64 = sizes.streams.iter().map(|n| window(*n)).sum();
        self.around_all(&sizes.contexts, &sizes.streams) + sizes.contexts.len() as f64 * windows
    }

    fn decode(&self, fitting: &[u64], output: u64, spent: f64) -> Sizes {
        let left = (self.seconds - spent).max(self.seconds * 0.2);
        let affordable = |context: &&u64| self.around(**context, 1) <= left * 0.25;
        let usable: Vec<u64> = fitting
            .iter()
            .filter(|context| **context <= DECODE_CONTEXT)
            .filter(affordable)
            .copied()
            .collect();
        let shortest = usable.iter().find(|context| **context >= 128).or(usable.first());
        let shortest = shortest.or(fitting.first()).copied().unwrap_or(CONTEXTS[0]);
        // A long context beside which hardly any streams fit would leave the other axis empty.
        let many = MANY.min(self.room.streams);
        let roomy = usable.iter().rev().find(|context| self.room.fits(**context, output, many));
        let longest = roomy.or(usable.last()).copied().unwrap_or(shortest);
        let mut contexts = vec![shortest];
        if longest > shortest {
            contexts.push(longest);
        }
        let fits = |contexts: &[u64], n: u64| {
            contexts.iter().all(|context| self.room.fits(*context, output, n))
        };
        let mut ladder: Vec<u64> = STREAMS.to_vec();
        // Slots between two steps of the ladder are worth a step of their own.
        if self.room.streams < STREAMS[STREAMS.len() - 1] && !ladder.contains(&self.room.streams) {
            ladder.push(self.room.streams.max(1));
            ladder.sort_unstable();
        }
        let of = |contexts: &[u64]| -> Vec<u64> {
            ladder.iter().copied().filter(|n| *n == 1 || fits(contexts, *n)).collect()
        };
        let mut streams = of(&contexts);
        let least = (self.seconds / 40.0).clamp(0.3, 3.0);
        let window = |contexts: &[u64], streams: &[u64]| {
            let cells = (contexts.len() * streams.len()) as f64;
            (left - self.around_all(contexts, streams)) / cells
        };
        // What is dear goes first: the long context, then the most streams.
        while window(&contexts, &streams) < least && contexts.len() * streams.len() > 1 {
            if contexts.len() > 1 {
                contexts.pop();
                streams = of(&contexts);
            } else {
                streams.pop();
            }
        }
        let seconds = window(&contexts, &streams).clamp(least, LONGEST_WINDOW);
        // Whole and half seconds read well; tenths where there is little.
        let step = if seconds >= 2.0 { 0.5 } else { 0.1 };
        let seconds = ((seconds / step).floor() * step).max(0.3);
        let slowest = streams.iter().map(|n| self.rate(*n) / *n as f64).fold(f64::MAX, f64::min);
        let min_tokens = (slowest * seconds * 0.6).floor().clamp(2.0, 100.0) as u64;
        let window = Duration::from_millis((seconds * 1e3).round() as u64);
        Sizes { contexts, streams, window, min_tokens, ..Sizes::least() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Facts;
    use proptest::prelude::*;

    fn portrait(kind: Kind, length: Option<u64>, kv: Option<u64>, slots: Option<u64>) -> Portrait {
        let facts = Facts { max_model_len: length, kv_capacity: kv, slots, ..Facts::default() };
        Portrait { kind, chat: false, facts }
    }

    fn pace(overhead: f64, prefill: f64, decode: f64, crowd: Option<(u64, f64)>) -> Pace {
        Pace { overhead, prefill, seen_at: 1024, decode, crowd }
    }

    #[test]
    fn a_slow_server_ends_in_time_all_the_same() {
        let engine = portrait(Kind::LlamaCpp, Some(4096), Some(16_384), Some(4));
        let sizes = Sizes::choose(&engine, &pace(0.3, 30.0, 6.0, None), 120.0);
        assert!(sizes.seconds <= 120.0, "{sizes:?}");
        assert_eq!(
            (sizes.prefill.as_slice(), sizes.contexts.as_slice()),
            (&[32, 128][..], &[128][..])
        );
        assert!(!sizes.streams.is_empty() && sizes.window >= Duration::from_secs(3), "{sizes:?}");
    }

    #[test]
    fn a_gpu_uses_its_time() {
        let engine = portrait(Kind::Vllm, Some(32_768), Some(800_000), None);
        let pace = pace(0.015, 30_000.0, 120.0, Some((8, 800.0)));
        let sizes = Sizes::choose(&engine, &pace, 120.0);
        assert!((80.0..=121.0).contains(&sizes.seconds), "{sizes:?}");
        assert_eq!(sizes.prefill, [128, 512, 2048, 8192]);
        assert_eq!(sizes.contexts, [128, 8192]);
        assert_eq!(sizes.streams, [1, 4, 16, 64]);
        assert_eq!(sizes.samples, 10);
    }

    #[test]
    fn a_small_cache_shortens_the_context_before_the_other_axis() {
        let engine = portrait(Kind::Vllm, Some(32_768), Some(131_072), None);
        let pace = pace(0.01, 50_000.0, 200.0, Some((8, 1400.0)));
        let sizes = Sizes::choose(&engine, &pace, 120.0);
        assert_eq!(sizes.contexts, [128, 2048], "{sizes:?}");
        assert_eq!(sizes.streams, [1, 4, 16], "{sizes:?}");
    }

    #[test]
    fn slots_between_two_steps_are_a_step() {
        let engine = portrait(Kind::LlamaCpp, Some(4096), Some(4096 * 6), Some(6));
        let sizes = Sizes::choose(&engine, &pace(0.02, 2000.0, 80.0, Some((6, 200.0))), 120.0);
        assert_eq!(sizes.streams, [1, 4, 6], "{sizes:?}");
    }

    #[test]
    fn what_says_nothing_of_itself_is_measured_small() {
        let engine = portrait(Kind::Openai, None, None, None);
        let sizes = Sizes::choose(&engine, &pace(0.02, 5000.0, 80.0, Some((8, 400.0))), 120.0);
        assert!(sizes.prefill.iter().all(|context| context + 256 <= 2048), "{sizes:?}");
        assert!(sizes.streams.iter().all(|n| *n <= 16), "{sizes:?}");
    }

    proptest! {
        /// Whatever the engine: all of it fits, and it ends in time unless the least there is takes longer.
        #[test]
        fn sizes_fit_engine_and_time(
            length in prop::option::of(20u64..200_000),
            kv in prop::option::of(20u64..2_000_000),
            slots in prop::option::of(1u64..100),
            openai: bool,
            overhead in 0.001f64..2.0,
            prefill in 5.0f64..100_000.0,
            decode in 0.5f64..400.0,
            gain in 1.0f64..8.0,
            crowded: bool,
            seconds in 3.0f64..600.0,
        ) {
            let kind = if openai { Kind::Openai } else { Kind::LlamaCpp };
            let engine = portrait(kind, length, kv, slots);
            let crowd = crowded.then_some((8, decode * gain));
            let sizes = Sizes::choose(&engine, &pace(overhead, prefill, decode, crowd), seconds);
            let room = Room::of(&engine);
            for context in sizes.prefill.iter().chain(&sizes.contexts) {
                prop_assert!(context + sizes.max_output <= room.length.max(2), "{sizes:?} {room:?}");
            }
            for context in &sizes.contexts {
                for n in &sizes.streams {
                    prop_assert!(*n == 1 || n * (context + sizes.max_output) <= room.cache);
                    prop_assert!(*n == 1 || *n <= room.streams);
                }
            }
            let least = sizes.cells() == 2;
            prop_assert!(least || sizes.seconds <= seconds * 1.1 + 1.0, "{seconds} {sizes:?}");
        }
    }
}
