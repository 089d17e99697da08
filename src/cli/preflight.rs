//! The machines on which the launches of a plan are to run, looked at before the first of them: by this
//! machine's driver, or by the command that the suite names.
//!
//! What counts as fit is decided in `hardware::preflight`; what a mismatch leads to is the suite's
//! `on-mismatch`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::engine::log::LogFile;
use crate::engine::redact::Redactor;
use crate::engine::supervise::{self as process, Secrecy};
use crate::engine::{self, tree};
use crate::hardware::need::{Need, OnMismatch};
use crate::hardware::preflight::{self, Expected, Findings};
use crate::hardware::probe::Probe;
use crate::hardware::visible::Visible;
use crate::hardware::{self, Facts, Gpu};
use crate::load::socket::make_room_for;
use crate::matrix::{Plan, Runtime};
use crate::run::{Unfit, in_virtual_time};
use crate::suite::model::EngineSource;

use super::exit::Exit;
use super::say;

/// How long the command of `hardware.probe` may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Of what it printed so much is read, in bytes.
const MOST: u64 = 4 << 20;
/// No file that it writes may be longer than so many blocks of 512 bytes: a shell's unit.
const BLOCKS: u64 = 4 * MOST / 512;
/// Of what it printed in place of a probe so much is shown, in characters.
const SHOWN: usize = 300;
/// How often GPUs that are not fit are looked at again: what has just been ended may still be on them.
const LOOKS: u32 = 4;
/// The time between two looks.
const PACE: Duration = Duration::from_millis(500);
/// Variables by which an engine is told which GPUs are its own. The first is CUDA's, the others ROCm's.
const VISIBLE: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];

/// Where the launches of a plan are to run.
pub struct Site {
    /// The machine as the record has it: this host, with the GPUs that engines will see.
    pub machine: Facts,
    /// The machine of the GPUs, which may be another one.
    pub there: Facts,
    views: BTreeMap<View, Found>,
    /// By which view each launch sees, by its number.
    launches: BTreeMap<u32, View>,
}

impl Site {
    /// Why it is not known what is there, for each view of which it is not.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.views.values().filter_map(|found| found.as_ref().err().map(String::as_str))
    }
}

/// By what a launch sees its GPUs; launches with the same see the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct View {
    /// The command that tells what is there; `None`: the driver of this machine.
    command: Option<Vec<String>>,
    /// Those of [`VISIBLE`] that the suite sets.
    variables: Vec<(String, String)>,
}

/// What a view shows, or why that is not known.
type Found = Result<Probe, String>;

/// Looks at the GPUs of each launch. `machine` is what a launch sees that is told nothing else.
///
/// # Errors
/// [`Exit::Suite`]: the suite's command can't be rendered; it is said.
pub fn look(
    plan: &Plan,
    machine: &Facts,
    secrets: &[(String, String)],
    redactor: &Redactor,
) -> Result<Site, Exit> {
    let runtime = before_the_run(secrets);
    let mut views: BTreeMap<View, Found> = BTreeMap::new();
    let mut launches = BTreeMap::new();
    for launch in 0..plan.launches.len() {
        let view = view(plan, launch, &runtime)?;
        launches.insert(plan.launches[launch].number, view.clone());
        if views.contains_key(&view) {
            continue;
        }
        let found = match &view.command {
            Some(argv) => ask(argv, &view.variables, redactor),
            None if view.variables.is_empty() => {
                Ok(Probe { facts: machine.clone(), ..Probe::default() })
            }
            None => Ok(survey(&view.variables)),
        };
        views.insert(view, found);
    }
    let there = joined(&views, machine);
    let Facts { gpus, driver, cuda, gpu_note, .. } = there.clone();
    let machine = Facts { gpus, driver, cuda, gpu_note, ..machine.clone() };
    Ok(Site { machine, there, views, launches })
}

/// Whether no launch of a plan can be started since the machine is another one than the suite declares.
pub fn is_unlike(plan: &Plan, site: &Site) -> bool {
    let Some(need) = &plan.suite.hardware else { return false };
    let stops = match need.on_mismatch {
        OnMismatch::Error | OnMismatch::Skip => true,
        OnMismatch::Warn => false,
    };
    let unlike = |found: &Found| match found {
        Ok(probe) => !need.problems(&probe.facts).is_empty(),
        Err(_) => true,
    };
    stops && !site.views.is_empty() && site.views.values().all(unlike)
}

/// What comes of looking at the machines.
#[derive(Default)]
pub struct Judged {
    /// Launches that can't be started, each with the reason: this machine can't hold as many connections as a
    /// cell has streams, the GPUs are not what `[hardware]` declares, or others compute there.
    pub unfit: BTreeMap<usize, Unfit>,
    /// What is worth a word.
    pub warnings: Vec<String>,
}

