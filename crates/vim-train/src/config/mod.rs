//! The configuration: extended TOML files, the file over them, and `--set` over both.
//!
//! Each section's struct belongs to its consumer and is embedded here. The structs' `Default` is
//! the only place of defaults; the presets of `[model]` and `[augment]` are layers under the files.
//! [`Config::load`] resolves and checks every value once.

mod error;
mod load;
mod print;
mod schema;
mod sections;
mod values;

use std::fmt::Display;
use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_data::{AugmentPreset, DataConfig, DenseRecipe, MOST_THREADS, Recipe};
use vim_dense::SegmenterConfig;
use vim_model::{SsmConfig, VimConfig};
use vim_slurm::SlurmConfig;
use vim_sweep::SweepConfig;

pub(crate) use error::nearest;
pub use error::{ConfigError, Origin, Problem};
pub use load::Loaded;
pub use print::reference;
pub(crate) use print::{dotted, dotted_values, in_toml};
pub use schema::schema;
pub(crate) use schema::{check_key, keys};
pub use sections::{
    Backend, CheckpointConfig, DevicesConfig, LogConfig, LossKind, NonFinite, OptimConfig,
    Optimizer, RunConfig, ScheduleKind, TaskKind, TrainConfig,
};
pub use values::{Extends, Gpus, Interval, IntervalError, VERSION, Version};

/// A whole configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Version of the form of this file.
    pub version: Version,
    /// A file, or a list of files, whose keys stand below this file's, by names relative to it:
    /// sections are merged, of several the later counts. A run records what comes out, and not
    /// this.
    #[serde(skip_serializing)]
    pub extends: Extends,
    /// What is learned: `classification`, a class for each image, as where it is left out, or
    /// `segmentation`, a class for each pixel.
    #[serde(skip_serializing_if = "TaskKind::is_default")]
    pub task: TaskKind,
    /// Name, place and seed of the run.
    pub run: RunConfig,
    /// The model: a named size and what differs from it.
    pub model: VimConfig,
    /// Numerics of the state-space layer.
    // As written; code reads `model.ssm`, which loading copies from here.
    pub(crate) ssm: SsmConfig,
    /// The images.
    pub data: DataConfig,
    /// What is done to training images, and in which order they come. Of classification alone.
    pub augment: Recipe,
    /// With `task = "segmentation"`: the heads on the backbone, which `[model]` describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segmentation: Option<SegmenterConfig>,
    /// With `task = "segmentation"`: what is done to pairs of an image and a label map.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<DenseRecipe>,
    /// The loop.
    pub train: TrainConfig,
    /// The optimizer and its schedule.
    pub optim: OptimConfig,
    /// When to save, and what to keep.
    pub checkpoint: CheckpointConfig,
    /// What to compute on.
    pub devices: DevicesConfig,
    /// What to report.
    pub log: LogConfig,
    /// The job on a cluster.
    pub slurm: SlurmConfig,
    /// With this section, the file describes many runs: `vim-train sweep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<SweepConfig>,
}

impl Config {
    /// The configuration as a run records it: every key of `[model]` and `[augment]` that has an
    /// effect is set.
    pub fn effective(&self) -> Self {
        let (model, augment) = (self.model.effective(), self.augment.effective());
        let (segmentation, pairs) = match self.task {
            TaskKind::Classification => (self.segmentation.clone(), self.pairs),
            TaskKind::Segmentation => {
                (Some(self.segmenter().effective(&model)), Some(self.pairs()))
            }
        };
        Self { model, augment, segmentation, pairs, ..self.clone() }
    }

    /// `[segmentation]`, where it is left out the default.
    pub fn segmenter(&self) -> SegmenterConfig {
        self.segmentation.clone().unwrap_or_default()
    }

    /// `[pairs]`, where it is left out the default.
    pub fn pairs(&self) -> DenseRecipe {
        self.pairs.unwrap_or_default()
    }

