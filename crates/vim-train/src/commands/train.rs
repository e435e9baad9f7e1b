//! The commands that train.

use vim_run::Resume;

use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::task::kinds::with_task;
use crate::train::{self, TrainArgs, WarmupArgs};

pub(crate) fn run(args: &TrainArgs) -> Result<(), Error> {
    let task = Config::load(&args.config, &args.sets())?.task;
    with_task!(task, T => train::run::<T>(args))
}

/// `train --resume auto`, unless another way is given.
pub(crate) fn resume(args: &TrainArgs) -> Result<(), Error> {
    let resume = if args.resume == Resume::Must { Resume::Must } else { Resume::Auto };
    run(&TrainArgs { resume, ..args.clone() })
}

pub(crate) fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    let task = Config::load_base(&args.config, &args.overrides.set)?.task;
    with_task!(task, T => train::warmup::<T>(args))
}

/// As [`train::preflight`].
pub(crate) fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    with_task!(config.task, T => train::preflight::<T>(config))
}
