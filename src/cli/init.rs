//! `tokgate init`: writes a commented suite that runs as it stands, on the simulated engine.

use std::io::Write as _;
use std::path::PathBuf;

use super::exit::Exit;
use super::{print, say};

/// The suite that is written.
pub const SUITE: &str = include_str!("init.toml");

/// Arguments of `tokgate init`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// File to write
    #[arg(value_name = "PATH", default_value = "tokgate.toml")]
    pub path: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
}

/// Writes the suite.
pub fn run(args: &Args, quiet: bool) -> Exit {
    let mut open = std::fs::OpenOptions::new();
    open.write(true).create(true);
    if args.force {
        open.truncate(true);
    } else {
        open.create_new(true);
    }
    match open.open(&args.path).and_then(|mut file| file.write_all(SUITE.as_bytes())) {
        Ok(()) => {
            let said = format!("{0}: written; `tokgate run {0}` runs it\n", args.path.display());
            if quiet { Exit::Pass } else { print(&said) }
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            say(&format!("error: {} is there already; --force replaces it", args.path.display()));
            Exit::Suite
        }
        Err(error) => {
            say(&format!("error: {} can't be written: {error}", args.path.display()));
            Exit::Unwritten
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{LoadOptions, load};

    #[test]
    fn the_suite_is_right_as_written_in_each_profile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokgate.toml");
        let args = Args { path: path.clone(), force: false };
        assert_eq!(run(&args, true), Exit::Pass);
        assert_eq!(run(&args, true), Exit::Suite);
        for profile in [None, Some("quick".to_owned())] {
            let loaded = load(&path, &LoadOptions { profile, ..LoadOptions::default() })
                .unwrap_or_else(|problems| panic!("{problems}"));
            assert_eq!(loaded.warnings, []);
            assert_eq!(loaded.suite.tests.len(), 3);
        }
    }
}
