//! The ranks of a run: processes that train together, one for each device, and the process that
//! starts them.
//!
//! The process that a user or SLURM starts becomes a [`Supervisor`] where there are several
//! devices, and starts a copy of itself for each. A rank does what the only process of a run does,
//! on its shards of the batch; rank 0 alone opens the run's folder and writes there. On several
//! nodes each has a supervisor, which meet before they start ranks, and end alike.

mod attempts;
mod nodes;
mod shards;
mod supervisor;
mod team;
mod watchdog;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vim_comm::{Comm, CommError, Place, Rendezvous, same_order};
use vim_run::signals::StopRequest;
use vim_run::{Log, host_name};

use super::TrainArgs;
use crate::config::{BatchSize, Config, DevicesConfig, Gpus, Interval};
use crate::device::{self, SelectedDevice};
use crate::error::{Error, Failure, code};
use nodes::NodePlace;
pub(super) use shards::{ShardCount, ShardsFrom};
use supervisor::Supervisor;
pub(super) use supervisor::end_with_parent;
pub(crate) use team::{Ended, RankArg, Team, start};
use watchdog::Joining;

/// Variable with the number of ranks on a machine, which share its cores.
pub(super) use vim_data::LOCAL_RANKS;

/// What this process does for a run.
#[derive(Debug)]
pub(super) enum Role {
    /// It trains.
    Rank(Rank),
    /// It starts and watches the ranks of this machine.
    Supervisor(Box<Supervisor>),
}

/// Which part of a run this process trains.
#[derive(Debug)]
pub(super) enum Rank {
    /// All of it.
    Only,
    /// Some shards.
    Member(Box<Member>),
}

/// One of several ranks, as its supervisor starts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::train) struct Member {
    place: Place,
    /// Where the ranks meet.
    folder: PathBuf,
    /// `train.shards`.
    shards: ShardCount,
    /// The GPU's number; none for the CPU.
    gpu: Option<usize>,
    /// Process number of the supervisor.
    supervisor: u32,
    /// Images of a batch, of a run whose file leaves them to be sought.
    images: Option<usize>,
}

impl Role {
    /// The role of this process, the number of shards, and `config` with that put in. On several
    /// nodes it waits for the others.
    pub(super) fn of(
        args: &TrainArgs,
        config: &Config,
        stop: &StopRequest,
    ) -> Result<(Self, ShardCount, Config), Error> {
        if let Some(text) = &args.rank {
            let member = Member::of(text)?;
            let shards = member.shards;
            let mut config = config.clone();
            if let Some(images) = member.images {
                config.train.batch_size = BatchSize::Images(images);
            }
            let config = with_shards(&config, shards.count)?;
            return Ok((Self::Rank(Rank::Member(Box::new(member))), shards, config));
        }
        let place = NodePlace::of(args, config)?;
        let devices = devices(args, config, place.count > 1);
        let devices = devices.inspect_err(|error| place.give_up(config, error))?;
        let asked = ShardCount::asked(args, config);
        if place.count > 1 {
            // A signal ends the wait on all nodes.
            stop.defer();
        }
        if place.number == 0 {
            place.clean_before(config);
        }
        let nodes =
            place.meet(config, devices.len().max(1), asked.map(|asked| asked.count), stop)?;
        let world: usize = nodes.iter().map(|node| node.ranks).sum();
        // Node 0's number is that of all.
        let shards = match nodes[0].shards {
            Some(count) => {
                let from = asked.map_or(ShardsFrom::Record, |asked| asked.from);
                ShardCount { count, from }
            }
            None => ShardCount { count: world, from: ShardsFrom::Ranks },
        };
        let config = with_shards(config, shards.count)?;
        if !shards.count.is_multiple_of(world) {
            let ranks = nodes.iter().map(|node| node.ranks).collect();
            return Err(RankError::Uneven { ranks, shards: shards.count }.into());
        }
        if world == 1 {
            return Ok((Self::Rank(Rank::Only), shards, config));
        }
        let supervisor = Supervisor::new(&config, &place, nodes, devices, shards, args.resume)?;
        Ok((Self::Supervisor(Box::new(supervisor)), shards, config))
    }
}

