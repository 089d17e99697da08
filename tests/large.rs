//! Records of very large runs, made of a small one: what people see of ten thousand cells must fit where they look.

use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use serde_json::{Value, json};

/// Columns of a matrix.
const ACROSS: usize = 100;

/// A suite whose cells are measured in virtual time: prefill, and a decode of two axes, half of which is too slow, one in
/// doubt, one over capacity.
pub const SUITE: &str = r#"version = 1
[suite]
name = "large"
[engine]
kind = "sim"
clock = "virtual"
[[test]]
kind = "decode"
duration = "1s"
min-tokens = 10
max-output = 128
matrix.context = ["1K", "8K", "30K"]
matrix.concurrency = [1, 2, 4]
[[expect]]
metric = "output-throughput"
where = { concurrency = 1 }
slack = "5%"
min = 1
[[expect]]
metric = "output-throughput"
where = { concurrency = 2 }
slack = "5%"
min = 100_000
[[expect]]
metric = "ttft.mean"
where = { concurrency = "2.." }
max = "10s"
[[expect]]
metric = "ttft.p90"
where = { concurrency = 4, context = "1K" }
max = "1ms"
"#;

/// Cells of a record.
pub struct Large {
    /// What was planned of each, in their order: `header.cells`.
    pub planned: Vec<Value>,
    /// What came of each, as JSON.
    outcomes: Vec<Rc<str>>,
    /// The verdict of each.
    pub verdicts: Vec<Rc<str>>,
    /// The record without what came of its cells.
    pub rest: Value,
}

impl Large {
    /// A record of so many cells: those of another again and again, each in a place of its own with all that was
    /// observed.
    pub fn of(source: &Value, cells: usize) -> Large {
        let list = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let (planned, outcomes) = (list(&source["header"]["cells"]), list(&source["cells"]));
        let mut rest = source.clone();
        rest["cells"] = Value::Null;
        let place = |at: usize| {
            let (context, concurrency) = (1 + at / ACROSS, 1 + at % ACROSS);
            let mut cell = planned[at % planned.len()].clone();
            cell["axes"] = json!([
                ["context", { "tokens": 1024 * context }],
                ["concurrency", { "integer": concurrency }]
            ]);
            cell["id"] = json!(format!("context={context}K,concurrency={concurrency}"));
            cell
        };
        let texts = outcomes.iter().map(|outcome| outcome.to_string().into()).collect();
        let verdicts = outcomes.iter().map(verdict).collect();
        // Ten thousand of them would be very large, and are few.
        let again = |of: Vec<Rc<str>>| of.iter().cycle().take(cells).cloned().collect();
        Large {
            planned: (0..cells).map(place).collect(),
            outcomes: again(texts),
            verdicts: again(verdicts),
            rest,
        }
    }

    /// Changes what came of a cell.
    pub fn change(&mut self, at: usize, change: impl FnOnce(&mut Value)) {
        let mut outcome = serde_json::from_str(&self.outcomes[at]).unwrap_or_default();
        change(&mut outcome);
        self.verdicts[at] = verdict(&outcome);
        self.outcomes[at] = outcome.to_string().into();
    }

    /// Writes it, and says how many bytes it took.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(mut self, path: &Path) -> std::io::Result<u64> {
        self.rest["header"]["cells"] = Value::Array(std::mem::take(&mut self.planned));
        let rest = self.rest.to_string();
        let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
        let (before, behind) = rest.split_once("\"cells\":null").unwrap_or_default();
        write!(out, "{before}\"cells\":[")?;
        for (at, outcome) in self.outcomes.iter().enumerate() {
            write!(out, "{}{outcome}", if at > 0 { ",\n" } else { "" })?;
        }
        write!(out, "]{behind}")?;
        out.flush()?;
        Ok(path.metadata()?.len())
    }
}

fn verdict(outcome: &Value) -> Rc<str> {
    outcome["judgement"]["verdict"].as_str().unwrap_or_default().into()
}
