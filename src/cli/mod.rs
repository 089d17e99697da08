//! The command line: one file per subcommand, and the table of exit codes.
//!
//! It parses, wires rooms together through events, and turns outcomes into exit codes. It decides
//! nothing about figures or verdicts.

// These panic where nobody reads, and the exit code would say nothing any more: `print` and `say`.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod annotate;
mod baseline;
mod calibrate;
mod check;
mod compare;
mod completions;
mod directory;
mod exit;
mod fence;
mod flags;
mod git;
mod header;
mod hindrance;
mod init;
mod junit;
mod limit;
mod list;
mod lock;
pub mod manual;
mod merge;
mod offer;
mod onlooker;
mod pipeline;
mod plan;
mod preflight;
mod probe;
mod provenance;
mod reference;
mod remedy;
mod report;
mod resume;
mod run;
mod schema;
mod secrecy;
mod selftest;
mod shape;
mod shard;
mod share;
mod step_summary;
mod trial;
mod voice;

use exit::Exit;
use fence::Fence;
use std::io::IsTerminal;
use std::process::ExitCode;
use voice::say_as_is;

use clap::{Parser, Subcommand, ValueEnum};

use crate::report::narrate::Guess;
use crate::report::progress::{Progress, Style};
use crate::report::{outlet, screen};

/// LLM inference performance as a test suite.
#[derive(Debug, Parser)]
#[command(name = "tokgate", version, about, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every subcommand.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Global {
    /// When to colour: auto, always or never; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = When::Auto,
        value_name = "WHEN",
        hide_possible_values = true,
        display_order = 901
    )]
    color: When,
    /// Say less: of a run what went wrong and the verdict, elsewhere only what is wrong
    #[arg(short, long, global = true, display_order = 902)]
    quiet: bool,
    /// Say more of a run: each step of a launch, each phase of a cell
    #[arg(short, long, global = true, conflicts_with = "quiet", display_order = 903)]
    verbose: bool,
    /// No live display on a terminal, a line for each cell instead
    #[arg(long, global = true, display_order = 904)]
    no_progress: bool,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl Global {
    /// Whether text on stderr is coloured.
    pub fn color_stderr(&self) -> bool {
        self.color_on(std::io::stderr().is_terminal())
    }

    /// Whether text on stdout is coloured.
    pub fn color_stdout(&self) -> bool {
        self.color_on(std::io::stdout().is_terminal())
    }

    /// How progress is shown.
    pub fn progress_style(&self) -> Style {
        Style::choose(watched(), self.no_progress, self.quiet)
    }

    /// Begins to show the progress of a run whose parts are taken to last so long.
    pub fn progress(&self, guess: Guess) -> Progress {
        Progress::start(self.progress_style(), self.verbose, self.color_stderr(), guess)
    }

    /// Writes a line to stderr, on a terminal that somebody watches broken between its words.
    pub fn say_folded(&self, line: &str) {
        match watched() {
            true => say(&screen::fold(line, screen::size().0.into(), 0)),
            false => say(line),
        }
    }

    /// A blank line between what stays of the live display and the page below it.
    pub fn gap(&self) {
        if self.progress_style() == Style::Live && std::io::stdout().is_terminal() {
            say("");
        }
    }

    fn color_on(&self, terminal: bool) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            // https://no-color.org: any value but the empty one switches colour off.
            When::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        }
    }
}

