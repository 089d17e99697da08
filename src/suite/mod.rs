//! The suite: one TOML file read, merged, checked.
//!
//! Text becomes a tree with spans, the tree a [`file::File`] (as typed), the file a [`model::Suite`]
//! (cannot be wrong). Every problem is found at once. It launches nothing and knows no cell.

pub mod model;
pub mod selector;

pub use model::Suite;
