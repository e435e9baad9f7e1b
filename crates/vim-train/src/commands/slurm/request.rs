//! What a run, or a node of runs, asks of a cluster.

use vim_slurm::{JobRequest, Site, SiteSearch};

use crate::config::{Backend, Config, ConfigError, Gpus, Problem};
use crate::error::Error;

/// The site of a configuration, and the job request of one run there.
/// Fails if the site does not exist or does not allow the job.
pub(crate) fn site_and_request(config: &Config) -> Result<(Option<Site>, JobRequest), Error> {
    let site = Site::choose(config.slurm.site.as_deref(), &SiteSearch::from_env())?;
    let used_gpus = match (config.devices.backend, &config.devices.gpus) {
        (Backend::Cpu, _) => 0,
        (Backend::Auto | Backend::Cuda, Gpus::Count(count)) => *count,
        (Backend::Auto | Backend::Cuda, Gpus::List(numbers)) => numbers.len(),
        (Backend::Auto | Backend::Cuda, Gpus::All) => {
            config.slurm.gpus_per_node.as_ref().map_or(1, |asked| asked.count as usize)
        }
        (Backend::Wgpu | Backend::Tch, _) => 1,
    };
    let used_gpus = u32::try_from(used_gpus).unwrap_or(u32::MAX);
    let request = config.slurm.request(site.as_ref(), used_gpus)?;
    Ok((site, request))
}

/// The site, the job request of a whole node on which runs of `config` train side by side, each on
/// one GPU, and the number of its GPUs; 0 where they train on the processor.
pub(crate) fn node_request(config: &Config) -> Result<(Option<Site>, JobRequest, u32), Error> {
    let one = match &config.devices.gpus {
        Gpus::Count(count) => *count == 1,
        Gpus::List(numbers) => numbers.len() == 1,
        Gpus::All => false,
    };
    let reason = "a task of a packed sweep is a node, on which each run has one GPU";
    let wrong = |key: &str, value: String| {
        let (other, reason) = ("sweep.pack = \"node\"".to_owned(), reason.to_owned());
        Err(ConfigError::new(key, Problem::Conflict { value, other, reason }))
    };
    if config.slurm.nodes != 1 {
        wrong("slurm.nodes", config.slurm.nodes.to_string())?;
    }
    if !one {
        wrong("devices.gpus", config.devices.gpus.to_string())?;
    }
    let site = Site::choose(config.slurm.site.as_deref(), &SiteSearch::from_env())?;
    let gpus = match (config.devices.backend, &config.slurm.gpus_per_node, &site) {
        (Backend::Auto | Backend::Cuda, Some(asked), _) => asked.count,
        (Backend::Auto | Backend::Cuda, None, Some(site)) => {
            let partition = config.slurm.partition.as_ref().or(site.partition.as_ref());
            let limits = site.limits(partition.map(String::as_str));
            limits.and_then(|limits| limits.max_gpus).or(site.gpus_per_node).unwrap_or(0)
        }
        (Backend::Cpu | Backend::Wgpu | Backend::Tch, ..) | (_, None, None) => 0,
    };
    let request = config.slurm.request(site.as_ref(), gpus)?;
    Ok((site, request, gpus))
}

/// Warns on stderr.
pub(crate) fn say_warnings<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}