/// Whether stderr is a terminal that can redraw and that somebody watches: some CI services give a job a terminal
/// and keep what it wrote.
fn watched() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dumb = set("TERM").is_some_and(|term| term == "dumb");
    let ci = set("CI").is_some_and(|ci| ci != "false" && ci != "0");
    std::io::stderr().is_terminal() && !dumb && !ci
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run suites: launch the engine, measure and judge every cell, write the reports
    Run(run::Args),
    /// Check suites and say every problem, launching nothing
    Check(check::Args),
    /// List launches and cells with the limits that bind them
    List(list::Args),
    /// Measure an engine without a suite in two minutes, and write one
    Try(trial::Args),
    /// Write a commented suite that runs as written, and a pipeline
    Init(init::Args),
    /// Write the JSON Schemas of suite, record, baseline, noise file and probe
    Schema(schema::Args),
    /// Record runs to hold later ones against, keep or compare them
    Baseline(baseline::Args),
    /// Measure a suite against itself: how launches differ, what limits make of it
    Calibrate(calibrate::Args),
    /// Render the reports of a run again from its record
    Report(report::Args),
    /// Show two runs beside each other: figures, ratios, what changed
    Compare(compare::Args),
    /// Join the shards of a run to one record and its reports
    Merge(merge::Args),
    /// Name the limits that can't fail: of a finished run, or of one with a delay
    Selftest(selftest::Args),
    /// Say how many pairs or launches a suite needs to see a loss, and how long they take
    Plan(plan::Args),
    /// Say what hardware an engine would see here: GPUs and who is on them, host, limits
    Probe(probe::Args),
    /// Serve a simulated engine with vLLM's HTTP surface
    Sim(crate::sim::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Write the generated parts of the pages in docs/
    #[command(hide = true)]
    Manual(manual::Args),
}

/// Writes to stdout. A reader that closes early, `| head`, has what it wants.
fn print(text: &str) -> Exit {
    ended(voice::print(text))
}

/// As [`print`], what is meant to be a command to a CI service too.
fn print_as_is(text: &str) -> Exit {
    ended(voice::print_as_is(text))
}

/// What comes of writing to stdout.
fn ended(written: std::io::Result<()>) -> Exit {
    match written {
        Ok(()) => Exit::Pass,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Pass,
        Err(error) => {
            say(&format!("error: stdout can't be written: {error}"));
            Exit::Unwritten
        }
    }
}

/// Writes a line to stderr. Nobody may be there to read it, and that is no reason to end.
fn say(line: &str) {
    say_as_is(&format!("{line}\n"));
}

/// Parses the arguments and runs the subcommand.
pub fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.nth(1).is_some_and(|first| first == crate::engine::supervise::SUBCOMMAND) {
        return crate::engine::supervise::main(arguments.collect());
    }
    voice::hide(secrecy::of_environment());
    voice::carry_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no mistakes; everything else is a wrong flag.
            let code = if error.use_stderr() { Exit::Suite.into() } else { ExitCode::SUCCESS };
            let text = error.render().to_string();
            if voice::redactor().text(&text) == text {
                // In colour. A closed stdout is no reason to fail.
                let _ = error.print();
            } else {
                say_as_is(&text);
            }
            return code;
        }
    };
    // A panic has said its words by now.
    let code = Fence::hold(|| carry_out(cli)).unwrap_or(Exit::Engine.into());
    outlet::settle();
    code
}

fn carry_out(cli: Cli) -> ExitCode {
    let global = &cli.global;
    match cli.command {
        Command::Run(args) => run::run(&args, global),
        Command::Check(args) => check::run(&args, global).into(),
        Command::List(args) => list::run(&args, global).into(),
        Command::Try(args) => trial::run(&args, global).into(),
        Command::Init(args) => init::run(&args, global.quiet).into(),
        Command::Schema(args) => schema::run(&args).into(),
        Command::Baseline(args) => baseline::run(&args, global).into(),
        Command::Calibrate(args) => calibrate::run(&args, global).into(),
        Command::Report(args) => {
            let (width, color) = (report::terminal_width(), global.color_stdout());
            report::run(&args, &mut std::io::stdout(), width, color).into()
        }
        Command::Compare(args) => compare::run(&args).into(),
        Command::Merge(args) => merge::run(&args, global).into(),
        Command::Selftest(args) => selftest::run(&args, global),
        Command::Plan(args) => plan::run(&args, global).into(),
        Command::Probe(args) => probe::run(&args).into(),
        Command::Sim(args) => crate::sim::main(args),
        Command::Completions(args) => completions::run(&args).into(),
        Command::Manual(args) => manual::run(&args).into(),
    }
}
