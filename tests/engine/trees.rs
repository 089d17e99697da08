//! Trees of processes, gone after whatever ends tokgate or its supervisor.
//!
//! Some tests start this test binary again in a role that they then kill.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tokgate::engine::Command;
use tokgate::engine::launch::free_port;
use tokgate::engine::supervise::{
    ExitInfo, SuperviseError, all_gone, become_subreaper, reap_strays, run_supervised,
    use_executable,
};

use super::{PATIENCE, SECOND, Stage, alive, pids, start};

/// Waits until `done` holds; panics after [`PATIENCE`].
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A tree that obeys nothing: the shell ignores TERM, one child sits in a session of its own, one is
/// forked twice, one is a nohup in the background; each writes its process id.
fn stubborn(pids: &Path) -> String {
    format!(
        r#"trap '' TERM HUP INT
out={pids}
echo $$ >> $out
setsid sh -c 'trap "" TERM; echo $$ >> '$out'; while :; do sleep 1; done' &
( ( sh -c 'trap "" TERM; echo $$ >> '$out'; while :; do sleep 1; done' & ) & )
nohup sh -c 'echo $$ >> '$out'; exec sleep 1000' > /dev/null 2>&1 &
setsid -f sh -c 'trap "" TERM; echo $$ >> '$out'; ( sleep 1000 ) ; sleep 1000'
while :; do sleep 1; done"#,
        pids = pids.display()
    )
}

#[tokio::test]
async fn a_dropped_launch_leaves_nothing() {
    let stage = Stage::new();
    let list = stage.path("stubborn");
    let spec = stage.shell(&stubborn(&list));
    {
        let launching = start(&spec);
        tokio::pin!(launching);
        let begin = Instant::now();
        while pids(&list).len() < 5 {
            assert!(begin.elapsed() < PATIENCE);
            let wait = tokio::time::sleep(Duration::from_millis(20));
            tokio::select! { _ = &mut launching => unreachable!(), () = wait => {} }
        }
    }
    let tree = pids(&list);
    eventually("the tree is gone", || tree.iter().all(|pid| !alive(*pid)));
}

#[tokio::test]
async fn a_setup_command_runs_to_its_end() {
    let stage = Stage::new();
    let log = stage.path("setup.log");
    let sh = |script: &str| Command { argv: vec!["sh".into(), "-c".into(), script.into()] };
    let env = [("NAME".to_owned(), "value".to_owned())];
    let here = Some(stage.dir.path());
    let exit = run_supervised(&sh("echo $NAME; pwd; exit 7"), &env, here, &log, PATIENCE).await;
    assert_eq!(exit.unwrap(), ExitInfo::Code(7));
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.starts_with("value\n") && text.contains(stage.dir.path().to_str().unwrap()));

    // Its tree is gone with it, what it left in the background included.
    let left = stage.path("left");
    let script = format!("sleep 1000 & echo $! > {}; exit 0", left.display());
    let exit = run_supervised(&sh(&script), &[], None, &log, PATIENCE).await.unwrap();
    assert!(exit.success());
    assert!(pids(&left).iter().all(|pid| !alive(*pid)) && !pids(&left).is_empty());

    let error = run_supervised(&sh("sleep 1000"), &[], None, &log, SECOND).await.unwrap_err();
    assert!(matches!(error, SuperviseError::TimedOut(_)), "{error}");
    let nothing = Command { argv: vec!["no-such-program".into()] };
    let error = run_supervised(&nothing, &[], None, &log, SECOND).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "can't start `no-such-program`: No such file or directory in any directory of PATH"
    );
    let nowhere = Some(Path::new("/no/such/folder"));
    let error = run_supervised(&sh("true"), &[], nowhere, &log, SECOND).await.unwrap_err();
    assert!(error.to_string().contains("in /no/such/folder: "), "{error}");
    let error = run_supervised(&sh("true"), &[], None, Path::new("/proc/no/log"), SECOND).await;
    assert!(matches!(error, Err(SuperviseError::Log { .. })));
}

