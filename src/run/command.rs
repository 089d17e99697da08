//! A command cell: an external tool against the launched engine, its result file read.

use crate::record::run_record::CellState;
use crate::suite::model::CommandSetting;

use super::cell::{Bench, broken_words};

/// Measures the cell.
pub(super) async fn measure(bench: &mut Bench<'_>, setting: &CommandSetting) -> CellState {
    let _ = (bench, setting);
    broken_words("command", "command tests can't be run")
}
