//! Training of the task that a configuration names.

use std::path::Path;

use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::task::kinds::with_task;
use crate::train::{self, TrainOptions};

/// `vim-train train`.
pub fn run(options: &TrainOptions) -> Result<(), Error> {
    let task = Config::load(&options.config, &options.sets)?.task;
    with_task!(task, T => train::run::<T>(options))
}

/// `vim-train warmup`, as [`train::warmup`].
pub fn warmup(path: &Path, sets: &[String], parent: Option<u32>, json: bool) -> Result<(), Error> {
    let task = Config::load_base(path, sets)?.task;
    with_task!(task, T => train::warmup::<T>(path, sets, parent, json))
}

/// Runs the start-up checks of `train` that need neither images nor the device; returns a text for
/// each file missing on this machine.
pub fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    with_task!(config.task, T => train::preflight::<T>(config))
}
