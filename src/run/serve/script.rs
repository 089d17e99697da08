//! What the requests of a load say: how long each is, what it begins with, what the server should
//! find in its cache.
//!
//! The request of an ordinal is a function of seed, cell and launch, whoever sends it and when. Only
//! entries of a data set are dealt from a pile, which `deck` holds.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::load::length::Side;
use crate::load::prompt::Numbers;
use crate::load::{Length, Prepared, Prompt, PromptKey, PromptKind};
use crate::measure::validity::Cache;
use crate::record::run_record::CellState;
use crate::suite::model::Prefix;

use super::super::cell::Form;
use super::super::prompts::Wording;
use super::deck::Dealt;

/// Warm-up requests have ordinals from here on.
const WARM_UPS: u64 = 1 << 40;

/// Bytes of requests that are made before the clock starts.
const MADE_BEFORE: usize = 32 << 20;

/// Requests made before the clock starts where their number is not known.
const AHEAD: u64 = 1024;

/// One request, and what it asks.
pub(super) struct Request {
    pub(super) prepared: Prepared,
    pub(super) asked: Asked,
}

/// What a request asks, to be held against what came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// Tokens of its prompt; `None` where it was taken out of a file as it stands.
    pub(super) input: Option<u64>,
    /// Tokens of its output.
    pub(super) output: u64,
    /// What should come out of the cache; `None` where nobody can know.
    pub(super) cache: Option<Cache>,
}

/// The requests of one load.
pub(super) struct Script {
    pub(super) form: Rc<Form>,
    pub(super) seed: u64,
    pub(super) launch: u64,
    /// The cell, told from all others of the suite.
    pub(super) cell: u64,
    /// The cell, the same in all variants: they get loads of the same lengths and arrivals.
    pub(super) lane: u64,
    /// Which load of the cell it is.
    pub(super) load: u64,
    pub(super) input: Length,
    pub(super) output: Length,
    /// Tokens that prompt and output may have together.
    pub(super) longest: Option<u64>,
    pub(super) prefix: Prefix,
    pub(super) material: Material,
}

/// What prompts are made of.
pub(super) enum Material {
    /// Random words.
    Words(Rc<Wording>),
    /// Entries of a file, one for each request.
    Entries(Vec<Dealt>),
}

impl Script {
    /// Names this load's draws.
    pub(super) fn draws(&self) -> u64 {
        self.lane.wrapping_add(self.load)
    }

    fn request(&self, ordinal: u64) -> Result<Request, CellState> {
        let (prompt, asked) = match &self.material {
            Material::Words(wording) => self.words(wording, ordinal),
            Material::Entries(dealt) => self.entry(dealt, ordinal),
        };
        Ok(Request { prepared: self.form.prepared(&prompt, asked.output)?, asked })
    }

    fn words(&self, wording: &Wording, ordinal: u64) -> (Prompt, Asked) {
        let output = self.output.draw(Side::Output, self.seed, self.draws(), ordinal).max(1);
        let drawn = self.input.draw(Side::Input, self.seed, self.draws(), ordinal);
        let room = self.longest.map_or(u64::MAX, |longest| longest.saturating_sub(output));
        let input = drawn.min(room).max(1);
        let cache = match self.prefix {
            Prefix::Unique | Prefix::Cold => Cache::Cold,
            Prefix::Shared => Cache::Warm { tokens: input },
            Prefix::Groups { length, .. } => Cache::Warm { tokens: length.min(input) },
        };
        let prompt = self.prompt(wording, ordinal, input);
        (prompt, Asked { input: Some(input), output, cache: Some(cache) })
    }

    fn prompt(&self, wording: &Wording, ordinal: u64, length: u64) -> Prompt {
        let own = match self.prefix {
            Prefix::Unique | Prefix::Cold | Prefix::Groups { .. } => PromptKey {
                kind: PromptKind::Served,
                stream: ordinal,
                context: self.load,
                launch: self.launch,
                salt: self.cell,
            },
            Prefix::Shared => self.common(PromptKind::Warm, 0),
        };
        match self.prefix {
            Prefix::Unique | Prefix::Cold | Prefix::Shared => match wording {
                Wording::Ids(ids) => Prompt::Ids(ids.ids(self.seed, &own, length).into()),
                Wording::Text(stick) => Prompt::Text(stick.text(self.seed, &own, length).into()),
            },
            Prefix::Groups { groups, length: common } => {
                let drawn = [self.seed, self.draws(), ordinal];
                let group = Numbers::of("tokgate group 1", &drawn).below(groups.max(1) as usize);
                let group = self.common(PromptKind::Group, group as u64);
                match wording {
                    Wording::Ids(ids) => {
                        Prompt::Ids(ids.grouped(self.seed, &group, common, &own, length).into())
                    }
                    Wording::Text(stick) => {
                        Prompt::Text(stick.grouped(self.seed, &group, common, &own, length).into())
                    }
                }
            }
        }
    }

