//! Markup under construction: what is ours stands in the program, everything else is text.
//!
//! Tags can come from literals alone, since [`Markup::tag`] takes what lives as long as the program;
//! whatever is computed goes through [`Markup::text`], which washes and escapes it. So no foreign
//! text can become an element or leave an attribute, and no writer of a page has to think of it.

use std::fmt::{Display, Write};

use super::plot::Drawing;
use crate::report::sanitise::{line, lines};

/// HTML that grows at its end.
#[derive(Debug, Default)]
pub struct Markup {
    html: String,
}

/// Puts pieces behind each other: literals are markup, what stands in parentheses is text.
///
/// `put!(out, "<td title=\"" (title) "\">" (value) "</td>")`
macro_rules! put {
    ($out:expr, $($piece:tt)*) => {{ $( $crate::report::html::markup::put_piece!($out, $piece); )* }};
}
macro_rules! put_piece {
    ($out:expr, ($text:expr)) => {
        $out.text(&$text)
    };
    ($out:expr, $markup:literal) => {
        $out.tag($markup)
    };
}
pub(super) use put;
pub(super) use put_piece;

impl Markup {
    /// Markup of ours.
    pub fn tag(&mut self, markup: &'static str) {
        self.html.push_str(markup);
    }

    /// Any text on one line, for an element or for an attribute in double quotes.
    pub fn text(&mut self, text: &impl Display) {
        let text = text.to_string();
        self.escaped(&line(&text));
    }

    /// Any text with its lines, for a `<pre>`.
    pub fn lines(&mut self, text: &str) {
        self.escaped(&lines(text));
    }

    /// Coordinates of a drawing, with one digit behind the point; what is no number becomes 0.
    pub fn points(&mut self, points: impl IntoIterator<Item = (f64, f64)>) {
        let number = |value: f64| {
            let tenths = (value * 10.0).round();
            if tenths.is_finite() { tenths / 10.0 } else { 0.0 }
        };
        for (at, (x, y)) in points.into_iter().enumerate() {
            let gap = if at > 0 { " " } else { "" };
            // Memory does not refuse text.
            let _ = write!(self.html, "{gap}{},{}", number(x), number(y));
        }
    }

    /// A drawing by a library that was given numbers and nothing else.
    pub fn drawing(&mut self, drawing: &Drawing) {
        self.html.push_str(drawing.svg());
    }

    /// Another piece of markup behind this one.
    pub fn append(&mut self, other: &Markup) {
        self.html.push_str(&other.html);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.html.len()
    }

    /// The page.
    pub fn finish(self) -> String {
        self.html
    }

    fn escaped(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '<' => self.html.push_str("&lt;"),
                '>' => self.html.push_str("&gt;"),
                '&' => self.html.push_str("&amp;"),
                '"' => self.html.push_str("&quot;"),
                '\'' => self.html.push_str("&#39;"),
                c => self.html.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::nasty;

    #[test]
    fn what_is_computed_is_text_and_stays_in_its_attribute() {
        let mut out = Markup::default();
        let foreign = "\" onload='x()'><script>alert(1)</script>&amp;\u{1b}[1m\n{{ 7*7 }}";
        put!(out, "<p title=\"" (foreign) "\">" (nasty()) "</p>");
        let html = out.finish();
        assert_eq!((html.matches('<').count(), html.matches('"').count()), (2, 2), "{html}");
        assert!(
            html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp; {{ 7*7 }}"),
            "{html}"
        );
        assert!(!html.chars().any(char::is_control));
    }

    #[test]
    fn points_are_numbers_whatever_comes() {
        let mut out = Markup::default();
        out.points([(1.0, 2.25), (f64::NAN, f64::INFINITY), (-0.04, 1e300)]);
        let html = out.finish();
        assert!(html.starts_with("1,2.3 0,0 "), "{html}");
        assert!(html.chars().all(|c| c.is_ascii_digit() || " ,.-".contains(c)), "{html}");
    }
}
