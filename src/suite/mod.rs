//! The suite: one TOML file read, merged, checked.
//!
//! Text becomes a tree with spans, the tree a [`file::File`] (as typed), the file a [`model::Suite`]
//! (cannot be wrong). Every problem is found at once. It launches nothing and knows no cell.

mod chain;
pub mod check;
pub mod defaults;
pub mod explain;
pub mod file;
pub mod load;
pub mod merge;
pub mod model;
pub mod name;
pub mod problem;
pub mod revise;
pub mod schema;
pub mod selector;
mod set;
pub mod source;
pub mod tree;

pub use load::{LoadOptions, Loaded, load};
pub use model::Suite;
pub use problem::{Problem, Problems};
pub use source::SourceMap;
