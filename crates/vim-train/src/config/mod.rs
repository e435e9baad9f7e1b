//! The configuration: extended TOML files, the file over them, and `--set` over both.
//!
//! Each section's struct belongs to its consumer and is embedded here. The structs' `Default` is
//! the only place of defaults; the presets of `[model]` and `[augment]` are layers under the files.
//! [`Config::load`] resolves and checks every value once.

mod devices;
mod document;
mod error;
mod file;
pub mod interval;
mod load;
mod name;
mod origins;
mod reference;
mod schema;
mod sections;
mod validate;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vim_data::{DataConfig, Recipe};
use vim_model::{SsmConfig, VimConfig};
use vim_slurm::SlurmConfig;
use vim_sweep::SweepConfig;

pub use devices::{Backend, DevicesConfig, Gpus};
pub(crate) use document::{check_key, in_toml};
pub(crate) use error::nearest;
pub use error::{ConfigError, Origin, Problem};
pub use file::{Extends, VERSION, Version};
pub use load::Loaded;
pub(crate) use load::{dotted, dotted_values};
pub use origins::KeyOrigin;
pub use reference::reference;
pub(crate) use schema::keys;
pub use schema::schema;
pub use sections::{
    CheckpointConfig, LogConfig, LossKind, NonFinite, OptimConfig, Optimizer, RunConfig,
    ScheduleKind, TrainConfig,
};

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
    /// Name, place and seed of the run.
    pub run: RunConfig,
    /// The model: a named size and what differs from it.
    pub model: VimConfig,
    /// Numerics of the state-space layer.
    // As written; code reads `model.ssm`, which loading copies from here.
    pub(crate) ssm: SsmConfig,
    /// The images.
    pub data: DataConfig,
    /// What is done to training images, and in which order they come.
    pub augment: Recipe,
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
        Self { model, augment, ..self.clone() }
    }

    /// The configuration as TOML that loads to the same configuration.
    ///
    /// Unset keys without a default are written as comments.
    pub fn to_toml(&self) -> String {
        document::print(self)
    }
}
