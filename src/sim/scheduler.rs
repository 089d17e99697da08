//! The scheduler: which request makes a token when.
//!
//! A pure state machine over stamps: orders and the time go in, chunks come out. It models
//! continuous batching as vLLM does it, in the coarse: a waiting queue in order of arrival, KV
//! blocks with a prefix cache, one prefill at a time, preemption of the youngest. All due times are
//! absolute and follow from the arrival of requests and from earlier due times, never from when
//! someone got round to looking, so a late wake-up delays a token but not the schedule.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::blocks::Blocks;
use super::noise::NoiseSource;
use super::profile::Profile;
use super::script::{Fault, slowness};
use crate::clock::Stamp;

/// A request as the scheduler sees it. `R` is the way back to whoever sent it.
#[derive(Debug)]
pub(crate) struct Job<R> {
    /// Its number since the start, from 1.
    pub(crate) ordinal: u64,
    /// When its first bytes arrived.
    pub(crate) arrival: Stamp,
    /// Length of its prompt in tokens.
    pub(crate) prompt: u64,
    /// Hashes of the prefixes that end with each whole block of the prompt.
    pub(crate) hashes: Vec<u64>,
    /// Tokens that it will get.
    pub(crate) output: u64,
    /// Why it ends then.
    pub(crate) finish: Finish,
    /// It pauses after so many tokens; for ever without a length.
    pub(crate) stall: Option<(u64, Option<Duration>)>,
    /// The way back.
    pub(crate) reply: R,
}

/// Why a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    /// `max_tokens` are reached.
    Length,
    /// The model ended by itself.
    Stop,
}

/// Tokens that go out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// When they were due.
    pub(crate) due: Stamp,
    /// How many.
    pub(crate) tokens: u32,
    /// Whether they are the last.
    pub(crate) finish: Option<Finish>,
    /// Tokens of the prompt that came out of the prefix cache.
    pub(crate) cached: u64,
}

/// What `/metrics` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Gauges {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    pub(crate) used_blocks: usize,
    pub(crate) prefix_queries: u64,
    pub(crate) prefix_hits: u64,
    pub(crate) preemptions: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generated_tokens: u64,
    pub(crate) stopped: u64,
    pub(crate) at_length: u64,
    pub(crate) aborted: u64,
}

#[derive(Debug)]
struct Sequence<R> {
    job: Job<R>,
    /// Tokens made so far.
    made: u64,
    /// Of these, not sent yet.
    unsent: u32,
    /// Its KV blocks.
    table: Vec<u32>,
    /// Cached tokens at its first admission.
    cached: u64,
    /// It stood in the queue when there was no room for it.
    blocked: bool,
}

impl<R> Sequence<R> {
    /// Tokens whose KV it needs.
    fn length(&self) -> u64 {
        self.job.prompt + self.made
    }
}

/// Requests with cached prompts whose first tokens fall due together.
#[derive(Debug)]
struct Group<R> {
    oldest: Stamp,
    factor: f64,
    members: Vec<Sequence<R>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Prefill,
    Admission,
    Step,
    Wake,
}

/// The engine's state.
#[derive(Debug)]
pub(crate) struct Scheduler<R> {
    profile: Arc<Profile>,
    noise: NoiseSource,
    blocks: Blocks,
    waiting: VecDeque<Sequence<R>>,
    /// The one prefill in progress and when it is done.
    prefill: Option<(Stamp, Sequence<R>)>,
    /// When the last prefill ended: nothing admitted after it can have begun before.
    prefill_free: Stamp,
    group: Option<Group<R>>,
    /// Streams in the batch; those in `joining` enter it with the next step.
    active: Vec<Sequence<R>>,
    joining: Vec<Sequence<R>>,
    step: Option<Stamp>,
    /// Streams that pause, with the time when they go on.
    stalled: Vec<(Option<Stamp>, Sequence<R>)>,
    busy_since: Stamp,
    hang: Option<(u64, Option<Duration>)>,
    crash: Option<u64>,
    leak: u64,
    dead: bool,
    /// It hangs for ever.
    hung: bool,
    gauges: Gauges,
}

