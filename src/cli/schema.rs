//! `tokgate schema`: writes the JSON Schemas of suite files, or says that the written ones are old.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::suite::schema::files;

/// Arguments of `tokgate schema`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Folder to write to.
    #[arg(long, value_name = "DIR", default_value = "schemas")]
    pub out: PathBuf,
    /// Write nothing; fail when a file differs.
    #[arg(long)]
    pub check: bool,
}

/// Writes or compares.
pub fn run(args: &Args) -> ExitCode {
    let mut differs = false;
    for (name, text) in files() {
        let path = args.out.join(name);
        if args.check {
            if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                eprintln!("{} differs; `tokgate schema` writes it anew", path.display());
                differs = true;
            }
            continue;
        }
        let written =
            std::fs::create_dir_all(&args.out).and_then(|()| std::fs::write(&path, &text));
        match written {
            Ok(()) => println!("{}", path.display()),
            Err(error) => {
                eprintln!("can't write {}: {error}", path.display());
                return ExitCode::from(33);
            }
        }
    }
    if differs { ExitCode::from(20) } else { ExitCode::SUCCESS }
}
