//! `[baseline]`, and the bounds that are shares of what recorded runs had.

use std::ops::Range;

use super::Checker;
use crate::judge::Side;
use crate::measure::Metric;
use crate::measure::metric::Direction;
use crate::suite::file::{At, BaselineTable, ExpectTable};
use crate::suite::model::{Against, BaselineSetting, IDENTITY, Limits};
use crate::suite::problem::Problem;

impl Checker<'_> {
    /// `[baseline]` with its defaults.
    pub(super) fn baseline_table(&mut self, table: Option<&At<BaselineTable>>) -> BaselineSetting {
        let mut setting = BaselineSetting::default();
        let Some(table) = table else { return setting };
        let baseline = &table.value;
        setting.file = baseline.file.as_ref().and_then(|at| self.against(at));
        setting.on_missing = baseline.on_missing.as_ref().map(|at| at.value).unwrap_or_default();
        if let Some(keys) = &baseline.identity {
            setting.identity.clear();
            for key in &keys.value {
                if !IDENTITY.contains(&key.value.as_str()) {
                    let message =
                        format!("`{}` is nothing that a baseline can be known by", key.value);
                    self.say(Problem::at("identity", key.span.clone(), message).help(super::hint(
                        &key.value,
                        &IDENTITY,
                        "it is known by",
                    )));
                } else if setting.identity.contains(&key.value) {
                    let message = format!("`{}` stands there twice", key.value);
                    self.say(
                        Problem::at("duplicate-value", key.span.clone(), message)
                            .help("leave one of them out"),
                    );
                } else {
                    setting.identity.push(key.value.clone());
                }
            }
        }
        setting
    }

    fn against(&mut self, at: &At<String>) -> Option<Against> {
        if at.value.trim().is_empty() {
            self.say(
                Problem::at("baseline-file", at.span.clone(), "an empty text names no file")
                    .help("write the file of recorded runs, like \"baselines/h200.jsonl\""),
            );
            return None;
        }
        if self.not_a_template(&at.value, &at.span) {
            return None;
        }
        let folder = self.source.file(at.span.start).and_then(|file| file.folder.clone());
        Some(Against {
            file: folder.unwrap_or_default().join(&at.value),
            place: self.place(&at.span),
        })
    }

    /// The bounds `min-ratio` and `max-ratio` of an expectation, and whether one is written.
    pub(super) fn ratios(
        &mut self,
        table: &At<ExpectTable>,
        metric: Metric,
    ) -> (Vec<(Side, Limits)>, bool) {
        let expect = &table.value;
        let asked: Vec<(Side, &At<f64>)> =
            [(Side::Min, &expect.min_ratio), (Side::Max, &expect.max_ratio)]
                .into_iter()
                .filter_map(|(side, value)| value.as_ref().map(|value| (side, value)))
                .collect();
        let against = match &expect.against {
            Some(against) if asked.is_empty() && self.kept(&["min-ratio", "max-ratio"]) => {
                self.say(
                    Problem::at(
                        "against-nothing",
                        against.span.clone(),
                        "nothing of this expectation is held against it",
                    )
                    .help("write `min-ratio = 0.97`, or `max-ratio = 1.03` where less is better"),
                );
                return (Vec::new(), false);
            }
            Some(against) => match &against.value.file {
                Some(file) => self.against(file),
                // Of a key that can't be there an error has been said.
                None if !self.kept(&["git", "variant"]) => None,
                None => {
                    self.missing(
                        "file",
                        against.span.clone(),
                        "`against` has no `file`",
                        "write the file of recorded runs, like `against = { file = \"baselines/h200.jsonl\" }`",
                    );
                    None
                }
            },
            None => self.baseline.file.clone(),
        };
        if let (Some((_, first)), None, None, true) =
            (asked.first(), &against, &expect.against, self.kept(&["against", "baseline", "file"]))
        {
            self.say(
                Problem::at(
                    "without-baseline",
                    first.span.clone(),
                    "this ratio has nothing that it is held against",
                )
                .help("write `against = { file = \"baselines/h200.jsonl\" }`, or that file once for all in [baseline]"),
            );
        }
        if let (Some(slack), false, None, None) =
            (&expect.slack, asked.is_empty(), &expect.min, &expect.max)
        {
            self.say(
                Problem::at(
                    "slack-of-ratio",
                    slack.span.clone(),
                    "a ratio says itself what it tolerates",
                )
                .help("leave `slack` out: `min-ratio = 0.97` tolerates a loss of 3 %"),
            );
        }
        let mut bounds = Vec::new();
        for (side, value) in &asked {
            if self.ratio(metric, *side, value)
                && let Some(against) = &against
            {
                let limits = Limits::Ratio {
                    value: value.value,
                    against: against.clone(),
                    place: self.place(&value.span),
                    span: value.span.clone(),
                };
                bounds.push((*side, limits));
            }
        }
        (bounds, !asked.is_empty())
    }

    /// Whether a ratio stands on the right side and is one.
    fn ratio(&mut self, metric: Metric, side: Side, at: &At<f64>) -> bool {
        let better = metric.base.entry().better;
        let (right, write) = match better {
            Direction::Higher => (Side::Min, "min-ratio"),
            Direction::Lower => (Side::Max, "max-ratio"),
        };
        let number = at.value;
        let mut wrong = |span: &Range<usize>, code, message: String, help: String| {
            self.say(Problem::at(code, span.clone(), message).help(help));
            false
        };
        if side != right {
            let (better, key) = match better {
                Direction::Higher => ("higher", "max-ratio"),
                Direction::Lower => ("lower", "min-ratio"),
            };
            let message =
                format!("`{metric}` is better when {better}: a `{key}` would punish a gain");
            return wrong(&at.span, "wrong-side", message, format!("write `{write}`"));
        }
        if !(number.is_finite() && number > 0.0) {
            let message = format!("{number} is no share of anything");
            let example = if side == Side::Min { "0.97" } else { "1.03" };
            return wrong(&at.span, "ratio-range", message, format!("write `{write} = {example}`"));
        }
        let gain = match side {
            Side::Min => number > 1.0,
            Side::Max => number < 1.0,
        };
        if !gain {
            return true;
        }
        let message = format!("`{write} = {number}` asks for a gain: 1 is no change");
        let help = match side {
            Side::Min if number > 1.0 && number <= 100.0 && number.fract() == 0.0 => {
                format!("a share, not a percentage: write `{write} = {}`", number / 100.0)
            }
            Side::Min => "write at most 1; 0.97 tolerates a loss of 3 %".to_owned(),
            Side::Max => "write at least 1; 1.03 tolerates 3 % more".to_owned(),
        };
        wrong(&at.span, "ratio-range", message, help)
    }
}
