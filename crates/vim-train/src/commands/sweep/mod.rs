//! `vim-train sweep`: many runs from one file.
//!
//! | file of a sweep's folder | content |
//! |---|---|
//! | `plan.jsonl` | the runs: index, id, name, differences |
//! | `sweep.toml` | the `[sweep]` section and its source |
//! | `configs/ID.toml` | a run's whole configuration, as it was when the sweep was planned |
//! | the runs' folders | see [`vim_run::RunDir`] |
//! | `logs/` | output of runs of `sweep run`, `sweep retry` and packed tasks |
//! | `slurm/` | batch scripts, jobs, and output of runs under SLURM |
//! | `summary.csv`, `summary.md`, `report.html` | results of `sweep summarize` |
//! | `pairs.csv`, `differing_images.csv` | of it: which images the methods differ on |

mod differences;
mod folder;
mod job;
mod local;
mod packs;
mod plan;
mod planned;
mod report;
mod retry;
mod submit;
mod task;
mod watch;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use vim_run::Holder;
use vim_run::signals::Stop;

use crate::args::Overrides;
use crate::error::{Error, Failure, code};
use crate::train::job_attempt::Successor;

pub(crate) use folder::{SweepProgress, log_of, progress};
pub(crate) use packs::Tasks;

const EXAMPLES: &str = "\
Examples:
  vim-train sweep plan configs/ablation/shapes.toml        which runs, and how they stand
  vim-train sweep run configs/ablation/shapes.toml -j 2    on this machine, two at a time
  vim-train sweep submit configs/ablation/cifar100.toml    on a cluster, as a SLURM array
  vim-train sweep status data/runs/shapes-ablation
  vim-train sweep retry data/runs/shapes-ablation --failed
  vim-train sweep summarize data/runs/shapes-ablation      the table, and report.html

The file is a configuration with a [sweep] section; docs/experiments.md goes from it to the table.";

/// Train many runs from one file: every method with every seed, and a table and a page of what
/// came of it.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum SweepCommand {
    Plan(plan::PlanArgs),
    Run(local::RunArgs),
    Submit(submit::SubmitArgs),
    Status(report::StatusArgs),
    Retry(retry::RetryArgs),
    Summarize(report::SummarizeArgs),
    Task(task::TaskArgs),
}

/// The sweep that a command is about.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// The sweep's file, or its folder.
    #[arg(value_name = "FILE|FOLDER")]
    sweep: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
}

/// The name of run number `index` of the sweep in `folder`.
pub(crate) fn run_name(folder: &Path, index: u32) -> Result<String, Error> {
    let plan = folder::read_plan(folder)?.ok_or_else(|| SweepRunError::NoSweep(folder.into()))?;
    let entry = plan.entries.get(index as usize).ok_or_else(|| SweepRunError::NoEntry {
        folder: folder.to_owned(),
        asked: format!("with index {index}"),
    })?;
    Ok(entry.name.clone())
}

pub(crate) fn run(command: &SweepCommand) -> Result<(), Error> {
    match command {
        SweepCommand::Plan(args) => plan::run(args),
        SweepCommand::Run(args) => local::run(args),
        SweepCommand::Submit(args) => submit::run(args),
        SweepCommand::Status(args) => report::status(args),
        SweepCommand::Retry(args) => retry::run(args),
        SweepCommand::Summarize(args) => report::summarize(args),
        SweepCommand::Task(args) => task::run(args),
    }
}

#[derive(Debug, thiserror::Error)]
enum SweepRunError {
    #[error(
        "{} has no [sweep] section: add one with a grid (docs/experiments.md), or train it by `vim-train train`",
        .0.display()
    )]
    NoSection(PathBuf),

    #[error(
        "{} holds no sweep: `vim-train sweep plan FILE` makes one in run.root/sweep.name",
        .0.display()
    )]
    NoSweep(PathBuf),

    /// `--set` where the configurations are frozen.
    #[error("{} is a planned sweep, whose configurations are frozen: --set goes with its file", .0.display())]
    Frozen(PathBuf),

    #[error("--set {0}: the sweep varies it; set sweep.grid, or sweep.seeds for run.seed, instead")]
    SetInGrid(String),

    /// Runs whose configurations cannot be used.
    #[error("{problems} of {cells} runs of {} cannot be trained (listed above): nothing was planned", path.display())]
    Cells { path: PathBuf, cells: usize, problems: usize },

    #[error("{} has no run {asked}: `vim-train sweep status {}` lists them", folder.display(), folder.display())]
    NoEntry { folder: PathBuf, asked: String },

    /// A sweep of SLURM, asked to be trained here by this command.
    #[error(
        "the sweep was submitted to SLURM, and this would train on this machine: `{0} --submit` submits the runs again, --local trains them here"
    )]
    Submitted(String),

    #[error(
        "--baseline {0}: expected KEY=VALUE with a key of the grid, or a value that only one of them has"
    )]
    Baseline(String),

    /// Another process trains a run of the sweep, `name`.
    #[error("{} has runs at work ({name}): wait for them, or end them", folder.display())]
    AtWork { folder: PathBuf, name: String },

    /// Another process has been writing the plan for long.
    #[error("{} is being planned by {holder}: wait for it, and run this again", folder.display())]
    BeingPlanned { folder: PathBuf, holder: Box<Holder> },

    #[error(
        "{failed} of {started} runs did not finish (listed above); see to the reason, then `vim-train sweep retry {} --failed`",
        folder.display()
    )]
    Failed { folder: PathBuf, failed: usize, started: usize },

    #[error(
        "sweep.pack = \"node\": no GPUs of a node to count runs by: set sweep.per_node, the runs of a node"
    )]
    PackSize,

    #[error("sweep.per_node goes with sweep.pack = \"node\": set that, or leave it out")]
    Unpacked,

    /// A signal came while `left` runs were not finished, and their job goes on with them.
    #[error("stopped by {}: {left} runs are left, those at work are saved: {next}", stop.name())]
    Handed { stop: Stop, left: usize, next: Successor },

    /// A signal came while `left` runs were not finished.
    #[error(
        "stopped by {}: {left} runs are left, those at work are saved; the same command goes on",
        stop.name()
    )]
    Stopped { stop: Stop, left: usize },
}

impl Failure for SweepRunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. } => code::FAILED,
            Self::Baseline(_) | Self::Submitted(_) => code::USAGE,
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
