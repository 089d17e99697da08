//! One cell: whether it fits the engine, what its requests look like, and what they came to.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Clock;
use crate::engine::Facts;
use crate::engine::redact::Redactor;
use crate::engine::remote::Remote;
use crate::judge::interval;
use crate::load::socket::make_room_for;
use crate::load::{
    Api, Ask, Client, Dialect, Endpoint, Failure, FailureClass, Outcome, Prepared, Prompt, Trace,
    Warning,
};
use crate::matrix::{Cell, Plan, Runtime};
use crate::measure::delivery::{Outputs, Reads};
use crate::measure::validity::{self, Cache, CheckKind};
use crate::measure::{Base, Check, Fault, Stat, observe};
use crate::record::run_record::{CellState, Measurement, PlannedCellRecord, UnfitClass};
use crate::record::{Event, judgement};
use crate::suite::model::{Capacity, Policy, Prefix, Request, TestSetting};
use crate::transport::{Relay, Transport};

use super::events::Events;
use super::heartbeat::Lags;
use super::instruments::CellInstruments;
use super::prompts::{Prompts, Source, Target, Wording, cell_number};
use super::{command, decode, prefill, serve, watch};

/// A prompt may be shortened by this share to fit the engine's longest sequence.
const SHORTEN: f64 = 0.02;

/// An absence this long may be one of the whole machine, engine included, and not only of a client
/// that had to wait for a core.
const FROZEN: Duration = Duration::from_millis(100);

/// Everything that a cell's measurement needs.
pub(super) struct Bench<'a> {
    /// The cell's index in the plan.
    pub(super) index: usize,
    pub(super) plan: &'a Plan,
    pub(super) cell: &'a Cell,
    pub(super) planned: &'a PlannedCellRecord,
    pub(super) policy: &'a Policy,
    /// Divisor of the per-GPU metrics.
    pub(super) gpus: u32,
    pub(super) clock: Clock,
    pub(super) endpoint: Endpoint,
    pub(super) remote: Remote,
    pub(super) facts: &'a Facts,
    /// Seconds from start to ready; none where the engine was running already.
    pub(super) ready_time: Option<f64>,
    pub(super) prompts: &'a mut Prompts,
    pub(super) request: &'a Request,
    /// Extra body fields, rendered.
    pub(super) body: serde_json::Map<String, serde_json::Value>,
    pub(super) events: &'a Events<'a>,
    /// What only this run knows.
    pub(super) runtime: &'a Runtime,
    pub(super) redactor: &'a Redactor,
    /// What looks at the hardware meanwhile.
    pub(super) instruments: CellInstruments<'a>,
}

