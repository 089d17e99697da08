//! Files that stay where they belong.

use super::*;

#[test]
fn engine_files_stay_in_the_launch_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &str| [(PathBuf::from(path), "x = 1".to_owned())];
    write_files(dir.path(), &file("sub/engine.yaml")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("sub/engine.yaml")).unwrap(), "x = 1");
    for path in ["../escape", "/tmp/absolute", "a/../../b"] {
        assert!(write_files(dir.path(), &file(path)).unwrap_err().contains("outside"), "{path}");
    }
    // Neither is a link followed, whether it stands for the file, a folder on the way or the directory.
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("engine.yaml"), "mine").unwrap();
    let link = |from: PathBuf, to: &Path| std::os::unix::fs::symlink(to, from).unwrap();
    link(dir.path().join("linked"), outside.path());
    link(dir.path().join("file.yaml"), &outside.path().join("engine.yaml"));
    for path in ["linked/engine.yaml", "file.yaml"] {
        assert!(write_files(dir.path(), &file(path)).unwrap_err().contains("link"), "{path}");
    }
    assert!(write_files(&dir.path().join("linked"), &file("engine.yaml")).is_err());
    assert_eq!(std::fs::read_to_string(outside.path().join("engine.yaml")).unwrap(), "mine");
}
