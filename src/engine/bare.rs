//! Bare secrets: values that nobody declared as secret and that plainly are one, by the name that they
//! are given under and by what they look like.
//!
//! `--api-key sk-…` is one, `--max-num-batched-tokens 8192` and `--api-key-file key.txt` are none. It
//! decides what looks like a secret; where that is said and hidden is decided elsewhere.

use std::ops::Range;

use super::redact::SHORTEST;

/// A value that looks like a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bare {
    /// What it is given as: `--api-key`, `HF_TOKEN`, `Bearer`, `url`.
    pub name: String,
    /// The value.
    pub value: String,
    /// Where it stands in the text that was read.
    pub span: Range<usize>,
}

/// Who set a value: what an author wrote next to `--api-key` is a key; what an environment happens to
/// have must look like one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Written,
    Inherited,
}

/// How surely a name is that of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Sure,
    /// `…_KEY`, `…_TOKEN`: the value must look random.
    Likely,
}

/// Values of environment variables that look like secrets.
pub fn inherited(variables: impl Iterator<Item = (String, String)>) -> Vec<String> {
    variables
        .filter(|(name, value)| looks_secret(name, value.trim(), Origin::Inherited))
        .map(|(_, value)| value)
        .collect()
}

/// Bare secrets in arguments.
pub fn in_arguments(argv: &[String]) -> Vec<Bare> {
    let mut found = Vec::new();
    let words: Vec<Word<'_>> = argv.iter().map(|word| (0..word.len(), &**word)).collect();
    in_words(&words, &mut found);
    // A line for a shell is one argument.
    let lines = argv.iter().filter(|word| word.contains(char::is_whitespace));
    lines.for_each(|line| found.extend(in_text(line)));
    found
}

/// A bare secret as the value of a variable or a header.
pub fn in_value(name: &str, value: &str) -> Vec<Bare> {
    let mut found = Vec::new();
    if looks_secret(name, value, Origin::Written) {
        found.push(Bare { name: name.to_owned(), value: value.to_owned(), span: 0..value.len() });
    }
    found.extend(in_text(value));
    found
}

/// Bare secrets in the text of a suite, a configuration or a shell's line.
pub fn in_text(text: &str) -> Vec<Bare> {
    let mut found = Vec::new();
    let mut at = 0;
    // What a template puts there is no literal.
    let plain = without_templates(text);
    for line in plain.split_inclusive('\n') {
        if !line.trim_start().starts_with('#') {
            in_words(&words(line, at), &mut found);
        }
        at += line.len();
    }
    found
}

/// A word and where it stands.
type Word<'a> = (Range<usize>, &'a str);

/// `text` with each `{{ … }}` overwritten, as long as before.
fn without_templates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find("{{") {
        let end = rest[begin..].find("}}").map_or(rest.len(), |end| begin + end + 2);
        out.push_str(&rest[..begin]);
        out.push_str(&"\0".repeat(end - begin));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// The words of a line of TOML, YAML, JSON or shell: quotes, commas and brackets stand between words,
/// `=`, `:` and braces are words of their own where blanks or quotes surround them.
fn words(line: &str, offset: usize) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut begin = None;
    let mut end_word = |begin: &mut Option<usize>, end: usize| {
        if let Some(start) = begin.take() {
            words.push((offset + start..offset + end, &line[start..end]));
        }
    };
    for (at, c) in line.char_indices() {
        let between =
            c.is_whitespace() || matches!(c, '"' | '\'' | '`' | ',' | '[' | ']' | '(' | ')');
        let alone = matches!(c, '{' | '}') || (matches!(c, '=' | ':' | ';') && begin.is_none());
        if between || alone {
            end_word(&mut begin, at);
        }
        if alone {
            begin = Some(at);
            end_word(&mut begin, at + c.len_utf8());
        } else if !between && begin.is_none() {
            begin = Some(at);
        }
    }
    end_word(&mut begin, line.len());
    words
}

