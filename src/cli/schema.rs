//! `tokgate schema`: writes the JSON Schemas of suite files, records, baselines, noise files and what `tokgate probe`
//! finds, or says that the written ones are old.

use std::path::PathBuf;

use crate::hardware::probe::Probe;
use crate::record::baseline::Baseline;
use crate::record::noise::NoiseFile;
use crate::report::json;
use crate::suite::schema;

use super::exit::Exit;
use super::{print, say};

/// Arguments of `tokgate schema`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Folder to write to
    #[arg(long, value_name = "DIR", default_value = "schemas")]
    pub out: PathBuf,
    /// Write nothing; fail when a file differs
    #[arg(long)]
    pub check: bool,
}

/// Writes or compares.
pub fn run(args: &Args) -> Exit {
    let mut differs = Vec::new();
    let mut told = String::new();
    let others = [
        json::schema_file(),
        Baseline::schema_file(),
        NoiseFile::schema_file(),
        Probe::schema_file(),
    ];
    for (name, text) in schema::files().into_iter().chain(others) {
        let path = args.out.join(name);
        if args.check {
            if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                differs.push(path);
            }
            continue;
        }
        let written =
            std::fs::create_dir_all(&args.out).and_then(|()| std::fs::write(&path, &text));
        match written {
            Ok(()) => told.push_str(&format!("{}\n", path.display())),
            Err(error) => {
                say(&format!("error: {} can't be written: {error}", path.display()));
                return Exit::Unwritten;
            }
        }
    }
    for path in &differs {
        say(&format!("error: {} is not what this version writes", path.display()));
    }
    if !differs.is_empty() {
        let out = args.out.display();
        say(&format!("  help: `tokgate schema --out {out}` writes it anew"));
        return Exit::Suite;
    }
    print(&told)
}
