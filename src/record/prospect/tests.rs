//! Prospects, as examples.
