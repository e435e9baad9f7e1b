//! `vim-train slurm`.

mod error;
mod logs;
mod manage;
mod names;
mod output;
mod plan;
mod status;
mod submit;

use clap::Subcommand;
use vim_slurm::{Site, SlurmError};

pub use vim_slurm::submissions;

use crate::config::{ConfigError, Loaded, Origin, Problem};
use crate::error::Error;
use logs::LogsArgs;
use manage::{CancelArgs, RequeueArgs};
use status::StatusArgs;
use submit::{ScriptArgs, SubmitArgs};

const EXAMPLES: &str = "\
Examples:
  vim-train slurm submit configs/vim_tiny_cifar100.toml --dry-run     the batch script, and whether the cluster can run it
  vim-train slurm submit configs/vim_tiny_cifar100.toml --set slurm.time=12:00:00
  vim-train slurm status                                              all that was submitted from data/runs
  vim-train slurm logs zoh-s0 -f
  vim-train slurm cancel zoh-s0

docs/cluster.md goes from the login node to a finished run.";

/// A subcommand of `vim-train slurm`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum SlurmCommand {
    /// Check a configuration against the cluster, freeze it in the run's folder, and submit the
    /// run.
    #[command(after_help = submit::EXAMPLES)]
    Submit(SubmitArgs),
    /// Say what has become of submitted runs: their jobs, and how far they are.
    #[command(after_help = status::EXAMPLES)]
    Status(StatusArgs),
    /// Put a run's job back into the queue: a running one saves first, an ended one goes on.
    #[command(after_help = manage::REQUEUE_EXAMPLES)]
    Requeue(RequeueArgs),
    /// Cancel runs' jobs. They save, and are not requeued.
    #[command(after_help = manage::CANCEL_EXAMPLES)]
    Cancel(CancelArgs),
    /// Print the output of a run's newest job.
    #[command(after_help = logs::EXAMPLES)]
    Logs(LogsArgs),
    /// Print the batch script that submit would submit.
    #[command(after_help = submit::SCRIPT_EXAMPLES)]
    Script(ScriptArgs),
}

/// `vim-train slurm`.
pub fn run(command: &SlurmCommand) -> Result<(), Error> {
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
pub(crate) fn placed(error: Error, loaded: &Loaded, site: Option<&Site>) -> Error {
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
