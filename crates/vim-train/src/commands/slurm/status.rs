//! `vim-train slurm status`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use vim_engine::Error;
use vim_engine::output::{as_shown, columns, print, print_json};
use vim_engine::run_folder::holds_run;
use vim_engine::work::runs::{Run, Status, steps};
use vim_engine::work::slurm::names::{self, Submitted};
use vim_engine::work::slurm::words::{last_words, output_of_task};
use vim_engine::work::sweep::folder::{SweepProgress, progress};
use vim_engine::work::sweep::run_name;
use vim_run::printable;
use vim_slurm::{Client, Job, JobId};

use super::TaskArg;
use super::logs::Output;

const EXAMPLES: &str = "\
Examples:
  vim-train slurm status                       what was submitted for runs in data/runs
  vim-train slurm status zoh-s0 /scratch/runs  a run, and a folder of runs
  vim-train slurm status ablation --task 3     of a sweep, the run of this number in `sweep status`
  vim-train slurm status --watch               again every 10 seconds, until all have ended

The run's folder says how far a run is and how it ended; SLURM says what its job is at, and forgets it
minutes after its end. Below the table is why a job failed, by the end of its output.";

/// How often `--watch` looks.
const PERIOD: Duration = Duration::from_secs(10);

/// Say what has become of submitted runs: their jobs, and how far they are.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// Runs or folders of runs, with --task sweeps; none: all in the root.
    #[arg(value_name = "RUN|FOLDER")]
    names: Vec<PathBuf>,
    #[command(flatten)]
    which: TaskArg,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// Print it again every 10 seconds, until no job is left.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
}

#[derive(Clone, Debug, Serialize)]
struct JobRow {
    name: String,
    #[serde(serialize_with = "as_shown")]
    folder: PathBuf,
    job: JobId,
    /// The job's state, or the array tasks per state; empty if SLURM has forgotten the job.
    states: BTreeMap<String, usize>,
    /// Why the job waits or ended.
    reason: Option<String>,
    restarts: Option<u32>,
    node: Option<String>,
    exit_code: Option<u8>,
    /// Why the job failed, or ended before its run began, by the end of its output; of an array's
    /// tasks the first that failed.
    error: Option<String>,
    /// Whether the job runs or is pending.
    is_active: bool,
    /// The run's status according to its folder; a sweep has `runs` in its place.
    run: Option<Status>,
    /// Of a sweep: its runs per state, according to their folders.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    runs: BTreeMap<&'static str, usize>,
    step: Option<u64>,
    total_steps: Option<u64>,
}

pub(super) fn run(args: &StatusArgs) -> Result<(), Error> {
    let client = Client::new();
    loop {
        let rows = rows(args, &client)?;
        if args.json {
            return print_json(&rows);
        }
        if rows.is_empty() {
            eprintln!("nothing was submitted for runs in {}", args.which.root.root.display());
            return Ok(());
        }
        if args.watch && io::stdout().is_terminal() {
            // Clears the screen, so that the table stays where it is.
            print("\x1b[2J\x1b[H")?;
        }
        print(&table(&rows))?;
        for row in &rows {
            if let Some(error) = &row.error {
                eprintln!("{}: {}", row.name, printable(error));
            }
        }
        if !args.watch || rows.iter().all(|row| !row.is_active) {
            return Ok(());
        }
        sleep(PERIOD);
    }
}

fn rows(args: &StatusArgs, client: &Client) -> Result<Vec<JobRow>, Error> {
    let root = &args.which.root.root;
    let Some(run) = args.which.task else {
        let submitted = names::some(&args.names, root)?;
        return submitted.iter().map(|submitted| JobRow::of(submitted, client)).collect();
    };
    let of = |submitted: Submitted| JobRow::of_task(&submitted, run, client);
    if !args.names.is_empty() {
        return args.names.iter().map(|name| of(names::one(name, root)?)).collect();
    }
    let has_it = |submitted: &Submitted| submitted.task(run).is_ok();
    names::all(root)?.into_iter().filter(has_it).map(of).collect()
}

