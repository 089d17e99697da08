//! Carrying out a plan: launches, cells, signals.