    /// A beginning that requests share, in every load of the cell.
    fn common(&self, kind: PromptKind, stream: u64) -> PromptKey {
        PromptKey { kind, stream, context: 0, launch: self.launch, salt: self.cell }
    }

    /// The beginnings that requests share, each to be sent once before the load.
    pub(super) fn beginnings(&self) -> Result<Vec<Prepared>, CellState> {
        let Material::Words(wording) = &self.material else { return Ok(Vec::new()) };
        let (kind, count, length) = match self.prefix {
            Prefix::Unique | Prefix::Cold => return Ok(Vec::new()),
            Prefix::Shared => {
                let room = self.longest.map_or(u64::MAX, |longest| longest.saturating_sub(1));
                (PromptKind::Warm, 1, self.input.greatest().min(room))
            }
            Prefix::Groups { groups, length } => (PromptKind::Group, groups, length),
        };
        (0..u64::from(count))
            .map(|stream| {
                let key = self.common(kind, stream);
                let prompt = match &**wording {
                    Wording::Ids(ids) => Prompt::Ids(ids.ids(self.seed, &key, length).into()),
                    Wording::Text(stick) => {
                        Prompt::Text(stick.text(self.seed, &key, length).into())
                    }
                };
                self.form.prepared(&prompt, 1)
            })
            .collect()
    }

    fn entry(&self, dealt: &[Dealt], ordinal: u64) -> (Prompt, Asked) {
        let Dealt { prompt, output, .. } = &dealt[place(dealt, ordinal)];
        let drawn = || self.output.draw(Side::Output, self.seed, self.draws(), ordinal).max(1);
        let output = output.unwrap_or_else(drawn);
        (prompt.clone(), Asked { input: None, output, cache: None })
    }
}

/// Which of the entries a request sends: measured ones take them from the front, warm-ups from the
/// back.
fn place(dealt: &[Dealt], ordinal: u64) -> usize {
    let count = dealt.len().max(1) as u64;
    let place = match ordinal.checked_sub(WARM_UPS) {
        None => ordinal % count,
        Some(warm_up) => count - 1 - warm_up % count,
    };
    place as usize
}

/// The requests of a load in the order in which they go out, some of them made before the clock
/// starts.
pub(super) struct Stock {
    script: Script,
    warm_ups: Line,
    measured: Line,
}

/// The warm-ups or the measured requests.
struct Line {
    made: VecDeque<Request>,
    /// Ordinal of the next one to be made.
    next: u64,
    taken: u64,
}

impl Line {
    fn new(first: u64) -> Line {
        Line { made: VecDeque::new(), next: first, taken: 0 }
    }

    fn take(&mut self, script: &Script) -> Result<Request, CellState> {
        self.taken += 1;
        match self.made.pop_front() {
            Some(request) => Ok(request),
            None => self.make(script),
        }
    }

    fn make(&mut self, script: &Script) -> Result<Request, CellState> {
        let request = script.request(self.next)?;
        self.next += 1;
        Ok(request)
    }
}

impl Stock {
    /// Makes `warm_ups` requests and the measured ones, so many as there is memory for; without a
    /// number of the latter some.
    ///
    /// # Errors
    /// A request that can't be made.
    pub(super) fn new(
        script: Script,
        warm_ups: u64,
        measured: Option<u64>,
    ) -> Result<Stock, CellState> {
        let mut room = MADE_BEFORE;
        let mut lines = [Line::new(WARM_UPS), Line::new(0)];
        for (line, wanted) in lines.iter_mut().zip([warm_ups, measured.unwrap_or(AHEAD)]) {
            for _ in 0..wanted {
                if room == 0 {
                    break;
                }
                let request = line.make(&script)?;
                room = room.saturating_sub(request.prepared.body.len().max(1024));
                line.made.push_back(request);
            }
        }
        let [warm_ups, measured] = lines;
        Ok(Stock { script, warm_ups, measured })
    }

    pub(super) fn take(&mut self, measured: bool) -> Result<Request, CellState> {
        let line = if measured { &mut self.measured } else { &mut self.warm_ups };
        line.take(&self.script)
    }

    /// Measured requests that have been taken.
    pub(super) fn taken(&self) -> u64 {
        self.measured.taken
    }

    /// Where in their file the entries are that have been sent, each as often as it was.
    pub(super) fn sent(&self) -> Vec<usize> {
        match &self.script.material {
            Material::Words(_) => Vec::new(),
            Material::Entries(dealt) => {
                let warm_ups = WARM_UPS..WARM_UPS + self.warm_ups.taken;
                let ordinals = (0..self.measured.taken).chain(warm_ups);
                ordinals.map(|ordinal| dealt[place(dealt, ordinal)].place).collect()
            }
        }
    }
}
