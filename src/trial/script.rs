//! A trial as the text of a suite: what is measured, and, once there are figures, what is expected of them.
//!
//! Pure. The text is written to be read and changed: every line says what it is for.

use std::fmt::Write;

use super::floors::{Floors, Table};
use super::sizes::Sizes;
use super::source::Source;
use crate::engine::Kind;
use crate::quantity::print_duration;
use crate::suite::defaults;

/// Everything that a suite says.
#[derive(Debug, Clone)]
pub struct Script<'a> {
    /// `suite.name`.
    pub name: &'a str,
    /// What is started, or where it runs.
    pub source: &'a Source,
    /// Which engine it is.
    pub kind: Kind,
    /// The model.
    pub model: Option<&'a str>,
    /// The environment variable with the api key.
    pub key_env: Option<&'a str>,
    /// Whether the engine only chats.
    pub chat: bool,
    /// What is measured.
    pub sizes: &'a Sizes,
}

/// What is seen of the machine, for the lines that would bind a suite to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine<'a> {
    /// The product name of its GPUs.
    pub gpu: &'a str,
    /// How many.
    pub count: usize,
}

impl Script<'_> {
    /// The suite of a trial: nothing is expected of it.
    pub fn trial(&self) -> String {
        let mut out = String::from(
            "# What `tokgate try` measures: sizes that fit what the engine says of itself and how fast it answered.\n\
             version = 1\n\n",
        );
        self.head(&mut out, None);
        self.tests(&mut out);
        out.push_str("[policy]\nunjudged = \"allow\"\nmax-client-lag = \"50ms\"\n");
        out
    }

    /// The suite to keep, with what was seen as limits. `file` is where it will stand.
    pub fn suite(&self, file: &str, floors: &Floors, machine: Option<Machine<'_>>) -> String {
        let mut out = format!(
            "# Written by `tokgate try` from what one run showed: what is measured, and limits that the same engine keeps.\n\
             #\n\
             #   tokgate check {file}      every problem of this file, without starting anything\n\
             #   tokgate run {file}        measure, judge, write tokgate-out/{}/junit.xml\n\
             #\n\
             # A new engine or a new machine has other figures: change the numbers, or run `tokgate try` again.\n\
             version = 1\n\n",
            self.name
        );
        self.head(&mut out, machine);
        self.tests(&mut out);
        out.push_str(
            "# Limits. Each number is the far end of the interval that one launch showed. Launches differ, by how much one\n\
             # can't show: `slack` is for that, and no loss inside of it is seen. `tokgate selftest` says what each limit sees;\n\
             # `tokgate baseline record` measures how launches differ, and sees more.\n\n",
        );
        floors.tables.iter().for_each(|table| self.table(&mut out, table));
        if let Some(seconds) = floors.ready {
            let _ = write!(
                out,
                "# The start, which was seen once: twice as long is tolerated.\n\
                 [[expect]]\nname = \"start\"\nmetric = \"ready-time\"\nmax = \"{}s\"\n\n",
                tidy(seconds)
            );
        }
        let (lag, why) = if floors.lagged {
            ("250ms", "it was late on this machine; 5ms where nothing is said")
        } else {
            ("50ms", "generous for shared machines; 5ms where nothing is said")
        };
        let _ = write!(
            out,
            "[policy]\n\
             inconclusive = \"warn\"     # beyond a limit by less than the noise: warn | fail | pass | point\n\
             max-client-lag = \"{lag}\"   # how late tokgate itself may read, {why}\n"
        );
        out
    }

    fn head(&self, out: &mut String, machine: Option<Machine<'_>>) {
        let _ = writeln!(out, "[suite]\nname = {}\n", quoted(self.name));
        if let Some(machine) = machine {
            let _ = writeln!(
                out,
                "# The machine that this was seen on. Without the `#` it is checked before anything is launched.\n\
                 # [hardware]\n# gpu = {}\n# count = {}\n",
                quoted(machine.gpu),
                machine.count
            );
        }
        if let Some(model) = self.model {
            let _ = writeln!(out, "[model]\nname = {}\n", quoted(model));
        }
        let _ = writeln!(out, "[engine]\nkind = \"{}\"", name(self.kind));
        match self.source {
            Source::Url(url) => {
                let _ = writeln!(out, "url = {}", quoted(url));
            }
            Source::Command(start) => {
                let words: Vec<String> = start.words.iter().map(|word| quoted(word)).collect();
                let line = words.join(", ");
                if line.len() <= 100 {
                    let _ = writeln!(out, "command = [{line}]");
                } else {
                    let _ = writeln!(out, "command = [\n  {},\n]", words.join(",\n  "));
                }
                if let Some(host) = &start.host {
                    let _ = writeln!(out, "host = {}", quoted(host));
                }
                if let Some(port) = start.port {
                    let _ =
                        writeln!(out, "port = {port}   # without this line a free one is taken");
                }
                for (name, value) in &start.env {
                    let _ = writeln!(out, "env.{name} = {}", quoted(value));
                }
            }
        }
        out.push('\n');
        if let Some(variable) = self.key_env {
            let _ = writeln!(
                out,
                "# Sent with every request; the value stays in the environment.\n\
                 [secrets]\napi_key = {{ env = {} }}\n",
                quoted(variable)
            );
        }
        if self.chat {
            out.push_str("# The engine has no /v1/completions.\n[request]\napi = \"chat\"\n\n");
        }
    }

    fn tests(&self, out: &mut String) {
        let sizes = self.sizes;
        if matches!(self.source, Source::Command(_)) {
            out.push_str("# The start, from the process to the first token.\n[[test]]\nkind = \"startup\"\n\n");
        }
        let _ = writeln!(
            out,
            "# One long prompt at a time: how fast prompts are read.\n\
             [[test]]\nkind = \"prefill\"\nsamples = {}\nmatrix.context = {}\n",
            sizes.samples,
            list(&sizes.prefill, tokens)
        );
        let short =
            sizes.window < defaults::DURATION || sizes.min_tokens < defaults::MIN_TOKENS.into();
        let more = if short {
            " A longer window tells more: 30s and 100 tokens where nothing is said."
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "# Many streams at once: how fast tokens are written.{more}\n\
             [[test]]\nkind = \"decode\"\nduration = \"{}\"\nmin-tokens = {}\nmax-output = {}\n\
             matrix.context = {}\nmatrix.concurrency = {}\n",
            print_duration(sizes.window),
            sizes.min_tokens,
            sizes.max_output,
            list(&sizes.contexts, tokens),
            list(&sizes.streams, u64::to_string)
        );
    }

    fn table(&self, out: &mut String, table: &Table) {
        let side = if table.floor { "min" } else { "max" };
        let _ = writeln!(
            out,
            "# {}\n[[expect]]\nname = {}\ntest = \"{}\"\nmetric = \"{}\"\nslack = \"{}%\"\n{side}.rows = \"context\"",
            table.said,
            quoted(table.name),
            table.test,
            table.metric,
            table.slack
        );
        let width = table.rows.iter().flat_map(|(_, row)| row.iter().map(|it| entry(*it).len()));
        let width = width.chain(table.columns.iter().flatten().map(|n| n.to_string().len()));
        let width = width.max().unwrap_or(0);
        let heads: Vec<String> = table.rows.iter().map(|(context, _)| tokens(context)).collect();
        // As wide as what `min.at = [` has more than a row, so that columns stand below each other.
        let head = (heads.iter().map(String::len).max().unwrap_or(0) + 1).max(6);
        if let Some(columns) = &table.columns {
            let at: Vec<String> = columns.iter().map(|n| format!("{n:>width$}")).collect();
            let blank = " ".repeat(head - 6);
            let _ = writeln!(out, "{side}.columns = \"concurrency\"");
            let _ = writeln!(out, "{side}.at = [{blank}{}]", at.join(", "));
        }
        let _ = writeln!(out, "{side}.grid = [");
        for (text, (_, row)) in heads.iter().zip(&table.rows) {
            let row: Vec<String> = row.iter().map(|it| format!("{:>width$}", entry(*it))).collect();
            let _ = writeln!(out, "  [{:<head$} {}],", format!("{text},"), row.join(", "));
        }
        out.push_str("]\n\n");
    }
}

