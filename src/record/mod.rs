//! The record: all facts of a run, from which every report is rendered.
//!
//! Events are written first, then judged and shown. Judging here is a pure function of recorded
//! facts, so that a report rendered next year says the same.

pub mod baseline;
pub mod calibration;
pub mod comparison;
pub mod event;
pub mod history;
pub mod journal;
pub mod judgement;
pub mod merge;
pub mod noise;
pub mod prospect;
pub mod provenance;
pub mod run_record;
pub mod sensitivity;
pub mod shard;
pub mod slowdown;
pub mod wording;

pub use event::Event;
pub use history::{Earlier, History};
pub use run_record::RunRecord;
