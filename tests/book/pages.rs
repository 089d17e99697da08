//! Pages of the book and the fenced blocks in them.

#![allow(clippy::wildcard_enum_match_arm, reason = "a reader of Markdown has many events")]

use std::ops::Range;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::harness::shipped;

/// A page.
pub struct Page {
    /// Its path in the project.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A fenced block.
pub struct Block {
    /// The comment above it.
    mark: String,
    /// What its fence says it is.
    pub language: String,
    /// What is in it.
    pub text: String,
    /// Where that stands on the page, in bytes.
    pub range: Range<usize>,
    /// The line of its first line, from 1.
    pub line: usize,
}

/// All pages in `docs/`, without the summary.
pub fn book() -> Vec<Page> {
    let mut pages = Vec::new();
    let root = shipped("");
    walk(&shipped("docs"), "md", &mut |path, text| {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        pages.push(Page { name, text: text.to_owned() });
    });
    pages.retain(|page| page.name != "docs/SUMMARY.md");
    pages.sort_by(|a, b| a.name.cmp(&b.name));
    pages
}

/// Shows every file with an extension below a folder.
pub fn walk(folder: &Path, extension: &str, show: &mut impl FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, extension, show);
        } else if path.extension().is_some_and(|it| it == extension) {
            show(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

impl Page {
    /// A page of the project.
    pub fn read(name: &str) -> Page {
        Page { name: name.to_owned(), text: std::fs::read_to_string(shipped(name)).unwrap() }
    }

    /// Its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (event, range) in Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter()
        {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    let above = self.text[..range.start].trim_end().lines().next_back();
                    let mark = above.and_then(|it| it.strip_prefix("<!-- ")?.strip_suffix(" -->"));
                    open = Some(Block {
                        mark: mark.unwrap_or_default().to_owned(),
                        language: language.to_string(),
                        text: String::new(),
                        range: 0..0,
                        line: self.text[..range.start].lines().count() + 2,
                    });
                }
                Event::Text(text) => {
                    if let Some(block) = &mut open {
                        block.text.push_str(&text);
                        let start =
                            if block.range.is_empty() { range.start } else { block.range.start };
                        block.range = start..range.end;
                    }
                }
                Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
                _ => {}
            }
        }
        blocks
    }
}

impl Block {
    /// What the comment above it says behind these words.
    pub fn marked(&self, words: &str) -> Option<&str> {
        self.mark.strip_prefix(words).map(str::trim)
    }

    /// Whether it has commands.
    pub fn has_commands(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "console")
    }

    /// The commands of a `console` block, each with what it prints.
    pub fn session(&self) -> Vec<(String, String)> {
        let mut session: Vec<(String, String)> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), session.last_mut()) {
                (Some(command), _) => session.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => output.push_str(&format!("{line}\n")),
                (None, None) => panic!("line {}: a console block begins with a command", self.line),
            }
        }
        session
    }

    /// The arguments of each command that is tokgate's, as far as a shell would hand them over.
    pub fn tokgate_commands(&self) -> Vec<Vec<String>> {
        let lines = match self.language.as_str() {
            "console" => self.session().into_iter().map(|(command, _)| command).collect(),
            _ => self.text.replace("\\\n", " ").lines().map(str::to_owned).collect::<Vec<_>>(),
        };
        let mut commands = Vec::new();
        for line in lines {
            let line = line.strip_prefix("exec ").unwrap_or(&line).to_owned();
            let Some(rest) = line.trim().strip_prefix("tokgate ") else { continue };
            let rest = rest.replace(" 2>&1", "");
            let rest = rest.split([';', '|', '>']).next().unwrap();
            let words = shell_words::split(rest.split(" && ").next().unwrap());
            // A comment is none to the splitter.
            let words = words.unwrap_or_else(|error| panic!("line {}: {line}: {error}", self.line));
            commands.push(words.into_iter().take_while(|word| !word.starts_with('#')).collect());
        }
        commands
    }
}
