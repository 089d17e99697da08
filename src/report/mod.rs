//! Reports: a record rendered.
//!
//! Each format is a pure function of the record. `grid` says where a cell stands, `figure` which
//! numbers it shows, `message` what is said of it; the formats arrange that. `sanitise` washes
//! every foreign text. Only `files`, `outlet` and `progress` touch the world.

pub mod calibration;
pub mod case;
pub mod columns;
pub mod comparison;
pub mod console;
pub mod count;
pub mod csv;
pub mod engine;
pub mod figure;
pub mod files;
pub mod fit;
pub mod github;
pub mod grid;
pub mod hardware;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod message;
pub mod narrate;
pub mod openmetrics;
pub mod outlet;
pub mod overall;
pub mod part;
pub mod plan;
pub mod progress;
pub mod ratio;
pub mod rounds;
pub mod sanitise;
pub mod screen;
pub mod selftest;
pub mod slowdown;
pub mod worst;

#[cfg(test)]
pub(crate) mod fixture;

use std::path::Path;

use crate::record::RunRecord;

pub use files::Unwritten;

/// Names of the files that [`write_all`] writes.
pub const FILES: [&str; 6] =
    ["record.json", "junit.xml", "summary.md", "report.html", "metrics.prom", "cells.csv"];

/// Writes all reports of a record into a directory, the record first: each whole or not at all.
///
/// # Errors
/// The first file that could not be written; those after it are tried all the same.
pub fn write_all(dir: &Path, record: &RunRecord, order: &junit::Order) -> Result<(), Unwritten> {
    let record_file = files::replace_with(&dir.join(FILES[0]), |out| json::write(record, out));
    let others = write_rendered(dir, record, order);
    record_file.and(others)
}

/// Writes what can be rendered again from `record.json`, which stays as it is.
///
/// # Errors
/// The first file that could not be written; those after it are tried all the same.
pub fn write_rendered(
    dir: &Path,
    record: &RunRecord,
    order: &junit::Order,
) -> Result<(), Unwritten> {
    let xml = junit::ordered(record, order);
    let junit = files::replace(&dir.join(FILES[1]), xml.as_bytes());
    let copy = order.copy.as_ref().map_or(Ok(()), |path| files::replace(path, xml.as_bytes()));
    drop(xml);
    let summary = files::replace(&dir.join(FILES[2]), markdown::render(record).as_bytes());
    let page = files::replace(&dir.join(FILES[3]), html::render(record).as_bytes());
    let metrics = files::replace(&dir.join(FILES[4]), openmetrics::render(record).as_bytes());
    let cells = files::replace(&dir.join(FILES[5]), csv::render(record).as_bytes());
    junit.and(copy).and(summary).and(page).and(metrics).and(cells)
}
