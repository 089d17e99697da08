//! Holds the house to its plan: who may import whom, how long a file may be, what a room may be called.
//!
//! The ranks are read from the table at the head of `src/lib.rs`, so that there is one list of them. Paths are read from
//! the tokens of each source file (comments and strings left out): `crate::…`, `super::…` and `self::…` wherever they
//! stand, in `use` trees and in expressions, in tests too.

#![allow(clippy::unwrap_used, reason = "what can't be read fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 600;
const NAMES_WITHOUT_MEANING: [&str; 10] =
    ["common", "helper", "helpers", "imp", "manager", "misc", "shared", "tools", "util", "utils"];

#[test]
fn every_import_goes_down_in_rank() {
    let ranks = Ranks::read(&fs::read_to_string(source_root().join("lib.rs")).unwrap());
    let mut problems = Vec::new();
    let mut edges = 0;
    for (path, text) in sources() {
        let module = module_of(&path);
        for import in imports(&text, &module) {
            edges += 1;
            if let Err(why) = ranks.allow(&module, &import) {
                problems.push(format!("src/{}:{}: {why}", path.display(), import.line));
            }
        }
    }
    assert!(edges > 20, "only {edges} paths found: the reader of this test no longer reads");
    assert!(
        problems.is_empty(),
        "imports against the ranks in src/lib.rs:\n{}",
        problems.join("\n")
    );
}

#[test]
fn the_table_of_ranks_has_every_room_and_no_other() {
    let text = fs::read_to_string(source_root().join("lib.rs")).unwrap();
    let mut in_table: Vec<_> = Ranks::read(&text).rooms.into_keys().collect();
    let mut declared: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod ")))
        .map(|rest| rest.trim_end_matches(';').to_owned())
        .collect();
    in_table.sort();
    declared.sort();
    assert_eq!(in_table, declared);
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        problems.extend(
            shortcomings(&path, &text).map(|what| format!("src/{}: {what}", path.display())),
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is wrong with a file as a room of the house.
fn shortcomings(path: &Path, text: &str) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > LONGEST_FILE {
        found.push(format!("{lines} lines; split it by what it decides, at most {LONGEST_FILE}"));
    }
    let opening = text.lines().next().unwrap_or_default();
    if opening.strip_prefix("//!").is_none_or(|words| words.trim().is_empty()) {
        found.push("it does not open with `//!` and what it is".to_owned());
    }
    for name in path.with_extension("").iter().filter_map(|part| part.to_str()) {
        if NAMES_WITHOUT_MEANING.contains(&name) {
            found.push(format!("`{name}` names no thing; name it by what it holds"));
        }
    }
    found.into_iter()
}

// ---------------------------------------------------------------------------------------------- the table of ranks

/// The rooms with their ranks, as the table in `src/lib.rs` has them.
struct Ranks {
    rooms: BTreeMap<String, Room>,
}

struct Room {
    rank: u32,
    /// The highest rank that it may import: one below its own, or less where the table says `(only rank N)`.
    reach: Option<u32>,
}

impl Ranks {
    /// Reads rows like `` //! | 1 | `load`, `engine`, `sim` (only rank 0) | ``.
    fn read(text: &str) -> Ranks {
        let mut rooms = BTreeMap::new();
        for line in text.lines().filter_map(|line| line.strip_prefix("//! |")) {
            let Some((rank, row)) = line.split_once('|') else { continue };
            let Ok(rank) = rank.trim().parse::<u32>() else { continue };
            // Names stand at the odd places between backticks, each followed by what is said of it.
            let parts: Vec<_> = row.split('`').collect();
            for pair in parts[1..].chunks(2) {
                let said = pair.get(1).copied().unwrap_or_default();
                let reach = match said.split_once("(only rank ") {
                    Some((_, rest)) => Some(rest.split(')').next().unwrap().parse().unwrap()),
                    None => rank.checked_sub(1),
                };
                let earlier = rooms.insert(pair[0].to_owned(), Room { rank, reach });
                assert!(earlier.is_none(), "`{}` stands twice in the table of ranks", pair[0]);
            }
        }
        assert!(!rooms.is_empty(), "src/lib.rs has no table of ranks");
        Ranks { rooms }
    }

    /// Whether code in `module` may name what `import` names.
    fn allow(&self, module: &[String], import: &Import) -> Result<(), String> {
        let Some(to) = import.path.first() else {
            return Err("it names the root of the crate; name the room that is meant".to_owned());
        };
        // The root itself: `lib.rs` declares the rooms, `main.rs` calls the command line.
        let Some(from) = module.first() else {
            return if to == "cli" { Ok(()) } else { Err(format!("the root imports `{to}`")) };
        };
        if from == to {
            return Ok(());
        }
        let (Some(ours), Some(theirs)) = (self.rooms.get(from), self.rooms.get(to)) else {
            let unknown = if self.rooms.contains_key(from) { to } else { from };
            return Err(format!("`{unknown}` is no room of the table in src/lib.rs"));
        };
        if ours.reach.is_some_and(|reach| theirs.rank <= reach) {
            return Ok(());
        }
        Err(format!(
            "`{from}` (rank {}) imports `{to}` (rank {}): {}",
            ours.rank,
            theirs.rank,
            import.path.join("::")
        ))
    }
}

// -------------------------------------------------------------------------------------------------- reading sources

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every source file, by its path below `src`.
fn sources() -> Vec<(PathBuf, String)> {
    let root = source_root();
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&root).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// The module that a file is: `load/mod.rs` and `load.rs` are `[load]`, `lib.rs` and `main.rs` are the root.
fn module_of(path: &Path) -> Vec<String> {
    let mut parts: Vec<_> =
        path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    let at_root = parts.len() == 1 && (parts[0] == "lib" || parts[0] == "main");
    if at_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// A path that a source file names, from the root of the crate.
#[derive(Debug, PartialEq)]
struct Import {
    path: Vec<String>,
    line: usize,
}

/// Every path below this crate that the text names. `module` is where the text stands.
fn imports(text: &str, module: &[String]) -> Vec<Import> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let mut here = module.to_vec();
    // For each open brace, whether it opened a module.
    let mut braces = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" => {
                let opens_module = at >= 2 && tokens[at - 2].text == "mod";
                if opens_module {
                    here.push(tokens[at - 1].text.clone());
                }
                braces.push(opens_module);
            }
            "}" if braces.pop() == Some(true) => {
                here.pop();
            }
            first @ ("crate" | "self" | "super" | "tokgate") => {
                let begins = at == 0 || tokens[at - 1].text != "::";
                let goes_on = tokens.get(at + 1).is_some_and(|next| next.text == "::");
                let another_name = tokens.get(at + 1).is_some_and(|next| next.text == "as");
                if begins && goes_on {
                    let root = match first {
                        "self" => here.clone(),
                        "super" => parent(&here),
                        _ => Vec::new(),
                    };
                    let mut paths = Vec::new();
                    walk(&tokens, at + 1, &root, &mut paths);
                    found.extend(paths.into_iter().map(|path| Import { path, line: token.line }));
                } else if begins && another_name && first != "self" {
                    // `use crate as other` would hide every later path from this reader.
                    found.push(Import { path: Vec::new(), line: token.line });
                }
            }
            _ => {}
        }
    }
    found
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// Follows a path from the `::` at `at`, through the branches of a `use` tree. Returns where it ends.
fn walk(tokens: &[Token], mut at: usize, prefix: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut path = prefix.to_vec();
    while text(at) == "::" {
        match text(at + 1) {
            "{" => {
                at += 2;
                while !matches!(text(at), "}" | "") {
                    if text(at) == "," {
                        at += 1;
                    } else {
                        at = branch(tokens, at, &path, out);
                    }
                }
                return at + 1;
            }
            "super" => path = parent(&path),
            name if is_name(name) => path.push(name.to_owned()),
            // `::*`, or the `::<T>` of an expression: the path so far is what is named.
            _ => break,
        }
        at += 2;
    }
    out.push(path);
    at
}

