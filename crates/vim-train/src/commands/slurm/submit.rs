//! `vim-train slurm submit` and `vim-train slurm script`.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use vim_run::{rfc3339, write_file};
use vim_slurm::submissions::{self, Submission};
use vim_slurm::{Client, JobId, JobState};

use super::error::JobError;
use super::placed;
use super::plan::{Plan, frozen};
use crate::args::Overrides;
use crate::commands::train::preflight;
use crate::config::{Config, Loaded};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::run_folder::can_go_on;

pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train slurm submit configs/vim_tiny_cifar100.toml --dry-run
  vim-train slurm submit configs/vim_tiny_cifar100.toml --set slurm.site=rorqual --set slurm.account=def-yourpi
  vim-train slurm submit finetune.toml --after 4711            once job 4711 has succeeded
  vim-train slurm submit configs/debug.toml --wait             until it ends; its exit code is this command's

What can be wrong is found before sbatch: the configuration, a batch of more images than there are,
a run in the folder that it does not fit, and what the partition's nodes do not have. Data that are
not on this machine are warned of: they may be on the node. The job's number goes to stdout.";

pub(super) const SCRIPT_EXAMPLES: &str = "\
Examples:
  vim-train slurm script configs/vim_tiny_cifar100.toml
  vim-train slurm script configs/vim_tiny_cifar100.toml --set slurm.gpus_per_node=h100:1 > job.sh

It runs the configuration that submit freezes in the run's folder. No cluster is asked.";

/// Polling interval of an awaited job.
const POLL: Duration = Duration::from_secs(5);

/// Consecutive polls without a trace of the job before it counts as forgotten.
const FORGOTTEN: u32 = 3;

/// `vim-train slurm submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Configuration file.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
    /// Print the batch script and what the cluster says of it; write and submit nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Wait until the job has ended, and end with its exit code.
    #[arg(long, conflicts_with = "dry_run")]
    pub wait: bool,
    /// Start after a job has succeeded: its number, or sbatch's own words such as `afterany:4711`.
    #[arg(long, value_name = "JOB")]
    pub after: Option<String>,
    /// Print the submission on stdout as JSON.
    #[arg(long, conflicts_with = "dry_run")]
    pub json: bool,
}

/// `vim-train slurm script`.
#[derive(Debug, Args)]
pub struct ScriptArgs {
    /// Configuration file.
    pub config: PathBuf,
    /// What differs from the file.
    #[command(flatten)]
    pub overrides: Overrides,
}

pub(super) fn script(args: &ScriptArgs) -> Result<(), Error> {
    let plan = Plan::new(Config::load(&args.config, &args.overrides.set)?, None)?;
    say_warnings(&plan.script.request.warnings);
    print(&plan.script.render()?)
}

pub(super) fn run(args: &SubmitArgs) -> Result<(), Error> {
    let loaded = Loaded::run(&args.config, &args.overrides.set)?;
    // Errors that would end the job at its start, and files that only the node can check.
    let absent = preflight(&loaded.config).map_err(|error| loaded.place(error))?;
    let plan = Plan::new(loaded.config.clone(), args.after.as_deref());
    let plan = plan.map_err(|error| placed(error, &loaded, None))?;
    let client = Client::new();
    say_warnings(&absent);
    say_warnings(&plan.script.request.warnings);
    if let Some(exit) = can_go_on(&plan.config)? {
        eprintln!("{} is finished: nothing to submit", plan.folder.display());
        return if args.json { print_json(&exit) } else { Ok(()) };
    }
    if args.dry_run {
        return dry_run(&plan, &loaded, &client);
    }
    client.check()?;
    check_not_queued(&plan, &client, args.after.as_deref())?;
    say_warnings(&check_request(&plan, &loaded, &client)?);
    let (script, path) = (&plan.script, plan.script_path());
    // Written first: the script reads it.
    write_file(&frozen(&plan.folder), plan.config.to_toml().as_bytes())?;
    let job = client.submit(script, &path)?;
    let submission = Submission {
        job,
        array: None,
        submitted: rfc3339(SystemTime::now()),
        script: path,
        output: Some(submissions::output_of(&script.output, &script.job_name(), job)),
    };
    submissions::append(&plan.folder, &submission)
        .map_err(Error::io("write", submissions::path(&plan.folder)))?;
    eprintln!("submitted {} as job {job}", plan.folder.display());
    if args.json {
        print_json(&json!({ "folder": plan.folder, "submission": submission }))?;
    } else {
        print(&job.to_string())?;
    }
    if args.wait { wait(&client, job) } else { Ok(()) }
}

fn say_warnings(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// Prints the script and, where SLURM is available, its verdict.
fn dry_run(plan: &Plan, loaded: &Loaded, client: &Client) -> Result<(), Error> {
    for note in plan.site.iter().flat_map(|site| &site.notes) {
        eprintln!("note: {note}");
    }
    eprintln!("would write {}", frozen(&plan.folder).display());
    eprintln!("would write and submit {}", plan.script_path().display());
    print(&plan.script.render()?)?;
    client.check()?;
    say_warnings(&check_request(plan, loaded, client)?);
    eprintln!("{}", client.test_only(&plan.script)?);
    Ok(())
}

/// Checks that the cluster can meet the plan; returns warnings.
fn check_request(plan: &Plan, loaded: &Loaded, client: &Client) -> Result<Vec<String>, Error> {
    let checked = client.check_request(&plan.script.request);
    checked.map_err(|error| placed(error.into(), loaded, plan.site.as_ref()))
}

/// Checks that no job of this run is pending or running, except one in `after`.
fn check_not_queued(plan: &Plan, client: &Client, after: Option<&str>) -> Result<(), Error> {
    let submissions = submissions::read(&plan.folder)
        .map_err(Error::io("read", submissions::path(&plan.folder)))?;
    let Some(last) = submissions.last() else { return Ok(()) };
    let is_digit = |c: char| c.is_ascii_digit();
    let mut numbers = after.into_iter().flat_map(|after| after.split(|c| !is_digit(c)));
    if numbers.any(|number| number == last.job.to_string()) {
        return Ok(());
    }
    match client.job(last.job)? {
        Some(job) if job.state.is_active() => Err(JobError::Queued {
            path: plan.folder.clone(),
            job: last.job,
            state: job.state.name(),
        }
        .into()),
        Some(_) | None => Ok(()),
    }
}

/// Waits for the end of `job` and reports its state.
fn wait(client: &Client, job: JobId) -> Result<(), Error> {
    let (mut shown, mut missing) = (None, 0);
    loop {
        match client.job(job)? {
            Some(now) => {
                missing = 0;
                let state = (now.state, now.reason.clone(), now.restarts);
                if shown.as_ref() != Some(&state) {
                    let reason = now.reason.as_ref();
                    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
                    eprintln!("job {job} {}{reason}, restarts {}", now.state.name(), now.restarts);
                    shown = Some(state);
                }
                if now.state == JobState::Completed {
                    return Ok(());
                }
                if !now.state.is_active() {
                    let code = now.exit_code.map_or(0, |status| status.code);
                    return Err(JobError::Ended { job, state: now.state.name(), code }.into());
                }
            }
            // SLURM does not know a job just after its submission, or long after its end.
            None if missing < FORGOTTEN => missing += 1,
            None => return Err(JobError::Ended { job, state: "no longer known", code: 0 }.into()),
        }
        sleep(POLL);
    }
}