/// The devices of this machine's ranks: a GPU's number, or none for the CPU. Empty for one device
/// that is found later; of several nodes each has one at least.
pub(super) fn devices(
    args: &TrainArgs,
    config: &Config,
    is_one_of_several: bool,
) -> Result<Vec<Option<usize>>, Error> {
    if let Some(count) = args.ranks {
        let gpus = device::cuda_gpus(&config.devices);
        return Ok((0..count).map(|rank| rank.checked_rem(gpus)).collect());
    }
    let several = device::gpus(&config.devices)?;
    if !several.is_empty() || !is_one_of_several {
        return Ok(several.into_iter().map(Some).collect());
    }
    let visible = device::cuda_gpus(&config.devices);
    let first = config.devices.gpus.numbers(visible).first().copied();
    Ok(vec![first.filter(|_| visible > 0)])
}

fn with_shards(config: &Config, shards: usize) -> Result<Config, Error> {
    let mut config = config.clone();
    // One shard is what runs have that do not name them.
    config.train.shards = (shards != 1).then_some(shards);
    config.validate()?;
    Ok(config)
}

impl Rank {
    /// The device that this rank trains on.
    pub(super) fn device(&self, config: &DevicesConfig) -> Result<SelectedDevice, Error> {
        match self {
            Self::Only => device::choose(config),
            Self::Member(member) => {
                let gpus = member.gpu.map_or(Gpus::Count(1), |gpu| Gpus::List(vec![gpu]));
                device::choose(&DevicesConfig { gpus, ..config.clone() })
            }
        }
    }

    /// Joins the other ranks; the only rank joins nobody.
    pub(super) fn join(&self, config: &Config, device: &SelectedDevice) -> Result<Comm, Error> {
        let Self::Member(member) = self else { return Ok(Comm::single()) };
        let rendezvous = member.rendezvous(config);
        let identity = vim_comm::Member {
            place: member.place.clone(),
            host: host_name(),
            pid: std::process::id(),
            device: device.kind(),
            device_id: device.unique_id(),
            build: build(),
            configuration: blake3::hash(config.to_toml().as_bytes()).to_hex().to_string(),
            library: None,
        };
        let (timeout, name) = (minutes(config.devices.timeout), member.name(device));
        let joining = || watchdog::watch_joining(timeout, name.clone());
        let (comm, warnings) = if device.is_cuda() && member.place.world() > 1 {
            nccl(&rendezvous, identity, device, joining)?
        } else {
            let warnings = rendezvous.meet(&identity)?.warnings;
            let _joining = joining()?;
            (Comm::host(&rendezvous)?, warnings)
        };
        if comm.rank() == 0 {
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        }
        watchdog::watch(&comm, timeout, name)?;
        Ok(comm)
    }

    /// What the log says of the shards and ranks.
    pub(super) fn describe(&self, comm: &Comm, shards: ShardCount, log: &Log) {
        log.line(shards.describe());
        let shards = shards.count;
        if let Self::Only = self
            && shards == 1
        {
            return;
        }
        let world = comm.size();
        let each = shards / world;
        let nodes = match self {
            Self::Member(member) if member.place.nodes() > 1 => {
                format!(
                    " on {} nodes{}",
                    member.place.nodes(),
                    by_node(member.place.ranks_of_nodes())
                )
            }
            Self::Member(_) | Self::Only => String::new(),
        };
        log.line(format!(
            "{world} rank{}{nodes}, {shards} shards of a batch, {each} a rank",
            if world == 1 { "" } else { "s" }
        ));
        if !same_order(shards, world) {
            log.line(format!(
                "warning: {shards} shards on {world} ranks are added in another order than on one: \
                 the numbers will differ in rounding"
            ));
        }
    }

    /// Tells the supervisor that this rank has opened the run's folder.
    pub(super) fn opened(&self, config: &Config) -> Result<(), Error> {
        match self {
            Self::Only => Ok(()),
            Self::Member(member) => {
                Ok(member.rendezvous(config).publish(supervisor::OPENED, b"")?)
            }
        }
    }

    /// The end of this rank by `error`. Where rank 0 knows no more than that another rank has
    /// failed, the supervisor tells which one and why, and this ends the process without a word.
    pub(super) fn end(&self, config: &Config, error: Error) -> Error {
        if let Self::Member(member) = self
            && member.place.rank() == 0
            && error.downcast_ref().is_some_and(supervisor::is_of_another)
            && let text = error.to_string()
            && member.rendezvous(config).publish(supervisor::MISSES, text.as_bytes()).is_ok()
        {
            std::process::exit(i32::from(error.exit_code()));
        }
        error
    }
}

impl Member {
    /// The rank that `--rank` describes; it ends with the process that started it.
    fn of(text: &str) -> Result<Self, Error> {
        let member: Self = serde_json::from_str(text)
            .map_err(|error| Error::internal(format!("--rank: {error}")))?;
        supervisor::end_with_parent(member.supervisor);
        Ok(member)
    }

