//! Rows of text below each other in columns.

use std::ops::Range;

use unicode_width::UnicodeWidthStr;

/// The rows, a line each, columns two blanks apart; those in `right` end below each other.
pub fn columns<const N: usize>(rows: &[[String; N]], right: Range<usize>) -> String {
    let widths: Vec<usize> =
        (0..N).map(|at| rows.iter().map(|row| row[at].width()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (text, width))| {
            let blank = " ".repeat(width - text.width());
            if right.contains(&at) { format!("{blank}{text}") } else { format!("{text}{blank}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}
