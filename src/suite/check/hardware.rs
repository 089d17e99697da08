//! `[hardware]`: what is declared of the machine.

use super::Checker;
use crate::hardware::need::{Count, Need, Sampling, Vram};
use crate::suite::file::{At, HardwareTable, Location, Scalar};
use crate::suite::problem::Problem;

/// Names that `std::env::consts::OS` has for the systems tokgate is built for.
const SYSTEMS: [&str; 4] = ["linux", "macos", "windows", "freebsd"];

impl Checker<'_> {
    /// The need, and what is said of where it is: `None` leaves that to the engine.
    pub(super) fn hardware(
        &mut self,
        table: Option<&At<HardwareTable>>,
    ) -> Option<(Need, Option<bool>)> {
        let table = table?;
        let hardware = &table.value;
        let said = hardware.location.as_ref().map(|at| match at.value {
            Location::Here => true,
            Location::Elsewhere => false,
        });
        let need =
            Need {
                here: said.unwrap_or(true),
                gpu: hardware.gpu.as_ref().and_then(|at| self.gpu(at)),
                count: hardware.count.as_ref().and_then(|at| self.gpu_count(at)),
                vram: hardware.vram.as_ref().and_then(|at| self.size(at)).map(|(size, floor)| {
                    if floor { Vram::AtLeast(size) } else { Vram::About(size) }
                }),
                driver: self.version(hardware.driver.as_ref()),
                cuda: None,
                allow_busy: false,
                probe: None,
                cool_below: None,
                sampling: Sampling::default(),
                os: hardware.os.as_ref().and_then(|at| self.system(at)),
                on_mismatch: hardware.on_mismatch.as_ref().map(|at| at.value).unwrap_or_default(),
            };
        Some((need, said))
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
