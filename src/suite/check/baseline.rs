//! `[baseline]` and `[compare]`, and the bounds that are shares of what recorded runs or another
//! variant had.

use std::ops::Range;

use super::Checker;
use crate::judge::Side;
use crate::measure::Metric;
use crate::measure::metric::Direction;
use crate::suite::defaults;
use crate::suite::file::{AgainstTable, At, BaselineTable, CompareTable, ExpectTable, File};
use crate::suite::model::{
    Against, BaselineFile, BaselineSetting, Compare, IDENTITY, LEAST_PAIRS, Limits, Reference,
};
use crate::suite::problem::Problem;

impl Checker<'_> {
    /// `[baseline]` with its defaults.
    pub(super) fn baseline_table(&mut self, table: Option<&At<BaselineTable>>) -> BaselineSetting {
        let mut setting = BaselineSetting::default();
        let Some(table) = table else { return setting };
        let baseline = &table.value;
        setting.file = baseline.file.as_ref().and_then(|at| self.baseline_file(at));
        setting.noise = baseline.noise.as_ref().and_then(|at| self.noise_file(at));
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

    fn baseline_file(&mut self, at: &At<String>) -> Option<BaselineFile> {
        self.file_beside(at, "write the file of recorded runs, like \"baselines/h200.jsonl\"")
    }

    fn noise_file(&mut self, at: &At<String>) -> Option<BaselineFile> {
        let help =
            "write the file that `tokgate calibrate` wrote, like \"baselines/h200.noise.jsonl\"";
        self.file_beside(at, help)
    }

    /// A file that is named relative to the one that names it.
    fn file_beside(&mut self, at: &At<String>, help: &str) -> Option<BaselineFile> {
        if at.value.trim().is_empty() {
            self.say(
                Problem::at("baseline-file", at.span.clone(), "an empty text names no file")
                    .help(help),
            );
            return None;
        }
        if self.not_a_template(&at.value, &at.span) {
            return None;
        }
        let folder = self.source.file(at.span.start).and_then(|file| file.folder.clone());
        Some(BaselineFile {
            file: folder.unwrap_or_default().join(&at.value),
            place: self.place(&at.span),
        })
    }

    /// `[compare]`: two variants, and how many pairs of them.
    pub(super) fn compare_table(
        &mut self,
        table: Option<&At<CompareTable>>,
        variants: &[String],
    ) -> Option<Compare> {
        let table = table?;
        let compare = &table.value;
        let of = |checker: &mut Self, key: &str, usual: &str, name: &Option<At<String>>| match name
        {
            Some(at) => checker.variant(at, variants).map(|index| (index, at.span.clone())),
            None => {
                checker.missing(
                    key,
                    table.span.clone(),
                    &format!("`[compare]` has no `{key}`"),
                    &format!("name a variant, like `{key} = \"{usual}\"`"),
                );
                None
            }
        };
        let baseline = of(self, "baseline", "old", &compare.baseline);
        let candidate = of(self, "candidate", "new", &compare.candidate);
        let pairs = compare.pairs.as_ref().map_or(defaults::PAIRS, |at| at.value.0);
        if let Some(at) = compare.pairs.as_ref()
            && (pairs < LEAST_PAIRS || !pairs.is_multiple_of(2))
        {
            let message = format!("{pairs} pairs are no whole ABBA blocks that show their noise");
            let next = pairs.max(LEAST_PAIRS).next_multiple_of(2);
            self.say(
                Problem::at("pairs", at.span.clone(), message)
                    .help(format!("write an even number, at least 4: `pairs = {next}`")),
            );
        }
        let mean = compare.min_mean_ratio.as_ref().and_then(|at| {
            if at.value.is_finite() && at.value > 0.0 && at.value <= 1.0 {
                return Some((at.value, self.place(&at.span)));
            }
            let message = format!("{} is no share that a mean ratio must reach", at.value);
            let share = at.value / 100.0;
            let help = if at.value > 1.0 && at.value <= 100.0 && at.value.fract() == 0.0 {
                format!("a share, not a percentage: write `min-mean-ratio = {share}`")
            } else {
                "write at most 1: `min-mean-ratio = 0.99` tolerates a loss of 1 %".to_owned()
            };
            self.say(Problem::at("ratio-range", at.span.clone(), message).help(help));
            None
        });
        self.own_engines(&table.span);
        let ((baseline, _), (candidate, span)) = (baseline?, candidate?);
        if baseline == candidate {
            self.say(
                Problem::at("compare-itself", span, "a variant is no candidate against itself")
                    .help(
                        "name two variants; to see the noise alone, let both have the same engine",
                    ),
            );
            return None;
        }
        Some(Compare {
            baseline,
            candidate,
            pairs,
            min_mean_ratio: mean,
            place: self.place(&table.span),
            span: table.span.clone(),
        })
    }

    /// One url for all variants leaves nothing to compare.
    fn own_engines(&mut self, table: &Range<usize>) {
        let url = self.source.files().iter().find(|file| file.name == "--url");
        let Some(url) = url.map(|file| file.start..file.start + file.text.len()) else { return };
        self.say(
            Problem::at("compare-url", url, "this engine would take the place of both variants")
                .also(table.clone(), "compared here")
                .help("give each its own: --set variant.NAME.engine.url=…"),
        );
    }

    /// Of variants that are compared the pairs say how often they are launched.
    pub(super) fn launches_of_pairs(&mut self, file: &File, variants: usize) {
        // A third one is launched as its tests say.
        if self.compare.is_none() || variants > 2 {
            return;
        }
        for launches in file.test.iter().filter_map(|test| test.value.launches.as_ref()) {
            self.say(
                Problem::at(
                    "no-effect",
                    launches.span.clone(),
                    "variants that are compared are launched once for each pair",
                )
                .help("leave it out, and write `pairs` in [compare]")
                .warning(),
            );
        }
    }

    /// The index of a variant by name.
    fn variant(&mut self, at: &At<String>, variants: &[String]) -> Option<u32> {
        let found = variants.iter().position(|name| *name == at.value);
        if found.is_none() && self.kept(&["variant"]) {
            let names: Vec<&str> = variants.iter().map(String::as_str).collect();
            let help = match names.as_slice() {
                [] => format!("declare it: [variant.{}]", at.value),
                names => super::hint(&at.value, names, "variants are"),
            };
            let message = format!("there is no variant `{}`", at.value);
            self.say(Problem::at("unknown-variant", at.span.clone(), message).help(help));
        }
        found.and_then(|index| u32::try_from(index).ok())
    }

    /// What `against` names: one of a file, a revision of a file, and a variant.
    fn reference(&mut self, table: &At<AgainstTable>, variants: &[String]) -> Option<Against> {
        let against = &table.value;
        let place = self.place(&table.span);
        if let Some(variant) = &against.variant {
            if let Some(other) = against.file.as_ref().or(against.git.as_ref()) {
                self.say(
                    Problem::at(
                        "against-twice",
                        other.span.clone(),
                        "a ratio is held against one thing, and a variant is no file",
                    )
                    .help("leave this out, or `variant`"),
                );
                return None;
            }
            let index = self.variant(variant, variants)?;
            return Some(Against { reference: Reference::Variant(index), place });
        }
        let file = match &against.file {
            Some(file) => self.baseline_file(file).map(|file| file.file),
            None => {
                self.baseline.file.clone().map(|file| file.file).filter(|_| against.git.is_some())
            }
        };
        match (file, &against.git) {
            (Some(file), None) => Some(Against { reference: Reference::File(file), place }),
            (Some(file), Some(git)) => {
                if !self.revision(git) {
                    return None;
                }
                let reference = Reference::Git { revision: git.value.clone(), file };
                Some(Against { reference, place })
            }
            // Of a key that can't be there an error has been said.
            (None, _) if !self.kept(&["file", "git", "variant", "baseline"]) => None,
            (None, _) if against.file.is_some() => None,
            (None, Some(git)) if !self.revision(git) => None,
            (None, Some(git)) => {
                self.missing(
                    "file",
                    git.span.clone(),
                    "a revision of which file?",
                    "write `against = { git = \"main\", file = \"baselines/h200.jsonl\" }`, or that file once for all in [baseline]",
                );
                None
            }
            (None, None) => {
                self.missing(
                    "file",
                    table.span.clone(),
                    "`against` names nothing",
                    "write one of { file = \"baselines/h200.jsonl\" }, { git = \"main\" } and { variant = \"old\" }",
                );
                None
            }
        }
    }

    /// Whether a text can name a revision of git.
    fn revision(&mut self, git: &At<String>) -> bool {
        let name = git.value.as_str();
        if self.not_a_template(name, &git.span) {
            return false;
        }
        if name.contains(':') {
            let message = format!("`{name}` names more than a revision");
            self.say(
                Problem::at("git-revision", git.span.clone(), message)
                    .help("write the revision alone, and the file by its key: { git = \"main\", file = \"baselines/h200.jsonl\" }"),
            );
            return false;
        }
        let odd = |c: char| c.is_whitespace() || c.is_control();
        if name.is_empty() || name.starts_with('-') || name.contains(odd) || name.contains("..") {
            let message = format!("`{}` is no revision", name.escape_debug());
            self.say(
                Problem::at("git-revision", git.span.clone(), message)
                    .help("write one branch, tag or commit, like `git = \"main\"`"),
            );
            return false;
        }
        true
    }

    /// What ratios are held against that name nothing.
    fn usual_reference(&self) -> Option<Against> {
        if let Some(compare) = &self.compare {
            let reference = Reference::Variant(compare.baseline);
            return Some(Against { reference, place: compare.place.clone() });
        }
        let BaselineFile { file, place } = self.baseline.file.clone()?;
        Some(Against { reference: Reference::File(file), place })
    }

    /// The bounds `min-ratio` and `max-ratio` of an expectation, and whether one is written.
    pub(super) fn ratios(
        &mut self,
        table: &At<ExpectTable>,
        metric: Metric,
        variants: &[String],
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
            Some(against) => self.reference(against, variants),
            None => self.usual_reference(),
        };
        if let (Some((_, first)), None, None, true) =
            (asked.first(), &against, &expect.against, self.kept(&["against", "baseline", "file"]))
            && !self.broken_compare
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