/// Judges each launch of a plan.
pub fn judge(plan: &Plan, site: &Site) -> Judged {
    let mut all = Judged::default();
    let streams = plan.cells.iter().map(|cell| plan.concurrency(cell)).max().unwrap_or(0);
    if !in_virtual_time(plan)
        && let Err(error) = make_room_for(streams)
    {
        let unfit = Unfit { message: error.to_string(), skip: false };
        all.unfit = (0..plan.launches.len()).map(|launch| (launch, unfit.clone())).collect();
        return all;
    }
    let need = plan.suite.hardware.as_ref();
    let on_mismatch = need.map(|need| need.on_mismatch).unwrap_or_default();
    let mut judged: BTreeMap<(&View, Kind), Findings> = BTreeMap::new();
    for launch in 0..plan.launches.len() {
        let Some(view) = site.launches.get(&plan.launches[launch].number) else { continue };
        let kind = Kind::of(plan, launch);
        let findings = judged.entry((view, kind)).or_insert_with_key(|(view, kind)| {
            findings(need, site, view, *kind, || expected(plan))
        });
        let mut warnings = findings.warnings.clone();
        match (&findings.mismatch, on_mismatch) {
            (None, _) => {}
            (Some(message), OnMismatch::Warn) => warnings.push(message.clone()),
            (Some(message), OnMismatch::Error | OnMismatch::Skip) => {
                let skip = on_mismatch == OnMismatch::Skip;
                all.unfit.insert(launch, Unfit { message: message.clone(), skip });
            }
        }
        for message in warnings {
            if !all.warnings.contains(&message) {
                all.warnings.push(message);
            }
        }
    }
    all
}

/// What may be why an engine that is started here failed: words on who is on its GPUs.
pub fn hints(plan: &Plan, machine: &Facts) -> Vec<String> {
    let site = look(plan, machine, &[], &Redactor::default());
    site.map_or_else(|_| Vec::new(), |site| judge(plan, &site).warnings)
}

/// How a launch comes to its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It is started here.
    Started,
    /// It runs already.
    Running,
    /// It is simulated, and has none.
    Simulated,
}

impl Kind {
    fn of(plan: &Plan, launch: usize) -> Kind {
        let setting = plan.launches[launch].setting as usize;
        match plan.suite.settings[setting].engine.source {
            EngineSource::Command(_) => Kind::Started,
            EngineSource::Url(_) => Kind::Running,
            EngineSource::Sim { .. } => Kind::Simulated,
        }
    }
}

fn findings(
    need: Option<&Need>,
    site: &Site,
    view: &View,
    kind: Kind,
    expected: impl FnOnce() -> Expected,
) -> Findings {
    let known = need.is_some_and(Need::is_checked);
    let found = match site.views.get(view) {
        Some(Ok(found)) => found,
        Some(Err(why)) => return Findings { mismatch: Some(why.clone()), warnings: Vec::new() },
        None => return Findings::default(),
    };
    let engine_runs = kind == Kind::Running;
    if engine_runs && !known {
        return Findings::default();
    }
    if view.command.is_some() {
        // Processes there are none of this machine's.
        let expected = Expected { engine_runs, ..Expected::default() };
        return preflight::judge(need, found, &expected);
    }
    if kind == Kind::Simulated || found.facts.gpus.is_empty() {
        let facts = Probe { facts: found.facts.clone(), ..Probe::default() };
        return preflight::judge(need, &facts, &Expected::default());
    }
    let expected = Expected { engine_runs, ..expected() };
    // Who is on the GPUs may have changed since the suites were checked.
    let mut findings = preflight::judge(need, &survey(&view.variables), &expected);
    for _ in 0..LOOKS {
        if findings.mismatch.is_none() {
            break;
        }
        std::thread::sleep(PACE);
        findings = preflight::judge(need, &survey(&view.variables), &expected);
    }
    findings
}

/// Processes that may compute already: ours, and those of engines of the plan that run here.
fn expected(plan: &Plan) -> Expected {
    let mut processes = tree::own();
    for launch in 0..plan.launches.len() {
        if Kind::of(plan, launch) == Kind::Running
            && let Ok(spec) = plan.preview(launch)
        {
            processes.extend(tree::serving(spec.port));
        }
    }
    let processes = processes.into_iter().filter_map(|pid| u32::try_from(pid).ok());
    Expected { processes: processes.collect(), engine_runs: false }
}

/// This machine as an engine sees it that has these variables besides those of this process.
fn survey(variables: &[(String, String)]) -> Probe {
    let own = |name: &str| variables.iter().find(|(own, _)| own == name).map(|(_, it)| it.clone());
    let inherited = |name: &str| std::env::var_os(name).map(|it| it.to_string_lossy().into_owned());
    let visible = Visible::of(|name| own(name).or_else(|| inherited(name)));
    hardware::survey(&visible, hardware::PATIENCE)
}

