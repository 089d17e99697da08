//! The tally: how many tokens each event of a stream carried, by the server's own count.
//!
//! A running count gives each event what was added since the one before; a final count is spread
//! over the events that no running count covered, so that the sum is exact. Without a count the
//! tokens stay unknown: an event is not a token.

use super::TokenEvent;
use crate::clock::Stamp;

/// Events with generated material, and the tokens in them.
#[derive(Debug, Default)]
pub struct Tally {
    events: Vec<TokenEvent>,
    /// How many of the events, from the first, have their tokens.
    settled: usize,
    /// Tokens that the settled events share.
    counted: u64,
    /// The server's last count, whatever became of it.
    last: Option<u64>,
}

impl Tally {
    /// Adds an event whose tokens are not known yet.
    pub fn event(&mut self, at: Stamp) {
        self.events.push(TokenEvent { at, tokens: None });
    }

    /// Takes the server's count of all tokens so far.
    ///
    /// A count that has grown belongs to the events since the count before. Growth without an event
    /// (half a character, held back) goes to the next one.
    pub fn count(&mut self, running: u64) {
        self.last = Some(running);
        let pending = &mut self.events[self.settled..];
        // A count of 0 behind generated material is no running count but a field always sent.
        if pending.is_empty() || running == 0 || running < self.counted {
            return;
        }
        spread(running - self.counted, pending);
        self.settled = self.events.len();
        self.counted = running;
    }

    /// The events so far.
    pub fn events(&self) -> &[TokenEvent] {
        &self.events
    }

    /// The server's last count, `None` where it gave none.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Ends a stream that ran to its end: the last count is final, and the events' tokens sum to it.
    pub fn finish(mut self) -> Vec<TokenEvent> {
        let Some(total) = self.last.filter(|_| !self.events.is_empty()) else {
            return self.events;
        };
        let rest = total.saturating_sub(self.counted);
        let unsettled = self.events.len() - self.settled;
        // A last token may be told without an event of its own (the end token). Much more than that
        // says that the counts before were not running ones.
        let few = 1 + self.events.len() as u64 / 8;
        if total < self.counted || (unsettled == 0 && rest > few) {
            spread(total, &mut self.events);
        } else if unsettled > 0 {
            spread(rest, &mut self.events[self.settled..]);
        } else if let Some(last) = self.events.last_mut() {
            let more = u32::try_from(rest).unwrap_or(u32::MAX);
            last.tokens = Some(last.tokens.unwrap_or(0).saturating_add(more));
        }
        self.events
    }

    /// Ends a stream that was cut: what is known stays, nothing is spread.
    pub fn cut(self) -> Vec<TokenEvent> {
        self.events
    }
}

/// Spreads `tokens` evenly in whole numbers: shares differ by at most one, the first is never the
/// smaller one, and the sum is exact.
fn spread(tokens: u64, events: &mut [TokenEvent]) {
    let n = events.len() as u128;
    let upto = |i: u128| (u128::from(tokens) * i).div_ceil(n);
    for (i, event) in (0u128..).zip(events) {
        let share = upto(i + 1) - upto(i);
        event.tokens = Some(u32::try_from(share).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    enum Step {
        /// An event with material, perhaps with a running count.
        Event(Option<u64>),
        /// A count without material.
        Count(u64),
    }
    use Step::{Count, Event};

    fn tokens(steps: &[Step]) -> Vec<Option<u32>> {
        let mut tally = Tally::default();
        for (i, step) in (0u64..).zip(steps) {
            match step {
                Event(count) => {
                    tally.event(Stamp(i));
                    if let Some(count) = count {
                        tally.count(*count);
                    }
                }
                Count(count) => tally.count(*count),
            }
        }
        tally.finish().iter().map(|event| event.tokens).collect()
    }

    #[test]
    fn a_running_count_gives_each_event_its_own_tokens() {
        let steps = [Count(0), Event(Some(1)), Event(Some(4)), Event(Some(6)), Count(6)];
        assert_eq!(tokens(&steps), [Some(1), Some(3), Some(2)]);
    }

    #[test]
    fn growth_without_text_goes_to_the_next_event_and_the_end_token_to_the_last() {
        let steps = [Event(Some(1)), Count(2), Event(Some(3)), Count(4)];
        assert_eq!(tokens(&steps), [Some(1), Some(3)]);
    }

    #[test]
    fn a_final_count_is_spread_and_sums_exactly() {
        assert_eq!(
            tokens(&[Event(None), Event(None), Event(None), Count(11)]),
            [Some(4), Some(4), Some(3)]
        );
        assert_eq!(tokens(&[Event(None), Event(None), Event(None), Count(2)])[0], Some(1));
    }

    #[test]
    fn without_a_count_the_tokens_are_unknown() {
        assert_eq!(tokens(&[Event(None), Event(None)]), [None, None]);
    }

    #[test]
    fn counts_that_do_not_run_are_not_taken_for_running_ones() {
        let always_zero = [Event(Some(0)), Event(Some(0)), Count(10)];
        assert_eq!(tokens(&always_zero), [Some(5), Some(5)]);
        let own_tokens_only = [Event(Some(2)), Event(Some(2)), Event(Some(2)), Count(6)];
        assert_eq!(tokens(&own_tokens_only), [Some(2), Some(2), Some(2)]);
        let larger_than_the_end = [Event(Some(100)), Event(Some(100)), Count(6)];
        assert_eq!(tokens(&larger_than_the_end), [Some(3), Some(3)]);
    }

    #[test]
    fn a_cut_stream_keeps_what_is_known() {
        let mut tally = Tally::default();
        tally.event(Stamp(1));
        tally.count(2);
        tally.event(Stamp(2));
        assert_eq!(tally.cut().iter().map(|e| e.tokens).collect::<Vec<_>>(), [Some(2), None]);
    }

    proptest! {
        #[test]
        fn the_sum_is_the_servers_last_count(
            counts in prop::collection::vec(prop::option::of(0u64..2000), 1..50),
            last in 0u64..3000,
        ) {
            let mut steps: Vec<Step> = counts.into_iter().map(Event).collect();
            steps.push(Count(last));
            let sum: u64 = tokens(&steps).iter().map(|t| u64::from(t.unwrap_or(0))).sum();
            prop_assert_eq!(sum, last);
        }
    }
}
