//! Expansion: a suite and a selection to a plan.
//!
//! All cells of the suite are made first, so that launches, their names and every complaint are the
//! same whatever is selected; then the selected ones are put in run order.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::bound::Index;
use super::cell::{concurrency, context_tokens, request_rate};
use super::launch::{
    Rendered, engine_templates, planned_cell_role, render_planned, render_request,
    request_templates,
};
use super::naming::{self, Traits};
use super::scene::{Blame, Moment, Scene, uses_name};
use super::select::{Sieve, Sieves};
use super::sighting::Sightings;
use super::tool::{render_tool_planned, tool_templates};
use super::verify;
use super::{Cell, Plan, PlannedLaunch, Selection, Trouble};
use crate::measure::TestKind;
use crate::suite::model::{Against, Reference, Suite, Test};

/// More cells than anyone runs; a matrix beyond it is a mistake.
const MAX_CELLS: u128 = 10_000_000;
/// Stands for a launch that could not be rendered.
const UNRENDERED: u32 = u32::MAX;

/// Expands a suite to the plan of what is selected. A plan without cells is no error here.
///
/// # Errors
/// Everything that is wrong with the suite's cells at once: selectors, grid entries, excludes and
/// quarantines that match no cell, templates that can't be rendered, the same bound twice; and
/// selectors of the command line that name what the suite does not have.
pub fn expand(suite: Arc<Suite>, selection: &Selection) -> Result<Plan, Vec<Trouble>> {
    let mut troubles = verify::size(&suite, MAX_CELLS);
    if !troubles.is_empty() {
        return Err(troubles);
    }
    let scenes: Arc<Vec<Scene>> =
        Arc::new(suite.settings.iter().map(|setting| Scene::new(&suite, setting)).collect());
    let index = Arc::new(Index::new(&suite));
    let mut sharing = Sharing::new(&suite, &scenes);
    let mut sightings = Sightings::new(&suite, &index);
    let mut cells = all_cells(&suite, &mut sharing, &mut sightings);
    verify::whole(&suite, &scenes, selection, &mut troubles);
    troubles.append(&mut sightings.into_troubles());
    troubles.append(&mut sharing.troubles);
    let mut fresh = Vec::with_capacity(troubles.len());
    for trouble in troubles {
        if !fresh.contains(&trouble) {
            fresh.push(trouble);
        }
    }
    if fresh.iter().any(|trouble| !trouble.warning) {
        return Err(fresh);
    }

    let names = naming::names(&sharing.traits());
    select(&suite, selection, &index, &mut cells);
    cells.sort_by(|a, b| run_order(&suite, &index, a, b));
    cells.shrink_to_fit();
    let launches = group(&mut cells, &names);
    let hash = plan_hash(&suite, selection);
    Ok(Plan { suite, launches, cells, hash, warnings: fresh, index, scenes })
}

/// Every cell of the suite that no `exclude` takes out, in order of settings, tests and values.
fn all_cells(suite: &Suite, sharing: &mut Sharing<'_>, sightings: &mut Sightings<'_>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let excludes: Vec<Vec<Option<Sieve>>> = suite
        .tests
        .iter()
        .enumerate()
        .map(|(index, test)| {
            test.exclude.iter().map(|exclude| Sieve::new(exclude, suite, index)).collect()
        })
        .collect();
    for setting in 0..suite.settings.len() as u32 {
        for (index, test) in (0u32..).zip(&suite.tests) {
            let mut point = vec![0u16; test.axes.len()];
            loop {
                let mut excluded = false;
                for (number, sieve) in excludes[index as usize].iter().enumerate() {
                    if sieve.as_ref().is_some_and(|sieve| sieve.passes(setting, &point)) {
                        sightings.excluded(index, number);
                        excluded = true;
                    }
                }
                if !excluded {
                    let launch = sharing.launch_of(setting, index, &point);
                    let cell =
                        Cell { test: index, setting, launch, point: point.as_slice().into() };
                    sightings.seen(&cell);
                    cells.push(cell);
                }
                if !step(&mut point, test) {
                    break;
                }
            }
        }
    }
    cells
}

/// Steps to the next point, the last axis first; false after the last.
fn step(point: &mut [u16], test: &Test) -> bool {
    for (value, axis) in point.iter_mut().zip(&test.axes).rev() {
        *value += 1;
        if usize::from(*value) < axis.values.len() {
            return true;
        }
        *value = 0;
    }
    false
}