    fn rendezvous(&self, config: &Config) -> Rendezvous {
        Rendezvous {
            folder: self.folder.clone(),
            place: self.place.clone(),
            timeout: minutes(config.devices.rendezvous),
        }
    }

    /// Rank, node and device.
    fn name(&self, device: &SelectedDevice) -> String {
        format!("rank {} (node {}, {})", self.place.rank(), host_name(), device.name)
    }
}

#[cfg(feature = "cuda")]
fn nccl(
    rendezvous: &Rendezvous,
    identity: vim_comm::Member,
    device: &SelectedDevice,
    joining: impl FnOnce() -> Result<Joining, Error>,
) -> Result<(Comm, Vec<String>), Error> {
    let library = vim_comm::nccl::Library::open(device::cuda_libraries::nccl_places())?;
    let identity = vim_comm::Member { library: Some(library.version()), ..identity };
    let warnings = rendezvous.meet(&identity)?.warnings;
    let _joining = joining()?;
    Ok((Comm::nccl(rendezvous, &device.device, &library)?, warnings))
}

#[cfg(not(feature = "cuda"))]
fn nccl(
    _: &Rendezvous,
    _: vim_comm::Member,
    _: &SelectedDevice,
    _: impl FnOnce() -> Result<Joining, Error>,
) -> Result<(Comm, Vec<String>), Error> {
    Err(Error::internal("a CUDA device in a build without CUDA"))
}

/// Version and commit: ranks of other builds may compute other numbers.
fn build() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), option_env!("VIM_TRAIN_COMMIT").unwrap_or_default())
}

fn minutes(interval: Interval) -> std::time::Duration {
    let minutes = if let Interval::Minutes(minutes) = interval { minutes } else { 30.0 };
    std::time::Duration::from_secs_f64(minutes * 60.0)
}

/// ` (4 + 3)`; nothing of one node.
fn by_node(ranks: &[usize]) -> String {
    let all: Vec<String> = ranks.iter().map(usize::to_string).collect();
    if all.len() > 1 { format!(" ({})", all.join(" + ")) } else { String::new() }
}

/// What keeps ranks from training together.
#[derive(Debug, thiserror::Error)]
pub(super) enum RankError {
    #[error(
        "{} devices{} cannot share train.shards = {shards} evenly: use a number of devices that \
         divides it (devices.gpus)",
        ranks.iter().sum::<usize>(),
        by_node(ranks)
    )]
    Uneven { ranks: Vec<usize>, shards: usize },

    #[error("--node {number}: the {count} nodes are numbered from 0 to {}", count - 1)]
    NoNode { number: usize, count: usize },

    #[error("--attempt {0:?}: expected a name of letters, digits, `-`, `_` and `.`")]
    Attempt(String),

    #[error(
        "slurm.nodes = {asked}, but this process is no task of a step of its job: start it by `srun \
         --nodes={asked} --ntasks-per-node=1`, or set slurm.nodes=1"
    )]
    NoStep { asked: usize },

    #[error(
        "slurm.nodes = {asked}, but this step has {tasks} tasks on {nodes} nodes: start one on each \
         of {asked} nodes by `srun --nodes={asked} --ntasks-per-node=1`, or set slurm.nodes"
    )]
    Step { asked: usize, nodes: usize, tasks: usize },

    #[error("{name} {what}")]
    Ended { name: String, what: String, code: u8 },

    #[error("the weights of the ranks differ at step {step} ({hashes}): please report it")]
    Parted { step: u64, hashes: String },
}

impl Failure for RankError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoNode { .. } | Self::Attempt(_) => code::USAGE,
            Self::Uneven { .. } | Self::NoStep { .. } | Self::Step { .. } => code::CONFIG,
            Self::Ended { code, .. } => *code,
            Self::Parted { .. } => code::INTERNAL,
        }
    }
}

impl Failure for CommError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Wrong { .. } => code::FAILED,
            Self::Io { .. } | Self::Socket { .. } => code::IO,
            Self::Missing { .. }
            | Self::Silent { .. }
            | Self::Refused { .. }
            | Self::Aborted { .. }
            | Self::Lost { .. }
            | Self::Parted { .. }
            | Self::Unsupported { .. }
            | Self::NoLibrary { .. }
            | Self::Nccl { .. }
            | Self::MissingNodes { .. }
            | Self::Tensor { .. } => code::UNAVAILABLE,
        }
    }
}
