//! The resources that a configuration's job requests from its site.

use vim_slurm::{JobRequest, Site, SiteSearch};

use crate::config::{Backend, Config};
use crate::error::Error;

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
