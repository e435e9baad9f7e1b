//! `vim-train slurm`.

mod logs;
mod manage;
mod status;
mod submit;

use clap::{Args, Subcommand};
use vim_engine::Error;
use vim_engine::config::{ConfigError, Loaded, Origin, Problem};
use vim_slurm::{Site, SlurmError};

use crate::commands::runs::RootArg;

const EXAMPLES: &str = "\
Examples:
  vim-train slurm submit configs/vim_tiny_cifar100.toml --dry-run     the batch script, and whether the cluster can run it
  vim-train slurm submit configs/vim_tiny_cifar100.toml --set slurm.time=12:00:00
  vim-train slurm status                                              all that was submitted from data/runs
  vim-train slurm logs zoh-s0 -f
  vim-train slurm cancel zoh-s0

docs/cluster.md goes from the login node to a finished run.";

/// Submit runs to SLURM, and look after their jobs.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum SlurmCommand {
    Submit(submit::SubmitArgs),
    Status(status::StatusArgs),
    Requeue(manage::RequeueArgs),
    Cancel(manage::CancelArgs),
    Logs(logs::LogsArgs),
    Script(submit::ScriptArgs),
}

/// A submitted run, or one of a sweep.
#[derive(Debug, Args)]
struct TaskArg {
    #[command(flatten)]
    root: RootArg,
    /// Of a sweep: the number of the run in `vim-train sweep status`, from 0.
    #[arg(long, value_name = "I")]
    task: Option<u32>,
}

pub(crate) fn run(command: &SlurmCommand) -> Result<(), Error> {
    match command {
        SlurmCommand::Submit(args) => submit::run(args),
        SlurmCommand::Status(args) => status::run(args),
        SlurmCommand::Requeue(args) => manage::requeue(args),
        SlurmCommand::Cancel(args) => manage::cancel(args),
        SlurmCommand::Logs(args) => logs::run(args),
        SlurmCommand::Script(args) => submit::script(args),
    }
}

/// An error of a cluster or site, at the place of the value: in the configuration, or in the site's
/// file.
fn placed(error: Error, loaded: &Loaded, site: Option<&Site>) -> Error {
    let error = match error.downcast::<SlurmError>() {
        Ok(error) => error,
        Err(other) => return other,
    };
    let Some(key) = error.key().map(|key| format!("slurm.{key}")) else { return error.into() };
    let of_site = site.and_then(|site| site.path.clone());
    match of_site {
        _ if loaded.sets(&key) => loaded.place(ConfigError::new(key, Problem::Slurm(error))).into(),
        Some(path) => {
            let origin = Origin::File { path, position: None };
            ConfigError::new(key, Problem::Slurm(error)).at(origin).into()
        }
        None => error.into(),
    }
}
