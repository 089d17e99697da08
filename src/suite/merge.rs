//! Merging: a suite over the file that it extends, then variant, profile and `--set` over both.
//!
//! Tables merge by key, `[[test]]` and named `[[expect]]` by name, unnamed `[[expect]]` are added,
//! other arrays replace, another `engine.kind` replaces `[engine]` wholly. What a value replaced is
//! written down for `--explain`.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeValue};

use super::problem::Problem;
use super::tree::{Node, Tree};

/// A value that another one has replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overridden {
    /// Dotted key; tests and expectations by name.
    pub key: String,
    /// The value in force.
    pub winner: Range<usize>,
    /// The value that it replaced.
    pub loser: Range<usize>,
}

/// Merges trees and remembers what was replaced.
#[derive(Debug, Default)]
pub struct Merge {
    /// What was replaced, oldest first.
    pub log: Vec<Overridden>,
}

impl Merge {
    /// Lays a suite's tree over that of the file it extends.
    pub fn suite<'t>(&mut self, base: &mut Tree<'t>, over: Tree<'t>) {
        for (key, value) in over {
            let name = key.get_ref().to_string();
            match (name.as_str(), base.get_mut(name.as_str()), value) {
                ("test" | "expect", Some(below), value) if both_arrays(below, &value) => {
                    self.by_name(&name, below, value);
                }
                (_, Some(below), value) => self.node(&name, below, value),
                (_, None, value) => {
                    base.insert(key, value);
                }
            }
        }
    }

    /// Lays a profile's or a `--set`'s tree over a suite's: tests go by name.
    pub fn overlay<'t>(
        &mut self,
        base: &mut Tree<'t>,
        over: Tree<'t>,
        problems: &mut Vec<Problem>,
    ) {
        for (key, value) in over {
            let name = key.get_ref().to_string();
            if name == "test" {
                if let DeValue::Table(tests) = value.into_inner() {
                    self.tests(base, tests, problems);
                }
            } else if let Some(below) = base.get_mut(name.as_str()) {
                self.node(&name, below, value);
            } else {
                base.insert(key, value);
            }
        }
    }

    fn tests<'t>(&mut self, base: &mut Tree<'t>, tests: Tree<'t>, problems: &mut Vec<Problem>) {
        for (key, mut value) in tests {
            let name = key.get_ref().to_string();
            if let DeValue::Table(table) = value.get_mut() {
                for limit in ["slo", "metrics"] {
                    if let Some((at, _)) = table.remove_entry(limit) {
                        let message = format!("`{limit}` can't be changed from outside of a test");
                        problems.push(Problem::at("wrong-key", at.span(), message).help(
                            "a profile and --set change work and policy, never what is expected",
                        ));
                    }
                }
                for fixed in ["name", "kind"] {
                    if let Some((at, _)) = table.remove_entry(fixed) {
                        problems.push(
                            Problem::at(
                                "wrong-key",
                                at.span(),
                                format!(
                                    "the {fixed} of a test can't be changed from outside of it"
                                ),
                            )
                            .help("leave it out, or write another [[test]]"),
                        );
                    }
                }
            }
            let known = names(base, "test");
            let found = match base.get_mut("test").map(Spanned::get_mut) {
                Some(DeValue::Array(array)) => {
                    array.iter_mut().find(|test| effective_name(test).as_deref() == Some(&name))
                }
                Some(_) | None => None,
            };
            match found {
                Some(test) => self.node(&format!("test.{name}"), test, value),
                None => problems.push(
                    Problem::at("unknown-test", key.span(), format!("there is no test `{name}`"))
                        .help(super::name::suggest(
                            &name,
                            known.iter().map(String::as_str),
                            "tests are",
                        )),
                ),
            }
        }
    }

    /// Merges arrays of tables whose items have names; those without are added.
    fn by_name<'t>(&mut self, key: &str, below: &mut Node<'t>, over: Node<'t>) {
        let (DeValue::Array(below), DeValue::Array(over)) = (below.get_mut(), over.into_inner())
        else {
            return;
        };
        for item in over {
            let name = match key {
                "test" => effective_name(&item),
                _ => own_name(&item),
            };
            let same = name.as_ref().and_then(|name| {
                below.iter_mut().find(|old| {
                    let old = if key == "test" { effective_name(old) } else { own_name(old) };
                    old.as_ref() == Some(name)
                })
            });
            match (same, name) {
                (Some(old), Some(name)) => self.node(&format!("{key}.{name}"), old, item),
                (_, _) => below.push(item),
            }
        }
    }

    fn node<'t>(&mut self, key: &str, below: &mut Node<'t>, over: Node<'t>) {
        if key == "engine" && other_kind(below, &over) {
            self.leaves(key, below, &over);
            *below = over;
            return;
        }
        match (below.get_mut(), over.get_ref()) {
            (DeValue::Table(_), DeValue::Table(_)) if is_length(key) => {
                self.leaves(key, below, &over);
                *below = over;
            }
            (DeValue::Table(table), DeValue::Table(_)) => {
                let DeValue::Table(over) = over.into_inner() else { return };
                for (name, value) in over {
                    match table.get_mut(name.get_ref().as_ref()) {
                        Some(old) => self.node(&format!("{key}.{}", name.get_ref()), old, value),
                        None => {
                            table.insert(name, value);
                        }
                    }
                }
            }
            (_, _) => {
                self.log.push(Overridden {
                    key: key.to_owned(),
                    winner: over.span(),
                    loser: below.span(),
                });
                *below = over;
            }
        }
    }

    /// Writes down which single values of a table stand in one that replaces it wholly.
    fn leaves(&mut self, key: &str, below: &Node<'_>, over: &Node<'_>) {
        match (below.get_ref(), over.get_ref()) {
            (DeValue::Table(below), DeValue::Table(over)) => {
                for (name, value) in over {
                    if let Some(old) = below.get(name.get_ref().as_ref()) {
                        self.leaves(&format!("{key}.{}", name.get_ref()), old, value);
                    }
                }
            }
            (_, _) => self.log.push(Overridden {
                key: key.to_owned(),
                winner: over.span(),
                loser: below.span(),
            }),
        }
    }
}

