//! The files of a suite: the one that was asked for and those that it extends.
//!
//! They are read here and nowhere else. What stands in them is not looked at, but for `extends`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::problem::Problem;
use super::tree;

/// A file of the chain, with its text.
pub(super) struct Text {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Text {
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.path.parent().map(Path::to_path_buf)
    }
}

/// A chain of files that ends in one that can't be used.
pub(super) struct Broken {
    pub(super) texts: Vec<Text>,
    pub(super) problem: Problem,
    pub(super) blame: Option<Range<usize>>,
}

/// Reads a suite file and those that it extends; the lowest comes first.
pub(super) fn read_chain(path: &Path) -> Result<Vec<Text>, Box<Broken>> {
    let mut texts: Vec<Text> = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut next = Some((path.to_owned(), None));
    while let Some((path, blame)) = next.take() {
        let name = path.to_string_lossy().into_owned();
        let identity = path.canonicalize().unwrap_or_else(|_| path.clone());
        let broken = |texts: &mut Vec<Text>, problem| {
            Box::new(Broken { texts: std::mem::take(texts), problem, blame: blame.clone() })
        };
        if seen.contains(&identity) {
            let problem = Problem::new("extends", format!("`{name}` extends itself in the end"))
                .help("let one of the files stand on its own");
            return Err(broken(&mut texts, problem));
        }
        seen.push(identity);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let code = if blame.is_some() { "extends" } else { "unreadable-file" };
                let problem = Problem::new(code, format!("can't read `{name}`: {error}")).help(
                    if blame.is_some() {
                        "the path counts from the folder of the file that extends it"
                    } else {
                        "`tokgate init` writes a suite to begin with"
                    },
                );
                return Err(broken(&mut texts, problem));
            }
        };
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
                let problem =
                    Problem::new("syntax", format!("`{name}` is not UTF-8 in line {line}"))
                        .help("save the file in UTF-8");
                return Err(broken(&mut texts, problem));
            }
        };
        // An editor's byte order mark is no part of the text.
        let text = text.strip_prefix('\u{feff}').map_or(text.clone(), str::to_owned);
        next = extends(&text).map(|(file, span)| {
            let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
            (folder.join(file), Some(span))
        });
        texts.insert(0, Text { name, path, text });
    }
    Ok(texts)
}

fn extends(text: &str) -> Option<(String, Range<usize>)> {
    let tree = tree::parse(text, 0).ok()?;
    let node = tree.get("extends")?;
    Some((node.get_ref().as_str()?.to_owned(), node.span()))
}
