//! What hinders results from being written to a directory, in words, and what is done about the reports of
//! an earlier run that stay there.

use std::path::Path;

use super::directory::{self, Directory, DirectoryError, shown};
use super::say;

/// Says why there is no output directory. `undone`: what did not happen, in words.
pub fn unopened(error: &DirectoryError, out: &Path, undone: &str) {
    say(&format!("error: {error}"));
    say(&format!("  help: {undone}; {}", error.help()));
    match error {
        DirectoryError::Locked { .. } => {}
        DirectoryError::Io { .. }
        | DirectoryError::Alive { .. }
        | DirectoryError::Foreign { .. } => {
            if directory::reports(out).next().is_some() {
                say(&format!("  note: the reports in {} are an earlier run's", out.display()));
            }
        }
    }
}

/// Says why an earlier run can't be moved out of the way, and takes its reports away, since they would
/// be taken for this one's.
pub fn unmoved(error: &DirectoryError, directory: &Directory, undone: &str) {
    let withdrawn = directory.withdraw();
    say(&format!("error: {error}"));
    say(&format!("  help: {undone}; {}", error.help()));
    let dir = shown(&directory.path);
    if !withdrawn.is_empty() {
        let names = withdrawn.iter().filter_map(|file| file.file_name()?.to_str());
        say(&format!(
            "  note: {} of the earlier run were removed, so that nobody takes them for this one's; \
             `tokgate report {}` renders them again",
            names.collect::<Vec<_>>().join(", "),
            dir.display()
        ));
    }
    if directory::reports(&directory.path).next().is_some() {
        say(&format!("  note: what stands in {} is an earlier run's", dir.display()));
    }
}
