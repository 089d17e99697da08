//! `[hardware]`: what is declared of the machine.

use std::time::Duration;

use super::Checker;
use crate::hardware::need::{Count, Need, Sampling, Vram};
use crate::quantity::{Unreadable, parse_duration};
use crate::suite::file::{At, HardwareTable, Location, SamplingText, Scalar};
use crate::suite::model::{CommandForm, CommandText, Spans};
use crate::suite::problem::Problem;

/// The shortest time between two looks at the hardware: a driver takes some milliseconds to answer for
/// eight GPUs.
const SHORTEST_SAMPLING: Duration = Duration::from_millis(20);
/// The longest: beyond, a window has a sample or none.
const LONGEST_SAMPLING: Duration = Duration::from_secs(60);
/// No GPU is as hot as that and still runs, in °C.
const HOTTEST: f64 = 120.0;

/// Names that `std::env::consts::OS` has for the systems tokgate is built for.
const SYSTEMS: [&str; 4] = ["linux", "macos", "windows", "freebsd"];

impl Checker<'_> {
    /// The need, what is said of where it is (`None` leaves that to the engine), and the command that
    /// tells what is there.
    pub(super) fn hardware(
        &mut self,
        table: Option<&At<HardwareTable>>,
    ) -> Option<(Need, Option<bool>, Option<CommandText>)> {
        let table = table?;
        let hardware = &table.value;
        let said = hardware.location.as_ref().map(|at| match at.value {
            Location::Here => true,
            Location::Elsewhere => false,
        });
        let probe = hardware.probe.as_ref();
        let probe = probe.and_then(|at| self.command("hardware.probe", at, &mut Spans::default()));
        let need =
            Need {
                here: said.unwrap_or(true),
                gpu: hardware.gpu.as_ref().and_then(|at| self.gpu(at)),
                count: hardware.count.as_ref().and_then(|at| self.gpu_count(at)),
                vram: hardware.vram.as_ref().and_then(|at| self.size(at)).map(|(size, floor)| {
                    if floor { Vram::AtLeast(size) } else { Vram::About(size) }
                }),
                driver: self.version(hardware.driver.as_ref()),
                cuda: self.version(hardware.cuda.as_ref()),
                allow_busy: hardware.allow_busy.as_ref().is_some_and(|at| at.value),
                probe: probe.as_ref().map(|probe| match &probe.form {
                    CommandForm::Line(line) => line.clone(),
                    CommandForm::Words(words) => words.join(" "),
                }),
                cool_below: hardware.cool_below.as_ref().and_then(|at| self.temperature(at)),
                sampling: hardware
                    .sampling
                    .as_ref()
                    .and_then(|at| self.sampling(at))
                    .unwrap_or_default(),
                os: hardware.os.as_ref().and_then(|at| self.system(at)),
                on_mismatch: hardware.on_mismatch.as_ref().map(|at| at.value).unwrap_or_default(),
            };
        Some((need, said, probe))
    }

    /// A temperature that a GPU can have.
    fn temperature(&mut self, at: &At<f64>) -> Option<f64> {
        if at.value > 0.0 && at.value <= HOTTEST {
            return Some(at.value);
        }
        let message = format!("no GPU waits for {} °C", at.value);
        self.say(
            Problem::at("number-range", at.span.clone(), message)
                .help(format!("write °C above 0 and up to {HOTTEST}, like 50")),
        );
        None
    }

    fn sampling(&mut self, at: &At<SamplingText>) -> Option<Sampling> {
        if at.value.0 == "off" {
            return Some(Sampling::Off);
        }
        let read = parse_duration(&at.value.0).map_err(|refused| Unreadable {
            help: Some("write a duration like \"200ms\", or \"off\"".to_owned()),
            ..refused
        });
        let every = self.read(&at.span, read)?;
        let (limit, wrong) = if every < SHORTEST_SAMPLING {
            (
                "write at least \"20ms\", or \"off\"",
                "looks at the hardware more often than it answers",
            )
        } else if every > LONGEST_SAMPLING {
            ("write at most \"1m\", or \"off\"", "looks at the hardware less often than cells end")
        } else {
            return Some(Sampling::Every(every));
        };
        let message = format!("`{}` {wrong}", at.value.0);
        self.say(Problem::at("number-range", at.span.clone(), message).help(limit));
        None
    }

    fn gpu(&mut self, at: &At<String>) -> Option<String> {
        if at.value.trim().is_empty() {
            self.say(
                Problem::at("hardware", at.span.clone(), "an empty text is part of every name")
                    .help("write part of the product name, like \"H200\", or leave `gpu` out"),
            );
            return None;
        }
        (!self.not_a_template(&at.value, &at.span)).then(|| at.value.clone())
    }

    fn gpu_count(&mut self, at: &At<Scalar>) -> Option<Count> {
        let whole = |n: i64| u32::try_from(n).ok();
        let (count, help) = match &at.value {
            Scalar::Integer(n) => (whole(*n).map(Count::Exactly), None),
            Scalar::Text(text) => {
                let text = text.trim();
                let number = |text: &str| text.trim().parse::<u32>().ok();
                if let Some(floor) = text.strip_prefix(">=").and_then(number) {
                    (Some(Count::AtLeast(floor)), None)
                } else {
                    let help = text
                        .strip_prefix('>')
                        .and_then(number)
                        .map(|n| format!("write \">={}\"", n.saturating_add(1)))
                        .or(number(text).map(|n| format!("write {n} without quotes")));
                    (None, help)
                }
            }
            Scalar::Float(_) | Scalar::Bool(_) => (None, None),
        };
        if count.is_none() {
            let message = format!("`{}` is not a number of GPUs", at.value);
            self.say(Problem::at("hardware", at.span.clone(), message).help(help.unwrap_or_else(
                || "write 8 for exactly eight, or \">=4\" for at least four".to_owned(),
            )));
        }
        count
    }

    fn system(&mut self, at: &At<String>) -> Option<String> {
        let name = at.value.to_lowercase();
        if SYSTEMS.contains(&name.as_str()) {
            return Some(name);
        }
        self.say(
            Problem::at(
                "hardware",
                at.span.clone(),
                format!("`{}` is not an operating system that is known here", at.value),
            )
            .help(super::hint(&name, &SYSTEMS, "write one of")),
        );
        None
    }
}
