//! Files of a suite replaced by revised ones: all of them or, where one is not as it was read, none.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What an editor may put before a text, and is no part of it.
const MARK: &str = "\u{feff}";

/// A file and what is to become of it.
#[derive(Debug)]
pub struct Rewrite {
    /// The file as the user named it; a link is followed.
    pub path: PathBuf,
    /// The text that was read, without a byte order mark.
    pub before: String,
    /// The text that it is to have.
    pub after: String,
}

/// Why nothing is written.
#[derive(Debug, thiserror::Error)]
pub enum Unwritten {
    /// Somebody else wrote it in the meantime.
    #[error("{} has changed since it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// It is not to be written.
    #[error("{} is read-only", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// It can't be.
    #[error("cannot write {}: {source}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Unwritten {
    /// What to do about it.
    pub fn help(&self) -> &'static str {
        match self {
            Unwritten::Changed { .. } => "nothing is written; run the command again",
            Unwritten::ReadOnly { .. } => "nothing is written; make it writable first",
            Unwritten::Failed { .. } => "its folder must be writable, and the disk have room",
        }
    }
}

/// Replaces the files. Each is written beside and flushed, with the permissions of the old one; only when all
/// are there, and no file has changed, are they renamed.
///
/// # Errors
/// One can't be written, is read-only, or is not what was read.
pub fn rewrite(files: &[Rewrite]) -> Result<(), Unwritten> {
    let mut beside: Vec<Beside> = Vec::new();
    for file in files {
        let failed = |source| Unwritten::Failed { path: file.path.clone(), source };
        let target = file.path.canonicalize().map_err(failed)?;
        let known = std::fs::metadata(&target).map_err(failed)?;
        if known.permissions().readonly() {
            return Err(Unwritten::ReadOnly { path: file.path.clone() });
        }
        let bytes = unchanged(file, &target)?;
        let mark = if bytes.starts_with(MARK.as_bytes()) { MARK } else { "" };
        let part = Beside::of(&target);
        part.write(&known, &[mark, &file.after]).map_err(failed)?;
        beside.push(part);
    }
    for (file, part) in files.iter().zip(&beside) {
        unchanged(file, &part.target)?;
    }
    for (file, part) in files.iter().zip(&beside) {
        let renamed = std::fs::rename(&part.path, &part.target)
            .and_then(|()| File::open(part.target.parent().unwrap_or(Path::new(".")))?.sync_all());
        renamed.map_err(|source| Unwritten::Failed { path: file.path.clone(), source })?;
    }
    Ok(())
}

/// The bytes of a file that still has the text that was read.
fn unchanged(file: &Rewrite, target: &Path) -> Result<Vec<u8>, Unwritten> {
    let bytes = std::fs::read(target)
        .map_err(|source| Unwritten::Failed { path: file.path.clone(), source })?;
    let text = bytes.strip_prefix(MARK.as_bytes()).unwrap_or(&bytes);
    if text == file.before.as_bytes() {
        Ok(bytes)
    } else {
        Err(Unwritten::Changed { path: file.path.clone() })
    }
}

/// A file beside another one, gone with this value unless it was renamed.
#[derive(Debug)]
struct Beside {
    path: PathBuf,
    target: PathBuf,
}

impl Beside {
    fn of(target: &Path) -> Beside {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}.part", std::process::id()));
        Beside { path, target: target.to_owned() }
    }

    fn write(&self, like: &Metadata, texts: &[&str]) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).open(&self.path)?;
        file.set_permissions(like.permissions())?;
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            // Whoever may not give files away keeps what he has written.
            let _ = std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()));
        }
        for text in texts {
            file.write_all(text.as_bytes())?;
        }
        file.sync_all()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // After the renaming there is none.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn entry(path: &Path, before: &str, after: &str) -> Rewrite {
        Rewrite { path: path.to_owned(), before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn links_permissions_and_byte_order_marks_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.toml"), dir.path().join("suite.toml"));
        std::fs::write(&real, "\u{feff}a = 1\n").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.toml", &link).unwrap();
        rewrite(&[entry(&link, "a = 1\n", "a = 2\n")]).unwrap();
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "\u{feff}a = 2\n");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn where_one_file_has_changed_none_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one.toml"), dir.path().join("two.toml"));
        std::fs::write(&one, "a = 1\n").unwrap();
        std::fs::write(&two, "somebody else\n").unwrap();
        let files = [entry(&one, "a = 1\n", "a = 2\n"), entry(&two, "b = 1\n", "b = 2\n")];
        let refused = rewrite(&files).unwrap_err();
        assert!(matches!(&refused, Unwritten::Changed { path } if *path == two), "{refused}");
        assert_eq!(std::fs::read_to_string(&one).unwrap(), "a = 1\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_is_not_to_be_written_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("suite.toml");
        std::fs::write(&path, "a = 1\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
        let refused = rewrite(&[entry(&path, "a = 1\n", "a = 2\n")]).unwrap_err();
        assert!(matches!(refused, Unwritten::ReadOnly { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a = 1\n");
    }
}
