//! A trial: an engine that nobody has described, asked what it is, measured at sizes that fit it, and
//! written down as a suite with what was seen as limits.
//!
//! `source` reads what starts it, `portrait` asks it what it is, `pace` how fast it roughly is; `sizes` chooses
//! what to measure, `floors` turns a record into limits, `script` writes both as a suite. It measures nothing
//! that anybody is told and judges nothing: that is a run's business.

pub mod floors;
pub mod pace;
pub mod portrait;
pub mod script;
pub mod sizes;
pub mod source;
