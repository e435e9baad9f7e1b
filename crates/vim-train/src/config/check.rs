//! Checks of every value, section by section.

use std::fmt::Display;

use vim_data::{AugmentPreset, MOST_THREADS, Recipe};

use super::{
    Backend, BatchSize, Config, ConfigError, EmaStatistics, Gpus, InitHead, Interval, LossKind,
    NonFinite, OptimConfig, Part, Problem, ScheduleKind, TaskKind, TrainConfig,
};

impl Config {
    /// Checks every value of this crate and the model; opening the data checks `[data]`.
    pub fn validate(&self) -> Result<(), ConfigError> {
        // TOML's integers are signed.
        check(i64::try_from(self.run.seed).is_ok(), "run.seed", self.run.seed, "less than 2^63")?;
        self.data.check_hold_out().map_err(ConfigError::of_data)?;
        self.model.check()?;
        self.augment.check().map_err(ConfigError::of_data)?;
        self.check_task()?;
        self.run_name()?;
        self.check_train()?;
        self.check_sought()?;
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
        if let Some(every) = self.log.every {
            periodic("log.every", every, false)?;
        }
        self.slurm.check().map_err(ConfigError::of_slurm)
    }

    /// Checks that no section of another task says anything.
    fn check_task(&self) -> Result<(), ConfigError> {
        let conflict = |key: &str, value: &str, reason: &str| {
            let (value, other) = (value.to_owned(), format!("task = \"{}\"", self.task));
            let reason = reason.to_owned();
            Err(ConfigError::new(key, Problem::Conflict { value, other, reason }))
        };
        let sections = [
            ("segmentation", self.segmentation.is_some(), TaskKind::Segmentation),
            ("pairs", self.pairs.is_some(), TaskKind::Segmentation),
            ("detection", self.detection.is_some(), TaskKind::Detection),
            ("objects", self.objects.is_some(), TaskKind::Detection),
        ];
        for (key, is_there, task) in sections {
            if is_there && task != self.task {
                let reason = format!("this section is of task = \"{task}\"");
                return conflict(key, &format!("[{key}]"), &reason);
            }
        }
        let images = match self.task {
            TaskKind::Classification => return Ok(()),
            TaskKind::Segmentation => "cut and coloured as [pairs] says",
            TaskKind::Detection => "resized and cut as [objects] says",
        };
        if self.augment.effective() != Recipe::preset(AugmentPreset::None).effective() {
            let reason = format!("its images are {images}: leave this out");
            return conflict("augment", "[augment]", &reason);
        }
        match self.task {
            TaskKind::Classification => Ok(()),
            TaskKind::Segmentation => self.pairs().check().map_err(ConfigError::of_data),
            TaskKind::Detection => self.objects().check().map_err(ConfigError::of_data),
        }
    }

    /// Checks that a batch size that is to be sought can be.
    fn check_sought(&self) -> Result<(), ConfigError> {
        if self.train.batch_size != BatchSize::Auto {
            return Ok(());
        }
        let conflict = |other: &str, reason: &str| {
            let (value, other) = ("\"auto\"".to_owned(), other.to_owned());
            let reason = reason.to_owned();
            Err(ConfigError::new("train.batch_size", Problem::Conflict { value, other, reason }))
        };
        if self.sweep.is_some() {
            return conflict("[sweep]", "its runs are compared at one batch size: write a number");
        }
        if self.run.name.contains("{train.batch_size}") {
            let name = format!("run.name = {:?}", self.run.name);
            return conflict(&name, "the run's folder has the number: name the run otherwise");
        }
        Ok(())
    }

    fn check_train(&self) -> Result<(), ConfigError> {
        let train = &self.train;
        check(train.epochs >= 1, "train.epochs", train.epochs, "1 or more")?;
        if let Some(steps) = train.steps {
            check(steps >= 1, "train.steps", steps, "1 or more")?;
        }
        share("train.label_smoothing", train.label_smoothing)?;
        let (shards, images) = (train.shards(), train.images());
        check(images >= 1, "train.batch_size", images, "1 or more")?;
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
        } else {
            let is_default = train.ema_statistics.unwrap_or_default() == EmaStatistics::default();
            let expected = "left out: it has no effect without train.ema";
            check(is_default, "train.ema_statistics", "\"model\"", expected)?;
        }
        match train.non_finite {
            NonFinite::Stop => {}
            NonFinite::Skip => check(
                train.max_non_finite >= 1,
                "train.max_non_finite",
                train.max_non_finite,
                "1 or more; train.non_finite = \"stop\" allows none",
            )?,
        }
        if let Some(norm) = train.clip_grad {
            positive("train.clip_grad", norm)?;
        }
        if let Some(factor) = train.layer_decay {
            let holds = factor > 0.0 && factor <= 1.0;
            check(holds, "train.layer_decay", factor, "more than 0 and at most 1")?;
        }
        let of_init = [
            ("train.init_allow", train.init_allow.is_empty()),
            ("train.init_head", train.init_head == InitHead::default()),
        ];
        if let Some((key, _)) = of_init.iter().find(|(_, left_out)| !left_out)
            && train.init.is_none()
        {
            let problem = Problem::Conflict {
                value: "set".into(),
                other: "no train.init".into(),
                reason: "it has no effect without weights to start from: leave it out".into(),
            };
            return Err(ConfigError::new(*key, problem));
        }
        let unseen = train.init_allow.iter().find(|part| !Part::OF_INIT.contains(part));
        if let Some(part) = unseen {
            let expected = "parts that the start of a training sees: \"method\", \"model\", \
                            \"normalization\", \"split\"";
            return Err(ConfigError::range("train.init_allow", part.name(), expected));
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
        self.check_stairs()?;
        if let Some(power) = optim.power {
            check(power.is_finite() && power > 0.0, "optim.power", power, "more than 0")?;
            let expected = "left out: optim.schedule = \"poly\" alone has a power";
            check(optim.schedule == ScheduleKind::Poly, "optim.power", power, expected)?;
        }
        match optim.schedule {
            ScheduleKind::Cosine | ScheduleKind::Poly | ScheduleKind::Step => {}
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

    /// Checks the keys of the schedule `step`, which no other has.
    fn check_stairs(&self) -> Result<(), ConfigError> {
        let OptimConfig { schedule, milestones, gamma, .. } = &self.optim;
        for &at in milestones {
            periodic("optim.milestones", at, false)?;
        }
        if let Some(gamma) = *gamma {
            check(gamma > 0.0 && gamma <= 1.0, "optim.gamma", gamma, "more than 0 and at most 1")?;
        }
        let set = [("optim.milestones", !milestones.is_empty()), ("optim.gamma", gamma.is_some())];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
            if *schedule != ScheduleKind::Step {
                let expected = "left out: optim.schedule = \"step\" alone has stairs";
                return Err(ConfigError::range(key, "set", expected));
            }
        }
        match (schedule, milestones.is_empty()) {
            (ScheduleKind::Step, true) => {
                let expected = "one step or epoch or more, for optim.schedule = \"step\"";
                Err(ConfigError::range("optim.milestones", "[]", expected))
            }
            (_, _) => Ok(()),
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
        match devices.backend {
            Backend::Wgpu | Backend::Tch => {
                // Of all that are visible there may be one.
                let one = devices.gpus == Gpus::All || devices.gpus.numbers(0).len() == 1;
                let backend = devices.backend;
                let expected = format!("1: devices.backend = \"{backend}\" trains on one device");
                check(one, "devices.gpus", &devices.gpus, expected)?;
            }
            Backend::Auto | Backend::Cpu | Backend::Cuda => {}
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
