//! `kind = "serve"`: how requests arrive, how many there are, how long they are.

use std::ops::Range;
use std::time::Duration;

use super::Checker;
use crate::load::{Arrival, Length};
use crate::suite::defaults;
use crate::suite::file::{
    At, DatasetTable, DurationText, LengthTable, LengthValue, PairOfCounts, SloTable, TestTable,
    Whole,
};
use crate::suite::model::{Amount, Axis, Dataset, LengthSetting, Prefix, ServeSetting, Slo, Spans};
use crate::suite::problem::Problem;

/// Greatest share of a jitter: the shortest length must be one.
const MOST_JITTER: f64 = 0.99;

impl Checker<'_> {
    pub(super) fn serve_setting(
        &mut self,
        table: &At<TestTable>,
        axes: &[Axis],
        spans: &mut Spans,
    ) -> Option<ServeSetting> {
        let test = &table.value;
        let arrival = test.arrival.as_ref().map(|at| at.value).unwrap_or_default();
        let axis = |name: &str| axes.iter().find(|axis| axis.name == name);
        let amount = self.amount(table, arrival);
        self.rate(table, arrival, axis("request_rate"));
        if let (Some(at), Arrival::Closed) = (&test.requests, arrival) {
            self.streams_busy(at, axis("concurrency"));
        }
        let input = self.length("input", test.input.as_ref(), axis("input"), defaults::INPUT);
        let output = self.length("output", test.output.as_ref(), axis("output"), defaults::OUTPUT);
        let dataset = test.dataset.as_ref().map(|at| {
            self.beside_dataset(test, at);
            self.dataset(at, spans)
        });
        let prefix = self.prefix(test.prefix.as_ref());
        if let (Some(at), None) = (&test.prefix, &dataset) {
            self.groups_fit(prefix, &at.span, input, axis("input"));
        }
        if let (Some(at), Some(dataset)) = (&test.prefix, &test.dataset) {
            self.say(
                Problem::at(
                    "no-effect",
                    at.span.clone(),
                    "the prompts of a data set share what they share",
                )
                .also(dataset.span.clone(), "the prompts come from here")
                .help("leave `prefix` out"),
            );
        }
        Some(ServeSetting {
            arrival,
            amount: amount?,
            warmup_per_stream: (test.warmup_per_stream.as_ref())
                .map_or(defaults::WARMUP_PER_STREAM, |at| at.value),
            input,
            output,
            dataset: match dataset {
                Some(dataset) => Some(dataset?),
                None => None,
            },
            prefix,
            slo: test.slo.as_ref().map(|at| self.slo(at)).unwrap_or_default(),
            repeat: test.repeat.as_ref().map_or(defaults::REPEAT, |at| at.value.0),
            concurrency: defaults::CONCURRENCY,
        })
    }

    /// How many requests are measured: said once, and so that it fits the arrival.
    fn amount(&mut self, table: &At<TestTable>, arrival: Arrival) -> Option<Amount> {
        let test = &table.value;
        let written = [
            ("requests", test.requests.as_ref().map(|at| &at.span)),
            ("requests-per-stream", test.requests_per_stream.as_ref().map(|at| &at.span)),
            ("duration", test.duration.as_ref().map(|at| &at.span)),
        ];
        let written: Vec<_> =
            written.into_iter().filter_map(|(key, span)| Some((key, span?))).collect();
        if let [(first, at), (second, span), ..] = written.as_slice() {
            self.say(
                Problem::at(
                    "two-amounts",
                    (*span).clone(),
                    format!("`{first}` and `{second}` both say how many requests there are"),
                )
                .also((*at).clone(), format!("`{first}`"))
                .help("keep one of them"),
            );
            return None;
        }
        if let Some(at) = &test.requests {
            return Some(Amount::Requests(u64::from(at.value.0)));
        }
        if let Some(at) = &test.requests_per_stream {
            if arrival == Arrival::Closed {
                return Some(Amount::PerStream(u64::from(at.value.0)));
            }
            let help = match arrival {
                Arrival::Closed | Arrival::Burst => "write `requests = 500`: so many at once",
                Arrival::Constant | Arrival::Poisson => {
                    "write `requests = 500`, or `duration = \"2m\"`"
                }
            };
            self.say(
                Problem::at(
                    "wrong-key",
                    at.span.clone(),
                    "only a closed loop has streams to count by",
                )
                .help(help),
            );
            return None;
        }
        if let Some(at) = &test.duration {
            if arrival == Arrival::Burst {
                self.say(
                    Problem::at(
                        "wrong-key",
                        at.span.clone(),
                        "a burst takes no time: all of its requests go at once",
                    )
                    .help("write `requests = 500`"),
                );
                return None;
            }
            return Some(Amount::Duration(self.duration(Some(at), defaults::DURATION)));
        }
        match arrival {
            Arrival::Closed => Some(Amount::PerStream(defaults::REQUESTS_PER_STREAM)),
            Arrival::Burst | Arrival::Constant | Arrival::Poisson => {
                let help = match arrival {
                    Arrival::Closed | Arrival::Burst => "write `requests = 500`: so many at once",
                    Arrival::Constant | Arrival::Poisson => {
                        "write `requests = 500`, or `duration = \"2m\"`"
                    }
                };
                if self.kept(&["requests", "duration", "requests-per-stream"]) {
                    let span = test.arrival.as_ref().map_or(&table.span, |at| &at.span);
                    self.say(
                        Problem::at(
                            "missing-key",
                            span.clone(),
                            "nothing says how many requests arrive",
                        )
                        .help(help),
                    );
                }
                None
            }
        }
    }

    /// Warns of streams that have nothing to send.
    fn streams_busy(&mut self, requests: &At<Whole>, axis: Option<&Axis>) {
        let values = axis.into_iter().flat_map(|axis| axis.values.iter());
        let most = values.filter_map(|value| value.number()).max_by(f64::total_cmp);
        if let Some(streams) = most.filter(|most| *most > f64::from(requests.value.0)) {
            let message =
                format!("{} requests can't keep {streams} streams busy", requests.value.0);
            self.say(
                Problem::at("few-requests", requests.span.clone(), message)
                    .help("write `requests-per-stream = 10`, which grows with the streams")
                    .warning(),
            );
        }
    }

    /// An open loop has a rate.
    fn rate(&mut self, table: &At<TestTable>, arrival: Arrival, axis: Option<&Axis>) {
        let broken = self.broken_axes.contains("request_rate");
        if !arrival.is_open() || axis.is_some() || broken {
            return;
        }
        let span = table.value.arrival.as_ref().map_or(&table.span, |at| &at.span);
        self.say(
            Problem::at("missing-axis", span.clone(), "arrivals of an open loop have a rate")
                .help("write the axis: matrix.request_rate = [1, 2, 4], in requests a second"),
        );
    }

    /// Lengths as told by a key, by an axis, by both in turn, or by neither.
    fn length(
        &mut self,
        key: &str,
        at: Option<&At<LengthValue>>,
        axis: Option<&Axis>,
        default: u64,
    ) -> LengthSetting {
        let plain = LengthSetting::Plain(Length::Fixed(default));
        let Some(at) = at else { return plain };
        let table = match &at.value {
            LengthValue::Count(count) => {
                let count = self.tokens(&at.span, count);
                self.said_twice(key, at, axis);
                return count.map_or(plain, |n| LengthSetting::Plain(Length::Fixed(n)));
            }
            LengthValue::Table(table) => table,
        };
        let found = self.varying(key, at, table, axis, default);
        if let Some(LengthSetting::Plain(_)) = found {
            self.said_twice(key, at, axis);
        }
        found.unwrap_or(plain)
    }

    /// A length that varies: in one way.
    fn varying(
        &mut self,
        key: &str,
        at: &At<LengthValue>,
        table: &LengthTable,
        axis: Option<&Axis>,
        default: u64,
    ) -> Option<LengthSetting> {
        if let (Some(around), None) = (&table.around, &table.jitter) {
            self.say(
                Problem::at("length", around.span.clone(), "`around` is the middle of a jitter")
                    .help(format!("write {key} = {{ jitter = \"20%\", around = 1024 }}")),
            );
            return None;
        }
        match (&table.uniform, &table.normal, &table.jitter) {
            (Some(pair), None, None) => {
                let (least, most) = self.pair(pair, "[6000, 8000]")?;
                if least > most {
                    self.say(
                        Problem::at("length", pair.span.clone(), "the range ends before it begins")
                            .help(format!("write uniform = [{most}, {least}]")),
                    );
                    return None;
                }
                Some(LengthSetting::Plain(Length::Uniform(least, most)))
            }
            (None, Some(pair), None) => {
                let (mean, sd) = self.pair(pair, "[7000, 500]")?;
                Some(LengthSetting::Plain(Length::Normal { mean: mean as f64, sd: sd as f64 }))
            }
            (None, None, Some(jitter)) => {
                let share = self.percent(Some(jitter), MOST_JITTER);
                if share == Some(0.0) {
                    self.say(
                        Problem::at("length", jitter.span.clone(), "a jitter of nothing")
                            .help("leave it out, or write a share like \"20%\""),
                    );
                    return None;
                }
                if let (Some(around), Some(axis)) = (&table.around, axis) {
                    self.say(
                        Problem::at(
                            "length",
                            around.span.clone(),
                            format!("the axis `{key}` says the middle already"),
                        )
                        .also(axis.span.clone(), "the axis")
                        .help("leave `around` out"),
                    );
                }
                let around = self.token_count(table.around.as_ref(), default);
                Some(LengthSetting::Jitter { around, share: share? })
            }
            (None, None, None) => {
                if self.kept(&["uniform", "normal", "jitter"]) {
                    let message = format!("`{key}` says no length");
                    self.say(
                        Problem::at("missing-key", at.span.clone(), message)
                            .help("write a number, or one of uniform, normal and jitter"),
                    );
                }
                None
            }
            (_, _, _) => {
                self.say(
                    Problem::at(
                        "length",
                        at.span.clone(),
                        format!("`{key}` varies in more than one way"),
                    )
                    .help("keep one of uniform, normal and jitter"),
                );
                None
            }
        }
    }

    fn pair(&mut self, at: &At<PairOfCounts>, example: &str) -> Option<(u64, u64)> {
        let [first, second] = at.value.0.as_slice() else {
            self.say(
                Problem::at("length", at.span.clone(), "two token counts belong here")
                    .help(format!("write {example}")),
            );
            return None;
        };
        let first = self.tokens(&first.span, &first.value.0);
        let second = self.tokens(&second.span, &second.value.0);
        first.zip(second)
    }

    /// An axis and a key that say the same.
    fn said_twice(&mut self, key: &str, at: &At<LengthValue>, axis: Option<&Axis>) {
        let Some(axis) = axis else { return };
        self.say(
            Problem::at(
                "two-lengths",
                at.span.clone(),
                format!("the axis `{key}` says the length already"),
            )
            .also(axis.span.clone(), "the axis")
            .help(format!(
                "leave one of them out, or write {key} = {{ jitter = \"20%\" }} for lengths around the axis' values; a test's own matrix.{key} stands instead of that of [matrix]"
            )),
        );
    }

    /// Each prompt must be longer than the beginning that its group shares.
    fn groups_fit(
        &mut self,
        prefix: Prefix,
        span: &Range<usize>,
        input: LengthSetting,
        axis: Option<&Axis>,
    ) {
        let Prefix::Groups { length, .. } = prefix else { return };
        let values = axis.into_iter().flat_map(|axis| axis.values.iter());
        let least_middle = values.filter_map(|value| value.number()).min_by(f64::total_cmp);
        let shortest = match (input, least_middle) {
            (LengthSetting::Plain(_), Some(tokens)) => tokens,
            (LengthSetting::Plain(Length::Fixed(tokens) | Length::Uniform(tokens, _)), None) => {
                tokens as f64
            }
            (LengthSetting::Plain(Length::Normal { mean, .. }), None) => mean,
            (LengthSetting::Jitter { around, share }, middle) => {
                (middle.unwrap_or(around as f64) * (1.0 - share)).round()
            }
        };
        if shortest < length as f64 {
            self.say(
                Problem::at(
                    "length",
                    span.clone(),
                    format!(
                        "prompts of {shortest} tokens can't begin with {length} that their group shares"
                    ),
                )
                .help("write a shorter `length`, or longer prompts: `input` or the axis `input`"),
            );
        }
    }

    /// What a data set says itself.
    fn beside_dataset(&mut self, test: &TestTable, dataset: &At<DatasetTable>) {
        if let Some(input) = &test.input {
            self.say(
                Problem::at(
                    "two-lengths",
                    input.span.clone(),
                    "the prompts of a data set have their own lengths",
                )
                .also(dataset.span.clone(), "the prompts come from here")
                .help("leave `input` out; min-input and max-input choose among them"),
            );
        }
    }

    fn dataset(&mut self, table: &At<DatasetTable>, spans: &mut Spans) -> Option<Dataset> {
        let dataset = &table.value;
        spans.0.insert("dataset".to_owned(), table.span.clone());
        for (key, there, example) in [
            ("file", dataset.file.is_some(), "file = \"sharegpt.json\""),
            ("format", dataset.format.is_some(), "format = \"sharegpt\"` or `format = \"jsonl\""),
        ] {
            if !there {
                let message = format!("`dataset` has no `{key}`");
                self.missing(key, table.span.clone(), &message, &format!("write `{example}`"));
            }
        }
        let mut count = |at: &Option<At<crate::suite::file::TokenCount>>| {
            at.as_ref().and_then(|at| self.tokens(&at.span, &at.value.0))
        };
        let input = (count(&dataset.min_input), count(&dataset.max_input));
        let output = (count(&dataset.min_output), count(&dataset.max_output));
        let total = count(&dataset.max_total);
        for ((least, most), key, at) in
            [(input, "input", &dataset.max_input), (output, "output", &dataset.max_output)]
        {
            if let (Some(least), Some(most), Some(at)) = (least, most, at)
                && least > most
            {
                self.say(
                    Problem::at(
                        "number-range",
                        at.span.clone(),
                        format!("`min-{key}` is above `max-{key}`: nothing is taken"),
                    )
                    .help("write the smaller number at `min`"),
                );
            }
        }
        let (file, format) = (dataset.file.as_ref()?, dataset.format.as_ref()?.value);
        spans.0.insert("dataset.file".to_owned(), file.span.clone());
        if self.not_a_template(&file.value, &file.span) {
            return None;
        }
        let folder = self.source.file(file.span.start).and_then(|file| file.folder.clone());
        let path = folder.unwrap_or_default().join(&file.value);
        if !(self.known.exists)(&path) {
            self.say(
                Problem::at(
                    super::MISSING_DATASET,
                    file.span.clone(),
                    format!("there is no data set `{}`", path.display()),
                )
                .help("the path counts from the folder of the file that names it; a step of engine.setup may fetch it")
                .warning(),
            );
        }
        let place = self.place(&file.span);
        Some(Dataset { file: path, place, format, input, output, total })
    }

    fn slo(&mut self, table: &At<SloTable>) -> Slo {
        let slo = &table.value;
        let mut limit = |at: &Option<At<DurationText>>| {
            at.as_ref().map(|at| self.duration(Some(at), Duration::ZERO)).filter(|d| !d.is_zero())
        };
        let found = Slo {
            ttft: limit(&slo.ttft),
            tpot: limit(&slo.tpot),
            e2e_latency: limit(&slo.e2e_latency),
        };
        let nothing = slo.ttft.is_none() && slo.tpot.is_none() && slo.e2e_latency.is_none();
        if nothing && self.known.lost.is_empty() {
            self.say(Problem::at("missing-key", table.span.clone(), "`slo` asks nothing").help(
                "write slo = { ttft = \"500ms\", tpot = \"50ms\" }; it may have e2e-latency too",
            ));
        }
        found
    }
}

