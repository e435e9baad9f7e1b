//! The ranges of all values, checked once.

use std::fmt::Display;

use super::{Config, ConfigError, Gpus, LossKind, NonFinite, Problem, ScheduleKind, TrainConfig};
use crate::config::interval::Interval;

impl Config {
    /// Checks every value of this crate and the model; opening the data checks `[data]`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // TOML's integers are signed.
        check(i64::try_from(self.run.seed).is_ok(), "run.seed", self.run.seed, "less than 2^63")?;
        self.model.check()?;
        self.augment.check().map_err(ConfigError::of_data)?;
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

    fn check_train(&self) -> Result<(), ConfigError> {
        let train = &self.train;
        check(train.epochs >= 1, "train.epochs", train.epochs, "1 or more")?;
        check(train.batch_size >= 1, "train.batch_size", train.batch_size, "1 or more")?;
        share("train.label_smoothing", train.label_smoothing)?;
        check_accumulate(train)?;
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
            ScheduleKind::Cosine => {}
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
        let several = "one GPU, as 1 or a list of one number; more than one is not supported yet";
        match &self.devices.gpus {
            Gpus::All => {}
            Gpus::Count(count) => check(*count == 1, "devices.gpus", count, several)?,
            Gpus::List(numbers) => {
                check(numbers.len() == 1, "devices.gpus", &self.devices.gpus, several)?;
            }
        }
        match self.devices.threads {
            Some(threads) => check(threads >= 1, "devices.threads", threads, "1 or more"),
            None => Ok(()),
        }
    }
}

fn check_accumulate(train: &TrainConfig) -> Result<(), ConfigError> {
    let (parts, images) = (train.accumulate, train.batch_size);
    let expected = format!("1 or more, and a divisor of train.batch_size = {images}");
    check(parts >= 1 && images.is_multiple_of(parts), "train.accumulate", parts, expected)
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
