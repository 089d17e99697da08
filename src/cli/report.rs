//! `tokgate report`: the reports of a finished run, rendered again from its record.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use crate::report::console::{self, Extent};
use crate::report::junit::Dialect;
use crate::report::{json, write_rendered};

use super::annotate::Annotations;
use super::exit::Exit;
use super::say;

/// Render the reports of a run again from its record.json.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The output directory of a run; its junit.xml, summary.md and report.html are rewritten
    pub dir: PathBuf,
    /// The dialect of junit.xml: rich, or strict for Jenkins' junit-10.xsd
    #[arg(long, value_enum, default_value_t, value_name = "DIALECT", hide_possible_values = true)]
    pub junit_dialect: Dialect,
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

/// Reads the record, rewrites the reports and prints the closing page to `out`.
///
/// `color` and `width` are those of the page. Ends with [`Exit::Pass`] whatever the verdict: to
/// render is not to judge again. A directory without a record is [`Exit::Suite`], reports that
/// can't be written are [`Exit::Unwritten`], each with a word on stderr.
pub fn run(args: &Args, out: &mut impl Write, width: usize, color: bool) -> Exit {
    let path = args.dir.join("record.json");
    let record = match json::read(&path) {
        Ok(record) => record,
        Err(error) => {
            say(&format!("error: {error}"));
            if !path.exists() {
                say("  help: give the output directory of a run, such as tokgate-out/<suite>");
            }
            return Exit::Suite;
        }
    };
    // A reader that went away, `| head`, is no failure of the reports.
    let page = console::render(&record, width, color, Extent::Whole);
    let _ = out.write_all(super::for_the_log(&page).as_bytes());
    let _ = args.annotations.print(&record);
    let written = write_rendered(&args.dir, &record, args.junit_dialect);
    say(&console::last_line(&record));
    match written {
        Ok(()) => Exit::Pass,
        Err(error) => {
            say(&format!("error: {error}"));
            Exit::Unwritten
        }
    }
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
    use crate::report::{FILES, fixture, write_all};

    #[test]
    fn reports_come_out_of_the_record_as_they_did_in_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let record = fixture::page_with_a_loss();
        write_all(dir.path(), &record, Dialect::Rich).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let before = FILES.map(read);
        std::fs::remove_file(dir.path().join("junit.xml")).unwrap();
        for name in ["summary.md", "report.html"] {
            std::fs::write(dir.path().join(name), "stale").unwrap();
        }

        let args = Args {
            dir: dir.path().to_owned(),
            junit_dialect: Dialect::Rich,
            annotations: Annotations::None,
        };
        let mut page = Vec::new();
        assert_eq!(run(&args, &mut page, 80, false), Exit::Pass);
        assert_eq!(FILES.map(read), before);
        assert_eq!(
            String::from_utf8(page).unwrap(),
            console::render(&record, 80, false, Extent::Whole)
        );

        let strict = Args { junit_dialect: Dialect::Strict, ..args };
        run(&strict, &mut Vec::new(), 80, false);
        assert!(!read("junit.xml").contains("<property "));
    }

    #[test]
    fn a_directory_without_a_record_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let args = Args {
            dir: dir.path().to_owned(),
            junit_dialect: Dialect::Rich,
            annotations: Annotations::None,
        };
        assert_eq!(run(&args, &mut Vec::new(), 80, false), Exit::Suite);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