impl<R> Scheduler<R> {
    pub(crate) fn new(profile: Arc<Profile>, seed: u64) -> Scheduler<R> {
        let (mut hang, mut crash, mut leak) = (None, None, 0);
        for fault in &profile.faults {
            match fault {
                Fault::Hang { at_token, pause } => hang = Some((*at_token, *pause)),
                Fault::Crash { at_token, .. } => crash = Some(*at_token),
                Fault::Leak { tokens } => leak = tokens.div_ceil(profile.block_size),
                Fault::DieWhileLoading(_)
                | Fault::Stall { .. }
                | Fault::Refuse { .. }
                | Fault::Status { .. }
                | Fault::StreamError { .. }
                | Fault::Truncate { .. }
                | Fault::Mute { .. }
                | Fault::Sick { .. }
                | Fault::Slow { .. } => {}
            }
        }
        Scheduler {
            noise: NoiseSource::new(profile.noise, seed),
            blocks: Blocks::new((profile.kv_capacity / profile.block_size) as usize),
            waiting: VecDeque::new(),
            prefill: None,
            prefill_free: Stamp(0),
            group: None,
            active: Vec::new(),
            joining: Vec::new(),
            step: None,
            stalled: Vec::new(),
            busy_since: Stamp(0),
            hang,
            crash,
            leak,
            dead: false,
            hung: false,
            gauges: Gauges::default(),
            profile,
        }
    }

    /// A request has arrived. Call [`Scheduler::advance`] afterwards.
    pub(crate) fn submit(&mut self, job: Job<R>) {
        let arrival = job.arrival;
        if self.running() == 0 && self.waiting.is_empty() {
            self.noise.begin_period();
            self.busy_since = arrival;
        }
        self.gauges.prompt_tokens += job.prompt;
        let blocked = !self.waiting.is_empty();
        let (made, unsent, cached) = (0, 0, 0);
        self.waiting.push_back(Sequence { job, made, unsent, table: Vec::new(), cached, blocked });
        if !blocked {
            self.admit(arrival);
        }
    }

    /// A client has gone away.
    pub(crate) fn abort(&mut self, ordinal: u64, now: Stamp) {
        let Some(sequence) = self.remove(ordinal) else { return };
        self.gauges.aborted += 1;
        self.blocks.release(sequence.table);
        if self.active.is_empty() && self.joining.is_empty() {
            self.step = None;
        }
        self.admit(now);
    }

    fn remove(&mut self, ordinal: u64) -> Option<Sequence<R>> {
        let is = |sequence: &Sequence<R>| sequence.job.ordinal == ordinal;
        if let Some(at) = self.waiting.iter().position(is) {
            return self.waiting.remove(at);
        }
        if self.prefill.as_ref().is_some_and(|(_, sequence)| is(sequence)) {
            return self.prefill.take().map(|(_, sequence)| sequence);
        }
        if let Some(group) = &mut self.group
            && let Some(at) = group.members.iter().position(is)
        {
            let sequence = group.members.remove(at);
            if group.members.is_empty() {
                self.group = None;
            }
            return Some(sequence);
        }
        for list in [&mut self.active, &mut self.joining] {
            if let Some(at) = list.iter().position(is) {
                return Some(list.remove(at));
            }
        }
        let at = self.stalled.iter().position(|(_, sequence)| is(sequence))?;
        Some(self.stalled.remove(at).1)
    }

    /// When something happens next; `None` while there is nothing to do.
    pub(crate) fn due(&self) -> Option<Stamp> {
        self.next().map(|(at, _)| at)
    }

    /// Whether a scripted crash has come.
    pub(crate) fn dead(&self) -> bool {
        self.dead
    }

    /// The figures of the moment.
    pub(crate) fn gauges(&self) -> Gauges {
        Gauges {
            running: self.running(),
            waiting: self.waiting.len(),
            used_blocks: self.blocks.used(),
            ..self.gauges
        }
    }

    fn running(&self) -> usize {
        usize::from(self.prefill.is_some())
            + self.group.as_ref().map_or(0, |group| group.members.len())
            + self.active.len()
            + self.joining.len()
            + self.stalled.len()
    }