/// Runs one of the `as_parent_…` functions below in a process of its own, which a test may kill.
fn parent(role: &str, dir: &Path, env: &[(&str, &str)]) -> Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture", "--include-ignored"])
        .env("TOKGATE_TEST_DIR", dir)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

fn dir_of_parent() -> Option<PathBuf> {
    use_executable(Path::new(env!("CARGO_BIN_EXE_tokgate")));
    std::env::var_os("TOKGATE_TEST_DIR").map(PathBuf::from)
}

/// Waits until a stubborn tree is whole, and names its processes.
fn whole(list: &Path) -> Vec<u32> {
    eventually("the tree is whole", || pids(list).len() >= 5);
    pids(list)
}

#[test]
#[ignore = "a process that other tests start and kill"]
fn as_parent_of_a_stubborn_tree() {
    let Some(dir) = dir_of_parent() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let argv = vec!["sh".into(), "-c".into(), stubborn(&dir.join("pids"))];
    let _ = runtime.block_on(run_supervised(
        &Command { argv },
        &[],
        None,
        &dir.join("log"),
        Duration::from_secs(600),
    ));
}

#[test]
fn a_whole_tree_is_gone_after_sigkill_of_the_parent() {
    let dir = tempfile::tempdir().unwrap();
    let mut parent = parent("trees::as_parent_of_a_stubborn_tree", dir.path(), &[]);
    let tree = whole(&dir.path().join("pids"));
    assert!(tree.iter().all(|pid| alive(*pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the tree is gone", || tree.iter().all(|pid| !alive(*pid)));
}

/// The parent of a process.
fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "a process that another test starts"]
fn as_parent_whose_watchers_are_killed() {
    let Some(dir) = dir_of_parent() else { return };
    let with_guard = std::env::var_os("WITH_GUARD").is_some();
    become_subreaper();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // A child of its own, which is none of the supervisor's business.
    let mut bystander = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let killer = std::thread::spawn({
        let list = dir.join("pids");
        move || {
            let tree = whole(&list);
            let supervisor = parent_of(tree[0]);
            let guard = parent_of(supervisor);
            assert_eq!(parent_of(guard), std::process::id());
            let both = [guard, supervisor];
            for pid in &both[usize::from(!with_guard)..] {
                let kill =
                    std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
                assert!(kill.unwrap().success());
            }
            tree
        }
    });
    let argv = vec!["sh".into(), "-c".into(), stubborn(&dir.join("pids"))];
    let exit = runtime.block_on(run_supervised(
        &Command { argv },
        &[],
        None,
        &dir.join("log"),
        Duration::from_secs(60),
    ));
    let tree = killer.join().unwrap();
    let left: Vec<&u32> = tree.iter().filter(|pid| alive(**pid)).collect();
    let bystander_lives = alive(bystander.id());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    println!("\nOUTCOME {:?} left={left:?} bystander={bystander_lives}", exit.unwrap());
    assert!(reap_strays().is_empty());
}

#[test]
fn what_killed_watchers_leave_is_ended_by_the_parent() {
    for env in [vec![], vec![("WITH_GUARD", "1")]] {
        let dir = tempfile::tempdir().unwrap();
        let mut parent = parent("trees::as_parent_whose_watchers_are_killed", dir.path(), &env);
        let mut text = String::new();
        parent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let status = parent.wait().unwrap();
        assert!(text.contains("OUTCOME Unsupervised left=[] bystander=true"), "{text}");
        assert!(status.success());
    }
}

#[test]
#[ignore = "a process that another test starts"]
fn as_parent_of_an_unguarded_tree_beside_a_killed_one() {
    let Some(dir) = dir_of_parent() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shell = |script: String| Command { argv: vec!["sh".into(), "-c".into(), script] };
    let writes = |name: &str| format!("echo $$ > {}", dir.join(name).display());
    let done = dir.join("done");
    let lasting =
        format!("{}; while [ ! -e {} ]; do sleep 0.05; done; exit 7", writes("a"), done.display());
    let lasting = shell(lasting);
    let short = shell(format!("{}; exec sleep 1000", writes("b")));
    let kill = |pids: &[u32]| {
        for pid in pids {
            std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
        }
    };
    let log = dir.join("log");
    let (lasted, ended) = runtime.block_on(async {
        let lasting = run_supervised(&lasting, &[], None, &log, PATIENCE);
        let killing = async {
            while pids(&dir.join("a")).is_empty() || pids(&dir.join("b")).is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let supervisor = |name: &str| parent_of(pids(&dir.join(name))[0]);
            let (a, b) = (supervisor("a"), supervisor("b"));
            kill(&[parent_of(a), parent_of(b), b]);
        };
        let other = async {
            let ended = run_supervised(&short, &[], None, &log, PATIENCE).await;
            std::fs::write(&done, "").unwrap();
            ended
        };
        let (lasted, ended, ()) = tokio::join!(lasting, other, killing);
        (lasted, ended)
    });
    println!("\nOUTCOME {:?} {:?}", lasted.unwrap(), ended.unwrap());
}

#[test]
fn a_supervisor_without_its_guard_is_no_stray() {
    let dir = tempfile::tempdir().unwrap();
    let mut parent =
        parent("trees::as_parent_of_an_unguarded_tree_beside_a_killed_one", dir.path(), &[]);
    let mut text = String::new();
    parent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(parent.wait().unwrap().success(), "{text}");
    assert!(text.contains("OUTCOME Code(7) Unsupervised"), "{text}");
}

#[test]
#[ignore = "a process that another test starts"]
fn as_parent_that_panics() {
    let Some(dir) = dir_of_parent() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stage =
        Stage { dir: tempfile::tempdir_in(&dir).unwrap(), port: free_port("127.0.0.1").unwrap() };
    let spec = stage.shell(&stubborn(&dir.join("pids")));
    std::panic::set_hook(Box::new(|_| {}));
    // As the conductor would, in the middle of what it does, with the launch in its hands.
    let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async {
            let launching = start(&spec);
            let breaking = async {
                while pids(&dir.join("pids")).len() < 5 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                panic!("broke");
            };
            tokio::join!(launching, breaking)
        })
    }));
    assert!(broken.is_err());
    let begun = Instant::now();
    runtime.block_on(all_gone(PATIENCE));
    let left = pids(&dir.join("pids")).into_iter().filter(|pid| alive(*pid)).count();
    println!("\nOUTCOME left={left} waited={}", begun.elapsed() < PATIENCE);
}

