//! What `predict`, `features` and `explain` share: the flags of a model by its weights.

use std::path::PathBuf;

use clap::Args;
use vim_engine::work::images::ModelOptions;

use crate::args::{DeviceArg, Overrides, count};
use crate::commands::import::TakeArgs;

/// The model that looks at images.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// The weights: a file (.pth, .pt, .safetensors), a run's folder or its name in `run.root`, a
    /// checkpoint's folder; with --config also `best` and `last` of its run.
    #[arg(long, value_name = "RUN|PATH")]
    checkpoint: PathBuf,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Images at a time. Left out: 32; with segmentation, whose images differ in size, one.
    #[arg(long, value_name = "N", value_parser = count)]
    batch: Option<usize>,
}

/// What is said of a model beside its weights.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Configuration of the model, the normalisation and the device.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    take: TakeArgs,
}

impl ModelArgs {
    /// As the commands take it.
    pub(super) fn options(&self) -> ModelOptions {
        self.settings.options(self.checkpoint.clone(), self.batch)
    }
}

impl SettingsArgs {
    /// As the commands take it, of the weights at `checkpoint`.
    pub(super) fn options(&self, checkpoint: PathBuf, batch: Option<usize>) -> ModelOptions {
        ModelOptions {
            checkpoint,
            config: self.config.clone(),
            sets: self.overrides.set.clone(),
            device: self.device.device.clone(),
            batch,
            take: self.take.take(),
        }
    }
}