    fn next(&self) -> Option<(Stamp, Event)> {
        if self.dead || self.hung {
            return None;
        }
        let prefill = self.prefill.as_ref().map(|(at, _)| (*at, Event::Prefill));
        let admission = self.group.as_ref().map(|group| (self.admission(group), Event::Admission));
        let step = self.step.map(|at| (at, Event::Step));
        let wake = self.stalled.iter().filter_map(|(at, _)| *at).min().map(|at| (at, Event::Wake));
        [prefill, admission, step, wake].into_iter().flatten().min()
    }

    /// Carries out everything due by `now`, in order of its due time.
    pub(crate) fn advance(&mut self, now: Stamp, send: &mut dyn FnMut(&R, Chunk)) {
        while let Some((at, event)) = self.next().filter(|(at, _)| *at <= now) {
            match event {
                Event::Prefill => {
                    if let Some((_, sequence)) = self.prefill.take() {
                        self.prefill_free = at;
                        self.blocks.publish(&sequence.table, &sequence.job.hashes);
                        if let Some(sequence) = self.make_token(sequence, at, send) {
                            self.joining.push(sequence);
                        }
                        self.admit(at);
                    }
                }
                Event::Admission => {
                    if let Some(group) = self.group.take() {
                        for sequence in group.members {
                            self.blocks.publish(&sequence.table, &sequence.job.hashes);
                            if let Some(sequence) = self.make_token(sequence, at, send) {
                                self.joining.push(sequence);
                            }
                        }
                        self.admit(at);
                    }
                }
                Event::Step => {
                    self.step = None;
                    let before = self.active.len();
                    for sequence in std::mem::take(&mut self.active) {
                        if let Some(sequence) = self.make_token(sequence, at, send) {
                            self.active.push(sequence);
                        }
                    }
                    // Only a freed block or place can let somebody in.
                    if self.active.len() < before {
                        self.admit(at);
                    }
                }
                Event::Wake => {
                    let woken = |(until, _): &mut (Option<Stamp>, Sequence<R>)| {
                        until.is_some_and(|until| until <= at)
                    };
                    let sequences = self.stalled.extract_if(.., woken).map(|(_, one)| one);
                    self.joining.extend(sequences);
                }
            }
            self.begin_step(at);
        }
    }

    /// When the first tokens of a group are due: it moves as requests join.
    fn admission(&self, group: &Group<R>) -> Stamp {
        let count = group.members.len();
        let context = mean_prompt(&group.members);
        let slow = slowness(&self.profile.faults, false, context, count);
        let ms = self.profile.admit.at(context, count as f64);
        group.oldest + milliseconds(ms * group.factor * slow)
    }

    /// Lets requests in from the head of the queue while there is room; `at` is when the room came about.
    fn admit(&mut self, at: Stamp) {
        let block = self.profile.block_size;
        while let Some(head) = self.waiting.front() {
            if self.prefill.is_some() || self.running() >= self.profile.max_num_seqs {
                break;
            }
            let length = head.length();
            // The last token is always computed: its result is what is wanted.
            let most = ((length - 1) / block) as usize;
            let known = &head.job.hashes[..most.min(head.job.hashes.len())];
            let hits = self.blocks.hits(known);
            let Some(table) = self.blocks.take(&known[..hits], length.div_ceil(block) as usize)
            else {
                break;
            };
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            sequence.table = table;
            let cached = hits as u64 * block;
            if sequence.made == 0 {
                sequence.cached = cached;
                self.gauges.prefix_queries += length;
                self.gauges.prefix_hits += cached;
            }
            let mut begin = sequence.job.arrival.max(self.prefill_free);
            if sequence.blocked {
                begin = begin.max(at);
            }
            self.begin(sequence, length - cached, begin);
        }
        for sequence in &mut self.waiting {
            sequence.blocked = true;
        }
    }