    /// The run's name: `run.name` with every `{key}` replaced by that key's value.
    pub fn run_name(&self) -> Result<String, ConfigError> {
        let wrong = |problem| ConfigError::new("run.name", problem);
        let values = dotted_values(&self.effective());
        let mut name = String::new();
        let mut rest = self.run.name.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            name.push_str(before);
            let Some((key, after)) = after.split_once('}') else {
                return Err(wrong(Problem::FolderName(self.run.name.clone())));
            };
            let Some(value) = values.get(key) else {
                let known: Vec<String> = values.keys().cloned().collect();
                let nearest = nearest(key, &known);
                return Err(wrong(Problem::Placeholder { name: key.to_owned(), nearest }));
            };
            match value.as_str() {
                Some(text) => name.push_str(text),
                None => name.push_str(&value.to_string()),
            }
            rest = after;
        }
        name.push_str(rest);
        if is_inside(&name) { Ok(name) } else { Err(wrong(Problem::FolderName(name))) }
    }

    /// The run's folder: `run.root`/`run.name`.
    pub fn run_folder(&self) -> Result<PathBuf, ConfigError> {
        Ok(self.run.root.join(self.run_name()?))
    }

    /// Checks every value of this crate and the model; opening the data checks `[data]`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // TOML's integers are signed.
        check(i64::try_from(self.run.seed).is_ok(), "run.seed", self.run.seed, "less than 2^63")?;
        self.model.check()?;
        self.augment.check().map_err(ConfigError::of_data)?;
        self.check_task()?;
        self.run_name()?;
        self.check_train()?;
        self.check_optim()?;
        self.check_devices()?;
        periodic("checkpoint.every", self.checkpoint.every, true)?;
        check(
            self.checkpoint.keep_last >= 2,
            "checkpoint.keep_last",
            self.checkpoint.keep_last,
            "2 or more, so that a damaged one leaves another",
        )?;
        if let Some(archive) = self.checkpoint.archive {
            periodic("checkpoint.archive", archive, true)?;
        }
        periodic("log.every", self.log.every, false)?;
        self.slurm.check().map_err(ConfigError::of_slurm)
    }

    /// Checks that no section of another task says anything.
    fn check_task(&self) -> Result<(), ConfigError> {
        let conflict = |key: &str, value: &str, reason: &str| {
            let (value, other) = (value.to_owned(), format!("task = \"{}\"", self.task));
            let reason = reason.to_owned();
            Err(ConfigError::new(key, Problem::Conflict { value, other, reason }))
        };
        match self.task {
            TaskKind::Classification => match (&self.segmentation, &self.pairs) {
                (Some(_), _) => conflict("segmentation", "[segmentation]", "it has other heads"),
                (_, Some(_)) => conflict("pairs", "[pairs]", "it has no label maps"),
                (None, None) => Ok(()),
            },
            TaskKind::Segmentation => {
                if self.augment.effective() != Recipe::preset(AugmentPreset::None).effective() {
                    let reason = "its images are cut and coloured as [pairs] says: leave this out";
                    return conflict("augment", "[augment]", reason);
                }
                self.pairs().check().map_err(ConfigError::of_data)
            }
        }
    }

    fn check_train(&self) -> Result<(), ConfigError> {
        let train = &self.train;
        check(train.epochs >= 1, "train.epochs", train.epochs, "1 or more")?;
        if let Some(steps) = train.steps {
            check(steps >= 1, "train.steps", steps, "1 or more")?;
        }
        check(train.batch_size >= 1, "train.batch_size", train.batch_size, "1 or more")?;
        share("train.label_smoothing", train.label_smoothing)?;
        let (shards, images) = (train.shards(), train.batch_size);
        let expected = format!("1 or more, and a divisor of train.batch_size = {images}");
        let divides = shards >= 1 && images.is_multiple_of(shards);
        check(divides, "train.shards", shards, expected)?;
        let (parts, of) = (
            train.accumulate,
            match shards {
                1 => format!("train.batch_size = {images}"),
                _ => format!("{}, the images of a shard", images / shards),
            },
        );
        let divides = parts >= 1 && (images / shards).is_multiple_of(parts);
        let expected = format!("1 or more, and a divisor of {of}");
        check(divides, "train.accumulate", parts, expected)?;
        check_bce(train)?;
        if let Some(decay) = train.ema {
            share("train.ema", decay)?;
        }
        match train.non_finite {
            NonFinite::Stop => {}
            NonFinite::Skip => check(
                train.max_non_finite >= 1,
                "train.max_non_finite",
                train.max_non_finite,
                "1 or more; train.non_finite = \"stop\" puts up with none",
            )?,
        }
        if let Some(norm) = train.clip_grad {
            positive("train.clip_grad", norm)?;
        }
        if let Some(factor) = train.layer_decay {
            let holds = factor > 0.0 && factor <= 1.0;
            check(holds, "train.layer_decay", factor, "more than 0 and at most 1")?;
        }
        periodic("train.eval_every", train.eval_every, false)
    }

    fn check_optim(&self) -> Result<(), ConfigError> {
        let optim = &self.optim;
        positive("optim.lr", optim.lr)?;
        let decay = optim.weight_decay;
        check(decay.is_finite() && decay >= 0.0, "optim.weight_decay", decay, "0 or more")?;
        for beta in optim.betas {
            share("optim.betas", beta)?;
        }
        positive("optim.eps", optim.eps)?;
        for (key, rate) in [("optim.min_lr", optim.min_lr), ("optim.warmup_lr", optim.warmup_lr)] {
            check(
                (0.0..=optim.lr).contains(&rate),
                key,
                rate,
                format!("0 to optim.lr = {}", optim.lr),
            )?;
        }
        let whole = matches!(optim.warmup, Interval::Epochs(length) if length.fract() == 0.0);
        match optim.schedule {
            ScheduleKind::Cosine | ScheduleKind::Poly => {}
            ScheduleKind::Reference => check(
                whole,
                "optim.warmup",
                optim.warmup,
                "whole epochs: optim.schedule = \"reference\" changes the rate between epochs",
            )?,
        }
        // A warm-up longer than training is allowed: a short trial of a long recipe has one.
        match optim.warmup {
            Interval::Epochs(_) | Interval::Steps(_) => Ok(()),
            Interval::Minutes(_) => check(false, "optim.warmup", optim.warmup, NO_CLOCK),
        }
    }

    fn check_devices(&self) -> Result<(), ConfigError> {
        let devices = &self.devices;
        match &devices.gpus {
            Gpus::All => {}
            Gpus::Count(count) => check(*count >= 1, "devices.gpus", count, "1 or more")?,
            Gpus::List(numbers) => {
                let mut once = numbers.clone();
                once.sort_unstable();
                once.dedup();
                let holds = !numbers.is_empty() && once.len() == numbers.len();
                check(holds, "devices.gpus", &devices.gpus, "one number or more, each once")?;
            }
        }
        for (key, limit) in
            [("devices.timeout", devices.timeout), ("devices.rendezvous", devices.rendezvous)]
        {
            let holds = matches!(limit, Interval::Minutes(minutes) if minutes > 0.0);
            check(holds, key, limit, "minutes, as in \"30min\"")?;
        }
        match self.devices.threads {
            Some(threads) => {
                let expected = format!("1 to {MOST_THREADS} threads");
                check((1..=MOST_THREADS).contains(&threads), "devices.threads", threads, expected)
            }
            None => Ok(()),
        }
    }
}

