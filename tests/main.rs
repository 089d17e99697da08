//! Everything that goes through the front door, in one executable: it links once.

mod guide;
mod harness;
mod ranks;
mod rejected;
mod run;
mod suite;
mod wire;
