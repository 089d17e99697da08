//! Redaction: examples, and the stream against the whole text.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

use super::*;

const KEY: &str = "sk-p+q/r==s&t u";

fn hides(secret: &str, texts: &[&str]) {
    let redactor = Redactor::new(&[secret.to_owned()]);
    for text in texts {
        let out = redactor.text(text);
        assert_eq!(out.matches(HIDDEN).count(), 1, "{text}: {out}");
        let rest = out.replace(HIDDEN, "");
        assert!(rest.len() + 8 <= text.len() && !rest.contains("sk-p"), "{text}: {out}");
    }
}

#[test]
fn a_secret_is_hidden_in_every_spelling() {
    hides(
        KEY,
        &[
            "Authorization: Bearer sk-p+q/r==s&t u",
            "https://user:sk-p%2Bq%2Fr%3D%3Ds%26t%20u@host/",
            "?key=sk-p%2bq%2fr%3d%3ds%26t%20u",
            "form: sk-p%2Bq%2Fr%3D%3Ds%26t+u",
            "form: sk-p%2bq%2fr%3d%3ds%26t+u",
            "<b>sk-p+q/r==s&amp;t u</b>",
            r#"{"php": "sk-p+q\/r==s&t u"}"#,
        ],
    );
    hides("it's a key", &["echo 'it'\\''s a key'", "echo 'it'\"'\"'s a key'", "it&#39;s a key"]);
    hides("schlüssel🔑", &["schl\\u00fcssel\\ud83d\\udd11", "schl\\u00FCssel\\uD83D\\uDD11"]);
    let quoted = "pass\"word\\long";
    hides(quoted, &[r#"repr: 'pass"word\\long'"#]);
    let json = serde_json::json!({ "key": quoted }).to_string();
    let redactor = Redactor::new(&[quoted.to_owned()]);
    assert_eq!(redactor.text(&json), "{\"key\":\"[redacted]\"}");
    let twice = serde_json::json!({ "body": json }).to_string();
    assert_eq!(redactor.text(&twice), r#"{"body":"{\"key\":\"[redacted]\"}"}"#);
}

#[test]
fn other_text_stays_as_it_is() {
    let redactor = Redactor::new(&["abcdefgh".to_owned()]);
    let text = "abcdefg is not it, ünïcode stays";
    assert_eq!(redactor.text(text), text);
}

#[test]
fn secrets_that_overlap_or_hold_each_other_leave_nothing() {
    let redactor = Redactor::new(&["abcdefgh".into(), "efghijkl".into(), "bcdefghijklmnop".into()]);
    assert_eq!(redactor.text("<abcdefghijkl>"), "<[redacted]>");
    assert_eq!(redactor.text("<abcdefghijklmnop>"), "<[redacted]>");
    assert_eq!(redactor.text("<abcdefgh><efghijkl>"), "<[redacted]><[redacted]>");
    assert_eq!(Redactor::new(&["aaaaaaaa".into()]).text("<aaaaaaaaaaaa>"), "<[redacted]>");
    // What follows a base64 spelling may be a secret itself.
    let text = format!("<{}abcdefgh>", STANDARD.encode("abcdefgh").trim_end_matches('='));
    assert_eq!(redactor.text(&text), "<[redacted]>");
}

#[test]
fn the_lines_of_a_long_secret_are_secrets() {
    let pem = "-----BEGIN KEY-----\nMIIBVgIBADANBgkq\r\nhkiG9w0BAQEFAASC\n-----------\n";
    let redactor = Redactor::new(&[pem.to_owned()]);
    let log = "12:00 key: MIIBVgIBADANBgkq\n12:00 hkiG9w0BAQEFAASC\n-----------";
    assert_eq!(redactor.text(log), "12:00 key: [redacted]\n12:00 [redacted]\n-----------");
    assert_eq!(redactor.text(&format!("<{pem}>")), "<[redacted]\n>");
}

#[test]
fn a_mask_is_as_long_as_what_it_hides() {
    let redactor = Redactor::new(&["abcdefgh".into(), "schlüssel-fürs-schloss".into()]);
    let text = "abcdefgh und schlüssel-fürs-schloss.";
    let masked = redactor.mask(text);
    assert_eq!(masked, "******** und [redacted]**************.");
    assert_eq!(masked.len(), text.len());
}

#[test]
fn what_comes_to_light_when_control_characters_go_is_hidden() {
    let redactor = Redactor::new(&["sk-secret-key".into()]);
    assert_eq!(redactor.said("key \u{1b}[1msk-\u{1b}[0msecret-key"), "key [redacted]");
    assert_eq!(redactor.said("a\nsk-\u{7}secret-key\nb"), "a\n[redacted]\nb");
    assert_eq!(redactor.said("\u{1b}[1mcolour\u{1b}[0m"), "\u{1b}[1mcolour\u{1b}[0m");
}

#[test]
fn the_beginning_of_a_secret_at_a_cut_is_hidden() {
    let redactor = Redactor::new(&["sk-secret-key".into()]);
    assert_eq!(redactor.said("key sk-secret-k…: no JSON"), "key [redacted]…: no JSON");
    assert_eq!(redactor.said("sk-sec… and sk… are 2 lines …"), "[redacted]… and sk… are 2 lines …");
}

#[test]
fn short_values_are_no_secrets() {
    let refused = check_secret("api_key", "abc").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`api_key` has 3 characters: that is no secret, put it in [vars]"
    );
    assert!(check_secret("api_key", "abcdefgh").is_ok());
    assert!(check_secret("api_key", "abcdefg\n").is_err());
    assert_eq!(Redactor::new(&["abc".to_owned()]).text("abc"), "abc");
}

#[test]
fn what_may_become_a_secret_is_held_back_and_no_more() {
    let mut stream = Stream::new(Redactor::new(&["sk-secret-key".to_owned()]));
    let mut out = Vec::new();
    stream.push(b"ready\nuses sk", &mut out);
    assert_eq!(out, b"ready\nuses ");
    stream.push(b"ip\nanother sk-secr", &mut out);
    assert_eq!(out, b"ready\nuses skip\nanother ");
    stream.push(b"et-key, well", &mut out);
    assert_eq!(out, b"ready\nuses skip\nanother [redacted], wel");
    stream.pause(&mut out);
    assert_eq!(out, b"ready\nuses skip\nanother [redacted], well");
    stream.push(b" sk-", &mut out);
    stream.pause(&mut out);
    assert!(out.ends_with(b"well "));
    stream.end(&mut out);
    assert!(out.ends_with(b"well sk-"));
}

/// A text of bytes with secrets in it, whole, in part, and encoded; and where it is cut.
fn streamed() -> impl Strategy<Value = (Vec<String>, Vec<u8>, Vec<usize>)> {
    // Few different characters, so that secrets overlap and hold each other.
    let secrets = prop::collection::vec("[abA+/é\"]{8,11}", 1..4);
    let part = (0..9_u8, any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..5));
    (secrets, prop::collection::vec(part, 0..12)).prop_flat_map(|(secrets, parts)| {
        let mut text = Vec::new();
        for (kind, which, noise) in parts {
            let secret = which.get(&secrets).clone();
            let at = which.index(secret.len());
            match kind {
                0 | 1 => text.extend(secret.bytes()),
                2 => text.extend(&secret.as_bytes()[..at]),
                3 => text.extend(&secret.as_bytes()[at..]),
                4 => text.extend(STANDARD.encode([&noise, secret.as_bytes()].concat()).bytes()),
                5 => text.extend(URL_SAFE.encode([secret.as_bytes(), &noise].concat()).bytes()),
                6 => text.extend(serde_json::json!(secret).to_string().bytes()),
                _ => text.extend(noise),
            }
        }
        let cuts = prop::collection::vec(0..=text.len(), 0..8);
        (Just(secrets), Just(text), cuts)
    })
}

/// The slow way: every byte of every occurrence, found one by one.
fn by_hand(redactor: &Redactor, text: &[u8]) -> Vec<u8> {
    let mut hidden = vec![false; text.len()];
    for spelling in &redactor.search.as_ref().unwrap().spellings {
        for place in 0..text.len() {
            if text[place..].starts_with(&spelling.text) {
                hidden[spelling.reach(text, place)].fill(true);
            }
        }
    }
    let mut out = Vec::new();
    for place in 0..text.len() {
        match (hidden[place], place > 0 && hidden[place - 1]) {
            (true, false) => out.extend(HIDDEN.bytes()),
            (true, true) => {}
            (false, _) => out.push(text[place]),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn a_stream_hides_what_the_whole_text_hides((secrets, text, mut cuts) in streamed()) {
        cuts.sort_unstable();
        let redactor = Redactor::new(&secrets);
        let whole = by_hand(&redactor, &text);
        if let Ok(text) = std::str::from_utf8(&text) {
            prop_assert_eq!(redactor.text(text).into_bytes(), whole.clone());
            prop_assert_eq!(redactor.mask(text).len(), text.len());
        }
        for secret in &secrets {
            prop_assert!(!whole.windows(secret.len()).any(|it| it == secret.as_bytes()));
        }
        let mut stream = Stream::new(redactor);
        let mut out = Vec::new();
        let mut at = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            stream.push(&text[at..cut], &mut out);
            at = cut;
        }
        stream.end(&mut out);
        prop_assert_eq!(out, whole);
    }
}

proptest! {
    #[test]
    fn base64_hides_nothing_from_us(
        secret in "[a-zA-Z0-9+/_=-]{8,40}",
        before in proptest::collection::vec(any::<u8>(), 0..7),
        after in proptest::collection::vec(any::<u8>(), 0..7),
        url_safe: bool,
    ) {
        let mut bytes = before.clone();
        bytes.extend_from_slice(secret.as_bytes());
        bytes.extend_from_slice(&after);
        let text = if url_safe { URL_SAFE.encode(&bytes) } else { STANDARD.encode(&bytes) };
        let out = Redactor::new(&[secret]).text(&text);
        prop_assert!(out.contains(HIDDEN), "{} of {}", out, text);
        // What is left may hold at most the neighbours.
        let left = out.replace(HIDDEN, "").replace('=', "").len();
        prop_assert!(left <= (before.len() + after.len()) * 8 / 6 + 2, "{}", out);
    }

    #[test]
    fn any_text_goes_through(secret in "[\\PC&&\\S]{8,12}", text in "\\PC{0,60}") {
        let out = Redactor::new(std::slice::from_ref(&secret)).text(&format!("{text}{secret}{text}"));
        prop_assert!(!out.contains(&secret) || HIDDEN.contains(&secret));
    }
}
