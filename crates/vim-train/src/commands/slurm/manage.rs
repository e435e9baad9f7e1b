//! `vim-train slurm requeue` and `vim-train slurm cancel`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use vim_engine::Error;
use vim_engine::output::print;
use vim_engine::train::job_attempt::gone_on;
use vim_engine::work::slurm::names::{self, Submitted};
use vim_run::rfc3339;
use vim_slurm::submissions::{self, Submission};
use vim_slurm::{Client, JobId, SlurmError};

use super::TaskArg;

const REQUEUE_EXAMPLES: &str = "\
Examples:
  vim-train slurm requeue zoh-s0
  vim-train slurm requeue ablation --task 3      of a sweep, the run of this number

SLURM ends the job, which saves, and starts it again a little over two minutes later at the earliest.
A job that SLURM has forgotten, or will not requeue, is submitted again from the script in the run's
folder; of a sweep with --task, that task alone. With sweep.pack = \"node\" a task is a node with all of its runs.";

const CANCEL_EXAMPLES: &str = "\
Examples:
  vim-train slurm cancel zoh-s0 foh-s0
  vim-train slurm cancel /scratch/runs/disc-cifar     all that were submitted there
  vim-train slurm cancel disc-cifar --task 3          of a sweep, the run of this number

The runs save, end with exit code 75, and are not requeued; `slurm submit` goes on with them, and
`sweep submit` with those of a sweep.";

/// Put a run's job back into the queue: a running one saves first, an ended one goes on.
#[derive(Debug, Args)]
#[command(after_help = REQUEUE_EXAMPLES)]
pub(crate) struct RequeueArgs {
    /// The run: its folder, or its name in the root.
    #[arg(value_name = "RUN")]
    name: PathBuf,
    #[command(flatten)]
    which: TaskArg,
}

/// Cancel runs' jobs. They save, and are not requeued.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_EXAMPLES)]
pub(crate) struct CancelArgs {
    /// Runs or folders of runs; with --task, sweeps.
    #[arg(value_name = "RUN|FOLDER", required = true)]
    names: Vec<PathBuf>,
    #[command(flatten)]
    which: TaskArg,
}

pub(super) fn requeue(args: &RequeueArgs) -> Result<(), Error> {
    let submitted = names::one(&args.name, &args.which.root.root)?;
    let client = Client::new();
    let (job, submission) = match args.which.task {
        Some(run) => submitted.task(run)?,
        None => (submitted.last().job, submitted.last()),
    };
    let before = names::known(&client, job)?;
    let together = Submitted::together(job, submission);
    let refused = match client.requeue(job) {
        Ok(()) => {
            eprintln!(
                "{}",
                match before {
                    Some(before) if before.state.is_active() => format!(
                        "job {job}{together} is told to save and end; SLURM starts it again after two minutes or more"
                    ),
                    Some(_) | None => {
                        format!("job {job}{together} had ended and is in the queue again")
                    }
                }
            );
            return print(&job.to_string());
        }
        Err(error @ SlurmError::Refused { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    // A pending job is neither requeued nor submitted twice.
    if names::known(&client, job)?.is_some_and(|job| job.state.is_active()) {
        return Err(refused.into());
    }
    let next = submit_again(&client, &submitted, job, submission)?;
    eprintln!("job {job} has ended and cannot be requeued: submitted again as job {next}");
    print(&next.to_string())
}

/// Repeats the submission of `job`; for an array task, of that task alone.
fn submit_again(
    client: &Client,
    submitted: &Submitted,
    job: JobId,
    submission: &Submission,
) -> Result<JobId, Error> {
    let array = job.task.map(|task| format!("--array={task}"));
    let id = client.submit_script(&submission.script, &Vec::from_iter(array))?;
    let next = JobId { task: job.task, ..id };
    let submission = gone_on(submission.clone(), job, next, rfc3339(SystemTime::now()));
    submissions::append(&submitted.folder, &submission)
        .map_err(Error::io("write", submissions::path(&submitted.folder)))?;
    Ok(next)
}

pub(super) fn cancel(args: &CancelArgs) -> Result<(), Error> {
    let client = Client::new();
    if let Some(run) = args.which.task {
        for name in &args.names {
            cancel_task(&client, &names::one(name, &args.which.root.root)?, run)?;
        }
        return Ok(());
    }
    for submitted in names::some(&args.names, &args.which.root.root)? {
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

/// Cancels the newest task for run number `run` of a sweep.
fn cancel_task(client: &Client, submitted: &Submitted, run: u32) -> Result<(), Error> {
    let (job, submission) = submitted.task(run)?;
    let together = Submitted::together(job, submission);
    let together = together.trim_end_matches(',');
    let name = &submitted.name;
    if !names::known(client, job)?.is_some_and(|job| job.state.is_active()) {
        eprintln!("{name}, run {run}: no job left to cancel");
        return Ok(());
    }
    client.cancel(&[job])?;
    eprintln!("{name}, run {run}: cancelled job {job}{together}");
    Ok(())
}
