//! Whole runs through the command line: on the simulated engine, and on engines that go wrong.

mod baseline;
mod broken_engines;
mod command;
mod engine_metrics;
mod exit_codes;
mod heard;
pub mod interrupted;
mod judged;
mod junit;
mod killed;
mod limited;
mod measured;
mod open_loop;
mod page;
mod prompted;
pub mod resumed;
mod selftest;
mod served;
mod sharded;
mod simulated;
mod upgrades;
pub mod written;