/// Leaves the cells that the profile's `select`, `-E` and `--skip` leave, and those that they are held
/// against.
fn select(suite: &Suite, selection: &Selection, index: &Index, cells: &mut Vec<Cell>) {
    let profile = Sieves::new(&suite.select, suite);
    let asked = Sieves::new(&selection.alternatives, suite);
    let skipped = Sieves::new(&selection.skip, suite);
    let any_of = |sieves: &Sieves, cell: &Cell| sieves.any(cell.test, cell.setting, &cell.point);
    let chosen = |cell: &Cell| {
        (profile.is_empty() || any_of(&profile, cell))
            && (asked.is_empty() || any_of(&asked, cell))
            && !any_of(&skipped, cell)
    };
    let mut needed: HashSet<(u32, u32, Box<[u16]>)> = HashSet::new();
    if index.has_variants() || suite.compare.is_some() {
        for cell in cells.iter().filter(|cell| chosen(cell)) {
            let twin = |setting: u32| (setting, cell.test, cell.point.clone());
            for bound in index.bounds(suite, cell) {
                if let Some(Against { reference: Reference::Variant(setting), .. }) = bound.against
                {
                    needed.insert(twin(setting));
                }
            }
            if let Some(compare) = &suite.compare
                && cell.setting == compare.candidate
            {
                needed.insert(twin(compare.baseline));
            }
        }
    }
    cells.retain(|cell| {
        chosen(cell)
            || (!needed.is_empty()
                && needed.contains(&(cell.setting, cell.test, cell.point.clone())))
    });
}

/// Run order: launches as they come in the suite; within one startup, prefill, decode, serve and
/// commands, by prompt length, streams and rate, so that warm caches help.
fn run_order(suite: &Suite, index: &Index, a: &Cell, b: &Cell) -> Ordering {
    let kind = |cell: &Cell| {
        let kind = suite.tests[cell.test as usize].kind.kind();
        TestKind::ALL.iter().position(|other| *other == kind)
    };
    let context = |cell: &Cell| {
        let test = cell.test as usize;
        context_tokens(&suite.tests[test], &index.known_axes[test], &cell.point)
    };
    let streams = |cell: &Cell| {
        let test = cell.test as usize;
        concurrency(&suite.tests[test], &index.known_axes[test], &cell.point)
    };
    let rate = |cell: &Cell| {
        let test = cell.test as usize;
        request_rate(&suite.tests[test], &index.known_axes[test], &cell.point).unwrap_or(0.0)
    };
    a.launch
        .cmp(&b.launch)
        .then_with(|| kind(a).cmp(&kind(b)))
        .then_with(|| context(a).cmp(&context(b)))
        .then_with(|| streams(a).cmp(&streams(b)))
        .then_with(|| rate(a).total_cmp(&rate(b)))
        .then_with(|| a.test.cmp(&b.test))
        .then_with(|| a.point.cmp(&b.point))
}

/// The launches that the selected cells need; launches of cells are numbered anew.
fn group(cells: &mut [Cell], names: &[String]) -> Vec<PlannedLaunch> {
    let mut launches: Vec<PlannedLaunch> = Vec::new();
    let mut last = None;
    for (position, cell) in cells.iter_mut().enumerate() {
        if last != Some(cell.launch) {
            last = Some(cell.launch);
            launches.push(PlannedLaunch {
                name: names[cell.launch as usize].clone(),
                number: cell.launch,
                setting: cell.setting,
                cells: position..position,
            });
        }
        if let Some(launch) = launches.last_mut() {
            launch.cells.end = position + 1;
        }
        cell.launch = launches.len() as u32 - 1;
    }
    launches
}

fn plan_hash(suite: &Suite, selection: &Selection) -> String {
    let mut hash = Sha256::new();
    let mut part = |label: &str, text: &str| {
        hash.update(format!("{label}\u{1f}{text}\u{1e}"));
    };
    part("suite", &suite.hash);
    suite.select.iter().for_each(|selector| part("select", &selector.to_string()));
    selection.alternatives.iter().for_each(|selector| part("filter", &selector.to_string()));
    selection.skip.iter().for_each(|selector| part("skip", &selector.to_string()));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The positions of those axes of a test that some templates use, and what was found for their
/// values: cells that agree on them need no second rendering.
struct Projection<T> {
    positions: Vec<usize>,
    seen: HashMap<Box<[u16]>, T>,
}

impl<T> Projection<T> {
    fn new(uses: &std::collections::BTreeSet<String>, test: &Test) -> Projection<T> {
        let used =
            |(_, axis): &(usize, &crate::suite::model::Axis)| uses_name(uses, "axis", &axis.name);
        let positions =
            test.axes.iter().enumerate().filter(used).map(|(position, _)| position).collect();
        Projection { positions, seen: HashMap::new() }
    }
}

/// Which cells share a launch.
struct Sharing<'s> {
    suite: &'s Suite,
    scenes: &'s [Scene],
    /// For each setting what its engine's templates use.
    uses: Vec<std::collections::BTreeSet<String>>,
    /// For each setting and test the launches by the values that matter.
    engines: Vec<Vec<Projection<u32>>>,
    /// The same for requests and tools, which are rendered for the sake of their errors.
    requests: Vec<Vec<Option<Projection<()>>>>,
    launches: HashMap<Rendered, u32>,
    settings: Vec<u32>,
    scratch: Vec<u16>,
    troubles: Vec<Trouble>,
}

