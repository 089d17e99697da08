//! The command line: one file per subcommand.

pub mod check;
pub mod init;
pub mod schema;

/// Parses the arguments and runs the subcommand.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
