//! `tokgate completions SHELL`: a completion script on stdout.

use clap::CommandFactory;

use super::exit::Exit;

/// Arguments of `tokgate completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell to complete in
    shell: clap_complete::Shell,
}

/// Prints the script.
pub fn run(args: &Args) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "tokgate", &mut script);
    super::print(&String::from_utf8_lossy(&script))
}
