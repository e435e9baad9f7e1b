//! `vim-train slurm submit` and `vim-train slurm script`.

use std::env;
use std::path::{Path, PathBuf, absolute};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use vim_engine::Error;
use vim_engine::config::{Config, Loaded};
use vim_engine::output::{print, print_json};
use vim_engine::run_folder::{can_go_on, check_nameable};
use vim_engine::work::slurm::names::JobError;
use vim_engine::work::slurm::request::{check_build, say_warnings, site_and_request};
use vim_engine::work::training::preflight;
use vim_run::{rfc3339, write_file};
use vim_slurm::submissions::{self, FOLDER, Submission};
use vim_slurm::{BatchScript, Client, CommandWord, JobId, JobState, Site, SlurmConfig, SlurmError};

use super::placed;
use crate::args::Overrides;

const EXAMPLES: &str = "\
Examples:
  vim-train slurm submit configs/vim_tiny_cifar100.toml --dry-run
  vim-train slurm submit configs/vim_tiny_cifar100.toml --set slurm.site=rorqual --set slurm.account=def-yourpi
  vim-train slurm submit finetune.toml --after 4711            once job 4711 has succeeded
  vim-train slurm submit configs/debug.toml --wait             until it ends; its exit code is this command's

What can be wrong is found before sbatch: the configuration, a batch of more images than there are,
a run in the folder that it does not fit, GPUs that this build cannot use, and what the partition's
nodes do not have. Data that are not on this machine are warned of: they may be on the node. The job's number goes to stdout.";

const SCRIPT_EXAMPLES: &str = "\
Examples:
  vim-train slurm script configs/vim_tiny_cifar100.toml
  vim-train slurm script configs/vim_tiny_cifar100.toml --set slurm.gpus_per_node=h100:1 > job.sh

It runs the configuration that submit freezes in the run's folder. No cluster is asked, and GPUs that
this build cannot use are warned of alone: the job may run another.";

/// Polling interval of an awaited job.
const POLL: Duration = Duration::from_secs(5);

/// Consecutive polls without a trace of the job before it counts as forgotten.
const FORGOTTEN: u32 = 3;

/// Check a configuration against the cluster, freeze it in the run's folder, and submit the
/// run.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SubmitArgs {
    /// Configuration file.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// Print the batch script and what the cluster says of it; write and submit nothing.
    #[arg(long)]
    dry_run: bool,
    /// Wait until the job has ended, and end with its exit code.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Start after a job has succeeded: its number, or sbatch's own words such as `afterany:4711`.
    #[arg(long, value_name = "JOB")]
    after: Option<String>,
    /// Print the submission on stdout as JSON.
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

/// Print the batch script that submit would submit.
#[derive(Debug, Args)]
#[command(after_help = SCRIPT_EXAMPLES)]
pub(crate) struct ScriptArgs {
    /// Configuration file.
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
}

pub(super) fn script(args: &ScriptArgs) -> Result<(), Error> {
    let plan = JobPlan::new(Config::load(&args.config, &args.overrides.set)?, None)?;
    say_warnings(&plan.script.request.warnings);
    // The user may put another build into the script.
    if let Err(error) = plan.check_build() {
        say_warnings([&error.to_string()]);
    }
    print(&plan.script.render()?)
}

