//! Version requirements, `0.29.0` or `>=0.28, <0.30`: their shape.
//!
//! What an engine says is compared with them elsewhere.

use crate::quantity::Unreadable;

/// Operators that a requirement may begin with, longest first.
const OPERATORS: [&str; 6] = [">=", "<=", "==", ">", "<", "="];

/// Checks that a text is a version requirement.
///
/// # Errors
/// An unknown operator, an empty part, a version without a digit or with odd characters.
pub fn check_requirement(text: &str) -> Result<(), Unreadable> {
    const HELP: &str = "write a version, \"0.29.0\", or bounds, \">=0.28, <0.30\"";
    let refuse =
        |message: String, help: &str| Err(Unreadable { message, help: Some(help.to_owned()) });
    if text.trim().is_empty() {
        return refuse("an empty text is not a version".to_owned(), HELP);
    }
    for part in text.split(',') {
        let part = part.trim();
        if part.starts_with(['^', '~', '!']) {
            return refuse(
                format!("`{part}` has an operator that is not known here"),
                "operators are >=, <=, >, < and =; write bounds, like \">=0.28, <0.30\"",
            );
        }
        let version = OPERATORS
            .iter()
            .find_map(|operator| part.strip_prefix(operator))
            .unwrap_or(part)
            .trim();
        if version.contains('*') {
            return refuse(
                format!("`{version}` has a wildcard"),
                "write bounds instead, like \">=0.28, <0.29\"",
            );
        }
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_');
        if !version.contains(|c: char| c.is_ascii_digit())
            || !version.starts_with(|c: char| c.is_ascii_alphanumeric())
            || !version.chars().all(known)
        {
            return refuse(format!("`{part}` is not a version"), HELP);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_versions_or_bounds() {
        for text in ["0.29.0", ">=0.28, <0.30", "b6099", "v0.4.9", "0.26.1.dev45+gabc123", "> 570"]
        {
            assert_eq!(check_requirement(text), Ok(()), "{text}");
        }
        for text in ["", "latest", "^0.29", "0.29.*", ">=0.28,", "0.29 0.30", "{{ env.V }}"] {
            assert!(check_requirement(text).is_err(), "{text}");
        }
    }
}