fn both_arrays(below: &Node<'_>, over: &Node<'_>) -> bool {
    below.get_ref().is_array() && over.get_ref().is_array()
}

fn other_kind(below: &Node<'_>, over: &Node<'_>) -> bool {
    let kind = |node: &Node<'_>| {
        node.get_ref().get("kind").and_then(|kind| kind.get_ref().as_str().map(str::to_owned))
    };
    matches!((kind(below), kind(over)), (Some(old), Some(new)) if old != new)
}

/// Whether a key is a length of a test: its tables say one thing in one of several ways, so that one
/// over another replaces it.
fn is_length(key: &str) -> bool {
    let parts: Vec<&str> = key.rsplit('.').take(3).collect();
    matches!(parts.as_slice(), ["input" | "output", _, "test"])
}

fn own_name(item: &Node<'_>) -> Option<String> {
    item.get_ref().get("name").and_then(|name| name.get_ref().as_str().map(str::to_owned))
}

/// A test's name: its own, else its kind.
pub fn effective_name(item: &Node<'_>) -> Option<String> {
    let kind = || item.get_ref().get("kind").and_then(|kind| kind.get_ref().as_str());
    own_name(item).or_else(|| kind().map(str::to_owned))
}

/// The names of an array of tables, `test` or `expect`.
pub fn names(tree: &Tree<'_>, key: &str) -> Vec<String> {
    items(tree, key)
        .filter_map(|item| if key == "test" { effective_name(item) } else { own_name(item) })
        .collect()
}

