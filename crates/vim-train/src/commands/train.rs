//! The commands that train: each configuration's task is chosen here, and nowhere else; and what a
//! run asks of a cluster.

use vim_run::metrics::ScoreKind;
use vim_slurm::{JobRequest, Site, SiteSearch};

use crate::config::{Backend, Config, ConfigError};
use crate::error::Error;
use crate::task::Task;
use crate::task::classification::Classification;
use crate::train::{self, TrainArgs, WarmupArgs};

/// The scores of the runs that are listed and compared.
pub(crate) const SCORES: &[ScoreKind] = Classification::SCORES;
/// The one that they go by.
pub(crate) const PRIMARY: ScoreKind = Classification::PRIMARY;

pub(crate) fn run(args: &TrainArgs) -> Result<(), Error> {
    train::run::<Classification>(args)
}

pub(crate) fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    train::warmup::<Classification>(args)
}

/// As [`train::preflight`].
pub(crate) fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    train::preflight::<Classification>(config)
}

/// The site of a configuration, and the job request of one run there.
/// Fails if the site does not exist or does not allow the job.
pub(crate) fn site_and_request(config: &Config) -> Result<(Option<Site>, JobRequest), Error> {
    let site = Site::choose(config.slurm.site.as_deref(), &SiteSearch::from_env())?;
    let wants_gpu = match config.devices.backend {
        Backend::Cpu => false,
        Backend::Auto | Backend::Cuda | Backend::Wgpu | Backend::Tch => true,
    };
    let request = config.slurm.request(site.as_ref(), wants_gpu)?;
    Ok((site, request))
}

/// Warns on stderr.
pub(crate) fn say_warnings<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}
