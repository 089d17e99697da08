//! Whole runs through the command line: on the simulated engine, and on engines that go wrong.

mod broken_engines;
mod exit_codes;
mod heard;
mod interrupted;
mod judged;
mod junit;
mod limited;
mod measured;
mod page;
mod simulated;
mod written;
