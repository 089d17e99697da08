//! `--annotations`: whether the closing page is followed by commands that make a CI service show the
//! worst cells where the suite stands.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::record::RunRecord;
use crate::report::github::{Ground, annotations};

use super::exit::Exit;

/// For whom a run is annotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Annotations {
    /// For the service that it runs on, if it has annotations
    #[default]
    Auto,
    /// As GitHub Actions has them
    Github,
    /// Not at all
    None,
}

impl Annotations {
    fn wanted(self) -> bool {
        let on_github = || std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true");
        match self {
            Annotations::Auto => on_github(),
            Annotations::Github => true,
            Annotations::None => false,
        }
    }

    /// Prints the annotations of a record, if they are wanted.
    pub fn print(self, record: &RunRecord) -> Exit {
        if !self.wanted() {
            return Exit::Pass;
        }
        let here = std::env::current_dir().unwrap_or_default();
        let workspace = std::env::var_os("GITHUB_WORKSPACE").map(PathBuf::from);
        let workspace = workspace.unwrap_or_else(|| here.clone());
        super::print_as_is(&annotations(record, Ground { here: &here, workspace: &workspace }))
    }
}
