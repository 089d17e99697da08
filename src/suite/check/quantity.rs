//! Quantities and names as typed, read with a problem at their place.

use std::time::Duration;

use super::Checker;
use crate::quantity::{Size, Tokens, Unreadable, parse_duration, parse_percent, parse_size};
use crate::suite::file::{
    At, DurationText, PercentText, Scalar, TokenCount, ToleranceText, VersionText,
};
use crate::suite::name;
use crate::suite::problem::Problem;

/// From here on a token count is a slip, and its products would not fit.
const MOST_TOKENS: u64 = 1 << 40;

impl Checker<'_> {
    /// Turns a refusal into a problem at a place.
    pub(super) fn read<T>(
        &mut self,
        span: &std::ops::Range<usize>,
        result: Result<T, Unreadable>,
    ) -> Option<T> {
        result
            .map_err(|refused| {
                self.say(
                    Problem::at("quantity", span.clone(), refused.message).maybe_help(refused.help),
                );
            })
            .ok()
    }

    /// A duration, or the default where none is written.
    pub(super) fn duration(
        &mut self,
        at: Option<&At<DurationText>>,
        default: Duration,
    ) -> Duration {
        let Some(at) = at else { return default };
        match self.read(&at.span, parse_duration(&at.value.0)) {
            Some(Duration::ZERO) => {
                self.say(
                    Problem::at("number-range", at.span.clone(), "a duration of nothing")
                        .help("write a duration like \"30s\""),
                );
                default
            }
            Some(duration) => duration,
            None => default,
        }
    }

    /// A percentage as a fraction, below `most`.
    pub(super) fn percent(&mut self, at: Option<&At<PercentText>>, most: f64) -> Option<f64> {
        let at = at?;
        let value = self.read(&at.span, parse_percent(&at.value.0))?;
        if value > most {
            let message = format!("`{}` is more than {}%", at.value.0, most * 100.0);
            self.say(
                Problem::at("number-range", at.span.clone(), message)
                    .help(format!("write at most \"{}%\"", most * 100.0)),
            );
            return None;
        }
        Some(value)
    }

    /// `prompt-tolerance` or `output-tolerance`: a fraction, or `None` for `"off"`.
    pub(super) fn tolerance(&mut self, at: &At<ToleranceText>) -> Option<f64> {
        if at.value.0 == "off" {
            return None;
        }
        let read = parse_percent(&at.value.0).map_err(|refused| Unreadable {
            help: Some("write a percentage like \"0.5%\", or \"off\"".to_owned()),
            ..refused
        });
        self.read(&at.span, read)
    }

    /// A token count from 1 on.
    pub(super) fn tokens(&mut self, span: &std::ops::Range<usize>, value: &Scalar) -> Option<u64> {
        let count = match value {
            Scalar::Integer(n) => u64::try_from(*n).map_err(|_| Unreadable {
                message: format!("{n} is not a token count"),
                help: Some("write a whole number from 1 on".to_owned()),
            }),
            Scalar::Text(text) => text.parse::<Tokens>().map(|tokens| tokens.0),
            Scalar::Float(_) | Scalar::Bool(_) => Err(Unreadable {
                message: format!("`{value}` is not a token count"),
                help: Some(
                    "write a whole number, or one with K (1024) or M (1024²), like \"8K\""
                        .to_owned(),
                ),
            }),
        };
        match self.read(span, count)? {
            0 => {
                self.say(
                    Problem::at("number-range", span.clone(), "no tokens at all")
                        .help("write a token count from 1 on"),
                );
                None
            }
            MOST_TOKENS.. => {
                self.say(
                    Problem::at("number-range", span.clone(), "more tokens than any engine holds")
                        .help("write a smaller token count"),
                );
                None
            }
            n => Some(n),
        }
    }

    /// A token count, or the default where none is written.
    pub(super) fn token_count(&mut self, at: Option<&At<TokenCount>>, default: u64) -> u64 {
        at.and_then(|at| self.tokens(&at.span, &at.value.0)).unwrap_or(default)
    }

    /// A size, and whether it is a floor (`>=`).
    pub(super) fn size(&mut self, at: &At<crate::suite::file::SizeText>) -> Option<(Size, bool)> {
        let text = at.value.0.trim();
        let (rest, floor) =
            text.strip_prefix(">=").map_or((text, false), |rest| (rest.trim(), true));
        let read = parse_size(rest).map_err(|refused| Unreadable {
            help: Some("write a size like \"141GB\", or a floor like \">=140GiB\"".to_owned()),
            ..refused
        });
        self.read(&at.span, read).map(|size| (size, floor))
    }

    /// A version requirement.
    pub(super) fn version(&mut self, at: Option<&At<VersionText>>) -> Option<String> {
        let at = at?;
        if self.not_a_template(&at.value.0, &at.span) {
            return None;
        }
        let read = crate::version::check(&at.value.0).map_err(|refused| Unreadable {
            message: format!("`{}` is not a version", refused.text),
            help: Some(
                if refused.text.starts_with(['^', '~']) {
                    "operators are >=, <=, >, <, ==, = and !=; write bounds, like \">=0.28, <0.30\""
                } else {
                    "write a version, \"0.29.0\", or bounds, \">=0.28, <0.30\""
                }
                .to_owned(),
            ),
        });
        self.read(&at.span, read).map(|()| at.value.0.clone())
    }

    /// A suite's or a test's name.
    pub(super) fn name_title(&mut self, at: &At<String>, what: &str) -> Option<String> {
        if name::is_title(&at.value) {
            return Some(at.value.clone());
        }
        let rule = "letters, digits, `_` and `-`, beginning with a letter or digit";
        let help = name::as_title(&at.value)
            .map_or_else(|| format!("use {rule}"), |title| format!("use {rule}, like \"{title}\""));
        let message = format!("`{}` can't be {what}", at.value);
        self.say(Problem::at("bad-name", at.span.clone(), message).help(help));
        None
    }

    /// A name that templates use.
    pub(super) fn word(&mut self, at: &At<String>, what: &str) -> bool {
        if name::is_word(&at.value) {
            return true;
        }
        let rule =
            "lower-case letters, digits and `_`, since templates read `a-b` as a subtraction";
        let help = name::as_word(&at.value)
            .map_or_else(|| format!("use {rule}"), |word| format!("write `{word}`: {rule}"));
        let message = format!("`{}` can't be {what}", at.value);
        self.say(Problem::at("bad-name", at.span.clone(), message).help(help));
        false
    }

    /// Says so where braces stand in a text that is never rendered.
    pub(super) fn not_a_template(&mut self, text: &str, span: &std::ops::Range<usize>) -> bool {
        let is = text.contains("{{");
        if is {
            self.say(
                Problem::at(
                    "not-a-template",
                    span.clone(),
                    "this text is taken as it is; `{{ }}` has no meaning in it",
                )
                .help("write the value; a variant, a profile or --set can change it"),
            );
        }
        is
    }
}