impl Bench<'_> {
    /// Measures the cell, whatever its kind.
    pub(super) async fn measure(&mut self) -> CellState {
        let setting = self.plan.suite.tests[self.cell.test as usize].kind.clone();
        match setting {
            TestSetting::Startup => self.startup(),
            TestSetting::Prefill { samples, .. } => {
                let busy = watch::busy(self).await;
                alone(busy, prefill::measure(self, samples).await)
            }
            TestSetting::Decode(setting) => {
                if let Some(unfit) =
                    self.over_capacity(setting.capacity, setting.prefix, setting.max_output)
                {
                    return unfit;
                }
                let busy = watch::busy(self).await;
                alone(busy, decode::measure(self, &setting).await)
            }
            TestSetting::Serve(setting) => {
                let busy = watch::busy(self).await;
                alone(busy, serve::measure(self, &setting).await)
            }
            TestSetting::Command(setting) => command::measure(self, &setting).await,
        }
    }

    fn startup(&self) -> CellState {
        let observations = observe::startup(self.ready_time, self.facts.kv_capacity);
        CellState::Measured(Box::new(Measurement { observations, ..Measurement::default() }))
    }

    /// Streams at once.
    pub(super) fn concurrency(&self) -> u64 {
        self.plan.concurrency(self.cell)
    }

    /// Tells what the cell is doing.
    pub(super) fn phase(&self, phase: &str, note: String) {
        self.events.send(Event::CellPhase { cell: self.index, phase: phase.to_owned(), note });
    }

    /// The prompt length that leaves room for `output` tokens: as asked, or shortened by at most
    /// 2 % where the engine's longest sequence demands it.
    pub(super) fn fit_length(&self, output: u64) -> Result<u64, CellState> {
        self.fit("context", self.plan.context_tokens(self.cell), output)
    }

    /// As [`Bench::fit_length`], for a prompt of `asked` tokens that is called `what`.
    pub(super) fn fit(&self, what: &str, asked: u64, output: u64) -> Result<u64, CellState> {
        let Some(longest) = self.facts.max_model_len else { return Ok(asked) };
        if asked + output <= longest {
            return Ok(asked);
        }
        let room = longest.saturating_sub(output);
        let over = (asked + output - longest) as f64;
        if over <= SHORTEN * longest as f64 && room > 0 {
            return Ok(room);
        }
        Err(CellState::Unfit {
            class: UnfitClass::TooLong,
            message: format!(
                "{what} {asked} + output {output} exceeds the engine's longest sequence of {longest} tokens"
            ),
        })
    }

    fn over_capacity(&self, rule: Capacity, prefix: Prefix, output: u64) -> Option<CellState> {
        let capacity = self.facts.kv_capacity?;
        let (streams, context) = (self.concurrency(), self.plan.context_tokens(self.cell));
        let (needed, words) = match rule {
            Capacity::Off => return None,
            Capacity::Reserve => {
                let each = context.saturating_add(output);
                (streams.saturating_mul(each), format!("{streams} × ({context} + {output})"))
            }
            Capacity::Share => {
                let (common, once) = match prefix {
                    Prefix::Unique | Prefix::Cold => (0, 0),
                    Prefix::Shared => (context, context),
                    Prefix::Groups { groups, length } => {
                        let length = length.min(context);
                        (length, length.saturating_mul(u64::from(groups).min(streams)))
                    }
                };
                let own = context - common + output;
                (
                    streams.saturating_mul(own).saturating_add(once),
                    format!("{streams} × {own} + {once} shared"),
                )
            }
        };
        (needed > capacity).then(|| CellState::Unfit {
            class: UnfitClass::OverCapacity,
            message: format!(
                "{words} = {needed} tokens exceed the engine's KV cache of {capacity} tokens"
            ),
        })
    }

    /// The cell's prompts of so many tokens.
    pub(super) async fn source(
        &mut self,
        prefix: Prefix,
        length: u64,
    ) -> Result<Source, CellState> {
        let target = target(&self.endpoint, self.clock, self.request, &self.body, self.facts);
        let context = self.plan.context_tokens(self.cell);
        self.prompts.source(&target, context, self.number(), prefix, length).await
    }

    /// What makes prompts of any length for this cell.
    pub(super) async fn wording(&mut self) -> Result<Wording, CellState> {
        let target = target(&self.endpoint, self.clock, self.request, &self.body, self.facts);
        self.prompts.wording(&target).await
    }

    /// Tells the cell from all others of its launch, in every selection; variants of a cell have the same.
    pub(super) fn number(&self) -> u64 {
        let test = format!("{}.{}", self.plan.suite.name, self.planned.test);
        cell_number(&test, &self.planned.id)
    }

    /// What all requests of the cell have in common.
    pub(super) fn form(&self) -> Form {
        Form {
            api: self.request.api,
            dialect: self.endpoint.dialect,
            model: self.facts.model.clone(),
            body: self.body.clone(),
            idle_timeout: self.request.idle_timeout,
            timeout: None,
        }
    }

    /// The checks of the client itself: whether it kept as many requests in flight as it was to,
    /// how late it was, and how busy its thread. `still`: the same figures on a clock that stood
    /// still while this program was away, if it was.
    pub(super) fn client_checks(
        &self,
        measurement: &Measurement,
        still: Option<&Measurement>,
        flight: Option<Flight>,
        lag: &Lag,
        lags: &Lags,
    ) -> Vec<Check> {
        let (planned, policy, gpus) = (self.planned, self.policy, self.gpus);
        let flown = flight.map(|Flight { delivered, streams }| {
            let share = delivered / f64::from(streams.max(1));
            let matters = judgement::shortage_matters(planned, measurement, policy, gpus, share);
            validity::concurrency(delivered, streams, matters)
        });
        let mut checks: Vec<Check> = flown.into_iter().collect();
        let gaps = measurement.observations.get(&Base::ChunkGap);
        let gap = gaps.and_then(|gaps| interval::value(gaps, Some(Stat::P50)));
        let gap = gap.map(|ms| Duration::from_secs_f64((ms / 1e3).max(0.0)));
        let shift = validity::stamp_shift(lag.waking, lag.stamped, gap).max(lag.sending);
        let late = lag.waking.max(lag.sending);
        let allowed = policy.max_client_lag;
        let matters = late > allowed
            && judgement::lag_matters(planned, measurement, policy, gpus, shift)
            || still.is_some_and(|still| {
                let frozen = lag.away > FROZEN;
                judgement::absence_matters(planned, measurement, still, policy, gpus, frozen)
            });
        checks.push(validity::client_lag(late, lag.away, allowed, matters));
        match self.endpoint.transport {
            Transport::Tcp | Transport::Relayed(_) => {
                checks.push(validity::client_busy(lags.thread()))
            }
            // In virtual time the thread does nothing but work.
            Transport::InProcess(_) => {}
        }
        checks
    }

    /// A client with an open connection.
    pub(super) async fn client(&self) -> Result<Client, CellState> {
        let mut client = Client::new(&self.endpoint, self.clock)
            .map_err(|error| broken_words("client", &error.to_string()))?;
        client.open().await.map_err(broken)?;
        Ok(client)
    }
}

