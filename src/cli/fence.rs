//! The fence around a run: what comes of a run when this program itself breaks.
//!
//! A panic, wherever it is, asks for the end of the run as a signal does: the engine is ended, the
//! reports of what is finished are written, and the exit code is no pass. It repairs nothing.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex, PoisonError};

use crate::run::{Cause, Halter};

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// Stands while a run is carried out. One at a time: what it hears of is the whole process.
pub struct Fence {
    words: Arc<Mutex<Option<String>>>,
    before: Arc<Hook>,
}

impl Fence {
    /// From now on a panic halts the run.
    pub fn raise(halter: &Halter) -> Fence {
        let words = Arc::new(Mutex::new(None));
        let before: Arc<Hook> = Arc::from(take_hook());
        let (heard, further, halter) = (Arc::clone(&words), Arc::clone(&before), halter.clone());
        set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("no word why").replace('\n', " ");
            let told = match info.location() {
                Some(at) => format!("{text} (at {at})"),
                None => text,
            };
            heard.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(told);
            halter.halt(Cause::Broken);
            further(info);
        }));
        Fence { words, before }
    }

    /// Carries out `work`, which may panic.
    pub fn hold<T>(work: impl FnOnce() -> T) -> Option<T> {
        catch_unwind(AssertUnwindSafe(work)).ok()
    }

    /// Ends it; the first panic in words, where there was one.
    pub fn lower(self) -> Option<String> {
        let before = self.before;
        set_hook(Box::new(move |info| before(info)));
        self.words.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::header::{HeaderInput, make};
    use crate::cli::shape::{Choice, Overlay, Planned, plan};
    use crate::engine::redact::Redactor;
    use crate::record::{Earlier, Event};
    use crate::run::{Conduct, Halter, conduct};

    /// A run that would take an hour of virtual time, broken after a minute; what was said of it.
    fn broken_run() -> (String, Vec<Event>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("suite.toml");
        let suite = "version = 1\n[suite]\nname = \"broken\"\n[engine]\nkind = \"sim\"\nclock = \"virtual\"\n\
                     [[test]]\nkind = \"decode\"\nduration = \"1h\"\n";
        std::fs::write(&path, suite).unwrap();
        let planned = plan(&path, &Overlay::default(), &Choice::default(), false);
        let Ok(Planned { plan, .. }) = planned else { panic!("the suite is right") };
        let machine = crate::hardware::Facts::default();
        let (flags, selection) = (Vec::new(), Vec::new());
        let header = make(&HeaderInput {
            plan: &plan,
            split: None,
            seed: 7,
            machine: &machine,
            flags,
            selection,
            slow: None,
            redactor: &Redactor::default(),
            provenance: crate::record::provenance::Provenance::default(),
            references: &crate::cli::reference::References::default(),
        });
        let halter = Halter::default();
        let (sender, events) = std::sync::mpsc::channel();
        let input = Conduct {
            plan: &plan,
            header: &header,
            out: dir.path(),
            executable: "tokgate".into(),
            secrets: Vec::new(),
            redactor: &Redactor::default(),
            time_limit: None,
            counted: None,
            unfit: Default::default(),
            earlier: Earlier::default(),
            slow: None,
            given: Mutex::default(),
        };
        let fence = Fence::raise(&halter);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.spawn_local(async {
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            panic!("a beat broke");
        });
        runtime.block_on(local.run_until(conduct(&input, sender, &halter)));
        (fence.lower().unwrap(), events.try_iter().collect())
    }

    // One test: hooks are the whole process's.
    #[test]
    fn a_panic_anywhere_halts_the_run_and_is_told() {
        // In a task that nobody waits for, while the conductor waits for something else.
        let halter = Halter::default();
        let mut halt = halter.waiter();
        let fence = Fence::raise(&halter);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let cause = runtime.block_on(async {
            tokio::spawn(async { panic!("a task\nbroke") });
            tokio::time::timeout(std::time::Duration::from_secs(20), halt.wait()).await
        });
        assert_eq!(cause, Ok(Cause::Broken));
        let words = fence.lower().unwrap();
        assert!(words.starts_with("a task broke (at src/cli/fence.rs:"), "{words}");

        // In the conductor itself; the runtime can still wait for supervisors.
        let halter = Halter::default();
        let halt = halter.waiter();
        let fence = Fence::raise(&halter);
        let none = Fence::hold(|| runtime.block_on(async { panic!("{} broke", "all") }));
        assert!(none.is_none());
        assert_eq!(halt.cause(), Some(Cause::Broken));
        assert_eq!(runtime.block_on(async { 7 }), 7);
        assert!(fence.lower().unwrap().starts_with("all broke"));

        // In a thread.
        let halter = Halter::default();
        let halt = halter.waiter();
        let fence = Fence::raise(&halter);
        assert!(std::thread::spawn(|| panic!("the onlooker broke")).join().is_err());
        assert_eq!(halt.cause(), Some(Cause::Broken));
        assert!(fence.lower().unwrap().starts_with("the onlooker broke"));

        let halter = Halter::default();
        let halt = halter.waiter();
        let fence = Fence::raise(&halter);
        assert_eq!(Fence::hold(|| 7), Some(7));
        assert_eq!((fence.lower(), halt.cause()), (None, None));

        // In the midst of a run: it ends, and says no end, so that it can go on.
        let (told, seen) = broken_run();
        assert!(told.starts_with("a beat broke"), "{told}");
        let begun = seen.iter().any(|event| matches!(event, Event::CellStarted { .. }));
        let ended = seen.iter().any(|event| matches!(event, Event::RunFinished { .. }));
        assert!(begun && !ended, "{seen:?}");
    }
}
