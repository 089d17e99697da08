//! `tokgate plan`: how many pairs or launches a suite needs to see a loss, and how long they take.
//!
//! It starts nothing. What is seen is found by `record::prospect`, told by `report::plan`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::matrix::Plan;
use crate::quantity::parse_percent;
use crate::record::baseline::Baseline;
use crate::record::noise::NoiseFile;
use crate::record::prospect::{Asked, Sources, prospects};
use crate::report::plan::{Told, json, text};
use crate::suite::model::Reference;

use super::exit::Exit;
use super::list::Format;
use super::shape::{self, Choice, Overlay};
use super::{Global, say};

/// Arguments of `tokgate plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The suite file
    pub suite: PathBuf,
    /// The loss of one cell that is to be seen
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    pub loss: f64,
    /// The probability with which it is to be seen
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = share)]
    pub power: f64,
    /// How much launches differ: a share like 1%, or the file of a calibration; else the file that
    /// [baseline] names, or the recorded runs
    #[arg(long, value_name = "NOISE")]
    pub noise: Option<String>,
    /// Text for people, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    #[command(flatten)]
    pub(super) choice: Choice,
    #[command(flatten)]
    pub(super) overlay: Overlay,
}

fn share(text: &str) -> Result<f64, String> {
    let fraction = parse_percent(text.trim())
        .map_err(|error| format!("{error}; write a percentage like \"5%\""))?;
    if fraction > 0.0 && fraction < 1.0 {
        Ok(fraction)
    } else {
        Err("write a share above 0% and below 100%".to_owned())
    }
}

/// Prints what the suite sees and needs.
pub fn run(args: &Args, global: &Global) -> Exit {
    let color = global.color_stderr();
    let planned = match shape::plan(&args.suite, &args.overlay, &args.choice, color) {
        Ok(planned) => planned,
        Err(wrong) => return wrong,
    };
    let plan = &planned.plan;
    let known = match Known::of(plan, args.noise.as_deref()) {
        Ok(known) => known,
        Err(wrong) => return wrong,
    };
    let asked = Asked { loss: args.loss, surely: args.power };
    let (limits, mean) = prospects(plan, known.sources(), Some(asked));
    let judged = plan.suite.baseline.noise.as_ref().filter(|_| known.judging.is_some());
    let judged = judged.map(|file| file.file.display().to_string());
    let noise = known.words(plan);
    let told = Told {
        plan,
        asked,
        limits: &limits,
        mean: mean.as_ref(),
        noise: &noise,
        judged: judged.as_deref(),
    };
    if limits.iter().any(|limit| limit.view.noise.is_none()) {
        say("warning: of some limits nobody knows how much launches differ");
        say("  help: state it, like `--noise 1%`, or name the file that `tokgate calibrate` wrote");
    }
    match args.format {
        Format::Text => super::print(&text(told)),
        Format::Json => super::print(&json(told)),
    }
}

/// What can be known of the noise of a plan before a run.
#[derive(Debug, Default)]
pub struct Known {
    stated: Option<f64>,
    told: Option<(String, NoiseFile)>,
    judging: Option<NoiseFile>,
    baselines: BTreeMap<PathBuf, Baseline>,
}

impl Known {
    /// What the suite's own files tell; those that can't be read tell nothing, and a run will say why.
    pub fn of_files(plan: &Plan) -> Known {
        let baseline = &plan.suite.baseline;
        let judging = baseline.noise.as_ref().and_then(|file| NoiseFile::read(&file.file).ok());
        let mut files: BTreeSet<&Path> = BTreeSet::new();
        let bounds = plan.suite.expectations.iter().flat_map(|it| &it.bounds);
        for (_, limits) in bounds {
            if let crate::suite::model::Limits::Ratio { against, .. } = limits
                && let Reference::File(file) = &against.reference
            {
                files.insert(file);
            }
        }
        let read = |file: &Path| Some((file.to_owned(), Baseline::read(file).ok()?));
        let baselines = files.into_iter().filter_map(read).collect();
        Known { stated: None, told: None, judging, baselines }
    }

    /// The same with the noise that somebody states, or the file that tells it.
    ///
    /// # Errors
    /// [`Exit::Suite`]: it is no share and no file that can be read.
    fn of(plan: &Plan, noise: Option<&str>) -> Result<Known, Exit> {
        let mut known = Known::of_files(plan);
        let Some(noise) = noise else { return Ok(known) };
        if noise.trim_end().ends_with('%') {
            match share(noise) {
                Ok(stated) => known.stated = Some(stated),
                Err(why) => {
                    say(&format!("error: --noise '{noise}': {why}"));
                    return Err(Exit::Suite);
                }
            }
            return Ok(known);
        }
        match NoiseFile::read(Path::new(noise)) {
            Ok(file) => known.told = Some((noise.to_owned(), file)),
            Err(error) => {
                say(&format!("error: {error}"));
                say(
                    "  help: write a share, like `--noise 1%`, or the file that `tokgate calibrate` wrote",
                );
                return Err(Exit::Baseline);
            }
        }
        Ok(known)
    }

    /// For [`prospects`].
    pub fn sources(&self) -> Sources<'_> {
        Sources {
            stated: self.stated,
            told: self.told.as_ref().map(|(_, file)| file),
            judging: self.judging.as_ref(),
            baselines: Some(&self.baselines),
        }
    }

    /// Whether anything of it is known.
    pub fn is_nothing(&self) -> bool {
        self.judging.is_none() && self.baselines.is_empty()
    }

    /// Who tells the noise.
    fn words(&self, plan: &Plan) -> String {
        if let Some(stated) = self.stated {
            let share = crate::quantity::print_number(stated * 100.0, 2);
            return format!("{share} % from launch to launch, as stated");
        }
        let file = self.told.as_ref().map(|(name, _)| name.clone());
        let own = plan.suite.baseline.noise.as_ref().filter(|_| self.judging.is_some());
        match (file, own) {
            (Some(name), _) => format!("as {name} tells of each cell"),
            (None, Some(file)) => format!("as {} tells of each cell", file.file.display()),
            (None, None) if !self.baselines.is_empty() => "as the recorded runs tell".to_owned(),
            (None, None) => "nobody tells".to_owned(),
        }
    }
}
