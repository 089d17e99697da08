//! Loading: from a path to a checked suite, through files, trees, overlays and checks.
//!
//! The edge of this room: it reads files and asks which environment variables are set. Which
//! problems there are is decided by the stages it calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FilePath;

use serde::de::Deserialize;
use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::DeValue;

use super::chain::{Broken, read_chain};
use super::check::{self, Typed};
use super::explain::{self, Explain};
use super::file::File;
use super::merge::{self, Merge};
use super::model::{EngineSource, Suite};
use super::name;
use super::problem::{Problem, Problems};
use super::schema;
use super::set::{Set, read_set};
use super::source::SourceMap;
use super::tree::{self, Path, Step, Tree};

/// What the command line has to say about a suite.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// `--profile`.
    pub profile: Option<String>,
    /// `--set key=value`, in order.
    pub set: Vec<String>,
    /// `--url`: where the engine already runs; its command is not used.
    pub url: Option<String>,
}

/// A suite without errors.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The suite.
    pub suite: Suite,
    /// Its texts, for the places of later problems.
    pub source: SourceMap,
    /// What is odd but not wrong.
    pub warnings: Vec<Problem>,
    /// Who set which value.
    pub explain: Explain,
}

/// Loads a suite.
///
/// # Errors
/// Every problem of the suite at once; where a file can't be read or is no TOML, those alone.
pub fn load(path: &FilePath, options: &LoadOptions) -> Result<Loaded, Problems> {
    let mut source = SourceMap::default();
    let texts = match read_chain(path) {
        Ok(texts) => texts,
        Err(broken) => {
            let Broken { texts, problem, blame } = *broken;
            for text in &texts {
                source.add(&text.name, &text.text, text.folder());
            }
            // The file that asked for the broken one is the first, since the chain is read upwards.
            let problem = match (blame, texts.first()) {
                (Some(span), Some(_)) => Problem { span: Some(span), ..problem },
                (_, _) => problem,
            };
            return Err(Problems::new(source, vec![problem]));
        }
    };
    let mut problems = Vec::new();
    let mut trees = Vec::new();
    for text in &texts {
        let start = source.add(&text.name, &text.text, text.folder());
        match tree::parse(&text.text, start) {
            Ok(tree) => trees.push(tree),
            Err(wrong) => problems.extend(wrong),
        }
    }
    if !problems.is_empty() {
        return Err(Problems::new(source, problems));
    }
    let sets: Vec<Set> = options.set.iter().map(|text| read_set(text, &mut source)).collect();
    Loading { source, problems, lost: BTreeSet::new(), merge: Merge::default() }
        .run(trees, &sets, path, options)
}

struct Loading {
    source: SourceMap,
    problems: Vec<Problem>,
    lost: BTreeSet<String>,
    merge: Merge,
}

impl Loading {
    fn shape(&mut self, tree: &mut Tree<'_>, above: &Path) {
        let findings = schema::check(tree, above, &self.source);
        self.problems.extend(findings.problems);
        self.lost.extend(findings.lost);
    }

