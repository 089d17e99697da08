//! Patience with drivers and their tools: what they are asked is answered in time, or not at all.
//!
//! A question that hangs in the kernel can't be taken back. Its thread stays behind, and nobody waits for it.

use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::quantity::print_duration;

/// So much of a tool's output is read.
const MOST: u64 = 16 << 20;
/// How long the end of a tool is waited for whose output has ended.
const END: Duration = Duration::from_millis(500);
/// How often it is looked for.
const PACE: Duration = Duration::from_millis(5);

/// So long, from a moment on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    limit: Duration,
    until: Option<Instant>,
}

impl std::fmt::Display for Patience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_duration(self.limit))
    }
}

impl Patience {
    /// From now on.
    pub(super) fn of(limit: Duration) -> Patience {
        Patience { limit, until: Instant::now().checked_add(limit) }
    }

    /// What is left of it.
    pub(super) fn left(&self) -> Duration {
        self.until.map_or(self.limit, |until| until.saturating_duration_since(Instant::now()))
    }

    /// The answer to a question; `None` where it takes too long.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new().name("driver".to_owned());
        let asked = thread.spawn(move || {
            // Nobody listens any more where it took too long.
            let _ = tell.send(question());
        });
        asked.ok()?;
        told.recv_timeout(self.left()).ok()
    }

    /// What a tool writes on stdout. It and what it started are ended where it takes too long.
    ///
    /// # Errors
    /// It can't be run or takes too long; in words.
    pub(super) fn run(&self, command: &mut Command) -> Result<String, String> {
        use std::io::Read as _;
        use std::os::unix::process::CommandExt as _;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.process_group(0);
        let mut child = loop {
            match command.spawn() {
                Ok(child) => break child,
                // Somebody is about to write it, and done in a moment.
                Err(error)
                    if error.kind() == ErrorKind::ExecutableFileBusy && !self.left().is_zero() =>
                {
                    std::thread::sleep(PACE);
                }
                Err(error) => return Err(format!("it can't be run: {error}")),
            }
        };
        let out = child.stdout.take();
        let read = self.ask(move || {
            let mut text = Vec::new();
            let read = out.map(|out| out.take(MOST).read_to_end(&mut text));
            read.transpose().map(|_| String::from_utf8_lossy(&text).into_owned())
        });
        if read.is_none() || !ended(&mut child) {
            // Not reaped yet, so that the number is still its own.
            if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            ended(&mut child);
        }
        match read {
            None => Err(format!("it does not answer within {self}")),
            Some(Err(error)) => Err(format!("its output can't be read: {error}")),
            Some(Ok(text)) => Ok(text),
        }
    }
}

/// Whether a tool ends within a moment.
fn ended(child: &mut Child) -> bool {
    let end = Patience::of(END);
    loop {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return true;
        }
        if end.left().is_zero() {
            return false;
        }
        std::thread::sleep(PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_is_answered_in_time_is_the_answer() {
        assert_eq!(Patience::of(LONG).ask(|| 7), Some(7));
        assert_eq!(
            Patience::of(LONG).run(&mut shell("echo here; exit 3")),
            Ok("here\n".to_owned())
        );
        let none = Patience::of(LONG).run(&mut Command::new("/nowhere/amd-smi")).unwrap_err();
        assert!(none.starts_with("it can't be run: "), "{none}");
    }

    #[test]
    fn what_takes_too_long_is_none_and_ended() {
        let (_keep, never) = mpsc::channel::<()>();
        let short = Patience::of(Duration::from_millis(20));
        assert_eq!(short.ask(move || never.recv().is_ok()), None);
        let folder = tempfile::tempdir().unwrap();
        let (ready, late) = (folder.path().join("ready"), folder.path().join("late"));
        // A worker of the tool holds its output open, too.
        let script =
            format!("sleep 600 & echo $! > {}; wait; touch {}", ready.display(), late.display());
        let patience = Patience::of(Duration::from_millis(300));
        assert_eq!(
            patience.run(&mut shell(&script)),
            Err("it does not answer within 300ms".to_owned())
        );
        let worker = std::fs::read_to_string(&ready).unwrap_or_default();
        let alive = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.trim()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        for _ in 0..2000 {
            if worker.is_empty() || !alive() {
                break;
            }
            std::thread::sleep(PACE);
        }
        assert!(worker.is_empty() || !alive());
        assert!(!late.exists());
    }
}
