//! Everything that goes through the front door, in one executable: it links once.

#![allow(clippy::unwrap_used)] // A test that can not go on panics.

mod book;
mod faults;
mod fuzz;
mod guide;
mod harness;
mod large;
mod measure;
mod nvml;
mod pipeline;
mod probe;
mod ranks;
mod rejected;
mod run;
mod soak;
mod spoiled;
mod suite;
mod toy;
mod tried;
mod upgrades;
mod wild;
mod wire;
