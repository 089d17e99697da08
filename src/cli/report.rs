//! `tokgate report`: the reports of a finished run, rendered again from its record.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use crate::report::console::{self, Extent};
use crate::report::files::Standing;
use crate::report::markdown::comment;
use crate::report::{FILES, json, write_rendered};

use super::annotate::Annotations;
use super::exit::Exit;
use super::junit::Junit;
use super::lock::{Lock, Refusal};
use super::{directory, remedy, say};

/// Render the reports of a run again from its record.json.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The output directory of a run; all its reports but record.json are rewritten
    pub dir: PathBuf,
    #[command(flatten)]
    pub junit: Junit,
    /// Print a comment for a pull or merge request, as Markdown, instead of the closing page
    #[arg(long, conflicts_with = "annotations")]
    pub comment: bool,
    /// Have the worst cells shown on their lines of the suite: github or none [default: none]
    #[arg(
        long,
        value_enum,
        default_value_t = Annotations::None,
        value_name = "WHERE",
        hide_possible_values = true,
        hide_default_value = true
    )]
    pub annotations: Annotations,
}

/// Reads the record, rewrites the reports and prints the closing page, or the comment, to `out`.
///
/// `color` and `width` are those of the page. Ends with [`Exit::Pass`] whatever the verdict: to
/// render is not to judge again. A directory without a record is [`Exit::Suite`], reports that
/// can't be written are [`Exit::Unwritten`], each with a word on stderr; those that could not be
/// replaced are removed, since they may tell of another record. Where a run is going on, it writes them.
pub fn run(args: &Args, out: &mut impl Write, width: usize, color: bool) -> Exit {
    directory::survive_size_limits();
    if let Err(exit) = args.junit.check() {
        return exit;
    }
    // Held to the end: what is read is what is rendered.
    let lock = Lock::take_if_there(&args.dir, "tokgate report");
    let path = args.dir.join("record.json");
    let record = match json::read(&path) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("error: {error}"));
            if args.dir.join(directory::JOURNAL).exists() {
                say(
                    "  help: its journal is whole: `tokgate run SUITE --resume DIR` writes all of them",
                );
            } else if !path.exists() {
                say("  help: give the output directory of a run, such as tokgate-out/<suite>");
            }
            return Exit::Suite;
        }
    };
    let page = if args.comment {
        comment::render(&record)
    } else {
        console::render(&record, width, color, Extent::Whole)
    };
    let page = super::voice::for_the_log(&page);
    let printed = out.write_all(page.as_bytes()).and_then(|()| out.flush());
    let mut exit = Exit::Pass;
    match printed {
        Ok(()) => exit = exit.or(args.annotations.print(&record)),
        // A reader that went away, `| head`, has what it wants.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            say(&format!("error: stdout can't be written: {error}"));
            exit = Exit::Unwritten;
        }
    }
    if let Err(Refusal::Held(holder)) = &lock {
        say(&console::last_line(&record));
        say(&format!(
            "error: nothing is rewritten: a tokgate run writes to {} (lock held by {holder})",
            args.dir.display()
        ));
        say("  help: wait for it; it writes its reports itself");
        return Exit::Unwritten;
    }
    let order = args.junit.order(&args.dir);
    let standing = Standing::of(&args.dir, &FILES[1..]);
    let written = write_rendered(&args.dir, &record, &order);
    say(&console::last_line(&record));
    if let Err(error) = written {
        say(&format!("error: {error}"));
        say(&format!("  help: {}", remedy::of(&error.path, &error.source)));
        for file in standing.withdraw() {
            say(&format!(
                "  note: {} was removed: what it said may be another record's",
                file.display()
            ));
        }
        exit = Exit::Unwritten;
    }
    exit
}

/// Columns of the terminal on stdout; 100 where it is none.
pub fn terminal_width() -> usize {
    let stdout = std::io::stdout();
    let size = if stdout.is_terminal() { rustix::termios::tcgetwinsize(stdout).ok() } else { None };
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::junit::Dialect;
    use crate::report::{FILES, fixture, write_all};

    #[test]
    fn reports_come_out_of_the_record_as_they_did_in_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let record = fixture::page_with_a_loss();
        write_all(dir.path(), &record, &Default::default()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let before = FILES.map(read);
        std::fs::remove_file(dir.path().join("junit.xml")).unwrap();
        for name in &FILES[2..] {
            std::fs::write(dir.path().join(name), "stale").unwrap();
        }

        let args = Args {
            dir: dir.path().to_owned(),
            junit: Junit::default(),
            comment: false,
            annotations: Annotations::None,
        };
        let mut page = Vec::new();
        assert_eq!(run(&args, &mut page, 80, false), Exit::Pass);
        assert_eq!(FILES.map(read), before);
        assert_eq!(
            String::from_utf8(page).unwrap(),
            console::render(&record, 80, false, Extent::Whole)
        );

        let junit = Junit { dialect: Dialect::Strict, ..Junit::default() };
        let strict = Args { junit, ..args };
        run(&strict, &mut Vec::new(), 80, false);
        assert!(!read("junit.xml").contains("<property "));
    }

    #[test]
    fn a_directory_without_a_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let args = Args {
            dir: dir.path().to_owned(),
            junit: Junit::default(),
            comment: false,
            annotations: Annotations::None,
        };
        assert_eq!(run(&args, &mut Vec::new(), 80, false), Exit::Suite);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