    fn run(
        mut self,
        trees: Vec<Tree<'_>>,
        sets: &[Set],
        path: &FilePath,
        options: &LoadOptions,
    ) -> Result<Loaded, Problems> {
        let mut merged = Tree::new();
        for mut tree in trees {
            self.shape(&mut tree, &Path::default());
            merge::duplicates(&tree, &mut self.problems);
            tree.remove("extends");
            self.merge.suite(&mut merged, tree);
        }
        let mut overlays = Vec::new();
        for set in sets {
            match &set.text {
                Ok(text) => {
                    if let Some(tree) = self.set_tree(text, set) {
                        overlays.push(tree);
                    }
                }
                Err(problem) => self.problems.push(problem.clone()),
            }
        }
        let url = options.url.as_ref().map(|url| {
            let start = self.source.add("--url", url.as_str(), None);
            (url.as_str(), start..start + url.len())
        });

        // What `--set` says of a variant counts before variants are taken.
        for overlay in &mut overlays {
            if let Some(mut variant) = overlay.remove_entry("variant") {
                self.known_variants(&mut variant.1, &merged);
                let tree = Tree::from_iter([variant]);
                self.merge.overlay(&mut merged, tree, &mut self.problems);
            }
        }
        let profiles = named_tables(&mut merged, "profile");
        let variants = named_tables(&mut merged, "variant");
        let chosen = self.choose(options, &profiles);

        let stack = Stack { overlays: &overlays, url };
        let typed = self.assemble(&merged, &variants, chosen.map(|at| &profiles[at]), &stack);
        let check_profiles: Vec<_> =
            profiles.iter().enumerate().filter(|(at, _)| Some(*at) != chosen).collect();
        let mut others = Vec::new();
        for (_, profile) in check_profiles {
            // Another profile's own problems count too; its warnings don't.
            others.push(self.assemble(&merged, &variants, Some(profile), &stack));
        }

        let known = check::Known {
            lost: &self.lost,
            path: path.to_string_lossy().into_owned(),
            env: &|name| std::env::var_os(name).is_some(),
            exists: &|path| path.is_file(),
        };
        let mut owners = BTreeMap::new();
        for (kind, tables) in [("profile", &profiles), ("variant", &variants)] {
            for table in tables {
                explain::own(&table.tree, &format!("{kind} {}", table.name), &mut owners);
            }
        }
        let explain = Explain::new(&typed, &owners);
        let (suite, mut found) = match &typed.typed {
            Some(typed) => check::check(typed, &self.source, &known),
            None => (None, Vec::new()),
        };
        let alien = |problem: &Problem| !problem.warning;
        for other in &others {
            if let Some(other) = &other.typed {
                found.extend(check::check(other, &self.source, &known).1.into_iter().filter(alien));
            }
        }
        self.problems.extend(found);
        let all = Problems::new(self.source, self.problems);
        match suite {
            Some(suite) if !all.has_errors() => Ok(Loaded {
                suite: Suite { hash: with_profiles(&typed.hash, &suite), ..suite },
                source: all.source,
                warnings: all.list,
                explain,
            }),
            Some(_) | None => Err(all),
        }
    }

