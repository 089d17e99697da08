//! Delivery: how much of what was asked for the requests brought, and in how many reads it came.
//!
//! Counts only; whether they will do is said in `validity`.

use std::collections::BTreeMap;

use crate::load::{Finish, Outcome, Trace};

/// Lengths of the outputs of requests that came to their end, in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outputs {
    /// Requests whose output was counted.
    pub requests: u64,
    /// Tokens that they were asked for, together.
    pub asked: u64,
    /// Tokens that they brought, together.
    pub brought: u64,
    /// Tokens too few or too many of each, together.
    pub off: u64,
    /// The shortest output.
    pub least: u64,
    /// How often each finish reason was given, `none` where there was none.
    pub finishes: BTreeMap<&'static str, u64>,
}

impl Outputs {
    /// Takes a request of which `asked` tokens were wanted. One that was cut or failed is passed over, and
    /// so is one that the server did not count.
    pub fn see(&mut self, trace: &Trace, asked: u64) {
        if trace.outcome != Outcome::Complete {
            return;
        }
        let tokens: Option<u64> =
            trace.events.iter().map(|event| event.tokens.map(u64::from)).sum();
        let Some(tokens) = tokens else { return };
        self.least = if self.requests == 0 { tokens } else { self.least.min(tokens) };
        self.requests += 1;
        self.asked += asked;
        self.brought += tokens;
        self.off += tokens.abs_diff(asked);
        *self.finishes.entry(trace.finish.map_or("none", Finish::name)).or_default() += 1;
    }
}

/// Events with tokens, and how many of them a read brought together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Events with tokens.
    pub events: u64,
    /// Of these the ones whose read brought another one of the same request.
    pub together: u64,
    /// The most that one read brought.
    pub most: u64,
}

impl Reads {
    /// Takes a request. One that failed is passed over.
    pub fn see(&mut self, trace: &Trace) {
        if matches!(trace.outcome, Outcome::Failed(_)) {
            return;
        }
        for read in trace.events.chunk_by(|a, b| a.at == b.at) {
            let count = read.len() as u64;
            self.events += count;
            self.together += if count > 1 { count } else { 0 };
            self.most = self.most.max(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Stamp;
    use crate::load::{Failure, FailureClass, TokenEvent};

    fn request(stamps: &[u64], outcome: Outcome, finish: Option<Finish>) -> Trace {
        Trace {
            stream: 0,
            sent: Stamp(0),
            events: stamps
                .iter()
                .map(|at| TokenEvent { at: Stamp(*at), tokens: Some(2) })
                .collect(),
            ended: Stamp(99),
            outcome,
            finish,
            usage: None,
            warnings: Vec::new(),
        }
    }

    fn failed() -> Outcome {
        Outcome::Failed(Failure::new(FailureClass::Truncated, ""))
    }

    #[test]
    fn lengths_are_those_of_the_requests_that_ended() {
        let mut outputs = Outputs::default();
        outputs.see(&request(&[1, 2, 3], Outcome::Complete, Some(Finish::Length)), 6);
        outputs.see(&request(&[1], Outcome::Complete, Some(Finish::Complete)), 6);
        outputs.see(&request(&[1, 2, 3, 4], Outcome::Complete, None), 6);
        outputs.see(&request(&[1], Outcome::Cancelled, None), 6);
        outputs.see(&request(&[1], failed(), None), 6);
        let mut uncounted = request(&[1], Outcome::Complete, None);
        uncounted.events[0].tokens = None;
        outputs.see(&uncounted, 6);
        let finishes = BTreeMap::from([("length", 1), ("stop", 1), ("none", 1)]);
        let expected = Outputs { requests: 3, asked: 18, brought: 16, off: 6, least: 2, finishes };
        assert_eq!(outputs, expected);
    }

    #[test]
    fn events_of_one_stamp_came_in_one_read() {
        let mut reads = Reads::default();
        reads.see(&request(&[1, 2, 2, 3, 4, 4, 4], Outcome::Cancelled, None));
        reads.see(&request(&[4, 5], Outcome::Complete, None));
        reads.see(&request(&[7, 7, 7, 7], failed(), None));
        assert_eq!(reads, Reads { events: 9, together: 5, most: 3 });
    }
}
