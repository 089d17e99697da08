//! The guard: a process above the supervisor, so that killing the supervisor frees nothing.
//!
//! It is what tokgate starts, and forks the supervisor before anything else happens. It reads and
//! writes nothing, waits, and hands on a QUIT to the supervisor. Should that be killed, whatever it
//! leaves behind falls to the guard, which is the nearest subreaper, and is ended: TERM, then KILL after
//! the grace. Where the guard is killed, the supervisor goes on as if nothing had happened. What remains when both and
//! tokgate are killed by force at once is found by the next run: see `stranded`.

use std::process::ExitCode;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use super::tree;

/// Forks: in the guard it returns the exit code once nothing is left, in the supervisor `None`. The
/// first of `args` is the launch's name, the second the grace in milliseconds. To be called before
/// any thread is started.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(super) fn stand(args: &[std::ffi::OsString]) -> Option<ExitCode> {
    let grace = args.get(1).and_then(|text| text.to_str()?.parse().ok());
    let grace = grace.map_or(super::supervise::SHORT_GRACE, Duration::from_millis);
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // SAFETY: this process has one thread, so that the child is a whole copy of it: no lock is held
    // by a thread that is not there.
    let child = unsafe { libc::fork() };
    match child {
        // Without a guard there is still tokgate, to which everything falls.
        0 | -1 => None,
        supervisor => {
            SUPERVISOR.store(supervisor, Ordering::Relaxed);
            let hand_on: extern "C" fn(libc::c_int) = hand_on;
            for (signal, action) in [
                (libc::SIGTERM, libc::SIG_IGN),
                (libc::SIGINT, libc::SIG_IGN),
                (libc::SIGHUP, libc::SIG_IGN),
                (libc::SIGQUIT, hand_on as libc::sighandler_t),
            ] {
                // SAFETY: the one handler reads and writes atomics and sends a signal, which is allowed
                // at any moment.
                unsafe { libc::signal(signal, action) };
            }
            // Not named after tokgate, so that `pkill -KILL tokgate` leaves it at its work.
            let _ = rustix::thread::set_name(c"engine-guard");
            Some(watch(supervisor, grace))
        }
    }
}

/// Elsewhere orphans fall to the first process of the machine alone.
#[cfg(not(target_os = "linux"))]
pub(super) fn stand(_args: &[std::ffi::OsString]) -> Option<ExitCode> {
    None
}

/// The supervisor, while it has not been collected; then 0.
#[cfg(target_os = "linux")]
static SUPERVISOR: AtomicI32 = AtomicI32::new(0);
/// Whether everything is to end by force.
#[cfg(target_os = "linux")]
static HURRY: AtomicBool = AtomicBool::new(false);

/// Hands on what tokgate asks of the supervisor, whose number it does not know: to end all by force.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
extern "C" fn hand_on(signal: libc::c_int) {
    HURRY.store(true, Ordering::Relaxed);
    let supervisor = SUPERVISOR.load(Ordering::Relaxed);
    if supervisor > 0 {
        // SAFETY: it takes two numbers.
        unsafe { libc::kill(supervisor, signal) };
    }
}

/// Waits for the supervisor, and ends what it leaves behind.
#[cfg(target_os = "linux")]
fn watch(supervisor: i32, grace: Duration) -> ExitCode {
    use rustix::process::{WaitOptions, wait};
    let mut in_order = false;
    loop {
        match wait(WaitOptions::UNTRACED) {
            // Whoever stops it would keep an engine alive that is to be ended; it leads a session of its
            // own, so that no terminal does.
            Ok(Some((pid, status))) if status.stopped() => {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
            }
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == supervisor => {
                SUPERVISOR.store(0, Ordering::Relaxed);
                in_order = status.exit_status() == Some(0);
                break;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    let me = std::process::id() as i32;
    let began = Instant::now();
    let mut signals = tree::Signals::default();
    // Children that are zombies are collected; what is left of the others is told to go.
    while collect() {
        let left = tree::descendants(&[me], &tree::processes());
        if began.elapsed() < grace && !HURRY.load(Ordering::Relaxed) {
            signals.ask(&left);
        } else {
            signals.force(&left);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if in_order { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Collects children that have ended; whether there are others.
#[cfg(target_os = "linux")]
fn collect() -> bool {
    use rustix::process::{WaitOptions, wait};
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
