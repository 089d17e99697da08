//! tokgate turns LLM inference performance into a test suite.
//!
//! One type a stage: text → [`suite::Suite`] (cannot be wrong) → [`matrix::Plan`] →
//! [`record::Event`]s → [`record::RunRecord`] → bytes of a report. Decisions are pure functions of
//! values and elapsed time; clocks, sockets and processes live in `engine`, `load::client`,
//! `hardware`, `run` and `sim`.
//!
//! A room imports only rooms of a lower rank:
//!
//! | rank | rooms |
//! |---|---|
//! | 8 | `cli` |
//! | 7 | `run`, `report`, `trial` (never each other) |
//! | 6 | `record` |
//! | 5 | `matrix` |
//! | 4 | `suite` |
//! | 3 | `judge` |
//! | 2 | `measure` |
//! | 1 | `load`, `engine`, `hardware`, `template` (never each other), `sim` (only rank 0) |
//! | 0 | `quantity`, `version`, `clock`, `transport` |
//!
//! `tests/ranks.rs` reads the `use` lines and fails on an edge that this table does not have.

pub mod cli;
pub mod clock;
pub mod engine;
pub mod hardware;
pub mod judge;
pub mod load;
pub mod matrix;
pub mod measure;
pub mod quantity;
pub mod record;
pub mod report;
pub mod run;
pub mod sim;
pub mod suite;
pub mod template;
pub mod transport;
pub mod trial;
pub mod version;