/// An axis that a serve test of such arrival or prompts does not have.
pub(super) fn no_axis(test: &TestTable, name: &str, span: &Range<usize>) -> Option<Problem> {
    let arrival = test.arrival.as_ref().map(|at| at.value).unwrap_or_default();
    let (message, help) = match (name, arrival) {
        ("context", _) => (
            "serve has no axis `context`".to_owned(),
            "write it as `input`, the length of prompts: matrix.input = [\"8K\"]",
        ),
        ("concurrency", Arrival::Burst) => (
            "a burst has no axis `concurrency`: all of its requests run at once".to_owned(),
            "write `requests = 500` for so many at once, or leave `arrival` out for a closed loop",
        ),
        ("concurrency", Arrival::Constant | Arrival::Poisson) => (
            "an open loop has no axis `concurrency`".to_owned(),
            "only a closed loop has so many streams: leave `arrival` out, or leave out the axis",
        ),
        ("request_rate", Arrival::Closed) => (
            "a closed loop has no axis `request_rate`".to_owned(),
            "write `arrival = \"poisson\"` or `arrival = \"constant\"`: a closed loop sends a request when the one before has ended",
        ),
        ("request_rate", Arrival::Burst) => (
            "a burst has no axis `request_rate`: all of its requests go at once".to_owned(),
            "leave the axis out, or write `arrival = \"poisson\"`",
        ),
        ("input", _) => (
            "a serve test with a data set has no axis `input`".to_owned(),
            "leave the axis out; min-input and max-input of `dataset` choose among its prompts",
        ),
        ("output", _) => (
            "a serve test with a sharegpt data set has no axis `output`".to_owned(),
            "leave the axis out: each conversation says how long its answer is; min-output and max-output of `dataset` choose among them",
        ),
        (_, _) => return None,
    };
    let problem = Problem::at("unknown-axis", span.clone(), message).help(help);
    Some(match &test.arrival {
        Some(at) if name == "concurrency" || name == "request_rate" => {
            problem.also(at.span.clone(), "how they arrive")
        }
        Some(_) | None => problem,
    })
}
