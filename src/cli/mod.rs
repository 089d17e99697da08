//! The command line: one file per subcommand.

pub mod list;

/// Parses the arguments and runs the subcommand.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