fn items<'a, 't>(tree: &'a Tree<'t>, key: &str) -> impl Iterator<Item = &'a Node<'t>> {
    let array: Option<&DeArray<'t>> = tree.get(key).and_then(|node| node.get_ref().as_array());
    array.into_iter().flat_map(|array| array.iter())
}

/// Names that one file gives twice. Said before merging, which would join the two.
pub fn duplicates(tree: &Tree<'_>, problems: &mut Vec<Problem>) {
    for key in ["test", "expect"] {
        let mut seen: Vec<(String, Range<usize>)> = Vec::new();
        for item in items(tree, key) {
            let name = if key == "test" { effective_name(item) } else { own_name(item) };
            let Some(name) = name else { continue };
            let at = item.get_ref().get("name").or_else(|| item.get_ref().get("kind"));
            let span = at.map_or_else(|| item.span(), Spanned::span);
            match seen.iter().find(|(old, _)| *old == name) {
                Some((_, first)) => problems.push(
                    Problem::at(
                        "duplicate-name",
                        span,
                        format!("two [[{key}]] have the name `{name}`"),
                    )
                    .label("second")
                    .also(first.clone(), "first")
                    .help(if key == "test" && own_name(item).is_none() {
                        "a test without a name has its kind as name; give one of them a `name`"
                    } else {
                        "give one of them another name"
                    }),
                ),
                None => seen.push((name, span)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::tree::{parse, to_json};

    fn merged(base: &str, over: &str) -> String {
        let mut tree = parse(base, 0).unwrap();
        Merge::default().suite(&mut tree, parse(over, 1000).unwrap());
        to_json(&tree).to_string()
    }

    #[test]
    fn tables_merge_by_key_and_arrays_replace() {
        assert_eq!(
            merged("[vars]\na = 1\nb = [1, 2]", "[vars]\nb = [3]\nc = 4"),
            r#"{"vars":{"a":1,"b":[3],"c":4}}"#
        );
    }

    #[test]
    fn tests_and_named_expectations_merge_by_name() {
        assert_eq!(
            merged(
                "[[test]]\nkind = \"decode\"\nduration = \"30s\"\n[[expect]]\nmin = 1\n[[expect]]\nname = \"a\"\nmin = 2",
                "[[test]]\nname = \"decode\"\nduration = \"5s\"\n[[expect]]\nmin = 3\n[[expect]]\nname = \"a\"\nslack = \"5%\"",
            ),
            r#"{"expect":[{"min":1},{"min":2,"name":"a","slack":"5%"},{"min":3}],"test":[{"duration":"5s","kind":"decode","name":"decode"}]}"#
        );
    }

    #[test]
    fn another_engine_kind_replaces_the_engine_wholly() {
        let base = "[engine]\nkind = \"vllm\"\ncommand = \"vllm serve\"\nversion = \"0.29\"";
        assert_eq!(merged(base, "engine.kind = \"sim\""), r#"{"engine":{"kind":"sim"}}"#);
        assert_eq!(
            merged(base, "engine.version = \"0.30\""),
            r#"{"engine":{"command":"vllm serve","kind":"vllm","version":"0.30"}}"#
        );
    }

    #[test]
    fn an_overlay_reaches_a_test_by_name_and_says_what_it_replaced() {
        let mut tree = parse("[[test]]\nkind = \"decode\"\nduration = \"30s\"", 0).unwrap();
        let mut merge = Merge::default();
        let mut problems = Vec::new();
        merge.overlay(
            &mut tree,
            parse("test.decode.duration = \"5s\"", 100).unwrap(),
            &mut problems,
        );
        merge.overlay(
            &mut tree,
            parse("test.decod.duration = \"5s\"", 200).unwrap(),
            &mut problems,
        );
        assert_eq!(to_json(&tree).to_string(), r#"{"test":[{"duration":"5s","kind":"decode"}]}"#);
        assert_eq!(merge.log[0].key, "test.decode.duration");
        assert_eq!(problems[0].help.as_deref(), Some("did you mean `decode`?"));
    }
}
