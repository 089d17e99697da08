//! The flags of a run as its record keeps them, so that rerun commands can repeat them.

use crate::record::run_record::LAUNCHES;
use crate::report::junit::Dialect;

use super::run::Args;

/// The flags that selected cells.
pub(super) fn selection(args: &Args) -> Vec<String> {
    let selected = args.choice.select.iter().flat_map(|it| ["-E".to_owned(), it.clone()]);
    let skipped = args.choice.skip.iter().flat_map(|it| ["--skip".to_owned(), it.clone()]);
    selected.chain(skipped).collect()
}

/// The flags that shape no plan and what a run comes to all the same.
pub(super) fn session_flags(args: &Args) -> Vec<String> {
    let mut flags = Vec::new();
    if let Some(path) = &args.junit.path {
        flags.extend(["--junit".to_owned(), path.to_string_lossy().into_owned()]);
    }
    match args.junit.dialect {
        Dialect::Rich => {}
        Dialect::Strict => flags.extend(["--junit-dialect".to_owned(), "strict".to_owned()]),
    }
    if args.deny_warnings {
        flags.push("--deny-warnings".to_owned());
    }
    flags
}

/// The flags that shaped the run, as a rerun command repeats them; the selection is not among them.
pub(super) fn flags(args: &Args) -> Vec<String> {
    let overlay = &args.overlay;
    let mut flags = Vec::new();
    let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
    if let Some(profile) = &overlay.profile {
        add("--profile", profile);
    }
    for set in &overlay.set {
        add("--set", set);
    }
    if let Some(url) = &overlay.url {
        add("--url", url);
    }
    if let Some(seed) = args.seed {
        add("--seed", &seed.to_string());
    }
    if let Some(launches) = &args.calibration {
        add(LAUNCHES, &launches.to_string());
    }
    if let Some(out) = &args.out {
        add("--out", &out.to_string_lossy());
    }
    flags
}
