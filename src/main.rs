//! The `tokgate` executable: parse, call, exit code.

fn main() -> std::process::ExitCode {
    tokgate::cli::main()
}
