//! A serve cell: requests as a service gets them, and a window over them.

use crate::record::run_record::CellState;
use crate::suite::model::ServeSetting;

use super::cell::{Bench, broken_words};

/// Measures the cell.
pub(super) async fn measure(bench: &mut Bench<'_>, setting: &ServeSetting) -> CellState {
    let _ = (bench, setting);
    broken_words("serve", "serve tests can't be run")
}
