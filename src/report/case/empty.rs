//! A run without cells as a JUnit case.

use crate::record::RunRecord;
use crate::report::count::plural;
use crate::report::sanitise::line;
use crate::suite::model::Place;

use super::{Case, MOST_PLAIN, Note, Standing, Suite};

/// The one case of a run without cells, since some consumers refuse a file without a case: an error, but
/// for a shard that is empty because there are more shards than launches.
pub(super) fn suite(record: &RunRecord) -> Suite {
    let header = &record.header;
    let (case, standing) = match &header.shard {
        Some(part) => {
            let launches = plural(header.planned_launches(), "launch");
            let message = format!("the plan has {launches}, none of them for this shard");
            let note = Note::new("empty-shard", message, &[], MOST_PLAIN);
            (format!("shard {} of {}", part.shard, part.of), Standing::Skipped(note))
        }
        None => {
            let message = "no cell was selected: nothing was measured".to_owned();
            let note = Note::new("no-cell", message, &[], MOST_PLAIN);
            ("selection".to_owned(), Standing::Error(note))
        }
    };
    let name = line(&header.suite);
    Suite {
        name: name.clone(),
        started: line(&header.started),
        hostname: line(&header.machine.hostname),
        properties: vec![],
        cases: vec![Case {
            classname: name,
            name: case,
            millis: 0,
            place: Place { file: line(&header.path), line: 1 },
            standing,
            earlier: vec![],
            properties: vec![],
            output: String::new(),
        }],
    }
}
