//! The command line: one file per subcommand.

/// Parses the arguments and runs the subcommand.
pub fn main() -> std::process::ExitCode {
    // Before anything that reads arguments or starts threads: a supervisor is a process of its own.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == crate::engine::supervise::SUBCOMMAND) {
        return crate::engine::supervise::main(arguments.collect());
    }
    std::process::ExitCode::SUCCESS
}
