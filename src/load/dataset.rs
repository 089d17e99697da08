//! Data sets: prompts that people have written, out of a file.
//!
//! Two forms are read: ShareGPT (conversations, one JSON array of them or one a line) and JSON Lines
//! with a prompt or messages each. Text in, entries out, every refusal with its place. How long they
//! are in tokens only the server's tokenizer knows, so lengths and their limits are the run's
//! business.

use std::io::BufRead;
use std::sync::Arc;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Longest piece of a file in a message, in characters.
const SHOWN: usize = 60;
/// Longest words of a reader, which may hold a piece of the file, in characters.
const WORDS: usize = 200;

/// One prompt of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What is sent.
    pub content: Content,
    /// The answer that it once got; its length is the output's.
    pub reply: Option<Arc<str>>,
    /// Tokens of output that it asks for.
    pub output: Option<u64>,
}

/// What an entry sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A text.
    Text(Arc<str>),
    /// Messages of a chat, as JSON.
    Messages(Arc<str>),
}

/// What a file came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// Its prompts, in the order of the file.
    pub entries: Vec<Entry>,
    /// Conversations that have no question followed by an answer.
    pub passed_over: u64,
}

/// A file that prompts can't be read from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// A place that is wrong.
    #[error("{place}: {message}")]
    At {
        /// `line 3`, `entry 3`.
        place: String,
        /// What is wrong, and what to write instead.
        message: String,
    },
    /// It can't be read.
    #[error("it can't be read: {0}")]
    Unreadable(String),
    /// There is nothing in it.
    #[error("it has no prompts: {0}")]
    Empty(&'static str),
}

fn at(place: String, message: impl Into<String>) -> DatasetError {
    DatasetError::At { place, message: message.into() }
}

/// A conversation as ShareGPT writes it.
#[derive(Deserialize)]
#[serde(expecting = "an object with `conversations`")]
struct Conversation {
    conversations: Option<Vec<Turn>>,
}

#[derive(Deserialize)]
#[serde(expecting = "a turn, {\"from\": \"human\", \"value\": \"…\"}")]
struct Turn {
    from: String,
    value: String,
}

impl Conversation {
    /// Its first question that has an answer after it; `None` where there is none.
    fn pair(&self) -> Result<Option<Entry>, &'static str> {
        let Some(turns) = &self.conversations else {
            return Err(
                "it has no `conversations`: write {\"conversations\": [{\"from\": \"human\", \
                        \"value\": \"…\"}, {\"from\": \"gpt\", \"value\": \"…\"}]}, or \
                        format = \"jsonl\" for prompts",
            );
        };
        let asks = |turn: &Turn| {
            matches!(turn.from.as_str(), "human" | "user") && !turn.value.trim().is_empty()
        };
        let answers = |turn: &Turn| {
            matches!(
                turn.from.as_str(),
                "gpt" | "assistant" | "chatgpt" | "bing" | "bard" | "model"
            )
        };
        let pair = turns.windows(2).find(|pair| asks(&pair[0]) && answers(&pair[1]));
        Ok(pair.map(|pair| Entry {
            content: Content::Text(pair[0].value.as_str().into()),
            reply: Some(pair[1].value.as_str().into()),
            output: None,
        }))
    }
}

/// Reads ShareGPT: a JSON array of conversations, or one a line.
///
/// A conversation's prompt is its first question that has an answer after it.
///
/// # Errors
/// What is no JSON, an entry without `conversations`, and a file without any prompt.
pub fn sharegpt(mut file: impl BufRead) -> Result<Entries, DatasetError> {
    let mut found = Entries::default();
    skip_mark(&mut file)?;
    let (is_array, passed) = begins_an_array(&mut file)?;
    if is_array {
        let mut reader = serde_json::Deserializer::from_reader(file);
        (&mut reader).deserialize_seq(Taker(&mut found)).map_err(|error| {
            match error.io_error_kind() {
                Some(_) => DatasetError::Unreadable(error.to_string()),
                None => at(format!("line {}", passed + error.line()), without_line(&error)),
            }
        })?;
    } else {
        for_each_line(file, passed, |place, line| {
            let conversation: Conversation = serde_json::from_str(line).map_err(|error| {
                let words = without_line(&error);
                at(place.to_owned(), format!("it is no conversation of ShareGPT: {words}"))
            })?;
            found.take(conversation.pair().map_err(|words| at(place.to_owned(), words))?);
            Ok(())
        })?;
    }
    if found.entries.is_empty() {
        return Err(DatasetError::Empty(
            "no conversation has a turn from \"human\" and one from \"gpt\" behind it",
        ));
    }
    Ok(found)
}

