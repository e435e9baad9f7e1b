//! The command line of `vim-train train`.

use std::path::PathBuf;

use clap::Args;
use vim_run::Resume;

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
pub struct TrainArgs {
    /// Configuration file, or the name of one that is built in, such as `quickstart`.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// The device.
    #[command(flatten)]
    pub device: DeviceArg,
    /// Where the order of the images comes from, `keyed` or `reference` (the original's samplers):
    /// short for `--set augment.order=KIND`.
    #[arg(long, value_name = "KIND")]
    pub data_order: Option<String>,
    /// What to do if the run's folder holds a run.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, conflicts_with = "fresh")]
    pub resume: Resume,
    /// Stop after this many steps, with a checkpoint to go on from.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Move a run in the run's folder aside, to NAME.old-N, and start anew.
    #[arg(long)]
    pub fresh: bool,
    /// Check all that can be wrong, print what would be done, and make no folder.
    #[arg(long)]
    pub dry_run: bool,
    /// Of --dry-run: time steps, for at most 20 s (on a GPU after compiling), and say how long all
    /// of them would take here
    #[arg(long, requires = "dry_run")]
    pub time: bool,
    /// Machines that train together, each by this command with another --node. All must see the
    /// same `run.root`, where they meet. In a SLURM job `slurm.nodes` does it.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..),
        requires_all = ["node", "attempt"]
    )]
    pub nodes: Option<u16>,
    /// Of --nodes: the number of this machine, from 0; the first one writes.
    #[arg(long, value_name = "I", requires = "nodes")]
    pub node: Option<u16>,
    /// Of --nodes: a name for this start, the same on all machines and a new one each time.
    #[arg(long, value_name = "NAME", requires = "nodes")]
    pub attempt: Option<String>,
    /// Processes on this machine that train together, for tests: on its CPU, or sharing its GPUs.
    #[arg(long, hide = true, value_name = "N", value_parser = count)]
    pub ranks: Option<usize>,
    /// What a supervisor tells a rank that it starts.
    #[arg(long, hide = true, value_name = "JSON")]
    pub rank: Option<String>,
    /// Whoever started this process sees to its job of SLURM.
    #[arg(long, hide = true)]
    pub led: bool,
    /// Print the run's result on stdout as JSON.
    #[arg(long)]
    pub json: bool,
}

impl TrainArgs {
    /// The assignments over the configuration's file.
    pub(crate) fn sets(&self) -> Vec<String> {
        let mut sets = self.device.over(&self.overrides.set);
        sets.extend(self.data_order.iter().map(|kind| format!("augment.order={kind}")));
        sets
    }
}
