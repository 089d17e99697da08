//! The flags of the JUnit file, and what they and the CI service ask of it.

use std::path::{Path, PathBuf};

use crate::report::FILES;
use crate::report::files::Room;
use crate::report::junit::{Dialect, Order};

use super::exit::Exit;
use super::{directory, remedy, say};

/// Flags of the JUnit file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Junit {
    /// Write junit.xml to PATH too
    #[arg(long = "junit", value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// The dialect of junit.xml: rich, or strict for Jenkins' junit-10.xsd
    #[arg(
        long = "junit-dialect",
        value_enum,
        default_value_t,
        value_name = "DIALECT",
        hide_possible_values = true
    )]
    pub dialect: Dialect,
}

impl Junit {
    /// Whether the file can be written; makes its directory.
    ///
    /// # Errors
    /// It can't be, or is another file of tokgate's; each is said.
    pub fn check(&self) -> Result<(), Exit> {
        let Some(path) = &self.path else { return Ok(()) };
        let shown = path.display();
        let refuse = |said: &str, help: &str, exit: Exit| {
            say(&format!("error: --junit {shown}: {said}"));
            say(&format!("  help: {help}"));
            Err(exit)
        };
        let example = "name a file, like --junit junit.xml";
        let Some(name) = path.file_name() else {
            return refuse("this names no file", example, Exit::Unwritten);
        };
        let theirs = FILES.iter().chain([&directory::JOURNAL]).any(|file| name == *file);
        if theirs && name != FILES[1] {
            return refuse("a run has another file of that name", example, Exit::Suite);
        }
        // A link gives way to the file, as everywhere else.
        if path.symlink_metadata().is_ok_and(|it| !it.is_file() && !it.is_symlink()) {
            return refuse("something else than a file stands there", example, Exit::Unwritten);
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        match Room::hold(parent.unwrap_or(Path::new(".")), 1) {
            Ok(_) => Ok(()),
            Err(error) => {
                let help = remedy::of(&error.path, &error.source).replace("--out", "--junit");
                refuse(&error.to_string(), &help, Exit::Unwritten)
            }
        }
    }

    /// What is asked of the file of a run whose results are in `out`.
    pub fn order(&self, out: &Path) -> Order {
        Order { dialect: self.dialect, page: page(out), copy: self.path.clone() }
    }
}

/// Where the page of a run is, from the root of the project that a GitLab job builds.
fn page(out: &Path) -> Option<String> {
    let root = std::env::var_os("CI_PROJECT_DIR").filter(|root| !root.is_empty())?;
    let root = PathBuf::from(root).canonicalize().ok()?;
    let out = out.canonicalize().ok()?;
    Some(out.strip_prefix(root).ok()?.join(FILES[3]).to_str()?.to_owned())
}
