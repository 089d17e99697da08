//! The HTTP surface over in-memory pipes in paused time.