fn in_words(words: &[Word<'_>], found: &mut Vec<Bare>) {
    let mut add = |name: &str, span: Range<usize>, value: &str| {
        found.push(Bare { name: name.to_owned(), value: value.to_owned(), span });
    };
    for (at, (span, word)) in words.iter().enumerate() {
        let part = |range: Range<usize>| span.start + range.start..span.start + range.end;
        if word.contains("://") {
            for (name, range) in in_url(word) {
                add(name, part(range.clone()), &word[range]);
            }
        } else if let Some((name, value)) = word.split_once('=').filter(|(_, it)| !it.is_empty()) {
            // `--api-key=…`, `HF_TOKEN=…`
            let range = word.len() - value.len()..word.len();
            if looks_secret(name, value, Origin::Written) {
                add(name, part(range), value);
            }
        }
        let name = word.trim_end_matches([':', '=']);
        let mut next = words[at + 1..].iter();
        let mut value = next.next();
        if value.is_some_and(|(_, word)| matches!(*word, "=" | ":")) {
            value = next.next();
        } else if !name.starts_with('-') && name.len() == word.len() && name != "Bearer" {
            // Two words side by side are a name and its value only where the name says so.
            continue;
        }
        let Some((span, value)) = value else { continue };
        // `Authorization: Bearer …`
        let scheme = matches!(value.to_ascii_lowercase().as_str(), "bearer" | "basic" | "token");
        if !scheme && looks_secret(name, value, Origin::Written) {
            add(name, span.clone(), value);
        }
    }
}

/// User names with passwords, and parameters that are named like secrets.
fn in_url(url: &str) -> Vec<(&'static str, Range<usize>)> {
    let Some(begin) = url.find("://").map(|at| at + 3) else { return Vec::new() };
    let end = url[begin..].find(['/', '?', '#']).map_or(url.len(), |end| begin + end);
    let mut found = Vec::new();
    let mut add = |range: Range<usize>| found.push(("url", range));
    if let Some(user_end) = url[begin..end].rfind('@').map(|at| begin + at)
        && literal(&url[begin..user_end])
    {
        match url[begin..user_end].find(':').map(|at| begin + at + 1) {
            Some(password) => {
                add(begin..user_end);
                if user_end - password >= SHORTEST {
                    add(password..user_end);
                }
            }
            None if random(&url[begin..user_end], 16) => add(begin..user_end),
            None => {}
        }
    }
    if let Some(query) = url[end..].find('?').map(|at| end + at + 1) {
        let mut at = query;
        for pair in url[query..].split(['&', '#']) {
            if let Some((name, value)) = pair.split_once('=')
                && looks_secret(name, value, Origin::Written)
            {
                add(at + name.len() + 1..at + pair.len());
            }
            at += pair.len() + 1;
        }
    }
    found
}

fn looks_secret(name: &str, value: &str, origin: Origin) -> bool {
    if !literal(value) || value.chars().count() < SHORTEST {
        return false;
    }
    match (sort(name), origin) {
        (Some(Sort::Sure), Origin::Written) => !is_word(value),
        (Some(Sort::Sure), Origin::Inherited) => random(value, SHORTEST),
        (Some(Sort::Likely), _) => random(value, 12),
        (None, _) => false,
    }
}

/// How surely a value of that name is a secret.
fn sort(name: &str) -> Option<Sort> {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let words: Vec<&str> = name.split(['-', '_', '.']).filter(|word| !word.is_empty()).collect();
    let (last, before) = words.split_last()?;
    let before = before.last().copied();
    match *last {
        // What tells of a secret and is none.
        "file" | "path" | "dir" | "name" | "type" | "mode" | "env" | "var" | "count" | "length"
        | "limit" | "size" | "url" | "uri" | "enabled" | "required" | "header" | "prefix"
        | "format" | "policy" | "version" | "store" | "manager" | "provider" => None,
        "bearer" | "authorization" | "apikey" | "passwd" | "pwd" if words.len() == 1 => {
            Some(Sort::Sure)
        }
        "apikey" | "passphrase" | "passwd" | "credential" | "credentials" => Some(Sort::Sure),
        "key" => match before {
            Some("api" | "access" | "secret" | "private" | "auth" | "encryption" | "signing") => {
                Some(Sort::Sure)
            }
            Some(_) => Some(Sort::Likely),
            None => None,
        },
        "token" => match before {
            None
            | Some(
                "hf" | "hub" | "huggingface" | "auth" | "access" | "api" | "bearer" | "refresh"
                | "session" | "github" | "gh" | "gitlab" | "job" | "admin" | "registry" | "wandb",
            ) => Some(Sort::Sure),
            // Of models, not of doors.
            Some(
                "eos" | "bos" | "pad" | "unk" | "mask" | "sep" | "cls" | "stop" | "image" | "audio"
                | "video" | "special" | "end" | "start" | "per" | "max" | "min" | "num" | "first"
                | "last" | "next" | "think" | "tool",
            ) => None,
            Some(_) => Some(Sort::Likely),
        },
        _ if words.iter().any(|word| matches!(*word, "password" | "secret" | "secrets")) => {
            Some(Sort::Sure)
        }
        // AWS_ACCESS_KEY_ID
        "id" if before == Some("key") => Some(Sort::Likely),
        _ => None,
    }
}

/// Whether a value is itself, and not where or how to get it.
fn literal(value: &str) -> bool {
    let elsewhere = ["/", "./", "../", "~", "$", "<", "{", "}", "%", "-", "secret.", "env."];
    !(elsewhere.iter().any(|begin| value.starts_with(begin))
        || value.contains("://")
        || value.contains("<redacted:")
        || value.contains(|c: char| c.is_whitespace() || c == '\0')
        || value.parse::<f64>().is_ok())
}

/// Whether it is one of the words that stand for having no secret.
fn is_word(value: &str) -> bool {
    let words = [
        "disabled",
        "required",
        "optional",
        "undefined",
        "none-required",
        "not-needed",
        "no-key",
        "placeholder",
        "redacted",
        "generate",
        "anonymous",
        "password",
        "true",
        "false",
    ];
    words.iter().any(|word| value.eq_ignore_ascii_case(word))
}

/// Whether it looks like what nobody would say: long enough, and letters mixed with figures or capitals
/// with small ones, or longer than words are.
fn random(value: &str, least: usize) -> bool {
    let has = |kind: fn(char) -> bool| usize::from(value.contains(kind));
    let other = |c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.' | '/' | ',' | ':');
    let kinds = has(|c| c.is_lowercase())
        + has(|c| c.is_uppercase())
        + has(|c| c.is_ascii_digit())
        + usize::from(value.contains(other));
    value.chars().count() >= least && (kinds >= 2 || value.chars().count() >= 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(found: Vec<Bare>) -> Vec<String> {
        found.into_iter().map(|bare| bare.value).collect()
    }

    #[test]
    fn what_plainly_is_a_secret_is_found() {
        for (text, value) in [
            ("vllm serve m --api-key token-abc123 --port 1", "token-abc123"),
            ("vllm serve m --api-key=token-abc123", "token-abc123"),
            ("command = [\"vllm\", \"--api-key\", \"verysecret\"]", "verysecret"),
            ("--hf-token hf_abcDEF123456", "hf_abcDEF123456"),
            ("headers = { authorization = \"Bearer abc.def.ghi\" }", "abc.def.ghi"),
            ("x-api-key = \"0123456789abcdef\"", "0123456789abcdef"),
            ("-H 'Authorization: Bearer sk-12345678'", "sk-12345678"),
            ("env = { HF_TOKEN = \"hf_abcdefgh\" }", "hf_abcdefgh"),
            ("MY_SERVICE_KEY = \"Zm9vYmFyYmF6\"", "Zm9vYmFyYmF6"),
            ("DB_PASSWORD=correcthorse vllm serve", "correcthorse"),
            ("THE_SECRET_OF_IT = \"abcdefgh\"", "abcdefgh"),
            ("{\"api_key\": \"sk-12345678\"}", "sk-12345678"),
            ("url = \"http://127.0.0.1:8000/?api_key=sk-12345678&x=1\"", "sk-12345678"),
        ] {
            let found = in_text(text);
            assert_eq!(values(found.clone()), [value], "{text}");
            assert_eq!(&text[found[0].span.clone()], value);
            if !text.contains(['"', '\'']) {
                let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
                assert_eq!(values(in_arguments(&words)), [value], "{text}");
            }
        }
        assert_eq!(
            values(in_text("url = \"http://user:passw0rd@host:80/v1\"")),
            ["user:passw0rd", "passw0rd"]
        );
        assert_eq!(values(in_text("http://u:pw@host")), ["u:pw"]);
        let line = ["/bin/sh", "-c", "X=1 vllm --api-key 'sk-12345678'"].map(str::to_owned);
        assert_eq!(values(in_arguments(&line)), ["sk-12345678"]);
        assert_eq!(values(in_value("HF_TOKEN", "hf_abcdefgh")), ["hf_abcdefgh"]);
        assert_eq!(values(in_value("x-tenant", "Bearer abc.def.ghi")), ["abc.def.ghi"]);
    }

    #[test]
    fn what_only_sounds_like_one_is_not() {
        for text in [
            "vllm serve m --max-num-batched-tokens 8192 --tokenizer org/model-7B",
            "--tokenizer-mode mistral4096 --api-key-file keys/Prod1234.txt",
            "--api-key /run/secrets/key1 --api-key {{ secret.api_key }} --api-key=$API_KEY",
            "--api-key <redacted:api_key> --api-key EMPTY --api-key disabled",
            "--eos-token <|endoftext|> --stop-token StopHere1234 --num-tokens 12345678",
            "--ssl-keyfile server.key --key-cache-dtype fp8_e4m3fn",
            "[secrets]\napi_key = { generate = true }\nother_key = { env = \"MY_API_KEY_1\" }",
            "headers = { authorization = \"Bearer {{ secret.api_key }}\" }",
            "url = \"http://127.0.0.1:8000/v1?max_tokens=12345678\"",
            "url = \"http://user@host/\"\nurl = \"http://u:{{ secret.p }}@host\"",
            "# --api-key sk-12345678",
            "SORT_KEY = \"user_id\"\nVLLM_CACHE_KEY = \"prefill-decode\"",
            "the api key sk-12345678 is said in prose",
            "SECRET_NAME = \"Abc12345\"\nPASSWORD_FILE = \"secrets/Abc12345\"",
        ] {
            assert_eq!(values(in_text(text)), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn an_environment_has_secrets_and_settings() {
        let kept = |name: &str, value: &str| {
            !inherited([(name.to_owned(), value.to_owned())].into_iter()).is_empty()
        };
        for (name, value) in [
            ("HF_TOKEN", "hf_abcdEFGH1234"),
            ("OPENAI_API_KEY", "sk-1234567890"),
            ("CI_JOB_TOKEN", "glcbt-64_abcdefghij"),
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENGbPxRfiCY"),
            ("PGPASSWORD_SECRET", "hunter22"),
        ] {
            assert!(kept(name, value), "{name}");
        }
        for (name, value) in [
            ("HF_TOKEN", "disabled"),
            ("HF_TOKEN", "short1"),
            ("HF_TOKEN_PATH", "/home/me/.cache/token1"),
            ("USE_SECRET", "no-thanks"),
            ("SSH_KEY", "/home/me/.ssh/id_ed25519"),
            ("MAX_TOKENS", "123456789"),
            ("TOKENIZERS_PARALLELISM", "abcdEFGH1234"),
            ("API_KEY_URL", "abcdEFGH1234"),
        ] {
            assert!(!kept(name, value), "{name}={value}");
        }
    }
}
