//! The commands that train.

use std::path::PathBuf;

use clap::Args;
use vim_engine::Error;
use vim_engine::config::is_embedded;
use vim_engine::run_folder::holds_run;
use vim_engine::train::TrainOptions;
use vim_engine::weights::place::Place;
use vim_engine::work::training;
use vim_run::{CONFIG, Resume};

use super::new;
use crate::args::{DeviceArg, Overrides, count};

const EXAMPLES: &str = "\
Examples:
  vim-train train configs/debug.toml
  vim-train train configs/debug.toml --set model.discretization=bilinear --set run.seed=1
  vim-train train configs/debug.toml --resume auto    start, or go on after an interruption
  vim-train train configs/debug.toml --dry-run        configuration, data, device: would it start?
  vim-train train configs/debug.toml --dry-run --time    and how long would it take here?
  vim-train train quickstart                          what is built in needs no file

SIGTERM, SIGUSR1, SIGUSR2 and SIGHUP save a checkpoint and exit 75; Ctrl-C saves and exits 130; a
third Ctrl-C, or one two seconds after the first, ends at once without saving, 79. In a SLURM job,
`slurm.on_interrupt` says whether the job then goes back into the queue; scancel is final. `vim-train --help` lists all exit codes.";

/// `vim-train train`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TrainArgs {
    /// Configuration file, or the name of one that is built in, such as `quickstart`.
    pub(super) config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub(super) overrides: Overrides,
    /// The device.
    #[command(flatten)]
    pub(super) device: DeviceArg,
    /// Where the order of the images comes from, `keyed` or `reference` (the original's samplers):
    /// short for `--set augment.order=KIND`.
    #[arg(long, value_name = "KIND")]
    pub(super) data_order: Option<String>,
    /// What to do if the run's folder holds a run.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, conflicts_with = "fresh")]
    pub(super) resume: Resume,
    /// Stop after this many steps, with a checkpoint to go on from.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) steps: Option<u64>,
    /// Move a run in the run's folder aside, to NAME.old-N, and start anew.
    #[arg(long)]
    pub(super) fresh: bool,
    /// Check all that can be wrong, print what would be done, and make no folder.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Of --dry-run: time steps, for at most 20 s (on a GPU after compiling), and say how long all
    /// of them would take here
    #[arg(long, requires = "dry_run")]
    pub(super) time: bool,
    /// Machines that train together, each by this command with another --node. All must see the
    /// same `run.root`, where they meet. In a SLURM job `slurm.nodes` does it.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..),
        requires_all = ["node", "attempt"]
    )]
    pub(super) nodes: Option<u16>,
    /// Of --nodes: the number of this machine, from 0; the first one writes.
    #[arg(long, value_name = "I", requires = "nodes")]
    pub(super) node: Option<u16>,
    /// Of --nodes: a name for this start, the same on all machines and a new one each time.
    #[arg(long, value_name = "NAME", requires = "nodes")]
    pub(super) attempt: Option<String>,
    /// Processes on this machine that train together, for tests: on its CPU, or sharing its GPUs.
    #[arg(long, hide = true, value_name = "N", value_parser = count)]
    pub(super) ranks: Option<usize>,
    /// What a supervisor tells a rank that it starts.
    #[arg(long, hide = true, value_name = "JSON")]
    pub(super) rank: Option<String>,
    /// Whoever started this process sees to its job of SLURM.
    #[arg(long, hide = true)]
    pub(super) led: bool,
    /// Print the run's result on stdout as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

const WARMUP_EXAMPLES: &str = "\
Examples:
  vim-train warmup configs/vim_tiny_imagenet.toml --set data.path=DIR
  vim-train warmup configs/vim_tiny_cifar100.toml --set devices.backend=cuda --json

Does two training steps and two evaluation batches of the configuration, on its own data, and keeps
nothing but the machine code: NVIDIA's driver stores it, for this GPU, driver and build, in
~/.nv/ComputeCache or where CUDA_CACHE_PATH says, and every later process finds it there. `train`
does the same by itself at its first step: this is for a job array, so that one job compiles and not
all of them, or for a node-local CUDA_CACHE_PATH. Methods, precision, batch and model sizes have
kernels of their own: warm up with the --set that you train with. A sweep's file is taken without its
grid: for a sweep over methods, once with --set model.discretization=METHOD for each.";

/// `vim-train warmup`.
#[derive(Debug, Args)]
#[command(after_help = WARMUP_EXAMPLES)]
pub(crate) struct WarmupArgs {
    /// Configuration file; of a sweep's file, its configuration without the grid.
    config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    overrides: Overrides,
    /// Print the result on stdout as JSON.
    #[arg(long)]
    json: bool,
    /// The process that seeks a batch size by this one, which ends with it.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
}

impl TrainArgs {
    fn options(&self) -> TrainOptions {
        let mut sets = self.device.over(&self.overrides.set);
        sets.extend(self.data_order.iter().map(|kind| format!("augment.order={kind}")));
        TrainOptions {
            config: self.config.clone(),
            sets,
            resume: self.resume,
            steps: self.steps,
            fresh: self.fresh,
            dry_run: self.dry_run,
            time: self.time,
            nodes: self.nodes,
            node: self.node,
            attempt: self.attempt.clone(),
            ranks: self.ranks,
            rank: self.rank.clone(),
            led: self.led,
            json: self.json,
        }
    }
}

pub(crate) fn run(args: &TrainArgs) -> Result<(), Error> {
    let path = &args.config;
    if path.is_dir() && !is_embedded(path) && !holds_run(path) {
        return Err(new::in_place_of(path));
    }
    training::run(&args.options())
}

/// `train --resume auto`, also of a run by its folder or name.
pub(crate) fn resume(args: &TrainArgs) -> Result<(), Error> {
    let resume = if args.resume == Resume::Must { Resume::Must } else { Resume::Auto };
    let place = Place::find(&args.config, &args.overrides.run_root()?, None);
    let run_found = place.ok().and_then(|place| place.run());
    let config = run_found.map_or_else(|| args.config.clone(), |run| run.join(CONFIG));
    run(&TrainArgs { resume, config, ..args.clone() })
}

pub(crate) fn warmup(args: &WarmupArgs) -> Result<(), Error> {
    training::warmup(&args.config, &args.overrides.set, args.parent, args.json)
}
