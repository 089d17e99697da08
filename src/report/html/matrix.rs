//! The frame of a table by rows and columns: headings, rows, holes. What stands in a cell is its caller's.
//!
//! It decides how a table of very many cells is cut into bands, which a browser lays out when they come into sight,
//! and which tables are too wide for paper, where each cell then says its column.

use crate::report::grid::Block;

use super::markup::{Markup, put};

/// Cells of a test that is large.
pub const LARGE: usize = 2_000;
/// Rows of a band, as the style sheet has its height.
const BAND: usize = 10;
/// Columns that there is room for on a sheet of paper.
const ON_PAPER: usize = 12;

/// A table, or several below each other, with what it is called.
pub struct Frame<'a> {
    /// For those who don't see where it stands.
    pub name: &'a str,
    /// Rows, columns and cells.
    pub block: &'a Block,
    /// What rows and columns are.
    pub caption: &'a str,
    /// The heading of the only column, where there is no axis of columns.
    pub only: &'static str,
    /// Whether its test has more than [`LARGE`] cells.
    pub large: bool,
    /// Its cells are ratios.
    pub ratios: bool,
}

impl Frame<'_> {
    /// Puts the table, with the class of each cell and what stands in it; a cell of no class is a hole.
    pub fn put(
        &self,
        out: &mut Markup,
        class: impl Fn(usize) -> Option<&'static str>,
        face: impl Fn(&mut Markup, usize),
    ) {
        let block = self.block;
        put!(out, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" (self.name) "\">");
        let band = if self.large { BAND } else { block.rows.len().max(1) };
        let wide = block.columns.len() > ON_PAPER;
        let column_axis = block.column_axis.as_deref().unwrap_or_default();
        for (rows, cells) in block.rows.chunks(band).zip(block.cells.chunks(band)) {
            if self.large {
                put!(out, "<div class=\"band\">");
            }
            put!(out, "<table class=\"matrix");
            for (said, class) in [(self.ratios, " ratios"), (self.large, " large"), (wide, " wide")]
            {
                out.tag(if said { class } else { "" });
            }
            put!(out, "\">\n<caption>"(self.caption));
            if rows.len() < block.rows.len() {
                let name = |row: Option<&String>| row.cloned().unwrap_or_default();
                put!(out, ": " (name(rows.first())) " to " (name(rows.last())));
            }
            put!(out, "</caption>\n<thead><tr><td class=\"corner\"></td>");
            for column in &block.columns {
                let shown = if block.column_axis.is_some() { column } else { self.only };
                put!(out, "<th scope=\"col\">" (shown) "</th>");
            }
            put!(out, "</tr></thead>\n<tbody>\n");
            for (row, cells) in rows.iter().zip(cells) {
                put!(out, "<tr><th scope=\"row\">" (row) "</th>");
                for (cell, column) in cells.iter().zip(&block.columns) {
                    let Some((at, class)) = cell.and_then(|at| Some((at, class(at)?))) else {
                        put!(out, "<td class=\"hole\"></td>");
                        continue;
                    };
                    put!(out, "<td class=\"" (class) "\"");
                    if wide {
                        put!(out, " data-at=\"" (column_axis) " " (column) "\"");
                    }
                    put!(out, ">");
                    face(out, at);
                    put!(out, "</td>");
                }
                put!(out, "</tr>\n");
            }
            put!(out, "</tbody></table>");
            if self.large {
                put!(out, "</div>");
            }
        }
        put!(out, "</div>\n");
    }
}
