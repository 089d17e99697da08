//! `tokgate manual`, hidden: writes those parts of the book in `docs/` that follow from the code, or says that the written
//! ones are old.
//!
//! A part stands between `<!-- generated: NAME … -->` and `<!-- /generated -->`, and whatever is around it is written by
//! hand. The facts are those of clap, the catalogue of metrics, the table of exit codes and the pipelines of `init --ci`;
//! how they look on a page is decided here.

mod commands;
mod tables;

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, ValueEnum};

use super::exit::Exit;
use super::pipeline::Service;
use super::{Cli, print, say};

/// What begins a part, before its name.
const BEGIN: &str = "<!-- generated: ";
/// What ends the comment that begins a part.
const NAMED: &str = " -->\n";
/// What ends a part.
const END: &str = "<!-- /generated -->";

/// Arguments of `tokgate manual`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Folder with the pages
    #[arg(long, value_name = "DIR", default_value = "docs")]
    pub out: PathBuf,
    /// Write nothing; fail when a page differs
    #[arg(long)]
    pub check: bool,
}

/// Why a page can't be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfilled {
    /// A part without an end.
    #[error("the generated part `{0}` has no end: write `{END}` below it")]
    Open(String),
    /// A name that no part has.
    #[error(
        "no generated part is called `{0}`: write command-line, metrics, exit-codes or pipeline SERVICE SUITE"
    )]
    Unknown(String),
}

/// Writes or compares every page that has generated parts.
pub fn run(args: &Args) -> Exit {
    let pages = match pages(&args.out) {
        Ok(pages) => pages,
        Err(error) => {
            say(&format!("error: {} can't be read: {error}", args.out.display()));
            return Exit::Suite;
        }
    };
    let mut exit = Exit::Pass;
    let mut told = String::new();
    for (path, text) in pages {
        match filled(&text) {
            Err(why) => {
                say(&format!("error: {}: {why}", path.display()));
                exit = Exit::Suite;
            }
            Ok(new) if new == text => {}
            Ok(_) if args.check => {
                say(&format!("error: {} is not what this version writes", path.display()));
                say(&format!(
                    "  help: `tokgate manual --out {}` writes it anew",
                    args.out.display()
                ));
                exit = Exit::Suite;
            }
            Ok(new) => match std::fs::write(&path, new) {
                Ok(()) => told.push_str(&format!("{}\n", path.display())),
                Err(error) => {
                    say(&format!("error: {} can't be written: {error}", path.display()));
                    return Exit::Unwritten;
                }
            },
        }
    }
    print(&told).or(exit)
}

/// The pages of a folder with their texts, by name.
fn pages(folder: &Path) -> std::io::Result<Vec<(PathBuf, String)>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.into_iter().map(|path| std::fs::read_to_string(&path).map(|text| (path, text))).collect()
}

/// A page with its generated parts made anew.
///
/// # Errors
/// A part that has no end, or a name that none has.
pub fn filled(page: &str) -> Result<String, Unfilled> {
    let mut new = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (name, behind) =
            behind.split_once(NAMED).ok_or_else(|| Unfilled::Open(first_line(behind)))?;
        let (_, after) = behind.split_once(END).ok_or_else(|| Unfilled::Open(name.to_owned()))?;
        new.push_str(&format!("{before}{BEGIN}{name}{NAMED}\n{}\n{END}", part(name)?));
        rest = after;
    }
    new.push_str(rest);
    Ok(new)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// A part by its name: lines that end in one line end.
fn part(name: &str) -> Result<String, Unfilled> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let unknown = || Unfilled::Unknown(name.to_owned());
    match words.as_slice() {
        ["command-line"] => Ok(commands::page(Cli::command())),
        ["metrics"] => Ok(tables::metrics()),
        ["exit-codes"] => Ok(tables::exit_codes()),
        ["pipeline", service, suite] => {
            let service = Service::from_str(service, false).map_err(|_| unknown())?;
            let pipeline = service.pipeline(Path::new(suite), |_| false).map_err(|_| unknown())?;
            let language = match service {
                Service::Github | Service::Gitlab => "yaml",
                Service::Jenkins => "groovy",
            };
            Ok(format!("`{}`:\n\n```{language}\n{}```\n", pipeline.path.display(), pipeline.text))
        }
        _ => Err(unknown()),
    }
}

/// Whether the command line takes these arguments, those behind `tokgate`; nothing is carried out.
///
/// # Errors
/// What it would say.
pub fn takes(arguments: &[&str]) -> Result<(), String> {
    let all = std::iter::once("tokgate").chain(arguments.iter().copied());
    match Cli::try_parse_from(all) {
        Err(error) if error.use_stderr() => Err(error.render().to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_around_a_part_stays_and_the_part_is_made_anew() {
        let page = "# A\n\n<!-- generated: metrics -->\nold\n<!-- /generated -->\n\nBelow.\n";
        let new = filled(page).unwrap();
        assert!(new.starts_with("# A\n\n<!-- generated: metrics -->\n\n| metric "), "{new}");
        assert!(new.ends_with("|\n\n<!-- /generated -->\n\nBelow.\n"), "{new}");
        assert!(!new.contains("old"));
        assert_eq!(filled(&new).unwrap(), new);
        assert_eq!(filled("no parts\n").unwrap(), "no parts\n");
    }

    #[test]
    fn a_part_that_can_not_be_made_is_named() {
        let open = filled("<!-- generated: metrics -->\n| a |\n").unwrap_err();
        assert!(open.to_string().contains("`metrics` has no end"), "{open}");
        for name in ["weather", "pipeline travis a.toml", "pipeline github", "pipeline github /a"] {
            let page = format!("<!-- generated: {name} -->\n<!-- /generated -->");
            assert_eq!(filled(&page), Err(Unfilled::Unknown(name.to_owned())));
        }
    }

    #[test]
    fn a_pipeline_is_the_file_that_init_writes() {
        let page = "<!-- generated: pipeline gitlab suites/a.toml -->\n<!-- /generated -->";
        let new = filled(page).unwrap();
        assert!(new.contains("`.gitlab-ci.yml`:\n\n```yaml\n# Written by `tokgate init"), "{new}");
        assert!(new.contains("tokgate run suites/a.toml --out"), "{new}");
    }

    #[test]
    fn a_command_line_is_taken_or_told_why_not() {
        assert_eq!(takes(&["run", "a.toml", "--seed", "1"]), Ok(()));
        assert_eq!(takes(&["--help"]), Ok(()));
        assert!(takes(&["run", "a.toml", "--sneed", "1"]).unwrap_err().contains("--sneed"));
        assert!(takes(&["run"]).unwrap_err().contains("<SUITE>"));
    }
}
