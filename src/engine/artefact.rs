//! What engines and tools leave in their directories, cleaned of secrets.
//!
//! In a file each byte of a secret is overwritten where it stands, so that a full disk is no obstacle
//! and a text of JSON stays one; names are changed. Only what lies in the directory itself is touched:
//! links out of it are left alone. It runs when nobody writes there any more.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::redact::{Redactor, mask};

/// Largest file that is searched, in bytes.
const LARGEST: u64 = 1 << 30;
/// Bytes that are searched at once.
const PIECE: usize = 1 << 20;

/// Cleans a file or all below a directory; what could not be cleaned, as words.
pub fn clean(root: &Path, redactor: &Redactor, limit: Duration) -> Vec<String> {
    let until = Instant::now() + limit;
    let mut sweep = Sweep { redactor, until, late: 0, left: Vec::new() };
    if !redactor.is_empty() {
        sweep.entry(root);
    }
    if sweep.late > 0 {
        let what = format!("{} files of {}", sweep.late, root.display());
        sweep.left.push(format!("{what} were not searched for secrets: there was no time left"));
    }
    sweep.left
}

struct Sweep<'a> {
    redactor: &'a Redactor,
    until: Instant,
    /// Files that were reached too late.
    late: usize,
    left: Vec<String>,
}

impl Sweep<'_> {
    fn entry(&mut self, path: &Path) {
        let Ok(meta) = path.symlink_metadata() else { return };
        if meta.is_dir() {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            entries.sort();
            for entry in entries {
                self.entry(&entry);
                self.name(&entry);
            }
            return;
        }
        if !meta.is_file() {
            return;
        }
        if Instant::now() > self.until {
            self.late += 1;
            return;
        }
        let why = if meta.len() > LARGEST {
            format!("it has {} bytes", meta.len())
        } else if meta.nlink() > 1 {
            // The other name may be that of a file that is none of ours.
            "it has another name elsewhere".to_owned()
        } else {
            match contents(path, &meta, self.redactor) {
                Ok(()) => return,
                Err(error) => error.to_string(),
            }
        };
        self.left.push(format!("{} was not searched for secrets: {why}", path.display()));
    }

    /// Renames what has a secret in its name.
    fn name(&mut self, path: &Path) {
        let Some(name) = path.file_name() else { return };
        if self.redactor.hidden(name.as_bytes()).is_empty() {
            return;
        }
        let new = self.redactor.text(&name.to_string_lossy());
        let names = std::iter::once(new.clone()).chain((2..).map(|n| format!("{new}-{n}")));
        let free = names.map(|name| path.with_file_name(name));
        let free = free.take(1000).find(|new| new.symlink_metadata().is_err());
        if free.is_none_or(|new| std::fs::rename(path, new).is_err()) {
            self.left.push("a file with a secret in its name could not be renamed".to_owned());
        }
    }
}

/// Overwrites every secret in a file.
fn contents(path: &Path, meta: &std::fs::Metadata, redactor: &Redactor) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut writable = None;
    let overlap = 2 * redactor.reach();
    let mut text: Vec<u8> = Vec::new();
    let mut begin = 0;
    loop {
        let got = file.by_ref().take(PIECE as u64).read_to_end(&mut text)?;
        for range in redactor.hidden(&text) {
            let target = match &writable {
                Some(target) => target,
                None => writable.insert(open(path, meta)?),
            };
            target.write_all_at(mask(range.len()).as_bytes(), begin + range.start as u64)?;
        }
        if got == 0 {
            break;
        }
        let gone = text.len().saturating_sub(overlap);
        text.drain(..gone);
        begin += gone as u64;
    }
    match writable {
        // The permissions that it had, should they have been in the way.
        Some(file) => file.set_permissions(meta.permissions()),
        None => Ok(()),
    }
}

fn open(path: &Path, meta: &std::fs::Metadata) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NOFOLLOW);
    options.open(path).or_else(|_| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(meta.mode() | 0o200))?;
        options.open(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-secret-key";
    const S: Duration = Duration::from_secs(10);

    fn redactor() -> Redactor {
        Redactor::new(&[KEY.to_owned()])
    }

    #[test]
    fn files_and_names_are_cleaned_in_place_and_links_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("cell");
        std::fs::create_dir_all(dir.join(format!("of-{KEY}"))).unwrap();
        let json = serde_json::json!({ "args": ["--api-key", KEY], "rate": 7.5 }).to_string();
        std::fs::write(dir.join("out.json"), &json).unwrap();
        std::fs::write(dir.join(format!("of-{KEY}/{KEY}.bin")), b"\xff\0sk-secret-key\xfe")
            .unwrap();
        std::fs::write(root.path().join("mine"), KEY).unwrap();
        std::os::unix::fs::symlink(root.path().join("mine"), dir.join("link")).unwrap();
        std::fs::set_permissions(dir.join("out.json"), PermissionsExt::from_mode(0o444)).unwrap();
        assert_eq!(clean(&dir, &redactor(), S), Vec::<String>::new());
        let text = std::fs::read_to_string(dir.join("out.json")).unwrap();
        assert_eq!(text, json.replace(KEY, "[redacted]***"));
        assert_eq!(std::fs::metadata(dir.join("out.json")).unwrap().mode() & 0o777, 0o444);
        let bytes = std::fs::read(dir.join("of-[redacted]/[redacted].bin")).unwrap();
        assert_eq!(bytes, b"\xff\0[redacted]***\xfe");
        assert_eq!(std::fs::read_to_string(root.path().join("mine")).unwrap(), KEY);
    }

    #[test]
    fn a_secret_across_two_pieces_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for place in (PIECE - KEY.len()..=PIECE).step_by(3) {
            let mut text = vec![b'.'; 2 * PIECE + 7];
            text[place..place + KEY.len()].copy_from_slice(KEY.as_bytes());
            std::fs::write(&path, &text).unwrap();
            assert!(clean(dir.path(), &redactor(), S).is_empty());
            text[place..place + KEY.len()].copy_from_slice(b"[redacted]***");
            assert!(std::fs::read(&path).unwrap() == text, "{place}");
        }
    }

    #[test]
    fn what_is_not_searched_is_told() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), KEY).unwrap();
        std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        let left = clean(dir.path(), &redactor(), S);
        assert!(left[0].ends_with("it has another name elsewhere") && left.len() == 2, "{left:?}");
        let left = clean(dir.path(), &redactor(), Duration::ZERO);
        assert!(left.len() == 1 && left[0].starts_with("2 files of "), "{left:?}");
    }
}