/// Where the prompts of a cell go.
fn target<'a>(
    endpoint: &'a Endpoint,
    clock: Clock,
    request: &Request,
    body: &'a serde_json::Map<String, serde_json::Value>,
    facts: &'a Facts,
) -> Target<'a> {
    Target {
        endpoint,
        clock,
        api: request.api,
        model: &facts.model,
        body,
        idle_timeout: request.idle_timeout,
        tolerance: request.prompt_tolerance,
    }
}

/// Requests in flight, where the cell declares how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    /// So many were, averaged over the window.
    pub(super) delivered: f64,
    /// So many were to be.
    pub(super) streams: u32,
}

/// How late the client was: at the 99th percentile, and in the worst case.
pub(super) struct Lag {
    /// It woke up so late to read.
    pub(super) waking: Duration,
    /// It sent so late what was due.
    pub(super) sending: Duration,
    /// The longest time in which it did not run at all.
    pub(super) away: Duration,
    /// Whether the kernel stamped what it read, so that waking late moves a stamp only where more
    /// of the same stream came meanwhile.
    pub(super) stamped: bool,
}

/// What all requests of a cell have in common.
pub(super) struct Form {
    api: Api,
    dialect: Dialect,
    model: String,
    body: serde_json::Map<String, serde_json::Value>,
    idle_timeout: Duration,
    timeout: Option<Duration>,
}

impl Form {
    /// The same with a limit on the whole of a request.
    pub(super) fn within(self, timeout: Duration) -> Form {
        Form { timeout: Some(timeout), ..self }
    }

    /// Whether the engine is made to give outputs of the length asked for.
    pub(super) fn enforces_lengths(&self) -> bool {
        match self.dialect {
            Dialect::Vllm | Dialect::LlamaCpp => {
                self.body.get("ignore_eos").is_none_or(|value| value.as_bool() != Some(false))
            }
            Dialect::OpenAi => false,
        }
    }

    /// A request with `prompt` for so many output tokens.
    pub(super) fn prepared(&self, prompt: &Prompt, max_tokens: u64) -> Result<Prepared, CellState> {
        let ask = Ask {
            api: self.api,
            dialect: self.dialect,
            model: &self.model,
            prompt,
            max_tokens,
            cache_prompt: true,
            body: &self.body,
            idle_timeout: self.idle_timeout,
            timeout: self.timeout,
        };
        Prepared::new(&ask).map_err(|error| broken_words("request", &error.to_string()))
    }