/// One branch of a `use` tree: it begins with a name, not with `::`. Returns where the branch ends.
fn branch(tokens: &[Token], at: usize, prefix: &[String], out: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    match tokens[at].text.as_str() {
        "super" => path = parent(&path),
        name if is_name(name) && name != "self" => path.push(name.to_owned()),
        _ => {}
    }
    let mut end = walk(tokens, at + 1, &path, out);
    while tokens.get(end).is_some_and(|token| !matches!(token.text.as_str(), "," | "}")) {
        end += 1;
    }
    end
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

struct Token {
    text: String,
    line: usize,
}

/// Names, `::` and single signs of Rust source. Comments, strings, characters and lifetimes are left out.
fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let rest = &chars[at..];
        let begins = |with: &str| with.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
        let length = if begins("//") {
            rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
        } else if begins("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if rest[0] == '"' {
            string(rest)
        } else if rest[0] == '\'' {
            character_or_lifetime(rest)
        } else if rest[0].is_alphanumeric() || rest[0] == '_' {
            let end = rest.iter().position(|c| !(c.is_alphanumeric() || *c == '_'));
            let length = end.unwrap_or(rest.len());
            out.push(Token { text: rest[..length].iter().collect(), line });
            length
        } else if begins("::") {
            out.push(Token { text: "::".to_owned(), line });
            2
        } else {
            if !rest[0].is_whitespace() {
                out.push(Token { text: rest[0].to_string(), line });
            }
            1
        };
        line += rest[..length].iter().filter(|c| **c == '\n').count();
        at += length;
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of `r"…"`, `br#"…"#` and the like; `None` where there is none.
fn raw_string(rest: &[char]) -> Option<usize> {
    let prefix = match rest {
        ['r', ..] => 1,
        ['b' | 'c', 'r', ..] => 2,
        _ => return None,
    };
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.resize(1 + hashes, '#');
    let body = &rest[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close)?;
    Some(open + 1 + end + close.len())
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `'a'`, `'\n'` and `'\u{1F600}'` are characters; `'a` without an end is a lifetime.
fn character_or_lifetime(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', ..] => {
            let end = rest[3.min(rest.len())..].iter().position(|c| *c == '\'');
            end.map_or(rest.len(), |end| 3 + end + 1)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 1,
    }
}

// ------------------------------------------------------------------------------------- the reader reads, and can fail

#[cfg(test)]
mod reader {
    use super::*;

    const TABLE: &str = "\
//! | rank | rooms |
//! |---|---|
//! | 2 | `measure` |
//! | 1 | `load`, `engine` (never each other), `sim` (only rank 0) |
//! | 0 | `clock` |
";

    /// The rooms that a text in `module` imports, as `room` or as what is wrong with it.
    fn verdicts(module: &str, text: &str) -> Vec<String> {
        let ranks = Ranks::read(TABLE);
        let module: Vec<_> = module.split("::").map(str::to_owned).collect();
        imports(text, &module)
            .iter()
            .map(|import| match ranks.allow(&module, import) {
                Ok(()) => import.path[0].clone(),
                Err(why) => why,
            })
            .collect()
    }

    #[test]
    fn imports_of_a_lower_rank_are_fine() {
        assert_eq!(
            verdicts("measure::window", "use crate::{load::{Trace, trace as t}, clock::*};"),
            ["load", "load", "clock"]
        );
        assert_eq!(
            verdicts("load::client", "use super::Trace; use crate::load::sse;"),
            ["load", "load"]
        );
    }

    #[test]
    fn an_import_upwards_is_found_in_every_spelling() {
        let upwards = "`load` (rank 1) imports `measure` (rank 2): measure::Metric";
        for text in [
            "use crate::measure::Metric;",
            "use crate::{\n    clock::Clock as _,\n    measure::Metric,\n};",
            "use {std::fmt, crate::measure::Metric};",
            "use super::super::measure::Metric;",
            "use super::{super::measure::Metric, sse};",
            "fn f() -> crate::measure::Metric { f() }",
            "mod tests { use super::super::super::measure::Metric; }",
            "const A: &str = \"}\"; const B: char = '{'; type M = crate::measure::Metric;",
            "fn f<'a>(x: &'a str) { crate::measure::Metric::<u8>::new(x) }",
        ] {
            let found = verdicts("load::client", text);
            assert!(found.iter().any(|line| line.starts_with(upwards)), "{text}\n{found:?}");
        }
    }

    #[test]
    fn rooms_of_one_rank_and_limited_reach_are_held_apart() {
        assert_eq!(
            verdicts("load", "use crate::engine::Kind;"),
            ["`load` (rank 1) imports `engine` (rank 1): engine::Kind"]
        );
        assert_eq!(verdicts("sim::api", "use crate::clock::Clock;"), ["clock"]);
        let high = "//! | 2 | `sim` (only rank 0) |\n//! | 1 | `load` |\n//! | 0 | `clock` |\n";
        let ranks = Ranks::read(high);
        let import = Import { path: vec!["load".to_owned()], line: 1 };
        assert!(ranks.allow(&["sim".to_owned()], &import).is_err());
    }

    #[test]
    fn what_hides_an_import_is_refused() {
        for text in ["use crate::*;", "use crate as other;", "use super::super::*;"] {
            let found = verdicts("load::client", text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].contains("root of the crate"), "{text}: {found:?}");
        }
        assert!(verdicts("load", "use crate::attic::Thing;")[0].contains("no room"));
    }

    #[test]
    fn comments_strings_and_visibilities_are_no_imports() {
        let text = r####"
            /* crate::measure /* nested */ crate::measure */
            // crate::measure
            /// See [`crate::measure::Metric`].
            pub(crate) struct A(pub(in crate::load) u8);
            const S: &str = "crate::measure \" crate::measure";
            const R: &str = r##"crate::measure "# crate::measure"##;
            impl A { fn f(&self) { self.g(); Self::h('\'', '"', '\u{1F600}') } }
        "####;
        assert_eq!(verdicts("load", text), ["load"]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let text = "/* a\n b */\nconst A: &str = \"x\ny\";\nuse crate::clock::Clock;\n";
        assert_eq!(imports(text, &["load".to_owned()])[0].line, 5);
    }

    #[test]
    fn a_file_that_is_no_room_is_found() {
        let found = |path: &str, text: &str| shortcomings(Path::new(path), text).count();
        assert_eq!(found("load/sse.rs", "//! Reads streams.\n"), 0);
        assert_eq!(found("load/util.rs", "//! Reads streams.\n"), 1);
        assert_eq!(found("helpers/sse.rs", "use std::fmt;\n"), 2);
        assert_eq!(found("load/sse.rs", &"//!\n".repeat(601)), 2);
    }
}
