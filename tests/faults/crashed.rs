//! Engines that die, refuse and hang while they are measured.