fn view(plan: &Plan, launch: usize, runtime: &Runtime) -> Result<View, Exit> {
    let command = plan.hardware_probe(launch, runtime).map_err(|error| {
        say(&format!("error: {}", error.message));
        Exit::Suite
    })?;
    Ok(View { command: command.map(|command| command.argv), variables: variables(plan, launch) })
}

/// Those of [`VISIBLE`] that an engine which is started gets from the suite.
fn variables(plan: &Plan, launch: usize) -> Vec<(String, String)> {
    let chooses = |name: &String| VISIBLE.contains(&name.as_str());
    let engine = &plan.suite.settings[plan.launches[launch].setting as usize].engine;
    let sets = engine.env.iter().any(|(name, _)| chooses(name));
    if !sets || Kind::of(plan, launch) == Kind::Running {
        return Vec::new();
    }
    // What can't be rendered is told by the launch.
    let env = plan.preview(launch).map(|spec| spec.env).unwrap_or_default();
    env.into_iter().filter(|(name, _)| chooses(name)).collect()
}

/// The machine of the GPUs: what one view shows, or the GPUs of all.
fn joined(views: &BTreeMap<View, Found>, machine: &Facts) -> Facts {
    let unknown = |why: &String| Facts {
        gpus: Vec::new(),
        driver: None,
        cuda: None,
        gpu_note: Some(why.clone()),
        ..machine.clone()
    };
    let mut all = views.values().map(|found| match found {
        Ok(probe) => probe.facts.clone(),
        Err(why) => unknown(why),
    });
    let Some(mut whole) = all.next() else { return machine.clone() };
    for facts in all {
        let more = facts.gpus.into_iter().filter(|gpu| !whole.gpus.contains(gpu));
        let more: Vec<Gpu> = more.collect();
        whole.gpus.extend(more);
        whole.driver = whole.driver.or(facts.driver);
        whole.cuda = whole.cuda.or(facts.cuda);
        whole.gpu_note = None;
    }
    whole.gpus.sort_by_key(|gpu| gpu.index);
    whole
}

/// What a template sees of a run that has not begun.
fn before_the_run(secrets: &[(String, String)]) -> Runtime {
    Runtime {
        port: 0,
        secrets: secrets.to_vec(),
        run_id: String::new(),
        run_dir: PathBuf::new(),
        out_dir: PathBuf::new(),
        session: 0,
        round: 0,
        launch_ordinal: 0,
        executable: std::env::current_exe().unwrap_or_else(|_| "tokgate".into()),
        seed: 0,
    }
}

/// Runs the command that tells what is where the GPUs are.
fn ask(argv: &[String], variables: &[(String, String)], redactor: &Redactor) -> Found {
    let shown = redactor.said(&argv.join(" "));
    let wrong = |what: String| format!("hardware.probe: `{shown}` {}", redactor.said(&what));
    let folder = Folder::make().map_err(|why| wrong(format!("was not run: {why}")))?;
    let (answer, log) = (folder.0.join("stdout"), folder.0.join("stderr"));
    // Supervised processes print into their log, and a scheduler's words must not stand amid the answer.
    // One that prints without end is ended before it fills the disk.
    let script = format!("ulimit -c 0; ulimit -f {BLOCKS} 2>&-; exec \"$@\" >\"$0\"");
    let apart = ["/bin/sh".to_owned(), "-c".to_owned(), script];
    let to = answer.to_string_lossy().into_owned();
    let command = engine::Command {
        argv: apart.into_iter().chain([to]).chain(argv.iter().cloned()).collect(),
    };
    let written = LogFile::from_here(&log);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| wrong(format!("was not run: {error}")))?;
    // Should this process be killed meanwhile, no secret stays behind.
    let mine = [folder.0.clone()];
    let secrecy = Secrecy { redactor, clean: &mine, always: false };
    let running = process::run_secretive(&command, variables, None, (&log, secrecy), LIMIT);
    let ended = runtime.block_on(running);
    let printed = read(&answer);
    let words = || {
        let mut lines = written.telling(redactor);
        lines.extend(printed.lines().map(str::to_owned).filter(|line| !line.trim().is_empty()));
        match lines.is_empty() {
            true => "it printed nothing".to_owned(),
            false => format!("it printed: {}", cut(&lines.join(" / "))),
        }
    };
    match ended {
        Ok(exit) if exit.success() => Probe::parse(&printed)
            .map_err(|error| wrong(format!("ended well and told {error}; {}", words()))),
        Ok(exit) => Err(wrong(format!("failed: {exit}; {}", words()))),
        Err(error) => Err(wrong(format!("failed: {error}; {}", words()))),
    }
}

/// The beginning of a file.
fn read(path: &Path) -> String {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        let _ = file.take(MOST).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A folder of our own that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = format!("tokgate-probe-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        // What is said there may hold what others must not read.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
