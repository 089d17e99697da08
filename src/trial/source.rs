//! What is tried: an endpoint, or a command as somebody typed it behind `--`.
//!
//! Pure. A shell has split the command already, templates too: `{{ port }}` comes as three words. It is
//! made one again, and a port that is a number becomes a template with that number as the suite's port.

/// What is tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An engine that runs already, at this url.
    Url(String),
    /// An engine to be started.
    Command(Start),
}

/// A command to start an engine, ready to stand in a suite.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// Program and arguments, each a template.
    pub words: Vec<String>,
    /// Variables that stood before the program.
    pub env: Vec<(String, String)>,
    /// Where it answers, if it was told a particular address.
    pub host: Option<String>,
    /// The port that it was told as a number.
    pub port: Option<u16>,
}

/// A command that can't be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unusable {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl Start {
    /// Reads the words behind `--`.
    ///
    /// # Errors
    /// There is no program, or nothing tells it its port.
    pub fn read(words: &[String]) -> Result<Start, Unusable> {
        let mut words = match words {
            // The whole command in quotes.
            [line] if line.trim().contains(char::is_whitespace) => {
                shell_words::split(line).map_err(|_| Unusable {
                    message: "a quote of the command is not closed".to_owned(),
                    help: "write the command as you would in a shell: tokgate try -- llama-server -m model.gguf --port 8000"
                        .to_owned(),
                })?
            }
            words => words.to_vec(),
        };
        words = whole_templates(words);
        let named = words.iter().take_while(|word| assignment(word).is_some()).count();
        let env = words.drain(..named).filter_map(|word| assignment(&word)).collect();
        if words.is_empty() {
            return Err(Unusable {
                message: "there is no program to start behind `--`".to_owned(),
                help: "write what starts the engine: tokgate try -- llama-server -m model.gguf --port 8000"
                    .to_owned(),
            });
        }
        let templated = words.iter().any(|word| template_names(word, "port"));
        let port = if templated { None } else { take_port(&mut words)? };
        if !templated && port.is_none() {
            let line = shell_words::join(&words);
            return Err(Unusable {
                message: "nothing tells the engine its port".to_owned(),
                help: format!(
                    "write '{{{{ port }}}}' where it takes it, or add it to the command, most engines take `--port`: tokgate try -- {line} --port 8000"
                ),
            });
        }
        let host =
            option(&words, "--host").filter(|host| !everywhere(host) && !host.contains("{{"));
        Ok(Start { words, env, host, port })
    }
}

/// Puts `{{`, `port`, `}}` together again.
fn whole_templates(words: Vec<String>) -> Vec<String> {
    let open = |text: &str| match (text.rfind("{{"), text.rfind("}}")) {
        (Some(open), Some(close)) => open > close,
        (Some(_), None) => true,
        (None, _) => false,
    };
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut rest = words.into_iter().peekable();
    while let Some(mut word) = rest.next() {
        // One that is never closed stays as it came, for the suite's reader to complain of.
        while open(&word) && rest.peek().is_some() {
            let more = rest.next().unwrap_or_default();
            word = format!("{word} {more}");
        }
        out.push(word);
    }
    out
}

/// `NAME=value`, as a shell has it before a program.
fn assignment(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    (name.starts_with(first) && name.chars().all(plain))
        .then(|| (name.to_owned(), value.to_owned()))
}

fn template_names(word: &str, name: &str) -> bool {
    word.split("{{").skip(1).any(|rest| rest.split("}}").next().is_some_and(|it| it.contains(name)))
}

/// Replaces the number behind `--port` by a template.
fn take_port(words: &mut [String]) -> Result<Option<u16>, Unusable> {
    const TEMPLATE: &str = "{{ port }}";
    let number = |text: &str| {
        text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| Unusable {
            message: format!("`--port {text}` is not a port"),
            help: "write a number from 1 to 65535, or `--port {{ port }}` for a free one"
                .to_owned(),
        })
    };
    for at in 0..words.len() {
        if let Some(text) = words[at].strip_prefix("--port=") {
            let port = number(text)?;
            words[at] = format!("--port={TEMPLATE}");
            return Ok(Some(port));
        }
        if words[at] == "--port"
            && let Some(text) = words.get(at + 1)
        {
            let port = number(text)?;
            words[at + 1] = TEMPLATE.to_owned();
            return Ok(Some(port));
        }
    }
    Ok(None)
}

/// The value of an option.
fn option(words: &[String], name: &str) -> Option<String> {
    let joined = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let at = words.iter().position(|word| word == name);
    joined.map(str::to_owned).or_else(|| words.get(at? + 1).cloned())
}

/// Whether an engine that listens there answers on 127.0.0.1 too.
fn everywhere(host: &str) -> bool {
    matches!(host, "0.0.0.0" | "::" | "[::]" | "127.0.0.1" | "localhost" | "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Start, Unusable> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Start::read(&words)
    }

    #[test]
    fn a_template_that_a_shell_split_is_one_word_again() {
        let start = read("llama-server -m model.gguf --port {{ port }}").unwrap();
        assert_eq!(start.words, ["llama-server", "-m", "model.gguf", "--port", "{{ port }}"]);
        assert_eq!((start.port, start.host), (None, None));
        let start = read("docker run -p {{port}}:8000 image --x {{ vars.a }}").unwrap();
        assert_eq!(start.words[3], "{{port}}:8000");
        assert_eq!(start.words[6], "{{ vars.a }}");
    }

    #[test]
    fn a_plain_port_becomes_the_suites() {
        let start = read("vllm serve org/model --port 8000 --host 0.0.0.0").unwrap();
        assert_eq!(start.port, Some(8000));
        assert_eq!(start.words[4], "{{ port }}");
        assert_eq!(start.host, None);
        let start = read("A=1 B_2=x=y vllm serve m --port=81 --host=10.0.0.7").unwrap();
        assert_eq!(start.port, Some(81));
        assert_eq!(start.words, ["vllm", "serve", "m", "--port={{ port }}", "--host=10.0.0.7"]);
        assert_eq!(start.env, [("A".into(), "1".into()), ("B_2".into(), "x=y".into())]);
        assert_eq!(start.host.as_deref(), Some("10.0.0.7"));
    }

    #[test]
    fn a_whole_line_in_quotes_is_split_as_a_shell_does() {
        let start =
            Start::read(&["serve --json '{\"a\": {\"b\": 1}}' --port 1".to_owned()]).unwrap();
        assert_eq!(start.words, ["serve", "--json", "{\"a\": {\"b\": 1}}", "--port", "{{ port }}"]);
    }

    #[test]
    fn what_can_not_be_tried_says_what_to_write() {
        let wrong = read("llama-server -m model.gguf").unwrap_err();
        assert_eq!(wrong.message, "nothing tells the engine its port");
        assert!(
            wrong.help.ends_with("-- llama-server -m model.gguf --port 8000"),
            "{}",
            wrong.help
        );
        assert!(read("vllm serve --port eight").unwrap_err().message.contains("`--port eight`"));
        assert!(read("A=1").unwrap_err().message.contains("no program"));
        assert!(Start::read(&["a 'b".to_owned()]).unwrap_err().message.contains("quote"));
    }
}
