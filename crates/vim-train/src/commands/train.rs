//! The commands that train: each configuration's task is chosen here, and nowhere else.

use vim_run::metrics::ScoreKind;

use crate::comm::SingleDevice;
use crate::config::{Config, ConfigError};
use crate::error::Error;
use crate::task::Task;
use crate::task::classification::Classification;
use crate::train;

pub use crate::train::{TrainArgs, WarmupArgs};

/// The scores of the runs that are listed and compared.
pub(crate) const SCORES: &[ScoreKind] = Classification::SCORES;
/// The one that they go by.
pub(crate) const PRIMARY: ScoreKind = Classification::PRIMARY;

/// `vim-train train`.
pub fn run(args: &TrainArgs) -> Result<(), Error> {
    train::run::<Classification>(args, &mut SingleDevice)
}

/// `vim-train warmup`.
pub fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    train::warmup::<Classification>(args)
}

/// As [`train::preflight`].
pub(crate) fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    train::preflight::<Classification>(config)
}
