//! Runs that are told to stop, in each phase of their life.
