//! Problems: what is wrong with a suite, where, and what to write instead.
//!
//! Every stage adds its own; rendering is here alone. It decides nothing about which problems there
//! are.

use std::fmt;
use std::ops::Range;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity,
    SourceCode, ThemeCharacters, ThemeStyles,
};

use super::source::SourceMap;

/// Most problems that are printed whole; further ones are counted.
const SHOWN: usize = 100;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its kind, a kebab-case word that never changes meaning.
    pub code: &'static str,
    /// Whether the suite can still be run.
    pub warning: bool,
    /// What is wrong, a lowercase fragment.
    pub message: String,
    /// What is to blame, as a span in the source map.
    pub span: Option<Range<usize>>,
    /// A word at the caret.
    pub label: Option<String>,
    /// What to write instead.
    pub help: Option<String>,
    /// Other places that have to do with it.
    pub further: Vec<(Range<usize>, String)>,
}

impl Problem {
    /// An error at a place.
    pub fn at(code: &'static str, span: Range<usize>, message: impl Into<String>) -> Problem {
        Problem { span: Some(span), ..Problem::new(code, message) }
    }

    /// An error that no place is to blame for.
    pub fn new(code: &'static str, message: impl Into<String>) -> Problem {
        Problem {
            code,
            warning: false,
            message: message.into(),
            span: None,
            label: None,
            help: None,
            further: Vec::new(),
        }
    }

    /// Says what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Problem {
        self.help = Some(help.into());
        self
    }

    /// As [`Problem::help`], where there may be nothing to say.
    #[must_use]
    pub fn maybe_help(mut self, help: Option<String>) -> Problem {
        self.help = help.or(self.help);
        self
    }

    /// Puts a word at the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Problem {
        self.label = Some(label.into());
        self
    }

    /// Points at another place.
    #[must_use]
    pub fn also(mut self, span: Range<usize>, label: impl Into<String>) -> Problem {
        self.further.push((span, label.into()));
        self
    }

    /// Makes it a warning.
    #[must_use]
    pub fn warning(mut self) -> Problem {
        self.warning = true;
        self
    }
}

/// Problems with the texts that they point into.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    /// The texts.
    pub source: SourceMap,
    /// The problems, in order of the text.
    pub list: Vec<Problem>,
}

impl Problems {
    /// Sorts by place and drops those said twice.
    pub fn new(source: SourceMap, mut list: Vec<Problem>) -> Problems {
        let start = |problem: &Problem| problem.span.as_ref().map_or(usize::MAX, |span| span.start);
        list.sort_by(|a, b| (start(a), a.code, &a.message).cmp(&(start(b), b.code, &b.message)));
        list.dedup();
        Problems { source, list }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether one of them forbids a run.
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|problem| !problem.warning)
    }

    /// The problems for people, with carets; ends with a line that counts them.
    pub fn render(&self, color: bool) -> String {
        let theme = GraphicalTheme {
            characters: ThemeCharacters::unicode(),
            styles: if color { ThemeStyles::ansi() } else { ThemeStyles::none() },
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_width(100)
            .with_context_lines(1)
            .without_syntax_highlighting();
        let mut out = String::new();
        for problem in self.list.iter().take(SHOWN) {
            let mut text = String::new();
            // Writing to a string can't fail; the handler returns an error only for a span outside
            // of the text, and then the bare message still helps.
            if handler.render_report(&mut text, &Shown::new(problem, &self.source)).is_err() {
                text = format!("{}: {}\n", problem.code, problem.message);
            }
            for line in text.trim_matches('\n').lines() {
                out.push_str(line.trim_end());
                out.push('\n');
            }
            out.push('\n');
        }
        if self.list.len() > SHOWN {
            out.push_str(&format!("and {} more\n\n", self.list.len() - SHOWN));
        }
        out.push_str(&self.count());
        out.push('\n');
        out
    }

    /// `2 errors, 1 warning`.
    pub fn count(&self) -> String {
        let warnings = self.list.iter().filter(|problem| problem.warning).count();
        let errors = self.list.len() - warnings;
        let say = |n: usize, word: &str| match n {
            0 => None,
            1 => Some(format!("1 {word}")),
            _ => Some(format!("{n} {word}s")),
        };
        let parts: Vec<_> =
            [say(errors, "error"), say(warnings, "warning")].into_iter().flatten().collect();
        if parts.is_empty() { "no problems".to_owned() } else { parts.join(", ") }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Problems {}

/// A problem as miette wants it: one text with local spans. Places in other files become lines of
/// the help, since a snippet shows one file.
#[derive(Debug)]
struct Shown<'a> {
    problem: &'a Problem,
    source: Option<NamedSource<String>>,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
}

impl<'a> Shown<'a> {
    fn new(problem: &'a Problem, map: &SourceMap) -> Shown<'a> {
        let file = problem.span.as_ref().and_then(|span| map.file(span.start));
        let mut labels = Vec::new();
        let mut help: Vec<String> = problem.help.iter().cloned().collect();
        if let (Some(file), Some(span)) = (file, &problem.span) {
            labels
                .push(LabeledSpan::new_primary_with_span(problem.label.clone(), file.local(span)));
        }
        for (span, label) in &problem.further {
            match (file, map.file(span.start)) {
                (Some(file), Some(other)) if file.start == other.start => {
                    labels.push(LabeledSpan::new_with_span(Some(label.clone()), file.local(span)));
                }
                (_, Some(other)) => {
                    help.push(format!("{label} at {}:{}", other.name, other.line(span.start)));
                }
                (_, None) => {}
            }
        }
        Shown {
            problem,
            source: file.map(|file| NamedSource::new(&file.name, file.text.clone())),
            labels,
            help: (!help.is_empty()).then(|| help.join("\n")),
        }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.problem.code))
    }

    fn severity(&self) -> Option<Severity> {
        Some(if self.problem.warning { Severity::Warning } else { Severity::Error })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_its_place_and_what_to_write() {
        let mut source = SourceMap::default();
        source.add("base.toml", "[engine]\nport = 1\n", None);
        let start = source.add("suite.toml", "version = 1\nengine.prt = 8000\n", None);
        let at = start + 19;
        let problems = Problems::new(
            source,
            vec![
                Problem::at("unknown-key", at..at + 3, "unknown key `prt` in `engine`")
                    .help("did you mean `port`?")
                    .also(0..8, "the table begins"),
            ],
        );
        insta::assert_snapshot!(problems.render(false));
    }
}
