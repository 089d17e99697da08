//! The soak: 200 launches and 2 000 cells on engines that crash, hang, stall, refuse, break off or die by
//! signals, as a seed says.
//!
//! `cargo bench --bench soak -- --seed N --launches N` prints a table, and ends with an error where a cell
//! has no verdict or two, a process is left, or tokgate's file descriptors, children, threads or memory
//! grow with the launches. File descriptors and children are to be the same at each start of an engine but the first;
//! memory, by least squares over the launches after the first 20, may grow as the record does that it holds.

#![allow(clippy::unwrap_used)] // A bench that can not go on panics.

#[path = "../tests/soak.rs"]
mod soak;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    // `cargo test --benches` starts this too, without the flag; a bench is no test.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return ExitCode::SUCCESS;
    }
    let number = |name: &str, default: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.map_or(Some(default), |at| arguments.get(at + 1)?.parse().ok())
    };
    let (Some(seed), Some(launches)) = (number("--seed", 1), number("--launches", 200)) else {
        eprintln!("--seed and --launches take a number");
        return ExitCode::FAILURE;
    };
    let folder = tempfile::tempdir().unwrap();
    let tokgate = Path::new(env!("CARGO_BIN_EXE_tokgate"));
    let soaked = soak::soak(tokgate, folder.path(), seed, launches as usize);
    println!("{:<28} {seed}\n{}", "seed", soaked.table().trim_end());
    if soaked.broken.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("see {}", folder.keep().display());
    ExitCode::FAILURE
}
