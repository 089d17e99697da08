//! Engines that seem to be ready, and those that never are.
