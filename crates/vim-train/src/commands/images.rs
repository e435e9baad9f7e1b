//! What `predict` and `features` share: the flags of a model by its weights.

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
    /// Configuration of the model, the normalisation and the device.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    device: DeviceArg,
    /// Images at a time. Left out: 32; with segmentation, whose images differ in size, one.
    #[arg(long, value_name = "N", value_parser = count)]
    batch: Option<usize>,
    #[command(flatten)]
    take: TakeArgs,
}

impl ModelArgs {
    /// As the commands take it.
    pub(super) fn options(&self) -> ModelOptions {
        ModelOptions {
            checkpoint: self.checkpoint.clone(),
            config: self.config.clone(),
            sets: self.overrides.set.clone(),
            device: self.device.device.clone(),
            batch: self.batch,
            take: self.take.take(),
        }
    }
}
