//! The commands that train.

use vim_run::{CONFIG, Resume};

use super::new;
use crate::config::{Config, ConfigError, is_embedded};
use crate::error::Error;
use crate::run_folder::holds_run;
use crate::task::kinds::with_task;
use crate::train::{self, TrainArgs, WarmupArgs};
use crate::weights::place::Place;

pub(crate) fn run(args: &TrainArgs) -> Result<(), Error> {
    let path = &args.config;
    if path.is_dir() && !is_embedded(path) && !holds_run(path) {
        return Err(new::in_place_of(path));
    }
    let task = Config::load(&args.config, &args.sets())?.task;
    with_task!(task, T => train::run::<T>(args))
}

/// `train --resume auto`, also of a run by its folder or name.
pub(crate) fn resume(args: &TrainArgs) -> Result<(), Error> {
    let resume = if args.resume == Resume::Must { Resume::Must } else { Resume::Auto };
    let place = Place::find(&args.config, &args.overrides.run_root()?, None);
    let run_found = place.ok().and_then(|place| place.run());
    let config = run_found.map_or_else(|| args.config.clone(), |run| run.join(CONFIG));
    run(&TrainArgs { resume, config, ..args.clone() })
}

pub(crate) fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    let task = Config::load_base(&args.config, &args.overrides.set)?.task;
    with_task!(task, T => train::warmup::<T>(args))
}

/// As [`train::preflight`].
pub(crate) fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    with_task!(config.task, T => train::preflight::<T>(config))
}
