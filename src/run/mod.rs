//! The run: carrying out a plan.
//!
//! The conductor owns all state, walks the launches and their cells, and tells what happens as
//! [`crate::record::Event`]s. It never renders anything, and it judges only to learn whether a cell
//! should be measured longer.

mod cell;
mod command;
mod conductor;
mod decode;
mod demise;
mod ending;
mod events;
mod halt;
mod heartbeat;
mod instruments;
mod parent;
mod prefill;
mod prompts;
mod serve;
mod signal;
mod slowed;
mod start;
mod stream;
mod vacate;
mod watch;

pub use conductor::{Conduct, Unfit, conduct};
pub use halt::{Cause, Halt, Halter, Haste};
pub use parent::Parent;
pub use signal::Signals;
pub use start::{Given, in_virtual_time};