impl Entries {
    fn take(&mut self, entry: Option<Entry>) {
        match entry {
            Some(entry) => self.entries.push(entry),
            None => self.passed_over += 1,
        }
    }
}

/// Takes conversation after conversation out of an array: the files are large, and most of a
/// conversation is not needed.
struct Taker<'a>(&'a mut Entries);

impl<'de> Visitor<'de> for Taker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of conversations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        for ordinal in 1.. {
            let told = |words: &dyn std::fmt::Display| {
                A::Error::custom(format!("entry {ordinal}: {words}"))
            };
            let next = sequence.next_element::<Conversation>().map_err(|error| told(&error))?;
            let Some(conversation) = next else { break };
            self.0.take(conversation.pair().map_err(|words| told(&words))?);
        }
        Ok(())
    }
}

/// Skips the mark of UTF-8 that some editors begin a file with.
fn skip_mark(file: &mut impl BufRead) -> Result<(), DatasetError> {
    for (ordinal, byte) in b"\xEF\xBB\xBF".iter().enumerate() {
        if file.fill_buf().map_err(unreadable)?.first() != Some(byte) {
            let begun = ordinal > 0;
            let error = || DatasetError::Unreadable("it is no text in UTF-8".to_owned());
            return if begun { Err(error()) } else { Ok(()) };
        }
        file.consume(1);
    }
    Ok(())
}

/// Whether the first thing in a file is the beginning of an array, and how many lines of blanks were
/// passed on the way.
fn begins_an_array(file: &mut impl BufRead) -> Result<(bool, usize), DatasetError> {
    let mut passed = 0;
    loop {
        let bytes = file.fill_buf().map_err(unreadable)?;
        match bytes.iter().position(|byte| !byte.is_ascii_whitespace()) {
            Some(place) => return Ok((bytes[place] == b'[', passed)),
            None if bytes.is_empty() => return Ok((false, passed)),
            None => {
                passed += bytes.iter().filter(|byte| **byte == b'\n').count();
                let blanks = bytes.len();
                file.consume(blanks);
            }
        }
    }
}

fn unreadable(error: std::io::Error) -> DatasetError {
    DatasetError::Unreadable(error.to_string())
}

/// Visits the lines that are not empty, with their places; `passed` lines came before.
fn for_each_line(
    file: impl BufRead,
    passed: usize,
    mut visit: impl FnMut(&str, &str) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    for (index, line) in file.lines().enumerate() {
        let line = line.map_err(unreadable)?;
        if !line.trim().is_empty() {
            visit(&format!("line {}", passed + index + 1), &line)?;
        }
    }
    Ok(())
}

/// What serde says, but for a place that counts within one entry.
fn without_line(error: &serde_json::Error) -> String {
    let words = error.to_string();
    cut(words.split(" at line ").next().unwrap_or(&words), WORDS)
}

/// A value in a message.
fn shown(value: &Value) -> String {
    cut(&value.to_string(), SHOWN)
}

