//! What a job of a configuration asks of its site.

use vim_slurm::{JobRequest, Site, SiteSearch};

use crate::config::{Backend, Config};
use crate::error::Error;

/// The site of a configuration, and what a job of one run of it asks for there.
///
/// # Errors
///
/// If there is no such site, or it does not allow for the job.
pub(crate) fn site_and_request(config: &Config) -> Result<(Option<Site>, JobRequest), Error> {
    let site = Site::choose(config.slurm.site.as_deref(), &SiteSearch::from_env())?;
    let wants_gpu = match config.devices.backend {
        Backend::Cpu => false,
        Backend::Auto | Backend::Cuda | Backend::Wgpu | Backend::Tch => true,
    };
    let request = config.slurm.request(site.as_ref(), wants_gpu)?;
    Ok((site, request))
}
