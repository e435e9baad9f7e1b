//! What a run, or a node of runs, asks of a cluster.

use vim_slurm::{JobRequest, Site, SiteSearch};

use crate::Error;
use crate::config::{Backend, Config, ConfigError, Gpus, Problem};
use crate::device::{DeviceError, backends};

/// The site of a configuration, and the job request of one run there.
/// Fails if the site does not exist or does not allow the job.
pub fn site_and_request(config: &Config) -> Result<(Option<Site>, JobRequest), Error> {
    let site = Site::choose(config.slurm.site.as_deref(), &SiteSearch::from_env())?;
    let used_gpus = match (config.devices.backend, &config.devices.gpus) {
        (Backend::Cpu, _) => 0,
        (Backend::Auto | Backend::Cuda, Gpus::Count(count)) => *count,
        (Backend::Auto | Backend::Cuda, Gpus::List(numbers)) => numbers.len(),
        (Backend::Auto | Backend::Cuda, Gpus::All) => {
            config.slurm.gpus_per_node.as_ref().map_or(1, |asked| asked.count as usize)
        }
        (Backend::Wgpu, _) | (Backend::Tch, Gpus::List(_)) => 1,
        (Backend::Tch, Gpus::Count(_) | Gpus::All) => 0,
    };
    let used_gpus = u32::try_from(used_gpus).unwrap_or(u32::MAX);
    let mut request = config.slurm.request(site.as_ref(), used_gpus)?;
    warn_of_backend(config, &mut request);
    Ok((site, request))
}

/// Warns of a wish for the processor beside a request for GPUs, and of the reverse.
fn warn_of_backend(config: &Config, request: &mut JobRequest) {
    let warning = match (config.devices.backend, request.asks_for_gpus()) {
        (Backend::Cpu, Some(option)) => format!(
            "devices.backend = \"cpu\" leaves the GPUs of the job idle ({option}): request none, or \
             leave the backend to \"auto\""
        ),
        (Backend::Cuda, None) => {
            "devices.backend = \"cuda\", and the job requests no GPU: it fails on a node without one"
                .to_owned()
        }
        (Backend::Auto | Backend::Cpu | Backend::Cuda | Backend::Wgpu | Backend::Tch, _) => return,
    };
    request.warnings.push(warning);
}

/// Checks that this build can train `config` on what its job requests; `is_packed`: runs side by
/// side have one of CUDA's GPUs each.
///
/// # Errors
///
/// What the job would say once it runs, or would not say as it trains on the processor.
pub fn check_build(config: &Config, request: &JobRequest, is_packed: bool) -> Result<(), Error> {
    let asked = request.asks_for_gpus();
    let is_several = match &config.devices.gpus {
        Gpus::All => request.gpus.as_ref().is_some_and(|gpus| gpus.count > 1),
        Gpus::Count(count) => *count > 1,
        Gpus::List(numbers) => numbers.len() > 1,
    };
    let has = |backend| backends().contains(&backend);
    // The CPU is in every build; wgpu drives one GPU.
    let needed = match config.devices.backend {
        Backend::Auto if asked.is_none() && !is_several => Backend::Cpu,
        Backend::Auto if has(Backend::Wgpu) && !is_several && !is_packed => Backend::Wgpu,
        Backend::Auto => Backend::Cuda,
        named @ (Backend::Cpu | Backend::Cuda | Backend::Wgpu | Backend::Tch) => named,
    };
    if !has(needed) {
        let asked = asked.map_or_else(String::new, |option| format!(" and gives it {option}"));
        return Err(DeviceError::Unavailable(format!(
            "devices.backend: this build has no {needed}, and the job runs this build{asked}: build \
             it with --features {needed}, or set devices.backend=cpu"
        ))
        .into());
    }
    let on_processor = matches!(config.devices.gpus, Gpus::All | Gpus::Count(_));
    if let (Backend::Tch, true, Some(value)) = (config.devices.backend, on_processor, asked) {
        let other = "devices.backend = \"tch\"".to_owned();
        let reason = "LibTorch computes on the processor unless devices.gpus lists a GPU, as [0]";
        let problem = Problem::Conflict { value, other, reason: reason.to_owned() };
        return Err(ConfigError::new("slurm.gpus_per_node", problem).into());
    }
    Ok(())
}

/// The site, the job request of a whole node on which runs of `config` train side by side, each on
/// one GPU, and the number of its GPUs; 0 where they train on the processor.
pub fn node_request(config: &Config) -> Result<(Option<Site>, JobRequest, u32), Error> {
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
    // Of those that are asked for, wgpu's runs share the first.
    let shared = config.slurm.gpus_per_node.as_ref().map_or(0, |asked| asked.count.min(1));
    let used = if config.devices.backend == Backend::Wgpu { shared } else { gpus };
    let mut request = config.slurm.request(site.as_ref(), used)?;
    warn_of_backend(config, &mut request);
    Ok((site, request, gpus))
}

/// Warns on stderr.
pub fn say_warnings<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}