/// The beginning of a text: what is wrong may be as long as the file.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Reads JSON Lines: `{"prompt": "…"}` or `{"messages": […]}`, with `output-tokens` (also
/// `output_tokens`, `max_tokens`) where an entry says its own. Other keys mean nothing.
///
/// # Errors
/// A line that is no JSON object, has neither or both, or a count that is none; a file without any
/// prompt.
pub fn jsonl(mut file: impl BufRead) -> Result<Entries, DatasetError> {
    let mut found = Entries::default();
    skip_mark(&mut file)?;
    for_each_line(file, 0, |place, line| {
        let value: Value = serde_json::from_str(line).map_err(|error| {
            let words = without_line(&error);
            let message =
                format!("it is no JSON: {words}; write one object a line, {{\"prompt\": \"…\"}}");
            at(place.to_owned(), message)
        })?;
        found.entries.push(entry(&value).map_err(|message| at(place.to_owned(), message))?);
        Ok(())
    })?;
    if found.entries.is_empty() {
        return Err(DatasetError::Empty("write one object a line, {\"prompt\": \"…\"}"));
    }
    Ok(found)
}

fn entry(value: &Value) -> Result<Entry, String> {
    let object = value
        .as_object()
        .ok_or_else(|| {
            format!(
                "{} is no object: write {{\"prompt\": \"…\"}}, or format = \"sharegpt\" for an array of \
                 conversations",
                shown(value)
            )
        })?;
    let content = match (object.get("prompt"), object.get("messages")) {
        (Some(Value::String(text)), None) if !text.is_empty() => {
            Content::Text(text.as_str().into())
        }
        (Some(_), None) => return Err("`prompt` is no text, or an empty one".to_owned()),
        (None, Some(Value::Array(messages))) if !messages.is_empty() => {
            if let Some(wrong) = messages.iter().find(|message| {
                !message.get("role").is_some_and(Value::is_string)
                    || message.get("content").is_none()
            }) {
                return Err(format!(
                    "{} is no message: write {{\"role\": \"user\", \"content\": \"…\"}}",
                    shown(wrong)
                ));
            }
            Content::Messages(Value::from(messages.clone()).to_string().into())
        }
        (None, Some(_)) => return Err("`messages` is no list, or an empty one".to_owned()),
        (Some(_), Some(_)) => {
            return Err("it has `prompt` and `messages`: write one of them".to_owned());
        }
        (None, None) => {
            return Err("it has neither `prompt` nor `messages`: write {\"prompt\": \"…\"}, or \
                        format = \"sharegpt\" for conversations"
                .to_owned());
        }
    };
    let keys = ["output-tokens", "output_tokens", "max_tokens"];
    let said = keys.iter().find_map(|key| object.get(*key).map(|count| (*key, count)));
    let output = match said {
        None | Some((_, Value::Null)) => None,
        Some((key, count)) => Some(count.as_u64().filter(|count| *count > 0).ok_or_else(|| {
            let count = shown(count);
            format!("`{key}` is {count}: write a whole number above 0")
        })?),
    };
    Ok(Entry { content, reply: None, output })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TALK: &str = r#"{ "id": "a", "conversations": [
        { "from": "system", "value": "Be brief." },
        { "from": "human", "value": "What is a quay?" },
        { "from": "gpt", "value": "A place to land at." },
        { "from": "human", "value": "And a pier?" } ] }"#;

    fn text(entry: &Entry) -> &str {
        match &entry.content {
            Content::Text(text) | Content::Messages(text) => text,
        }
    }

    #[test]
    fn sharegpt_is_an_array_or_a_conversation_a_line() {
        let one_line = TALK.replace('\n', " ");
        for file in [format!("[{TALK},\n{TALK}]"), format!("{one_line}\n\n{one_line}\n")] {
            let found = sharegpt(file.as_bytes()).unwrap();
            assert_eq!(found.entries.len(), 2);
            assert_eq!(text(&found.entries[0]), "What is a quay?");
            assert_eq!(found.entries[0].reply.as_deref(), Some("A place to land at."));
        }
    }

    #[test]
    fn a_place_counts_from_the_first_line_and_a_mark_of_utf_8_is_no_content() {
        for (conversations, wrong) in [(true, "[ 1 ]"), (true, "1"), (false, "1")] {
            for blanks in [0, 1, 3] {
                let file = format!("\u{feff}{}{wrong}", "\n".repeat(blanks));
                for at_once in [1, 2, 4096] {
                    let read = std::io::BufReader::with_capacity(at_once, file.as_bytes());
                    let read = if conversations { sharegpt(read) } else { jsonl(read) };
                    let error = read.unwrap_err().to_string();
                    let place = format!("line {}: ", blanks + 1);
                    assert!(error.starts_with(&place), "{at_once} of {file:?}: {error}");
                }
            }
        }
        let marked = "\u{feff}{\"prompt\": \"Once\"}";
        assert_eq!(jsonl(marked.as_bytes()).unwrap().entries.len(), 1);
        let talk = format!("\u{feff}[{TALK}]");
        assert_eq!(sharegpt(talk.as_bytes()).unwrap().entries.len(), 1);
    }

    #[test]
    fn conversations_without_an_answered_question_are_passed_over_and_counted() {
        let lonely = r#"{"conversations": [{"from": "gpt", "value": "Hello"}]}"#;
        let found =
            sharegpt(format!("[{lonely}, {TALK}, {{\"conversations\": []}}]").as_bytes()).unwrap();
        assert_eq!((found.entries.len(), found.passed_over), (1, 2));
        let none = sharegpt(format!("[{lonely}]").as_bytes()).unwrap_err();
        insta::assert_snapshot!(none, @r#"it has no prompts: no conversation has a turn from "human" and one from "gpt" behind it"#);
    }

    #[test]
    fn a_line_has_a_prompt_or_messages_and_may_say_its_output() {
        let file = r#"{"prompt": "Once", "output-tokens": 7, "id": 3}
{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}

{"prompt": "Twice", "output_tokens": null}
"#;
        let found = jsonl(file.as_bytes()).unwrap().entries;
        assert_eq!(
            found.iter().map(|entry| entry.output).collect::<Vec<_>>(),
            [Some(7), Some(9), None]
        );
        assert_eq!(text(&found[1]), r#"[{"content":"Hi","role":"user"}]"#);
        assert!(matches!(found[1].content, Content::Messages(_)));
    }

    #[test]
    fn a_mark_before_the_text_and_other_line_ends_change_nothing() {
        let one_line = TALK.replace('\n', " ");
        let same = |read: fn(&[u8]) -> Result<Entries, DatasetError>, plain: &str| {
            let marked = format!("\u{feff}{}", plain.replace('\n', "\r\n"));
            assert_eq!(read(marked.as_bytes()).unwrap(), read(plain.as_bytes()).unwrap());
        };
        same(|file| sharegpt(file), &format!("[{TALK}]\n"));
        same(|file| sharegpt(file), &format!("{one_line}\n{one_line}\n"));
        same(|file| jsonl(file), "{\"prompt\": \"Once\"}\n{\"prompt\": \"Twice\"}\n");
    }

    #[test]
    fn refusals_say_where_and_what_to_write() {
        let wrong = [
            sharegpt(&b"[{\"conversations\": []},\n {\"prompt\": \"x\"}]"[..]),
            sharegpt(&b"{\"conversations\": []}\n{\"conversations\": 3}"[..]),
            sharegpt(&b"[{\"conversations\": [}"[..]),
            jsonl(&b"{\"prompt\": \"x\"}\n{\"prompt\": 3}"[..]),
            jsonl(&b"{\"prompt\": \"x\"}\n{\"text\": \"x\"}"[..]),
            jsonl(&b"{\"prompt\": \"x\", \"messages\": []}"[..]),
            jsonl(&b"{\"messages\": [{\"role\": \"user\"}]}"[..]),
            jsonl(&b"{\"prompt\": \"x\", \"max_tokens\": 0}"[..]),
            sharegpt(&b"[3]"[..]),
            sharegpt(&b"[{\"conversations\": [\"x\"]}]"[..]),
            jsonl(&b"[1, 2]"[..]),
            jsonl(format!("[\"{}\"]", "x".repeat(1000)).as_bytes()),
            jsonl(&b"{\"prompt\": "[..]),
            jsonl(&b"\n"[..]),
        ];
        let told: Vec<String> =
            wrong.into_iter().map(|wrong| wrong.unwrap_err().to_string()).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