    /// A request leaves the queue with so many tokens to compute.
    fn begin(&mut self, sequence: Sequence<R>, uncached: u64, begin: Stamp) {
        if uncached > self.profile.block_size {
            let slow = slowness(&self.profile.faults, false, sequence.job.prompt as f64, 1);
            let ms = self.profile.prefill.at(uncached as f64) * self.noise.first_token() * slow;
            self.prefill = Some((begin + milliseconds(ms), sequence));
            return;
        }
        match &mut self.group {
            Some(group) => {
                group.oldest = group.oldest.min(begin);
                group.members.push(sequence);
            }
            None => {
                let factor = self.noise.first_token();
                self.group = Some(Group { oldest: begin, factor, members: vec![sequence] });
            }
        }
    }

    /// One token of a sequence; what comes back goes on.
    fn make_token(
        &mut self,
        mut sequence: Sequence<R>,
        at: Stamp,
        send: &mut dyn FnMut(&R, Chunk),
    ) -> Option<Sequence<R>> {
        if self.dead {
            return None;
        }
        sequence.made += 1;
        sequence.unsent += 1;
        self.gauges.generated_tokens += 1;
        let last = sequence.made >= sequence.job.output;
        let stall = sequence.job.stall.filter(|(after, _)| *after == sequence.made);
        if sequence.made == 1
            || last
            || stall.is_some()
            || sequence.unsent >= self.profile.tokens_per_chunk
        {
            let chunk = Chunk {
                due: at,
                tokens: sequence.unsent,
                finish: last.then_some(sequence.job.finish),
                cached: sequence.cached,
            };
            send(&sequence.job.reply, chunk);
            sequence.unsent = 0;
        }
        if self.crash.is_some_and(|after| self.gauges.generated_tokens >= after) {
            self.dead = true;
            return None;
        }
        if last {
            match sequence.job.finish {
                Finish::Length => self.gauges.at_length += 1,
                Finish::Stop => self.gauges.stopped += 1,
            }
            self.blocks.release(sequence.table);
            self.blocks.lose(self.leak as usize);
            return None;
        }
        if let Some((_, pause)) = stall {
            self.stalled.push((pause.map(|pause| at + pause), sequence));
            return None;
        }
        Some(sequence)
    }

    /// Starts the next step at `at`, unless one is under way or nobody is there.
    fn begin_step(&mut self, at: Stamp) {
        if self.step.is_some() || self.dead {
            return;
        }
        self.active.append(&mut self.joining);
        self.make_room();
        if self.active.is_empty() {
            return;
        }
        let batch = self.active.len();
        let context = mean_prompt(&self.active);
        let seconds = at.since(self.busy_since).as_secs_f64();
        let ms = self.profile.step.at(context, batch as f64)
            * self.noise.step(seconds)
            * slowness(&self.profile.faults, true, context, batch);
        let mut due = at + milliseconds(ms);
        if let Some((after, pause)) = self.hang
            && self.gauges.generated_tokens >= after
        {
            self.hang = None;
            match pause {
                Some(pause) => due = due + pause,
                // Whoever comes later waits as well.
                None => self.hung = true,
            }
        }
        self.step = Some(due);
    }

    /// A block for each token that the next step makes; who came last gives way where there is none.
    fn make_room(&mut self) {
        let block = self.profile.block_size;
        let mut index = 0;
        while index < self.active.len() {
            let sequence = &mut self.active[index];
            let need = sequence.length().div_ceil(block) as usize;
            if sequence.table.len() >= need || self.blocks.grow(&mut sequence.table) {
                index += 1;
                continue;
            }
            if let Some(mut youngest) = self.active.pop() {
                self.gauges.preemptions += 1;
                self.blocks.release(std::mem::take(&mut youngest.table));
                youngest.blocked = true;
                self.waiting.push_front(youngest);
            }
        }
    }
}

fn mean_prompt<R>(sequences: &[Sequence<R>]) -> f64 {
    let sum: u64 = sequences.iter().map(|sequence| sequence.job.prompt).sum();
    sum as f64 / sequences.len() as f64
}

fn milliseconds(ms: f64) -> Duration {
    Duration::from_nanos((ms * 1e6).round() as u64)
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
