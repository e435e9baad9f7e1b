//! `vim-train slurm status`.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use vim_slurm::{Client, Job, JobId};

use super::names::{self, Submitted};
use crate::error::Error;
use crate::output::{print, print_json};
use crate::runs::{RootArg, Run, Status, columns, steps};

/// Shown below the options.
pub(super) const EXAMPLES: &str = "\
Examples:
  vim-train slurm status                       what was submitted for runs in data/runs
  vim-train slurm status zoh-s0 /scratch/runs  a run, and a folder of runs
  vim-train slurm status --watch               again every 10 seconds, until all have ended

The run's folder says how far a run is and how it ended; SLURM says what its job is at, and forgets it
minutes after its end.";

/// How often `--watch` looks.
const PERIOD: Duration = Duration::from_secs(10);

/// `vim-train slurm status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Runs or folders of runs; none: all in the root.
    #[arg(value_name = "RUN|FOLDER")]
    pub names: Vec<PathBuf>,
    /// Where names are looked for.
    #[command(flatten)]
    pub root: RootArg,
    /// Print it as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print it again every 10 seconds, until no job is left.
    #[arg(long, conflicts_with = "json")]
    pub watch: bool,
}

/// A run and its newest job.
#[derive(Clone, Debug, Serialize)]
struct Row {
    name: String,
    folder: PathBuf,
    job: JobId,
    /// What SLURM says, for each state how many tasks of an array; empty if it has forgotten the job.
    states: BTreeMap<String, usize>,
    /// Why it waits, or ended.
    reason: Option<String>,
    restarts: Option<u32>,
    node: Option<String>,
    exit_code: Option<u8>,
    /// Whether it runs, or will.
    is_active: bool,
    /// How the run stands, as its folder says.
    run: Status,
    step: Option<u64>,
    total_steps: Option<u64>,
    #[serde(skip)]
    steps: String,
}

/// `vim-train slurm status`.
pub(super) fn run(args: &StatusArgs) -> Result<(), Error> {
    let client = Client::new();
    loop {
        let rows = rows(&names::some(&args.names, &args.root.root)?, &client)?;
        if args.json {
            return print_json(&rows);
        }
        if rows.is_empty() {
            eprintln!("nothing was submitted for runs in {}", args.root.root.display());
            return Ok(());
        }
        if args.watch && io::stdout().is_terminal() {
            // Clears the screen, so that the table stays where it is.
            print("\x1b[2J\x1b[H")?;
        }
        print(&table(&rows))?;
        if !args.watch || rows.iter().all(|row| !row.is_active) {
            return Ok(());
        }
        sleep(PERIOD);
    }
}

fn rows(submitted: &[Submitted], client: &Client) -> Result<Vec<Row>, Error> {
    let read = submitted.iter().map(|submitted| {
        let last = submitted.last();
        let jobs: Vec<Job> = client.jobs(&[last.job])?.into_values().collect();
        let mut states = BTreeMap::new();
        for job in &jobs {
            *states.entry(job.state.name().to_owned()).or_default() += 1;
        }
        // Of several tasks, what is said of one would mislead.
        let only = if let [job] = jobs.as_slice() { Some(job) } else { None };
        let run = Run::read(&submitted.folder, submitted.name.clone()).row;
        Ok(Row {
            name: submitted.name.clone(),
            folder: submitted.folder.clone(),
            job: last.job,
            states,
            reason: only.and_then(|job| job.reason.clone()),
            restarts: only.map(|job| job.restarts),
            node: only.and_then(|job| job.nodes.clone()),
            exit_code: only
                .filter(|job| !job.state.is_active())
                .and_then(|job| Some(job.exit_code?.code)),
            is_active: jobs.iter().any(|job| job.state.is_active()),
            run: run.status,
            step: run.step,
            total_steps: run.total_steps,
            steps: steps(&run),
        })
    });
    read.collect()
}

fn table(rows: &[Row]) -> String {
    let head = ["run", "job", "state", "reason", "node", "status", "restarts", "code", "steps"];
    let cells = rows.iter().map(|row| {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let states: Vec<String> = match row.states.iter().collect::<Vec<_>>().as_slice() {
            [(state, 1)] => vec![(*state).clone()],
            several => several.iter().map(|(state, count)| format!("{count} {state}")).collect(),
        };
        let state = if states.is_empty() { "forgotten".to_owned() } else { states.join(", ") };
        vec![
            row.name.clone(),
            row.job.to_string(),
            state,
            or_none(row.reason.clone()),
            or_none(row.node.clone()),
            row.run.to_string(),
            or_none(row.restarts.map(|count| count.to_string())),
            or_none(row.exit_code.map(|code| code.to_string())),
            row.steps.clone(),
        ]
    });
    columns(&head, cells.collect(), 6)
}