impl JobRow {
    /// A run, or a sweep with all of its tasks.
    fn of(submitted: &Submitted, client: &Client) -> Result<Self, Error> {
        let last = submitted.last();
        let jobs: Vec<Job> = client.jobs(&[last.job])?.into_values().collect();
        let error = if last.array.is_some() {
            let mut failed = jobs.iter().filter(|job| job.state.is_failure());
            failed.find_map(|job| {
                let words = last_words(&output_of_task(&submitted.folder, job.id))?;
                Some(format!("job {}: {words}", job.id))
            })
        } else {
            why_ended(&jobs, &submitted.folder, Output::of(submitted, None).ok())
        };
        let row = Self::new(submitted.name.clone(), submitted.folder.clone(), last.job, jobs);
        let row = Self { error, ..row };
        Ok(match progress(&submitted.folder)? {
            Some(SweepProgress { states, step, total_steps }) => {
                Self { run: None, runs: states, step: Some(step), total_steps, ..row }
            }
            None => row,
        })
    }

    /// Run number `run` of a sweep.
    fn of_task(submitted: &Submitted, run: u32, client: &Client) -> Result<Self, Error> {
        let (job, _) = submitted.task(run)?;
        let name = run_name(&submitted.folder, run)?;
        let jobs: Vec<Job> = names::known(client, job)?.into_iter().collect();
        let folder = submitted.folder.join(&name);
        let error = why_ended(&jobs, &folder, Output::of(submitted, Some(run)).ok());
        let row = Self::new(format!("{}/{name}", submitted.name), folder, job, jobs);
        Ok(Self { error, ..row })
    }

    fn new(name: String, folder: PathBuf, job: JobId, jobs: Vec<Job>) -> Self {
        let mut states = BTreeMap::new();
        for job in &jobs {
            *states.entry(job.state.name().to_owned()).or_default() += 1;
        }
        // One task's reason would mislead for several.
        let only = if let [job] = jobs.as_slice() { Some(job) } else { None };
        let run = Run::read(&folder, name.clone()).row;
        Self {
            name,
            folder,
            job,
            states,
            reason: only.and_then(|job| job.reason.clone()),
            restarts: only.map(|job| job.restarts),
            node: only.and_then(|job| job.nodes.clone()),
            exit_code: only
                .filter(|job| !job.state.is_active())
                .and_then(|job| Some(job.exit_code?.code)),
            error: None,
            is_active: jobs.iter().any(|job| job.state.is_active()),
            run: Some(run.status),
            runs: BTreeMap::new(),
            step: run.step,
            total_steps: run.total_steps,
        }
    }
}

/// Why the only one of `jobs` failed, or why one that SLURM has forgotten, with the run in
/// `folder`, never began it.
fn why_ended(jobs: &[Job], folder: &Path, output: Option<Output>) -> Option<String> {
    let (has_failed, is_over) = match jobs {
        [job] => (job.state.is_failure(), !job.state.is_active()),
        _ => (false, jobs.is_empty()),
    };
    if !has_failed && (!is_over || holds_run(folder)) {
        return None;
    }
    let path = output?.path();
    let absent = || {
        let said = format!("its job left no output in {}: it did not start", path.display());
        has_failed.then_some(said)
    };
    last_words(&path).or_else(absent)
}

fn table(rows: &[JobRow]) -> String {
    let head = ["run", "job", "state", "reason", "node", "status", "restarts", "code", "steps"];
    let cells = rows.iter().map(|row| {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let counts = |states: Vec<(&str, usize)>| match states.as_slice() {
            [(state, 1)] => (*state).to_owned(),
            several => {
                let counts = several.iter().map(|(state, count)| format!("{count} {state}"));
                counts.collect::<Vec<_>>().join(", ")
            }
        };
        let states = counts(row.states.iter().map(|(state, &n)| (state.as_str(), n)).collect());
        let state = if states.is_empty() { "forgotten".to_owned() } else { states };
        let runs = counts(row.runs.iter().map(|(&state, &n)| (state, n)).collect());
        vec![
            row.name.clone(),
            row.job.to_string(),
            state,
            or_none(row.reason.clone()),
            or_none(row.node.clone()),
            row.run.map_or(runs, |run| run.to_string()),
            or_none(row.restarts.map(|count| count.to_string())),
            or_none(row.exit_code.map(|code| code.to_string())),
            steps(row.step, row.total_steps),
        ]
    });
    columns(&head, cells.collect(), 6)
}
