//! `vim-train sweep`: many runs from one file.
//!
//! | file of a sweep's folder | content |
//! |---|---|
//! | `plan.jsonl` | the runs: index, id, name, differences |
//! | `sweep.toml` | the `[sweep]` section and its source |
//! | `configs/ID.toml` | a run's whole configuration, as it was when the sweep was planned |
//! | the runs' folders | see [`vim_run::RunDir`] |
//! | `logs/` | output of runs of `sweep run` and `sweep retry` |
//! | `slurm/` | batch scripts, jobs, and output of runs under SLURM |
//! | `summary.csv`, `summary.md`, `report.html` | results of `sweep summarize` |

mod cells;
mod error;
mod folder;
mod local;
mod outcomes;
mod plan;
mod queue;
mod retry;
mod status;
mod submit;
mod summarize;
mod task;
mod watch;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::args::Overrides;
use crate::error::Error;

pub use error::SweepRunError;
pub(crate) use queue::offset_of;

const EXAMPLES: &str = "\
Examples:
  vim-train sweep plan configs/ablation/shapes.toml        which runs, and how they stand
  vim-train sweep run configs/ablation/shapes.toml -j 2    on this machine, two at a time
  vim-train sweep submit configs/ablation/cifar100.toml    on a cluster, as a SLURM array
  vim-train sweep status data/runs/shapes-ablation
  vim-train sweep retry data/runs/shapes-ablation --failed
  vim-train sweep summarize data/runs/shapes-ablation      the table, and report.html

The file is a configuration with a [sweep] section; docs/experiments.md goes from it to the table.";

/// A subcommand of `vim-train sweep`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum SweepCommand {
    /// List the runs that a file asks for, and freeze their configurations.
    #[command(after_help = plan::EXAMPLES)]
    Plan(plan::PlanArgs),
    /// Train what is not finished, on this machine.
    #[command(after_help = local::EXAMPLES)]
    Run(local::RunArgs),
    /// Hand what is not finished to SLURM, as an array.
    #[command(after_help = submit::EXAMPLES)]
    Submit(submit::SubmitArgs),
    /// Say how every run stands.
    #[command(after_help = status::EXAMPLES)]
    Status(status::StatusArgs),
    /// Train failed or missing runs again, in their folders.
    #[command(after_help = retry::EXAMPLES)]
    Retry(retry::RetryArgs),
    /// Put the runs together: means over seeds, differences, a table, a page.
    #[command(after_help = summarize::EXAMPLES)]
    Summarize(summarize::SummarizeArgs),
    /// Train one run of a planned sweep in this process, as the others start it.
    #[command(after_help = task::EXAMPLES)]
    Task(task::TaskArgs),
}

/// The sweep that a command is about.
#[derive(Debug, Args)]
pub struct WhichArgs {
    /// The sweep's file, or its folder.
    #[arg(value_name = "FILE|FOLDER")]
    pub sweep: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
}

/// The name of run number `index` of the sweep in `folder`.
pub(crate) fn run_name(folder: &Path, index: u32) -> Result<String, Error> {
    let plan = folder::read_plan(folder)?
        .ok_or_else(|| SweepRunError::NoSweep { path: folder.to_owned() })?;
    let entry = plan.entries.get(index as usize).ok_or_else(|| SweepRunError::NoEntry {
        folder: folder.to_owned(),
        asked: format!("with index {index}"),
    })?;
    Ok(entry.name.clone())
}

/// `vim-train sweep`.
pub fn run(command: &SweepCommand) -> Result<(), Error> {
    match command {
        SweepCommand::Plan(args) => plan::run(args),
        SweepCommand::Run(args) => local::run(args),
        SweepCommand::Submit(args) => submit::run(args),
        SweepCommand::Status(args) => status::run(args),
        SweepCommand::Retry(args) => retry::run(args),
        SweepCommand::Summarize(args) => summarize::run(args),
        SweepCommand::Task(args) => task::run(args),
    }
}