    /// A request for each prompt. Neighbours that share a prompt share its bytes.
    pub(super) fn requests(
        &self,
        prompts: &[Prompt],
        max_tokens: u64,
    ) -> Result<Vec<Prepared>, CellState> {
        let mut requests: Vec<Prepared> = Vec::with_capacity(prompts.len());
        for (index, prompt) in prompts.iter().enumerate() {
            let request = match requests.last() {
                Some(last) if prompts[index - 1] == *prompt => last.clone(),
                Some(_) | None => self.prepared(prompt, max_tokens)?,
            };
            requests.push(request);
        }
        Ok(requests)
    }
}

/// Adds to a measured cell whether it had the engine for itself.
fn alone(busy: Option<(f64, f64)>, mut state: CellState) -> CellState {
    match &mut state {
        CellState::Measured(measurement) => measurement.checks.push(validity::idle(busy)),
        CellState::NotRun { .. } | CellState::Unfit { .. } | CellState::Broken { .. } => {}
    }
    state
}

/// Adds whether there are enough samples, in so far as it is no failed request that they are missing
/// for: those are the engine's doing, and told as such.
pub(super) fn enough(measurement: &mut Measurement, got: u64, least: u64) {
    let failing = |check: &Check| check.kind == CheckKind::ErrorRate && check.fault.is_some();
    if !measurement.checks.iter().any(failing) {
        measurement.checks.push(validity::samples(got, least));
    }
}

/// What `prefix` says of the cache, for prompts of so many tokens that were warmed unless cold.
pub(super) fn expected_cache(prefix: Prefix, length: u64) -> Cache {
    match prefix {
        Prefix::Cold => Cache::Cold,
        Prefix::Unique | Prefix::Shared | Prefix::Groups { .. } => Cache::Warm { tokens: length },
    }
}

/// A cell without figures because a request that it needs failed. Without a connection nothing can be
/// said of the engine; whatever else came of the request is the engine's doing.
pub(super) fn broken(failure: Failure) -> CellState {
    let class = serde_json::to_value(failure.class)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default();
    match failure.class {
        FailureClass::Connection => CellState::Broken { class, message: failure.message },
        FailureClass::RateLimited
        | FailureClass::Status
        | FailureClass::ServerError
        | FailureClass::Aborted
        | FailureClass::Truncated
        | FailureClass::Malformed
        | FailureClass::NoOutput
        | FailureClass::NotAStream
        | FailureClass::Stalled => {
            let check = Check {
                kind: CheckKind::ErrorRate,
                fault: Some(Fault::Degraded),
                message: format!("no figures: {class}: {}", failure.message),
            };
            CellState::Measured(Box::new(Measurement {
                requests: 1,
                failures: BTreeMap::from([(failure.class, (1, failure.message))]),
                checks: vec![check],
                ..Measurement::default()
            }))
        }
    }
}

/// A cell that broke before it had figures, in words.
pub(super) fn broken_words(class: &str, message: &str) -> CellState {
    CellState::Broken { class: class.to_owned(), message: message.to_owned() }
}

/// Makes sure that `streams` connections can be open at once: a matter of the machine, unless the engine
/// runs inside of this program.
pub(super) fn make_room(endpoint: &Endpoint, streams: u64) -> Result<(), CellState> {
    let descriptors = match endpoint.transport {
        Transport::Tcp => streams,
        Transport::Relayed(_) => Relay::descriptors(streams),
        Transport::InProcess(_) => return Ok(()),
    };
    make_room_for(descriptors).map_err(|error| broken_words("client", &error.to_string()))
}

