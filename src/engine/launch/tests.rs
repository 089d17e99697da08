//! Commands that hand over, and files that stay where they belong.

use super::*;

#[test]
fn commands_that_hand_over_are_known() {
    let argv = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(hands_over(&argv("docker run vllm")));
    assert!(hands_over(&argv("/usr/bin/srun vllm")));
    assert!(hands_over(&["sh".to_owned(), "-c".to_owned(), "cd x; exec docker run y".to_owned()]));
    assert!(!hands_over(&argv("vllm serve docker-model --port 1")));
}

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
