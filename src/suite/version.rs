//! Version requirements, `0.29.0` or `>=0.28, <0.30`: their shape.
//!
//! What an engine says is compared with them elsewhere.

use crate::quantity::Unreadable;

/// Operators that a requirement may begin with, longest first.
const OPERATORS: [&str; 7] = [">=", "<=", "==", "!=", ">", "<", "="];

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
        if part.starts_with(['^', '~']) {
            return refuse(
                format!("`{part}` has an operator that is not known here"),
                "operators are >=, <=, >, <, = and !=; write bounds, like \">=0.28, <0.30\"",
            );
        }
        let version =
            OPERATORS.iter().find_map(|sign| part.strip_prefix(sign)).unwrap_or(part).trim();
        // How it was built (`+cu132`, `-dev`) is not compared.
        let plain = version.split(['+', '-']).next().unwrap_or_default();
        let plain = plain.strip_suffix(".*").unwrap_or(plain);
        let bare = plain.strip_prefix(['v', 'V', 'b']).unwrap_or(plain);
        let readable = bare.split('.').all(|number| {
            number.starts_with(|c: char| c.is_ascii_digit())
                && number.chars().all(|c| c.is_ascii_alphanumeric())
        });
        if !readable {
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
        for text in
            ["0.29.0", ">=0.28, <0.30", "b6099", "v0.4.9", "0.26.1rc2+gabc123", "0.29.*", "> 570"]
        {
            assert_eq!(check_requirement(text), Ok(()), "{text}");
        }
        for text in ["", "latest", "^0.29", "0.26.1.dev45", ">=0.28,", "0.29 0.30", "{{ env.V }}"] {
            assert!(check_requirement(text).is_err(), "{text}");
        }
    }
}