impl<'s> Sharing<'s> {
    fn new(suite: &'s Suite, scenes: &'s [Scene]) -> Sharing<'s> {
        let uses: Vec<_> = suite
            .settings
            .iter()
            .zip(scenes)
            .map(|(setting, scene)| scene.uses(engine_templates(&setting.engine).into_iter()))
            .collect();
        let engines = uses
            .iter()
            .map(|uses| suite.tests.iter().map(|test| Projection::new(uses, test)).collect())
            .collect();
        let requests = scenes
            .iter()
            .map(|scene| {
                suite
                    .tests
                    .iter()
                    .map(|test| {
                        let mut templates = request_templates(test);
                        templates.extend(tool_templates(test));
                        templates
                            .iter()
                            .any(|text| crate::template::has_syntax(text))
                            .then(|| Projection::new(&scene.uses(templates.into_iter()), test))
                    })
                    .collect()
            })
            .collect();
        Sharing {
            suite,
            scenes,
            uses,
            engines,
            requests,
            launches: HashMap::new(),
            settings: Vec::new(),
            scratch: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// The launch of a cell, in order of first appearance.
    fn launch_of(&mut self, setting: u32, test: u32, point: &[u16]) -> u32 {
        self.try_request(setting, test, point);
        let projection = &self.engines[setting as usize][test as usize];
        self.scratch.clear();
        self.scratch.extend(projection.positions.iter().map(|position| point[*position]));
        if let Some(launch) = projection.seen.get(self.scratch.as_slice()) {
            return *launch;
        }
        let uses = &self.uses[setting as usize];
        let scene = &self.scenes[setting as usize];
        let at = (&self.suite.tests[test as usize], point);
        let launch = match render_planned(self.suite, scene, setting, uses, at) {
            Ok(rendered) => {
                let next = self.settings.len() as u32;
                let launch = *self.launches.entry(rendered).or_insert(next);
                if launch == next {
                    self.settings.push(setting);
                }
                launch
            }
            Err(blames) => {
                self.troubles.extend(blames.into_iter().map(template_trouble));
                UNRENDERED
            }
        };
        let key = self.scratch.as_slice().into();
        self.engines[setting as usize][test as usize].seen.insert(key, launch);
        launch
    }

    /// Renders the cell's request or tool once for each set of values that matters.
    fn try_request(&mut self, setting: u32, test: u32, point: &[u16]) {
        let Some(projection) = &mut self.requests[setting as usize][test as usize] else { return };
        self.scratch.clear();
        self.scratch.extend(projection.positions.iter().map(|position| point[*position]));
        if projection.seen.contains_key(self.scratch.as_slice()) {
            return;
        }
        projection.seen.insert(self.scratch.as_slice().into(), ());
        let scene = &self.scenes[setting as usize];
        let at = (&self.suite.tests[test as usize], point);
        let role = planned_cell_role();
        if let Err(blames) = render_request(self.suite, scene, at, &role, Moment::Planned) {
            self.troubles.extend(blames.into_iter().map(template_trouble));
        }
        if let Some(Err(blames)) = render_tool_planned(self.suite, scene, setting, at) {
            self.troubles.extend(blames.into_iter().map(template_trouble));
        }
    }

    /// What tells the launches apart.
    fn traits(&self) -> Vec<Traits> {
        let mut traits: Vec<Traits> = self
            .settings
            .iter()
            .map(|setting| Traits {
                variant: self.suite.settings[*setting as usize].variant.clone(),
                values: Vec::new(),
            })
            .collect();
        for projections in &self.engines {
            for (test, projection) in self.suite.tests.iter().zip(projections) {
                // In order of the axes' values, not of the map.
                let mut seen: Vec<_> = projection.seen.iter().collect();
                seen.sort();
                for (values, launch) in seen {
                    let Some(traits) = traits.get_mut(*launch as usize) else { continue };
                    for (position, value) in projection.positions.iter().zip(values) {
                        let axis = &test.axes[*position];
                        traits.add(&axis.name, axis.values[usize::from(*value)].to_string());
                    }
                }
            }
        }
        traits
    }
}

/// A template that can't be rendered, as trouble.
pub(super) fn template_trouble(blame: Blame) -> Trouble {
    Trouble {
        code: "template",
        span: blame.span,
        place: blame.place,
        message: format!("{}: {}", blame.key, blame.error.message),
        key: Some(blame.key),
        part: blame.error.template.zip(blame.error.span),
        help: blame.error.help,
        warning: false,
    }
}
