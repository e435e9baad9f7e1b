//! The commands that train: each configuration's task is chosen here, and nowhere else; and what a
//! run asks of a cluster.

use vim_run::metrics::ScoreKind;
use vim_slurm::{JobRequest, Site, SiteSearch};

use crate::config::{Backend, Config, ConfigError, Gpus, Problem, TaskKind};
use crate::error::Error;
use crate::task::Task;
use crate::task::classification::Classification;
use crate::task::detection::Detection;
use crate::task::segmentation::Segmentation;
use crate::train::{self, TrainArgs, WarmupArgs};

/// The scores of the runs that are listed and compared, of every task.
pub(crate) const SCORES: &[ScoreKind] = &[
    Classification::SCORES[0],
    Classification::SCORES[1],
    Classification::SCORES[2],
    Segmentation::SCORES[0],
    Segmentation::SCORES[1],
    Segmentation::SCORES[2],
    Detection::SCORES[0],
    Detection::SCORES[1],
    Detection::SCORES[2],
    Detection::SCORES[3],
    Detection::SCORES[4],
    Detection::SCORES[5],
];
/// The ones that they go by, each task's.
pub(crate) const PRIMARY: [ScoreKind; 3] =
    [Classification::PRIMARY, Segmentation::PRIMARY, Detection::PRIMARY];

pub(crate) fn run(args: &TrainArgs) -> Result<(), Error> {
    match Config::load(&args.config, &args.sets())?.task {
        TaskKind::Classification => train::run::<Classification>(args),
        TaskKind::Segmentation => train::run::<Segmentation>(args),
        TaskKind::Detection => train::run::<Detection>(args),
    }
}

pub(crate) fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    match Config::load_base(&args.config, &args.overrides.set)?.task {
        TaskKind::Classification => train::warmup::<Classification>(args),
        TaskKind::Segmentation => train::warmup::<Segmentation>(args),
        TaskKind::Detection => train::warmup::<Detection>(args),
    }
}

/// As [`train::preflight`].
pub(crate) fn preflight(config: &Config) -> Result<Vec<String>, ConfigError> {
    match config.task {
        TaskKind::Classification => train::preflight::<Classification>(config),
        TaskKind::Segmentation => train::preflight::<Segmentation>(config),
        TaskKind::Detection => train::preflight::<Detection>(config),
    }
}

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
