//! The offer at the end of a trial: a suite with what was seen as limits. On a terminal it is asked for,
//! elsewhere `--write` does it. What is there is never replaced.

use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::report::count::plural;
use crate::run::Signals;
use crate::trial::floors::Floors;
use crate::trial::script::{Machine, Script};

use super::exit::Exit;
use super::shape::{self, Choice, Overlay};
use super::{Global, say, say_as_is};

/// Where a suite goes if nobody says.
const DEFAULT: &str = "tokgate.toml";
/// How often a path is asked for.
const TRIES: usize = 3;

/// A suite to be had.
pub struct Offer<'a> {
    /// What it says besides limits.
    pub script: Script<'a>,
    /// Its limits.
    pub floors: &'a Floors,
    /// The machine that this was seen on.
    pub machine: Option<Machine<'a>>,
    /// What ends a question.
    pub signals: &'a Signals,
}

/// Refuses a path where something stands, or whose folder is not there.
pub fn must_be_new(path: &Path) -> Result<(), Exit> {
    if path.symlink_metadata().is_ok() {
        say(&format!("error: {} is there already, and is not replaced", path.display()));
        say("  help: give --write another name, or move that file away");
        return Err(Exit::Suite);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        say(&format!(
            "error: {} can't be written: there is no folder {}",
            path.display(),
            folder.display()
        ));
        say(&format!("  help: make it first: mkdir -p {}", folder.display()));
        return Err(Exit::Suite);
    }
    Ok(())
}

impl Offer<'_> {
    /// Writes the suite where it is wanted.
    pub fn make(&self, path: Option<&Path>, global: &Global) -> Exit {
        if self.floors.count() == 0 {
            if path.is_some() {
                say(
                    "error: nothing was measured that a suite could be held to, so none is written",
                );
                return Exit::Invalid;
            }
            return Exit::Pass;
        }
        let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        match path {
            Some(path) => self.write(path, global),
            None if terminal && !global.quiet => match self.ask() {
                Ok(Some(path)) => self.write(&path, global),
                Ok(None) => Exit::Pass,
                Err(exit) => exit,
            },
            None => {
                if !global.quiet {
                    say(&format!(
                        "a suite with these figures as limits: the same command with --write {DEFAULT}"
                    ));
                }
                Exit::Pass
            }
        }
    }

    /// Where the suite is to go, if anywhere.
    fn ask(&self) -> Result<Option<PathBuf>, Exit> {
        // What was printed stands above the question.
        crate::report::outlet::settle();
        let limits = plural(self.floors.count(), "limit");
        let answer = self.answer(&format!("Write a suite with what was seen, {limits}? [y/N] "))?;
        if !matches!(answer.to_lowercase().as_str(), "y" | "yes") {
            return Ok(None);
        }
        for _ in 0..TRIES {
            let answer = self.answer(&format!("Path [{DEFAULT}]: "))?;
            let path = PathBuf::from(if answer.is_empty() { DEFAULT } else { &answer });
            if must_be_new(&path).is_ok() {
                return Ok(Some(path));
            }
        }
        Err(Exit::Suite)
    }

    /// A line from the terminal, without blanks; empty at its end.
    fn answer(&self, question: &str) -> Result<String, Exit> {
        say_as_is(question);
        crate::report::outlet::settle();
        let stdin = std::io::stdin();
        loop {
            if let Some(signal) = self.signals.first() {
                say("");
                return Err(Exit::Signal(signal));
            }
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            let pause = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
            match poll(&mut fds, Some(&pause)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        let mut line = String::new();
        // A terminal that went away says no.
        let _ = stdin.lock().read_line(&mut line);
        Ok(line.trim().to_owned())
    }

    fn write(&self, path: &Path, global: &Global) -> Exit {
        let name = suite_name(path);
        let script = Script { name: &name, ..self.script.clone() };
        let shown = path.display().to_string();
        let text = script.suite(&shown, self.floors, self.machine);
        let open = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
        match open.and_then(|mut file| file.write_all(text.as_bytes())) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                say(&format!("error: {shown} is there already, and is not replaced"));
                return Exit::Suite;
            }
            Err(error) => {
                say(&format!("error: {shown} can't be written: {error}"));
                return Exit::Unwritten;
            }
        }
        // What is written is read as anybody would read it.
        if let Err(exit) =
            shape::plan(path, &Overlay::default(), &Choice::default(), global.color_stderr())
        {
            say(&format!("error: {shown} is not right, which is a bug: please report it"));
            return exit;
        }
        if !global.quiet {
            let limits = plural(self.floors.count(), "limit");
            say(&format!("{shown}: written, {limits} of what one run showed, with room for noise"));
            say(&format!(
                "  tokgate run {}   holds the engine to them",
                shell_words::quote(&shown)
            ));
        }
        Exit::Pass
    }
}

/// The name of a suite after its file.
fn suite_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = stem.chars().map(|c| if plain(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches(['-', '_']);
    if name.is_empty() { "my-engine".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_named_after_its_file() {
        assert_eq!(suite_name(Path::new("suites/my card.toml")), "my-card");
        assert_eq!(suite_name(Path::new("_x.y.toml")), "x-y");
        assert_eq!(suite_name(Path::new("…")), "my-engine");
    }
}