/// What the requests of a cell came to besides their figures.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    requests: u64,
    failures: BTreeMap<FailureClass, (u64, String)>,
    warnings: BTreeMap<Warning, u64>,
    /// Tokens sent, as the server counted them: least and most.
    prompt: Option<(u64, u64)>,
    asked: u64,
    /// Cached tokens of warmed requests: least and most share.
    cached: Option<(u64, u64)>,
    prefix: Option<Prefix>,
    outputs: Outputs,
    reads: Reads,
}

impl Tally {
    /// Counts a request by its outcome.
    pub(super) fn count(&mut self, trace: &Trace) {
        self.requests += 1;
        for warning in &trace.warnings {
            *self.warnings.entry(*warning).or_default() += 1;
        }
        match &trace.outcome {
            Outcome::Failed(failure) => {
                let entry =
                    self.failures.entry(failure.class).or_insert((0, failure.message.clone()));
                entry.0 += 1;
            }
            Outcome::Complete | Outcome::Cancelled => {}
        }
    }

    /// Takes note of how the output of a measured request came, of which so many tokens were asked for.
    pub(super) fn output(&mut self, trace: &Trace, asked: u64) {
        self.outputs.see(trace, asked);
        self.reads.see(trace);
    }

    /// Takes note of the prompt's length as the server counted it, and of what was cached where
    /// `prefix` says what should have been.
    pub(super) fn prompt(&mut self, trace: &Trace, asked: u64, prefix: Option<Prefix>) {
        match trace.outcome {
            Outcome::Failed(_) => return,
            // Cut before the server had counted anything.
            Outcome::Cancelled if trace.usage.is_none() => return,
            Outcome::Cancelled | Outcome::Complete => {}
        }
        self.asked = asked;
        let Some(usage) = trace.usage else { return };
        if let Some(counted) = usage.prompt {
            let (least, most) = self.prompt.unwrap_or((counted, counted));
            self.prompt = Some((least.min(counted), most.max(counted)));
        }
        self.prefix = prefix.or(self.prefix);
        if let (Some(_), Some(cached)) = (prefix, usage.cached) {
            let (least, most) = self.cached.unwrap_or((cached, cached));
            self.cached = Some((least.min(cached), most.max(cached)));
        }
    }

    /// A measurement with everything but observations.
    pub(super) fn measurement(&self, bench: &Bench<'_>) -> Measurement {
        let mut checks: Vec<Check> = Vec::new();
        // The count furthest from what was asked speaks for all.
        let counted = self.prompt.map(|(least, most)| {
            if self.asked.abs_diff(least) > self.asked.abs_diff(most) { least } else { most }
        });
        if self.asked > 0 {
            let tolerance = bench.request.prompt_tolerance;
            let mut check = validity::prompt_length(self.asked, counted, tolerance);
            let context = bench.plan.context_tokens(bench.cell);
            if self.asked < context {
                check.message.push_str(&format!(
                    "; shortened from {context} to fit the engine's longest sequence"
                ));
            }
            checks.push(check);
        }
        if let Some(prefix) = self.prefix {
            let expected = expected_cache(prefix, self.asked);
            let cached = self.cached.map(|(least, most)| match expected {
                Cache::Cold => most,
                Cache::Warm { .. } => least,
            });
            checks.push(validity::cache_state(expected, self.asked, cached));
        }
        checks.push(validity::output_length(&self.outputs, bench.request.output_tolerance));
        checks.push(validity::buffered(&self.reads));
        let failed = self.failures.values().map(|(count, _)| count).sum();
        checks.push(validity::error_rate(failed, self.requests, bench.policy.max_error_rate));
        let warnings = self
            .warnings
            .iter()
            .map(|(warning, count)| {
                let words = match warning {
                    Warning::NoUsage => "gave no usage, so that tokens are not counted",
                    Warning::NoDone => "ended without [DONE]",
                    Warning::NoFinishReason => "ended without a finish reason",
                };
                format!("{count} requests {words}")
            })
            .collect();
        Measurement {
            requests: self.requests,
            failures: self.failures.clone(),
            checks,
            prompt_tokens: Some((self.asked, counted)),
            warnings,
            ..Measurement::default()
        }
    }
}
