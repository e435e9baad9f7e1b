//! `vim-train sweep`: many runs from one file.

mod local;
mod plan;
mod report;
mod retry;
mod submit;
mod task;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use vim_engine::Error;
use vim_engine::work::sweep::Which;

use crate::args::Overrides;

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

impl WhichArgs {
    fn which(&self) -> Which {
        Which { sweep: self.sweep.clone(), sets: self.overrides.set.clone() }
    }
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