pub(super) fn run(args: &SubmitArgs) -> Result<(), Error> {
    let loaded = Loaded::run(&args.config, &args.overrides.set)?;
    // Errors that would end the job at its start, and files that only the node can check.
    let absent = preflight(&loaded.config).map_err(|error| loaded.place(error))?;
    let plan = JobPlan::new(loaded.config.clone(), args.after.as_deref());
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
    plan.check_build()?;
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

/// Prints the script and, where SLURM is available, its verdict.
fn dry_run(plan: &JobPlan, loaded: &Loaded, client: &Client) -> Result<(), Error> {
    for note in plan.site.iter().flat_map(|site| &site.notes) {
        eprintln!("note: {note}");
    }
    eprintln!("would write {}", frozen(&plan.folder).display());
    eprintln!("would write and submit {}", plan.script_path().display());
    print(&plan.script.render()?)?;
    plan.check_build()?;
    client.check()?;
    say_warnings(&check_request(plan, loaded, client)?);
    eprintln!("{}", client.test_only(&plan.script)?);
    Ok(())
}

/// Checks that the cluster can meet the plan; returns warnings.
fn check_request(plan: &JobPlan, loaded: &Loaded, client: &Client) -> Result<Vec<String>, Error> {
    let checked = client.check_request(&plan.script.request);
    checked.map_err(|error| placed(error.into(), loaded, plan.site.as_ref()))
}

/// Checks that no job of this run is pending or running, except one in `after`.
fn check_not_queued(plan: &JobPlan, client: &Client, after: Option<&str>) -> Result<(), Error> {
    let submissions = submissions::read(&plan.folder)
        .map_err(Error::io("read", submissions::path(&plan.folder)))?;
    let Some(last) = submissions.last() else { return Ok(()) };
    let is_digit = |c: char| c.is_ascii_digit();
    let mut numbers = after.into_iter().flat_map(|after| after.split(|c| !is_digit(c)));
    if numbers.any(|number| number == last.job.to_string()) {
        return Ok(());
    }
    match client.job(last.job)? {
        Some(job) if job.state.is_active() => {
            let (path, state) = (plan.folder.clone(), job.state.name());
            Err(JobError::Queued { path, job: last.job, state }.into())
        }
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

/// Placeholder for the run's folder in `slurm.output`.
const RUN_DIR: &str = "{run.dir}";

struct JobPlan {
    /// The configuration with name and folder resolved.
    config: Config,
    folder: PathBuf,
    site: Option<Site>,
    script: BatchScript,
}

impl JobPlan {
    /// The plan for a run of `config`, to start after `after`.
    fn new(mut config: Config, after: Option<&str>) -> Result<Self, Error> {
        let name = config.run_name()?;
        let here = env::current_dir().map_err(Error::io("find", "."))?;
        config.run.root =
            absolute(&config.run.root).map_err(Error::io("find", &config.run.root))?;
        config.run.name = name.clone();
        check_nameable(&here)?;
        check_nameable(&config.run.root)?;
        let folder = config.run_folder()?;
        let (site, request) = site_and_request(&config)?;
        let program = env::current_exe().map_err(Error::io("find", "this program"))?;
        let frozen = frozen(&folder);
        let words = [&*program, "train".as_ref(), &frozen, "--resume".as_ref(), "auto".as_ref()];
        let script = BatchScript {
            request,
            output: output_pattern(&config.slurm, &folder)?,
            name,
            chdir: here,
            array: None,
            dependencies: after.map(dependency).into_iter().collect(),
            command: words.map(|word: &Path| CommandWord::from(word.to_string_lossy())).into(),
        };
        Ok(Self { config, folder, site, script })
    }

    fn check_build(&self) -> Result<(), Error> {
        check_build(&self.config, &self.script.request, false)
    }

    fn script_path(&self) -> PathBuf {
        self.folder.join(FOLDER).join("job.sh")
    }
}

/// Path of a submitted run's frozen configuration: edits while the job waits have no effect.
fn frozen(folder: &Path) -> PathBuf {
    folder.join(FOLDER).join("config.toml")
}

/// `slurm.output` for a run in `folder`, absolute.
/// `{run.dir}` is the only placeholder allowed.
fn output_pattern(config: &SlurmConfig, folder: &Path) -> Result<String, Error> {
    // Escape percent signs, which SLURM would read as patterns.
    let literal = folder.display().to_string().replace('%', "%%");
    let pattern = config.output.replace(RUN_DIR, &literal);
    if let Some(at) = pattern.find('{').filter(|_| config.output.replace(RUN_DIR, "").contains('{'))
    {
        return Err(SlurmError::Range {
            key: "output",
            value: format!("`{}`", &pattern[at..]),
            expected: "no placeholder but {run.dir}; SLURM's own are %x, %j, %A and %a".into(),
        }
        .into());
    }
    let path = absolute(&pattern).map_err(Error::io("find", &pattern))?;
    Ok(path.display().to_string())
}

/// `--after`: a job number means `afterok`; anything else is passed to sbatch.
fn dependency(after: &str) -> String {
    let is_number = after.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    if is_number { format!("afterok:{after}") } else { after.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_absolute() {
        let folder = Path::new("/scratch/100%/zoh");
        let pattern = |output: &str| {
            output_pattern(&SlurmConfig { output: output.into(), ..SlurmConfig::default() }, folder)
        };
        let default = SlurmConfig::default().output;
        assert_eq!(pattern(&default).unwrap(), "/scratch/100%%/zoh/slurm/%x-%j.out");
        assert!(pattern("logs/%j.out").unwrap().starts_with('/'));
        let message = pattern("{run.name}/%j.out").unwrap_err().to_string();
        assert!(message.contains("slurm.output") && message.contains("{run.dir}"), "{message}");
    }

    #[test]
    fn a_number_is_waited_for_to_succeed() {
        assert_eq!(dependency("12"), "afterok:12");
        assert_eq!(dependency("afterany:12"), "afterany:12");
    }
}
