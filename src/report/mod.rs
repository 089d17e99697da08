//! Reports: a record rendered.