#[test]
fn a_panic_ends_the_engine_and_its_end_can_be_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut parent = parent("trees::as_parent_that_panics", dir.path(), &[]);
    let mut text = String::new();
    parent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(parent.wait().unwrap().success(), "{text}");
    assert!(text.contains("OUTCOME left=0 waited=true"), "{text}");
}

#[test]
#[ignore = "a process that another test starts"]
fn as_parent_behind_a_proxy() {
    let Some(dir) = dir_of_parent() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stage = Stage {
            dir: tempfile::tempdir_in(dir).unwrap(),
            port: free_port("127.0.0.1").unwrap(),
        };
        for host in ["127.0.0.1", "localhost"] {
            let mut spec = stage.toy("");
            spec.host = host.to_owned();
            spec.url = format!("http://{host}:{}", stage.port);
            spec.metrics_urls = vec![format!("{}/metrics", spec.url)];
            let mut running = start(&spec).await.0.unwrap();
            println!("\nOUTCOME {host} {:?}", running.facts.kv_capacity);
            running.stop(SECOND).await;
        }
    });
}

#[test]
fn no_proxy_stands_between_tokgate_and_the_engine() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in proxy.incoming().flatten() {
            let mut stream = stream;
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let names = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"];
    let env: Vec<(&str, &str)> = names.iter().map(|name| (*name, address.as_str())).collect();
    let mut parent = parent("trees::as_parent_behind_a_proxy", dir.path(), &env);
    let mut text = String::new();
    parent.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(parent.wait().unwrap().success(), "{text}");
    assert!(text.contains("OUTCOME 127.0.0.1 Some(16000)"), "{text}");
    assert!(text.contains("OUTCOME localhost Some(16000)"), "{text}");
}