fn check_bce(train: &TrainConfig) -> Result<(), ConfigError> {
    let Some(threshold) = train.bce_threshold else { return Ok(()) };
    match train.loss {
        LossKind::Bce => share("train.bce_threshold", threshold),
        LossKind::CrossEntropy => Err(ConfigError::new(
            "train.bce_threshold",
            Problem::Conflict {
                value: threshold.to_string(),
                other: "train.loss = \"cross_entropy\"".into(),
                reason: "only binary cross-entropy has targets of 0 and 1: set train.loss = \"bce\", or leave it out".into(),
            },
        )),
    }
}

/// Metrics must be the same on a slow machine and on a fast one.
const NO_CLOCK: &str = "steps or epochs (\"50st\", \"1ep\"): results may not depend on the clock";

fn check(
    holds: bool,
    key: &str,
    value: impl Display,
    expected: impl Into<String>,
) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::range(key, value, expected)) }
}

fn positive(key: &str, value: f64) -> Result<(), ConfigError> {
    check(value.is_finite() && value > 0.0, key, value, "more than 0")
}

fn share(key: &str, value: f64) -> Result<(), ConfigError> {
    check((0.0..1.0).contains(&value), key, value, "0 or more and less than 1")
}

fn periodic(key: &str, every: Interval, may_be_minutes: bool) -> Result<(), ConfigError> {
    check(!every.is_zero(), key, every, "more than 0")?;
    let clocked = matches!(every, Interval::Minutes(_));
    check(may_be_minutes || !clocked, key, every, NO_CLOCK)
}

/// Whether `name` stays strictly below the folder that it is joined to.
fn is_inside(name: &str) -> bool {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    plain && !name.trim().is_empty() && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(template: &str) -> Result<String, ConfigError> {
        let mut config = Config::default();
        config.run.name = template.into();
        config.run_name()
    }

    #[test]
    fn placeholders_take_any_key() {
        assert_eq!(Config::default().run_name().unwrap(), "zoh-s0");
        assert_eq!(name("{model.d_model}x{model.depth}-{optim.lr}").unwrap(), "192x24-0.001");
        assert_eq!(name("sweep/{checkpoint.every}").unwrap(), "sweep/1ep");
    }

    #[test]
    fn unknown_placeholders_are_named() {
        let error = name("{run.sed}").unwrap_err().to_string();
        assert!(error.contains("`run.sed`") && error.contains("`run.seed`"), "{error}");
        assert!(name("{train.clip_grad}").is_err(), "a key that is not set has no value");
    }

    #[test]
    fn a_run_stays_inside_its_root() {
        for template in ["", " ", "..", "../x", "/x", "x/../../y", "x{", "a\nb", "."] {
            assert!(name(template).is_err(), "{template:?}");
        }
    }
}
