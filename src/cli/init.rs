//! `tokgate init`: writes a commented suite that runs as it stands, on the simulated engine; with `--ci` the
//! pipeline that runs it too.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::exit::Exit;
use super::pipeline::{Pipeline, Service};
use super::{print, say};

/// The suite that is written.
pub const SUITE: &str = include_str!("init.toml");

/// Arguments of `tokgate init`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// File to write; with --ci one that is there stays and is what the pipeline runs
    #[arg(value_name = "PATH", default_value = "tokgate.toml")]
    pub path: PathBuf,
    /// Replace a suite that is there
    #[arg(long)]
    pub force: bool,
    /// Write a pipeline that runs the suite, too: github, gitlab or jenkins; one that is there is never replaced
    #[arg(long, value_enum, value_name = "SERVICE", hide_possible_values = true)]
    pub ci: Option<Service>,
}

/// Writes the suite, and the pipeline where one is wanted.
pub fn run(args: &Args, quiet: bool) -> Exit {
    let pipeline = match args.ci {
        None => None,
        Some(service) => {
            let taken = |path: &Path| path.symlink_metadata().is_ok();
            match service.pipeline(&args.path, taken) {
                Ok(pipeline) => Some(pipeline),
                Err(why) => {
                    say(&format!("error: {why}"));
                    say("  help: nothing was written");
                    return Exit::Suite;
                }
            }
        }
    };
    let mut said = String::new();
    let stays = pipeline.is_some() && !args.force && args.path.exists();
    if stays {
        said.push_str(&format!("{}: is there already and stays\n", args.path.display()));
    } else {
        match suite(args) {
            Ok(()) => said.push_str(&format!(
                "{0}: written; `tokgate run {0}` runs it\n",
                args.path.display()
            )),
            Err(exit) => return exit,
        }
    }
    if let Some(pipeline) = &pipeline {
        if let Err(error) = store(pipeline) {
            say(&format!("error: {} can't be written: {error}", pipeline.path.display()));
            return Exit::Unwritten;
        }
        said.push_str(&format!("{}: written; {}\n", pipeline.path.display(), pipeline.note));
    }
    if quiet { Exit::Pass } else { print(&said) }
}

fn suite(args: &Args) -> Result<(), Exit> {
    let mut open = std::fs::OpenOptions::new();
    open.write(true).create(true);
    if args.force {
        open.truncate(true);
    } else {
        open.create_new(true);
    }
    match open.open(&args.path).and_then(|mut file| file.write_all(SUITE.as_bytes())) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            say(&format!("error: {} is there already; --force replaces it", args.path.display()));
            Err(Exit::Suite)
        }
        Err(error) => {
            say(&format!("error: {} can't be written: {error}", args.path.display()));
            Err(Exit::Unwritten)
        }
    }
}

fn store(pipeline: &Pipeline) -> std::io::Result<()> {
    if let Some(folder) = pipeline.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&pipeline.path)?;
    file.write_all(pipeline.text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{LoadOptions, load};

    #[test]
    fn the_suite_is_right_as_written_in_each_profile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokgate.toml");
        let args = Args { path: path.clone(), force: false, ci: None };
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