    /// The tree of a `--set`, its shape checked.
    fn set_tree<'t>(&mut self, text: &'t str, set: &Set) -> Option<Tree<'t>> {
        let mut tree = tree::parse(text, set.start).ok()?;
        if let Some(span) = &set.value {
            respan(&mut tree, span);
        }
        let first = tree.iter().next().map(|(key, _)| (key.get_ref().to_string(), key.span()))?;
        const AS_IN_PROFILE: [&str; 9] = [
            "test", "matrix", "request", "policy", "engine", "model", "vars", "hardware", "compare",
        ];
        const AS_IN_SUITE: [&str; 3] = ["suite", "secrets", "variant"];
        let above = if AS_IN_PROFILE.contains(&first.0.as_str()) {
            Path(vec![Step::Key("profile".to_owned()), Step::Key("--set".to_owned())])
        } else if AS_IN_SUITE.contains(&first.0.as_str()) {
            Path::default()
        } else {
            let known = AS_IN_PROFILE.iter().chain(&AS_IN_SUITE).copied();
            let message = format!("--set can't change `{}`", first.0);
            let problem = Problem::at("set", first.1, message);
            self.problems.push(match first.0.as_str() {
                "expect" | "quarantine" => problem
                    .help("--set never changes a bound; write another suite that extends this one"),
                "baseline" => problem.help(
                    "--set never changes what is held against; write another suite that extends this one",
                ),
                other => problem.help(name::suggest(other, known, "what it changes is")),
            });
            return None;
        };
        if let Some(DeValue::Table(tests)) = tree.get("test").map(Spanned::get_ref) {
            for (name, value) in tests {
                if !value.get_ref().is_table() {
                    let message = format!("`test.{}` names no test", name.get_ref());
                    self.problems.push(
                        Problem::at("set", name.span(), message)
                            .help(format!("write --set test.NAME.{}=…", name.get_ref())),
                    );
                    return None;
                }
            }
        }
        self.shape(&mut tree, &above);
        Some(tree)
    }

    /// Takes variants that the suite does not have out of a `--set`.
    fn known_variants(&mut self, set: &mut tree::Node<'_>, suite: &Tree<'_>) {
        let DeValue::Table(set) = set.get_mut() else { return };
        let known = suite.get("variant").and_then(|at| at.get_ref().as_table());
        let names: Vec<&str> =
            known.into_iter().flatten().map(|(name, _)| name.get_ref().as_ref()).collect();
        let (there, missing): (Vec<_>, Vec<_>) = std::mem::take(set)
            .into_iter()
            .partition(|(name, _)| names.contains(&name.get_ref().as_ref()));
        set.extend(there);
        for (name, _) in missing {
            let help = name::suggest(name.get_ref(), names.iter().copied(), "variants are");
            let message = format!("there is no variant `{}`", name.get_ref());
            self.problems.push(Problem::at("unknown-variant", name.span(), message).help(help));
        }
    }

    fn choose(&mut self, options: &LoadOptions, profiles: &[Named<'_>]) -> Option<usize> {
        let wanted = options.profile.as_ref()?;
        let found = profiles.iter().position(|profile| profile.name == *wanted);
        if found.is_none() {
            let names = profiles.iter().map(|profile| profile.name.as_str());
            self.problems.push(
                Problem::new("unknown-profile", format!("there is no profile `{wanted}`"))
                    .help(name::suggest(wanted, names, "profiles are")),
            );
        }
        found
    }

    /// Lays variants, a profile, `--set` and `--url` over the suite, and types the results.
    fn assemble<'t>(
        &mut self,
        merged: &Tree<'t>,
        variants: &[Named<'t>],
        profile: Option<&Named<'t>>,
        stack: &Stack<'_, 't>,
    ) -> Assembled<'t> {
        let common = self.merge.log.clone();
        let mut logs = Vec::new();
        let mut trees = Vec::new();
        for variant in std::iter::once(None).chain(variants.iter().map(Some)) {
            let mut tree = merged.clone();
            if let Some(variant) = variant {
                self.merge.overlay(&mut tree, variant.tree.clone(), &mut self.problems);
            }
            self.finish(&mut tree, profile, stack);
            trees.push((variant, tree));
            // What one variant replaced is no news of another.
            logs.push(std::mem::replace(&mut self.merge.log, common.clone()));
        }
        let mut hash = Sha256::new();
        let mut files = Vec::new();
        for (_, tree) in &trees {
            hash.update(tree::to_json(tree).to_string());
            hash.update([0]);
            match File::deserialize(toml::Deserializer::from(Spanned::new(0..0, tree.clone()))) {
                Ok(file) => files.push(file),
                Err(error) => {
                    // The shape check speaks first; what it lets through and serde doesn't is rare.
                    let problem = Problem::new("wrong-type", error.message().to_owned());
                    self.problems.push(Problem { span: error.span(), ..problem });
                }
            }
        }
        let select = profile.and_then(|profile| profile.tree.get("select")).map(select_lines);
        let whole = files.len() == trees.len();
        let mut files = files.into_iter();
        let typed = files.next().filter(|_| whole).map(|main| Typed {
            main,
            variants: variants
                .iter()
                .zip(files)
                .map(|(variant, file)| (variant.name.clone(), variant.span.clone(), file))
                .collect(),
            select: select.unwrap_or_default(),
        });
        let hash = hex(&hash.finalize());
        Assembled {
            typed,
            hash,
            trees: trees
                .into_iter()
                .zip(logs)
                .map(|((variant, tree), log)| Layered {
                    variant: variant.map(|variant| variant.name.clone()),
                    tree,
                    log,
                })
                .collect(),
        }
    }

    fn finish<'t>(
        &mut self,
        tree: &mut Tree<'t>,
        profile: Option<&Named<'t>>,
        stack: &Stack<'_, 't>,
    ) {
        if let Some(profile) = profile {
            let mut work = profile.tree.clone();
            work.remove("select");
            self.merge.overlay(tree, work, &mut self.problems);
        }
        for overlay in stack.overlays {
            self.merge.overlay(tree, overlay.clone(), &mut self.problems);
        }
        if let Some((url, span)) = &stack.url
            && let Some(engine) = tree.get_mut("engine")
            && let DeValue::Table(engine) = engine.get_mut()
        {
            for key in ["command", "profile", "clock"] {
                engine.remove(key);
            }
            let key = Spanned::new(span.clone(), "url".into());
            let value = DeValue::String((*url).to_owned().into());
            engine.remove("url");
            engine.insert(key, Spanned::new(span.clone(), value));
        }
    }
}

