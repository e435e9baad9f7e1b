//! Sweeps: many runs from one file.
//!
//! | file of a sweep's folder | content |
//! |---|---|
//! | `plan.jsonl` | the runs: index, id, name, differences |
//! | `sweep.toml` | the `[sweep]` section and its source |
//! | `configs/ID.toml` | a run's whole configuration, as it was when the sweep was planned |
//! | the runs' folders | see [`vim_run::RunDir`] |
//! | `logs/` | output of runs of `sweep run`, `sweep retry` and packed tasks |
//! | `slurm/` | batch scripts, jobs, and output of runs under SLURM |
//! | `summary.csv`, `summary.md`, `report.html`, `figures/` | results of `sweep summarize` |
//! | `pairs.csv`, `differing_images.csv` | of it: which images the methods differ on |

pub mod differences;
pub mod folder;
mod job;
pub mod local;
pub mod packs;
pub mod plan;
pub mod planned;
mod watch;

use std::path::{Path, PathBuf};

use vim_run::Holder;
use vim_run::signals::Stop;

use crate::config::Backend;
use crate::error::{Error, Failure, code};
use crate::train::job_attempt::Successor;

/// The sweep that a command is about.
#[derive(Clone, Debug)]
pub struct Which {
    /// Its file, or its folder.
    pub sweep: PathBuf,
    /// The assignments over the file.
    pub sets: Vec<String>,
}

/// The name of run number `index` of the sweep in `folder`.
pub fn run_name(folder: &Path, index: u32) -> Result<String, Error> {
    let plan = folder::read_plan(folder)?.ok_or_else(|| SweepRunError::NoSweep(folder.into()))?;
    let entry = plan.entries.get(index as usize).ok_or_else(|| SweepRunError::NoEntry {
        folder: folder.to_owned(),
        asked: format!("with index {index}"),
    })?;
    Ok(entry.name.clone())
}

/// Why a sweep cannot be planned, trained or reported.
#[derive(Debug, thiserror::Error)]
pub enum SweepRunError {
    /// A file that describes a single run.
    #[error(
        "{} has no [sweep] section: add one with a grid (docs/experiments.md), or train it by `vim-train train`",
        .0.display()
    )]
    NoSection(PathBuf),

    /// A folder without a plan.
    #[error(
        "{} holds no sweep: `vim-train sweep plan FILE` makes one in run.root/sweep.name",
        .0.display()
    )]
    NoSweep(PathBuf),

    /// `--set` where the configurations are frozen.
    #[error("{} is a planned sweep, whose configurations are frozen: --set goes with its file", .0.display())]
    Frozen(PathBuf),

    /// `--set` of a key that the grid varies.
    #[error("--set {0}: the sweep varies it; set sweep.grid, or sweep.seeds for run.seed, instead")]
    SetInGrid(String),

    /// Runs whose configurations cannot be used.
    #[error("{problems} of {cells} runs of {} cannot be trained (listed above): nothing was planned", path.display())]
    Cells {
        /// The sweep's file.
        path: PathBuf,
        /// Runs of it.
        cells: usize,
        /// Those that cannot be trained.
        problems: usize,
    },

    /// A run that is not planned.
    #[error("{} has no run {asked}: `vim-train sweep status {}` lists them", folder.display(), folder.display())]
    NoEntry {
        /// The folder of the sweep.
        folder: PathBuf,
        /// What was asked for, in words.
        asked: String,
    },

    /// A sweep of SLURM, asked to be trained here by this command.
    #[error(
        "the sweep was submitted to SLURM, and this would train on this machine: `{0} --submit` submits the runs again, --local trains them here"
    )]
    Submitted(String),

    /// `--gpus` of runs that compute on no CUDA GPU.
    #[error(
        "--gpus: no run computes on these GPUs (devices.backend = \"{0}\"): leave it out, and give -j for how many at a time"
    )]
    GpusUnused(Backend),

    /// A baseline that names no method of the grid.
    #[error(
        "--baseline {0}: expected KEY=VALUE with a key of the grid, or a value that only one of them has"
    )]
    Baseline(String),

    /// Another process trains a run of the sweep, `name`.
    #[error("{} has runs at work ({name}): wait for them, or end them", folder.display())]
    AtWork {
        /// The folder of the sweep.
        folder: PathBuf,
        /// One of the runs.
        name: String,
    },

    /// Another process has been writing the plan for long.
    #[error("{} is being planned by {holder}: wait for it, and run this again", folder.display())]
    BeingPlanned {
        /// The folder of the sweep.
        folder: PathBuf,
        /// The other process.
        holder: Box<Holder>,
    },

    /// Runs that failed here.
    #[error(
        "{failed} of {started} runs did not finish (listed above); see to the reason, then `vim-train sweep retry {} --failed`",
        folder.display()
    )]
    Failed {
        /// The folder of the sweep.
        folder: PathBuf,
        /// How many.
        failed: usize,
        /// Of how many.
        started: usize,
    },

    /// A node whose runs cannot be counted.
    #[error(
        "sweep.pack = \"node\": no GPUs of a node to count runs by: set sweep.per_node, the runs of a node"
    )]
    PackSize,

    /// `sweep.per_node` without packs.
    #[error("sweep.per_node goes with sweep.pack = \"node\": set that, or leave it out")]
    Unpacked,

    /// A signal came while `left` runs were not finished, and their job goes on with them.
    #[error("stopped by {}: {left} runs are left, those at work are saved: {next}", stop.name())]
    Handed {
        /// The signal.
        stop: Stop,
        /// Runs that are not finished.
        left: usize,
        /// What goes on with them.
        next: Successor,
    },

    /// A signal came while `left` runs were not finished.
    #[error(
        "stopped by {}: {left} runs are left, those at work are saved; the same command goes on",
        stop.name()
    )]
    Stopped {
        /// The signal.
        stop: Stop,
        /// Runs that are not finished.
        left: usize,
    },
}

impl Failure for SweepRunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } => code::FAILED,
            Self::Baseline(_) | Self::Submitted(_) | Self::GpusUnused(_) => code::USAGE,
            Self::NoSweep(_) | Self::NoEntry { .. } => code::DATA,
            Self::AtWork { .. } | Self::BeingPlanned { .. } => code::EXISTS,
            Self::Stopped { stop, .. } | Self::Handed { stop, .. } => stop.exit_code(),
            Self::NoSection(_)
            | Self::Frozen(_)
            | Self::SetInGrid(_)
            | Self::Cells { .. }
            | Self::PackSize
            | Self::Unpacked => code::CONFIG,
        }
    }

    fn is_fault(&self) -> bool {
        !matches!(self, Self::Handed { .. })
    }
}
