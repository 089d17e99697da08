//! `tokgate compare`: two runs beside each other.
//!
//! What is compared and judged is decided in `record::comparison`; here files are read and the exit code chosen.

use std::path::{Path, PathBuf};

use crate::record::comparison::{Choice, Comparison, Held, Incomparable, Source, Which, compare};
use crate::report::{comparison, json};

use super::exit::Exit;
use super::{baseline, directory, print, say};

/// Show two runs beside each other: the figures of each cell, their ratio with its interval, and what changed.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What is held against: the output directory of a run, its record.json, or a baseline; REVISION:FILE is a
    /// baseline as it stands in git
    #[arg(value_name = "A")]
    old: PathBuf,
    /// What is looked at
    #[arg(value_name = "B")]
    new: PathBuf,
    /// text, markdown, html or json
    #[arg(
        long,
        value_enum,
        default_value_t = Format::Text,
        value_name = "FORMAT",
        hide_possible_values = true
    )]
    format: Format,
    /// Only this variant of A, against whichever B has or --variant-b names
    #[arg(long, value_name = "NAME")]
    variant_a: Option<String>,
    /// Only this variant of B
    #[arg(long, value_name = "NAME")]
    variant_b: Option<String>,
    /// Judge B by the `min-ratio`, `max-ratio` and `min-mean-ratio` of the suite that A or B was run with: a, b or a,b
    ///
    /// A rule that is broken is exit 10, one that could not be judged 31, and doubt 11 where the suite's policy
    /// has it fail.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "WHOSE",
        hide_possible_values = true
    )]
    fail_on: Vec<Whose>,
}

/// How it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For a terminal.
    Text,
    /// For the summary of a job, or a comment.
    Markdown,
    /// A page.
    Html,
    /// For programs.
    Json,
}

/// Whose rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Whose {
    /// Those of A.
    A,
    /// Those of B.
    B,
}

/// Compares and prints. Without `--fail-on` it is no verdict, and ends with [`Exit::Pass`] whatever it shows.
/// What can't be read or asked is [`Exit::Suite`] or, of a baseline, [`Exit::Baseline`], and no cell in common
/// [`Exit::NothingSelected`], each with a word on stderr.
pub fn run(args: &Args) -> Exit {
    match carry_out(args) {
        Ok(exit) | Err(exit) => exit,
    }
}

fn carry_out(args: &Args) -> Result<Exit, Exit> {
    directory::survive_size_limits();
    let (a, b) = (read(&args.old)?, read(&args.new)?);
    let which = |whose: &Whose| match whose {
        Whose::A => Which::A,
        Whose::B => Which::B,
    };
    let choice = Choice {
        variant_a: args.variant_a.clone(),
        variant_b: args.variant_b.clone(),
        rules: args.fail_on.iter().map(which).collect(),
    };
    let [name_a, name_b] = [&args.old, &args.new].map(|path| path.display().to_string());
    let found = compare((&name_a, &a), (&name_b, &b), &choice).map_err(|why| {
        say(&format!("error: {why}"));
        say(&format!("  help: {}", help(&why)));
        Exit::Suite
    })?;
    let text = match args.format {
        Format::Text => comparison::text(&found),
        Format::Markdown => comparison::markdown(&found),
        Format::Html => comparison::html(&found),
        Format::Json => comparison::json(&found),
    };
    let printed = print(&text);
    if found.cells.is_empty() {
        say("error: no cell is in both");
        say(
            "  help: cells belong together by test, id and variant; --variant-a and --variant-b pair two variants",
        );
        return Ok(printed.or(Exit::NothingSelected));
    }
    Ok(printed.or(verdict(&found)))
}

/// What the rules come to.
fn verdict(found: &Comparison) -> Exit {
    let of = |held: &Held| match held {
        Held::Broken => Exit::Limit,
        Held::Unjudged => Exit::Invalid,
        Held::DoubtFails => Exit::Doubt,
        Held::Holds | Held::Warns | Held::Doubtful | Held::Excused => Exit::Pass,
    };
    found.rules.iter().fold(Exit::Pass, |exit, rule| exit.or(of(&rule.held)))
}

fn help(why: &Incomparable) -> &'static str {
    match why {
        Incomparable::Variant { .. } => "write one of them, or leave the flag out",
        Incomparable::Ruleless { .. } => "name the side that is a run",
        Incomparable::NoRatio { .. } => {
            "leave --fail-on out, or name the side whose suite has some"
        }
    }
}

/// The record of a directory or file, or a baseline.
fn read(path: &Path) -> Result<Source, Exit> {
    const HELP: &str = "give the output directory of a run, such as tokgate-out/<suite>, its record.json, or a baseline";
    let in_git = path.to_str().is_some_and(|text| text.contains(':'));
    if !in_git && std::fs::symlink_metadata(path).is_err() {
        say(&format!("error: there is no {}", path.display()));
        say(&format!("  help: {HELP}"));
        return Err(Exit::Suite);
    }
    let file = match path.extension() {
        _ if path.is_dir() => path.join("record.json"),
        Some(end) if end == "json" => path.to_owned(),
        Some(_) | None => return baseline::named(path).map(Source::Baseline),
    };
    let record = json::read(&file).map_err(|error| {
        say(&format!("error: {error}"));
        say(&format!("  help: {HELP}"));
        Exit::Suite
    })?;
    Ok(Source::Record(Box::new(record)))
}
