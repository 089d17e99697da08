//! The simulated engine.
