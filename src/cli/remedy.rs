//! What to do about a path that can't be written: words for whoever owns the disk.

use std::io;
use std::path::Path;

use rustix::io::Errno;

const CIRCLE: &str = "symbolic links lead in a circle: give another --out";

/// What to do about an error at a path.
pub fn of(path: &Path, error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) if no_inodes(path) => {
            "its file system can hold no more files (inodes): remove some, or give another --out"
                .into()
        }
        Some(Errno::NOSPC) => "make room on its file system, or give another --out".into(),
        Some(Errno::DQUOT) => "the quota there is used up: make room, or give another --out".into(),
        Some(Errno::FBIG) => {
            "files may not grow so large here: raise the limit (`ulimit -f`)".into()
        }
        Some(Errno::ROFS) => {
            "its file system is mounted read-only: mount it for writing, or give another --out"
                .into()
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "have its owner give leave to write there, or give another --out".into()
        }
        Some(Errno::EXIST | Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY) => in_the_way(path),
        Some(Errno::LOOP) => CIRCLE.into(),
        Some(Errno::NAMETOOLONG) => "give an --out with a shorter name".into(),
        Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
            "its file system knows no locks, as NFS without them: give an --out on a local disk"
                .into()
        }
        Some(Errno::IO) => "the disk has errors (see dmesg): give an --out on another one".into(),
        Some(_) | None => "give another --out".into(),
    }
}

/// What stands in the way of a directory or a file.
fn in_the_way(path: &Path) -> String {
    for place in path.ancestors().filter(|place| !place.as_os_str().is_empty()) {
        let Ok(found) = place.symlink_metadata() else { continue };
        let behind = place.metadata().err().and_then(|it| it.raw_os_error());
        if behind == Some(Errno::LOOP.raw_os_error()) {
            return CIRCLE.into();
        }
        if found.is_symlink() && !place.exists() {
            let to = std::fs::read_link(place).unwrap_or_default();
            return format!(
                "{} is a symbolic link to {}, which does not exist: make that, or give another --out",
                place.display(),
                to.display()
            );
        }
        let what = if place.is_dir() { "a directory" } else { "a file" };
        return format!("{} is {what}: move it away, or give another --out", place.display());
    }
    "give another --out".into()
}

fn no_inodes(path: &Path) -> bool {
    let mut found = path.ancestors().filter_map(|place| rustix::fs::statvfs(place).ok());
    // A file system that counts none, as btrfs, has 0 of 0.
    found.next().is_some_and(|it| it.f_files > 0 && it.f_favail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_own_words() {
        let dir = tempfile::tempdir().unwrap();
        let said = |errno: Errno| of(dir.path(), &errno.into());
        for (errno, words) in [
            (Errno::NOSPC, "make room"),
            (Errno::DQUOT, "quota"),
            (Errno::FBIG, "ulimit -f"),
            (Errno::ROFS, "read-only"),
            (Errno::ACCESS, "owner"),
            (Errno::LOOP, "circle"),
            (Errno::NAMETOOLONG, "shorter"),
            (Errno::NOLCK, "knows no locks"),
            (Errno::OPNOTSUPP, "knows no locks"),
            (Errno::IO, "dmesg"),
            (Errno::ISDIR, "is a directory: move it away"),
        ] {
            assert!(said(errno).contains(words), "{}", said(errno));
        }
        let dangling = dir.path().join("out");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        let said = of(&dangling, &Errno::EXIST.into());
        assert!(said.contains("is a symbolic link to nowhere, which does not exist"), "{said}");
        let circle = dir.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        assert_eq!(of(&circle, &Errno::EXIST.into()), CIRCLE);
    }
}