/// The kind as a suite has it.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Vllm => "vllm",
        Kind::Sglang => "sglang",
        Kind::LlamaCpp => "llama-cpp",
        Kind::Openai => "openai",
        Kind::Sim => "sim",
    }
}

fn list(values: &[u64], print: impl Fn(&u64) -> String) -> String {
    format!("[{}]", values.iter().map(print).collect::<Vec<_>>().join(", "))
}

/// A token count as a suite has it: in K where it is a whole number of them.
fn tokens(count: &u64) -> String {
    if *count >= 1024 && count.is_multiple_of(1024) {
        format!("\"{}K\"", count / 1024)
    } else {
        count.to_string()
    }
}

fn entry(limit: Option<f64>) -> String {
    limit.map_or_else(|| "\"-\"".to_owned(), tidy)
}

/// A number without a tail of noughts.
fn tidy(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::source::Start;
    use proptest::prelude::*;

    fn floors() -> Floors {
        let table = |name, metric, floor, columns, row: Vec<Option<f64>>| Table {
            name,
            test: if columns { "decode" } else { "prefill" },
            metric,
            floor,
            slack: 10,
            said: "As seen. Up to 12 % less than was seen passes.".to_owned(),
            columns: columns.then(|| vec![1, 4]),
            rows: vec![(32, row.clone()), (2048, row)],
        };
        Floors {
            tables: vec![
                table("prompts", "prefill-throughput", true, false, vec![Some(1200.0)]),
                table("tokens", "output-throughput", true, true, vec![Some(88.25), None]),
                table("first-token", "ttft.p50", false, true, vec![Some(31.0), Some(1044.0)]),
            ],
            ready: Some(3.5),
            lagged: false,
        }
    }

    fn script<'a>(source: &'a Source, sizes: &'a Sizes) -> Script<'a> {
        Script {
            name: "gate",
            source,
            kind: Kind::LlamaCpp,
            model: Some("org/model"),
            key_env: Some("API_KEY"),
            chat: true,
            sizes,
        }
    }

    fn sizes() -> Sizes {
        Sizes {
            prefill: vec![32, 2048],
            contexts: vec![32, 2048],
            streams: vec![1, 4],
            ..Sizes::least()
        }
    }

    #[test]
    fn a_suite_is_written_to_be_read() {
        let start = Start {
            words: ["llama-server", "-m", "a \"b\".gguf", "--port", "{{ port }}"]
                .map(str::to_owned)
                .to_vec(),
            env: vec![("THREADS".to_owned(), "4".to_owned())],
            host: None,
            port: Some(8000),
        };
        let (source, sizes) = (Source::Command(start), sizes());
        let machine = Machine { gpu: "NVIDIA H200", count: 8 };
        let text = script(&source, &sizes).suite("gate.toml", &floors(), Some(machine));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn every_script_is_a_right_suite() {
        use crate::suite::{LoadOptions, load};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate.toml");
        let start = Start::read(&["serve".into(), "--port".into(), "8000".into()]).unwrap();
        let sources = [Source::Url("http://127.0.0.1:8000/v1".to_owned()), Source::Command(start)];
        let sizes = sizes();
        for source in &sources {
            for key_env in [None, Some("PATH")] {
                let script = Script { key_env, ..script(source, &sizes) };
                let ready = floors().ready.filter(|_| matches!(source, Source::Command(_)));
                let floors = Floors { ready, lagged: key_env.is_some(), ..floors() };
                for text in [script.trial(), script.suite("gate.toml", &floors, None)] {
                    std::fs::write(&path, &text).unwrap();
                    let loaded = load(&path, &LoadOptions::default())
                        .unwrap_or_else(|problems| panic!("{problems}\n{text}"));
                    assert_eq!(loaded.warnings, [], "{text}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_quoted(text: String) {
            let line = format!("a = {}", quoted(&text));
            let read: toml::Table = line.parse().unwrap();
            prop_assert_eq!(read["a"].as_str(), Some(text.as_str()));
        }
    }
}
