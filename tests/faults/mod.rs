//! Faults: engines that crash, hang, lie and leave orphans; runs that are cancelled, killed, cut off from
//! their disk. Each through the command line, with real processes and signals.

mod crashed;
mod full;
mod halted;
mod hostile;
mod locked;
mod odd;
pub mod orphaned;
mod readiness;
mod secret;
mod vacated;
mod whole;
