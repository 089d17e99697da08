//! What the loads of a serve cell come to: figures, checks, and words worth reading.
//!
//! The figures are computed in `measure::serve`; what they are worth is said in `measure::validity`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::cell::{Bench, Flight, Lag};
use super::super::watch::Watch;
use super::{Cell, Sent, audit};
use crate::clock::Stamp;
use crate::hardware::telemetry::{Stretch, Telemetry};
use crate::load::Arrival;
use crate::measure::serve::{self as figures, Goals, Load, Span};
use crate::measure::validity::{self, Cache, CheckKind};
use crate::measure::{Base, Check, Fault, Observations, observe, power};
use crate::quantity::print_number;
use crate::record::run_record::Measurement;
use crate::suite::model::{Prefix, Slo};

/// An engine that leaves more than this share of what arrives falls behind.
const LEFT: f64 = 0.1;

impl Cell<'_> {
    pub(super) fn figures(&self) -> Vec<Load<'_>> {
        let Slo { ttft, tpot, e2e_latency } = self.setting.slo;
        let ms = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64() * 1e3);
        let goals = Goals { ttft: ms(ttft), tpot: ms(tpot), e2e: ms(e2e_latency) };
        let open = self.setting.arrival.is_open();
        self.loads
            .iter()
            .map(|Sent { traces, notes, span }| Load { traces, notes, span: *span, goals, open })
            .collect()
    }

    /// The parts of the run's time that rates are taken from.
    pub(super) fn stretches(&self) -> Vec<Stretch> {
        self.loads.iter().map(|load| (load.span.from, load.span.to)).collect()
    }

    pub(super) fn observations(
        &self,
        loads: &[Load<'_>],
    ) -> (BTreeMap<Base, Observations>, BTreeMap<Base, f64>) {
        if self.setting.repeat > 1 {
            (figures::repeated(loads), BTreeMap::new())
        } else {
            (figures::together(loads), figures::sharing(loads))
        }
    }

    /// What the loads so far came to.
    pub(super) fn measurement(&self, bench: &Bench<'_>, watch: &Watch) -> Measurement {
        let loads = self.figures();
        let mut measurement = self.tally.measurement(bench);
        measurement.engine = watch.engine();
        // Where the length of an output can only be wished for, another one is worth a word.
        if !self.form.enforces_lengths() || self.setting.dataset.is_some() {
            let lengths =
                measurement.checks.iter_mut().filter(|c| c.kind == CheckKind::OutputLength);
            lengths.for_each(|check| check.fault = check.fault.map(|_| Fault::Notice));
        }
        (measurement.observations, measurement.sharing) = self.observations(&loads);
        measurement.prompt_tokens = self.audit.prompt_tokens();
        let mut checks = self.audit.checks(bench.request.prompt_tolerance);
        if let Some((asked, sent)) = self.shortened
            && let Some(check) = checks.iter_mut().find(|c| c.kind == CheckKind::PromptLength)
        {
            check.message.push_str(&format!(
                "; the longest shortened from {asked} to {sent} to fit the engine's longest sequence"
            ));
        }
        if self.setting.dataset.is_none()
            && let Some((prompt, _)) = measurement.prompt_tokens
        {
            let expected = match self.setting.prefix {
                Prefix::Unique | Prefix::Cold => Cache::Cold,
                Prefix::Shared => Cache::Warm { tokens: prompt },
                Prefix::Groups { length, .. } => Cache::Warm { tokens: length.min(prompt) },
            };
            checks.push(validity::cache_counters(expected, prompt, watch.lookups()));
        }
        let away = self.lags.away();
        checks.extend(audit::checks(&loads, &away));
        checks.extend(watch.checks().into_iter().filter_map(|check| self.watched(bench, check)));
        measurement.checks.extend(checks);
        measurement
    }

    /// What a gauge of the engine says of a load that need not fit into it.
    pub(super) fn watched(&self, bench: &Bench<'_>, mut check: Check) -> Option<Check> {
        if check.kind == CheckKind::Queued && self.setting.arrival != Arrival::Closed {
            return None;
        }
        if check.kind == CheckKind::Preemption && !self.fits(bench) {
            check.fault = check.fault.map(|_| Fault::Notice);
        }
        Some(check)
    }

    /// Whether all requests in flight have room in the engine's KV cache, as far as that can be known.
    pub(super) fn fits(&self, bench: &Bench<'_>) -> bool {
        let Some(capacity) = bench.facts.kv_capacity else { return true };
        let each = bench.plan.input_length(bench.cell).greatest()
            + bench.plan.output_length(bench.cell).greatest();
        match self.setting.arrival {
            Arrival::Closed | Arrival::Burst if self.setting.dataset.is_none() => {
                each.saturating_mul(u64::from(self.streams)) <= capacity
            }
            Arrival::Closed | Arrival::Burst | Arrival::Constant | Arrival::Poisson => false,
        }
    }

    /// Requests in flight in the steady load that had the fewest, where the client keeps their number.
    pub(super) fn flight(&self) -> Option<Flight> {
        let steady = self.loads.iter().filter(|load| load.span.steady);
        let delivered =
            steady.map(|load| observe::in_flight(&load.traces, load.span.from, load.span.to));
        let delivered = delivered.reduce(f64::min);
        let delivered = delivered.filter(|_| self.setting.arrival == Arrival::Closed)?;
        Some(Flight { delivered, streams: self.streams })
    }

    pub(super) fn finish(
        mut self,
        bench: &Bench<'_>,
        mut measurement: Measurement,
        idle: bool,
        seen: Option<Telemetry>,
    ) -> Measurement {
        if let Some(seen) = &seen {
            power::observe(&mut measurement.observations, seen);
        }
        // The requests as they were; what follows cuts the absences out of them.
        let flight = self.flight();
        let still = self.still(bench, seen.as_ref());
        let (waking, away) = (self.lags.p99(), self.lags.away().longest());
        let lag = Lag { waking, sending: self.sending, stamped: self.stamped, away };
        let checks = bench.client_checks(&measurement, still.as_ref(), flight, &lag, &self.lags);
        measurement.checks.extend(checks);
        measurement.telemetry = seen.map(Box::new);
        measurement.warnings.extend(self.fell_behind());
        measurement.warnings.extend(self.warnings);
        if !idle {
            measurement.warnings.push("the engine was not idle again after the cell".to_owned());
        }
        measurement
    }

    /// The figures on a clock that stood still while this program was away, if it was for too long.
    pub(super) fn still(
        &mut self,
        bench: &Bench<'_>,
        seen: Option<&Telemetry>,
    ) -> Option<Measurement> {
        let away = self.lags.away();
        if away.longest() <= bench.policy.max_client_lag {
            return None;
        }
        for Sent { traces, notes, span } in &mut self.loads {
            traces.iter_mut().for_each(|trace| away.cut(trace));
            notes.iter_mut().for_each(|note| note.due = away.still(note.due));
            (span.from, span.to) = (away.still(span.from), away.still(span.to));
        }
        let loads = self.figures();
        let (mut observations, sharing) = self.observations(&loads);
        if let Some(seen) = seen {
            power::observe(&mut observations, seen);
        }
        Some(Measurement { observations, sharing, ..Measurement::default() })
    }

    /// Says where an open loop brought more than the engine could end: its latencies grow with the
    /// length of the test then.
    pub(super) fn fell_behind(&self) -> Option<String> {
        let steady = self.loads.iter().filter(|load| load.span.steady);
        let (mut arrived, mut ended, mut seconds) = (0, 0, 0.0);
        for Sent { traces, notes, span: Span { from, to, .. } } in steady {
            // A load without warm-ups begins with none in flight: its first half is not like the rest.
            let half = Stamp(from.0 + (to.0 - from.0) / 2);
            let from = if self.setting.warmup_per_stream == 0 { half } else { *from };
            arrived += notes.iter().filter(|note| note.due >= from && note.due < *to).count();
            ended += traces.iter().filter(|trace| trace.ended > from && trace.ended <= *to).count();
            seconds += to.seconds_since(from);
        }
        let (came, went) = (arrived as f64, ended as f64);
        // What comes at random and goes when it is done differs by so much on two occasions of twenty.
        let chance = match self.setting.arrival {
            Arrival::Closed | Arrival::Burst => return None,
            Arrival::Constant => 1.0,
            Arrival::Poisson => (2.0 * came.sqrt()).max(1.0),
        };
        (came - went > LEFT * came + chance).then(|| {
            format!(
                "{} requests a second arrived and {} ended: latencies grow with the length of such a load",
                print_number(came / seconds, 2),
                print_number(went / seconds, 2)
            )
        })
    }
}
