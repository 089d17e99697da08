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
}
