//! `vim-train runs`: inspects the folders of runs.
//!
//! Read-only: the run may be active. Unreadable files are reported; the rest is shown.

mod compare;
mod curve;
mod find;
mod history;
mod list;
mod plot;
mod run;
mod show;
mod status;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::error::Error;
use compare::CompareArgs;
use list::ListArgs;
use show::ShowArgs;

pub use history::{Best, Evaluated, History};
pub(crate) use list::steps;
pub(crate) use run::holds_run;
pub use run::{Row, Run};
pub use status::Status;

const EXAMPLES: &str = "\
Examples:
  vim-train runs list                                  the runs in data/runs
  vim-train runs list /scratch/runs --method rk4 --status stale
  vim-train runs show zoh-s0                           a name in data/runs, or a run's folder
  vim-train runs compare zoh-s0 foh-s0 --plot curves.svg

docs/runs.md says what a run's folder holds.";

/// A subcommand of `vim-train runs`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum RunsCommand {
    /// List the runs in a folder: how far each is, how good, and how it ended.
    #[command(after_help = list::EXAMPLES)]
    List(ListArgs),
    /// Say all about one run: configuration, machine, numbers, checkpoints, end.
    #[command(after_help = show::EXAMPLES)]
    Show(ShowArgs),
    /// Set runs side by side: what differs in their configurations, their numbers, their curves.
    #[command(after_help = compare::EXAMPLES)]
    Compare(CompareArgs),
}

/// Where runs named by name are.
#[derive(Debug, Args)]
pub struct RootArg {
    /// Folder that holds the runs' folders, `run.root` of their configurations.
    #[arg(long, value_name = "DIR", default_value = "data/runs")]
    pub root: PathBuf,
}

/// `vim-train runs`.
pub fn run(command: &RunsCommand) -> Result<(), Error> {
    match command {
        RunsCommand::List(args) => list::run(args),
        RunsCommand::Show(args) => show::run(args),
        RunsCommand::Compare(args) => compare::run(args),
    }
}

/// Placeholder for unknown values.
const UNKNOWN: &str = "-";