/// The hash of the trees and of the simulated engine's profiles, which decide what is measured.
fn with_profiles(trees: &str, suite: &Suite) -> String {
    let mut hash = Sha256::new();
    hash.update(trees);
    for setting in &suite.settings {
        if let EngineSource::Sim { profile: Some(path), .. } = &setting.engine.source {
            // A file that is gone by now is reported by whoever starts the engine.
            hash.update(std::fs::read(path).unwrap_or_default());
        }
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the command line lays over a suite.
struct Stack<'a, 't> {
    overlays: &'a [Tree<'t>],
    url: Option<(&'a str, std::ops::Range<usize>)>,
}

/// A suite with everything laid over it.
pub(super) struct Assembled<'t> {
    pub(super) typed: Option<Typed>,
    pub(super) hash: String,
    /// The trees by variant; the first is the suite without any.
    pub(super) trees: Vec<Layered<'t>>,
}

/// A tree with all that lies over it, and what was replaced on the way.
pub(super) struct Layered<'t> {
    pub(super) variant: Option<String>,
    pub(super) tree: Tree<'t>,
    pub(super) log: Vec<merge::Overridden>,
}

/// A `[variant.NAME]` or `[profile.NAME]`.
struct Named<'t> {
    name: String,
    span: std::ops::Range<usize>,
    tree: Tree<'t>,
}

/// Takes the named tables below a key out of a tree, in order of writing.
fn named_tables<'t>(tree: &mut Tree<'t>, key: &str) -> Vec<Named<'t>> {
    let Some(DeValue::Table(tables)) = tree.remove(key).map(Spanned::into_inner) else {
        return Vec::new();
    };
    let mut named: Vec<_> = tables
        .into_iter()
        .filter_map(|(name, value)| {
            let span = name.span();
            match value.into_inner() {
                DeValue::Table(tree) => {
                    Some(Named { name: name.into_inner().into_owned(), span, tree })
                }
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => None,
            }
        })
        .collect();
    named.sort_by_key(|named| named.span.start);
    named
}

fn select_lines(node: &tree::Node<'_>) -> Vec<(String, std::ops::Range<usize>)> {
    let items = node.get_ref().as_array().into_iter().flat_map(|array| array.iter());
    items
        .filter_map(|item| item.get_ref().as_str().map(|text| (text.to_owned(), item.span())))
        .collect()
}

/// Gives the one value of a `--set` that had to be quoted the span of the text as typed.
fn respan(tree: &mut Tree<'_>, span: &std::ops::Range<usize>) {
    *tree = std::mem::take(tree)
        .into_iter()
        .map(|(key, mut value)| {
            if let DeValue::Table(table) = value.get_mut() {
                respan(table, span);
                (key, value)
            } else {
                (key, Spanned::new(span.clone(), value.into_inner()))
            }
        })
        .collect();
}
