//! `vim-train slurm requeue` and `vim-train slurm cancel`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use vim_slurm::jobs::{self, Submission};
use vim_slurm::{Client, JobId, SlurmError};

use super::names::{self, Submitted};
use crate::error::Error;
use crate::output::print;
use crate::runs::RootArg;
use crate::timestamp::rfc3339;

/// Shown below the options.
pub(super) const REQUEUE_EXAMPLES: &str = "\
Examples:
  vim-train slurm requeue zoh-s0

SLURM ends the job, which saves, and starts it again a little over two minutes later at the earliest. A
job that SLURM has forgotten, or will not requeue, is submitted again from the script in the run's folder.";

/// Shown below the options.
pub(super) const CANCEL_EXAMPLES: &str = "\
Examples:
  vim-train slurm cancel zoh-s0 foh-s0
  vim-train slurm cancel /scratch/runs/disc-cifar     all that were submitted there

The runs save, end with exit code 75, and are not requeued; `slurm submit` goes on with them.";

/// `vim-train slurm requeue`.
#[derive(Debug, Args)]
pub struct RequeueArgs {
    /// The run: its folder, or its name in the root.
    #[arg(value_name = "RUN")]
    pub name: PathBuf,
    /// Where names are looked for.
    #[command(flatten)]
    pub root: RootArg,
}

/// `vim-train slurm cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Runs or folders of runs.
    #[arg(value_name = "RUN|FOLDER", required = true)]
    pub names: Vec<PathBuf>,
    /// Where names are looked for.
    #[command(flatten)]
    pub root: RootArg,
}

/// `vim-train slurm requeue`.
pub(super) fn requeue(args: &RequeueArgs) -> Result<(), Error> {
    let submitted = names::one(&args.name, &args.root.root)?;
    let client = Client::new();
    let job = submitted.last().job;
    let refused = match client.requeue(job) {
        Ok(()) => {
            eprintln!("job {job} is in the queue again");
            return print(&job.to_string());
        }
        Err(error @ SlurmError::Refused { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    // One that waits is not to be requeued, and not to be submitted twice.
    if client.job(job)?.is_some_and(|job| job.state.is_active()) {
        return Err(refused.into());
    }
    let next = submit_again(&client, &submitted)?;
    eprintln!("job {job} has ended and cannot be requeued: submitted again as job {next}");
    print(&next.to_string())
}

fn submit_again(client: &Client, submitted: &Submitted) -> Result<JobId, Error> {
    let last = submitted.last();
    let next = client.submit_script(&last.script, &[])?;
    let number = |job: JobId| job.job.to_string();
    let output = last.output.as_ref().map(|output| {
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        output.with_file_name(name.replace(&number(last.job), &number(next)))
    });
    let submission =
        Submission { job: next, submitted: rfc3339(SystemTime::now()), output, ..last.clone() };
    jobs::append(&submitted.folder, &submission)
        .map_err(Error::io("write", jobs::path(&submitted.folder)))?;
    Ok(next)
}

/// `vim-train slurm cancel`.
pub(super) fn cancel(args: &CancelArgs) -> Result<(), Error> {
    let client = Client::new();
    for submitted in names::some(&args.names, &args.root.root)? {
        let ids: Vec<JobId> = submitted.submissions.iter().map(|one| one.job).collect();
        let jobs = client.jobs(&ids)?;
        let mut active: Vec<JobId> = jobs
            .values()
            .filter(|job| job.state.is_active())
            .map(|job| JobId { task: None, ..job.id })
            .collect();
        active.dedup();
        client.cancel(&active)?;
        let shown: Vec<String> = active.iter().map(ToString::to_string).collect();
        if shown.is_empty() {
            eprintln!("{}: no job left to cancel", submitted.name);
        } else {
            eprintln!("{}: cancelled job {}", submitted.name, shown.join(", "));
        }
    }
    Ok(())
}
