//! Names: which ones a suite may give, and the nearest known one to a misspelled one.

/// Most bytes of a name that becomes part of a file's name.
pub const LONGEST: usize = 200;

/// What a suite's, a test's name may be: `[A-Za-z0-9][A-Za-z0-9_-]*`, not endless.
pub fn is_title(name: &str) -> bool {
    name.len() <= LONGEST
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// What a name that templates use may be: `[a-z][a-z0-9_]*`, since `a-b` is a subtraction there.
pub fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The nearest spelling that [`is_word`] accepts, if there is one.
pub fn as_word(name: &str) -> Option<String> {
    let word: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .collect();
    is_word(&word).then_some(word)
}

/// The nearest spelling that [`is_title`] accepts, if there is one.
pub fn as_title(name: &str) -> Option<String> {
    let title: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let title = title.trim_matches(['-', '_']).to_owned();
    is_title(&title).then_some(title)
}

/// The known name that a misspelled one is nearest to, if any is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['_', ' '], "-");
    let name = plain(name);
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&name, &plain(candidate)), candidate))
        .filter(|(score, candidate)| {
            // Short names are near each other by chance: there one letter may differ.
            let steps = strsim::damerau_levenshtein(&name, &plain(candidate));
            steps <= 1 + name.len() / 4 && (*score > 0.8 || steps == 1 && name.len() > 1)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `did you mean …?`, or else the list of all that is known.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, all: &str) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => list(&known, all),
    }
}

/// `tests are a, b`, cut where it would fill the screen.
pub fn list(known: &[&str], all: &str) -> String {
    const SHOWN: usize = 30;
    match known.len() {
        0 => "there are none".to_owned(),
        n if n > SHOWN => format!("{all} {} and {} more", known[..SHOWN].join(", "), n - SHOWN),
        _ => format!("{all} {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_name_finds_its_neighbour_only() {
        assert_eq!(nearest("durations", ["duration", "kind"]), Some("duration"));
        assert_eq!(nearest("min_tokens", ["min-tokens", "max-output"]), Some("min-tokens"));
        assert_eq!(nearest("frequency", ["duration", "kind"]), None);
        assert_eq!(nearest("mx", ["metric", "max", "min"]), Some("max"));
        assert_eq!(nearest("ab", ["xy"]), None);
        assert_eq!(nearest("a", ["b"]), None);
    }

    #[test]
    fn names_for_templates_have_no_dash() {
        assert!(is_word("max_model_len"));
        assert!(!is_word("max-model-len"));
        assert_eq!(as_word("Max-Model-Len").as_deref(), Some("max_model_len"));
        assert!(is_title("inkling-small-h200x8"));
        assert_eq!(as_title("my suite!").as_deref(), Some("my-suite"));
    }
}
