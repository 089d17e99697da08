//! Whole runs through the command line: on the simulated engine, and on engines that go wrong.

mod broken_engines;
mod interrupted;
mod judged;
mod measured;
mod page;
mod written;
