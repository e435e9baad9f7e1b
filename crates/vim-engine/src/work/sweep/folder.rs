//! A sweep's folder, and how its runs stand by their folders and by SLURM.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vim_data::{InputKind, read_text};
use vim_run::storage::{Disk, replace};
use vim_slurm::submissions::{self, Submission};
use vim_slurm::{Client, Job, JobId, JobState};
use vim_sweep::{
    Assignments, Machine, PLAN, PlannedRun, RunOutcome, RunState, Score, SweepConfig, SweepError,
    SweepPlan,
};

use super::packs::Tasks;
use super::{SweepRunError, Which};
use crate::Error;
use crate::config::{ConfigError, Loaded, canonical, dotted};
use crate::run_folder::holds_run;
use crate::train::history::Evaluated;
use crate::work::runs::{Run, Status};
use crate::work::slurm::words::{last_words, output_of_task};

/// Name of the section's copy.
pub(crate) const SECTION: &str = "sweep.toml";

/// `sweep.toml`: the plan's source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origins {
    /// The sweep's file.
    pub source: PathBuf,
    /// The `--set` overrides.
    pub sets: Vec<String>,
    /// The command line that planned it.
    pub command: Vec<String>,
    /// When.
    pub planned: String,
    /// The `[sweep]` section.
    pub sweep: SweepConfig,
}

/// A file's sweep.
pub struct SweepFile {
    /// The file's configuration, without the grid.
    pub loaded: Loaded,
    /// Its `[sweep]` section.
    pub sweep: SweepConfig,
    /// Where its runs are to be.
    pub folder: PathBuf,
}

impl SweepFile {
    /// The sweep of `path` with `sets` over it.
    /// A file that describes a single run is an error.
    pub(crate) fn load(path: &Path, sets: &[String]) -> Result<Self, Error> {
        // Templates may name keys that only the grid sets: they are checked with each run.
        let mut sets = sets.to_vec();
        sets.push("run.name=sweep".into());
        let mut loaded = Loaded::read(path, &sets)?;
        let sweep = loaded.config.sweep.take();
        let sweep = sweep.ok_or_else(|| SweepRunError::NoSection(path.to_owned()))?;
        let folder = loaded.config.run.root.join(&sweep.name);
        Ok(Self { loaded, sweep, folder })
    }

    /// The error at the section's line.
    pub(crate) fn place(&self, error: SweepError) -> Error {
        match ConfigError::of_sweep(error) {
            Ok(error) => self.loaded.place(error).into(),
            Err(error) => error.into(),
        }
    }
}

/// A planned sweep.
pub struct Sweep {
    /// Its folder.
    pub folder: PathBuf,
    /// Its runs.
    pub plan: SweepPlan,
    /// What it was planned from.
    pub origins: Origins,
}

impl Sweep {
    /// The sweep in `folder`.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let Some(plan) = read_plan(folder)? else {
            return Err(SweepRunError::NoSweep(folder.to_owned()).into());
        };
        let path = folder.join(SECTION);
        let text = read_text(&path, InputKind::Script).map_err(Error::input(&path))?;
        let origins = toml::from_str(&text).map_err(|error| {
            let problem = error.message().replace('\n', ", ");
            SweepError::Damaged { path, problem }
        })?;
        Ok(Self { folder: folder.to_owned(), plan, origins })
    }

    /// Opens the planned sweep in a folder, or in the folder of a file's sweep.
    pub fn find(which: &Which) -> Result<Self, Error> {
        let (path, sets) = (&which.sweep, &which.sets);
        match (path.is_dir(), sets.is_empty()) {
            (true, true) => Self::open(path),
            (true, false) => Err(SweepRunError::Frozen(path.clone()).into()),
            (false, _) => Self::open(&SweepFile::load(path, sets)?.folder),
        }
    }

    /// The configuration that a run was frozen with, by keys, [canonical].
    pub(crate) fn frozen(folder: &Path, entry: &PlannedRun) -> Option<Assignments> {
        let text = read_text(&folder.join(&entry.config), InputKind::Script).ok()?;
        Some(canonical(dotted(text.parse::<toml::Table>().ok()?)))
    }

    /// The folder of a run.
    pub fn run(&self, entry: &PlannedRun) -> PathBuf {
        self.folder.join(&entry.name)
    }
}

/// The plan in `folder`, if there is one.
pub(crate) fn read_plan(folder: &Path) -> Result<Option<SweepPlan>, Error> {
    let path = folder.join(PLAN);
    match read_text(&path, InputKind::Record) {
        Ok(text) => Ok(Some(SweepPlan::parse(&path, &text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::input(path)(error)),
    }
}

/// Writes a file of a sweep atomically.
pub fn write_file(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(name);
    replace(&Disk, &path, text.as_bytes()).map_err(Error::io("write", path))
}

/// The state of the run in `folder`.
pub fn state(folder: &Path) -> RunState {
    // Many folders of a sweep do not exist yet.
    if holds_run(folder) { state_of(&Run::read(folder, String::new())) } else { RunState::Missing }
}

fn state_of(run: &Run) -> RunState {
    match run.row.status {
        Status::Finished => RunState::Finished,
        Status::Running => RunState::Running,
        Status::Paused | Status::Interrupted | Status::Stale => RunState::Interrupted,
        Status::Diverged | Status::Failed => {
            RunState::Failed(run.exit.as_ref().map_or(1, |exit| exit.exit_code))
        }
        // Unreadable exit record: training decides by the checkpoints.
        Status::Unknown if holds_run(&run.row.path) => RunState::Interrupted,
        Status::Unknown => RunState::Missing,
    }
}

/// How far the runs of a sweep are, by their folders.
pub struct SweepProgress {
    /// The number of runs in each state, by its name.
    pub states: BTreeMap<&'static str, usize>,
    /// Steps done in all runs.
    pub step: u64,
    /// Steps of all runs. A run that was never started is taken to have as many as the others, if
    /// these have equally many.
    pub total_steps: Option<u64>,
}

/// The progress of the sweep in `folder`, if it holds one.
pub fn progress(folder: &Path) -> Result<Option<SweepProgress>, Error> {
    let Some(plan) = read_plan(folder)? else { return Ok(None) };
    let runs: Vec<Run> = plan
        .entries
        .iter()
        .map(|entry| Run::read(&folder.join(&entry.name), entry.name.clone()))
        .collect();
    let mut states = BTreeMap::new();
    for run in &runs {
        *states.entry(state_of(run).name()).or_default() += 1;
    }
    let known: BTreeSet<u64> = runs.iter().filter_map(|run| run.row.total_steps).collect();
    let usual = known.first().copied().filter(|_| known.len() == 1);
    Ok(Some(SweepProgress {
        states,
        step: runs.iter().filter_map(|run| run.row.step).sum(),
        total_steps: runs.iter().map(|run| run.row.total_steps.or(usual)).sum(),
    }))
}

/// All runs of `sweep` in the plan's order.
pub(crate) fn outcomes(sweep: &Sweep) -> Vec<RunOutcome> {
    sweep.plan.entries.iter().map(|entry| outcome(sweep, entry)).collect()
}

/// One run of `sweep`.
pub(crate) fn outcome(sweep: &Sweep, entry: &PlannedRun) -> RunOutcome {
    let run = Run::read(&sweep.run(entry), entry.name.clone());
    let history = &run.history;
    let evaluations = history.val.iter().map(|scores| score("val", scores));
    let tests = history.watched.iter().chain(&history.test);
    let scores = evaluations.chain(tests.map(|scores| score("test", scores)));
    let values = if run.config.is_empty() {
        Sweep::frozen(&sweep.folder, entry).unwrap_or_default()
    } else {
        // As frozen ones: runs of an earlier version stand beside those of this one.
        canonical(run.config.clone())
    };
    RunOutcome {
        index: entry.index,
        id: entry.id.clone(),
        name: entry.name.clone(),
        assignments: entry.assignments.clone(),
        state: state_of(&run),
        step: run.row.step,
        total_steps: run.row.total_steps,
        error: run.exit.as_ref().and_then(|exit| exit.error.clone()),
        scores: scores.collect(),
        losses: history.loss.points(),
        images_per_second: history.median_speed,
        seconds: history.seconds,
        machine: machine(&run),
        values,
    }
}

fn score(split: &str, evaluated: &Evaluated) -> Score {
    let finite = evaluated.scores.iter().filter(|(_, number)| number.is_finite());
    Score {
        step: evaluated.step,
        split: split.to_owned(),
        checkpoint: evaluated.checkpoint.clone(),
        averaged: evaluated.averaged.clone(),
        values: finite.map(|(name, number)| (name.to_owned(), number)).collect(),
    }
}

fn machine(run: &Run) -> Machine {
    let slurm = |name: &str| Some(run.environment.get("slurm")?.get(name)?.as_str()?.to_owned());
    let job = match (slurm("SLURM_ARRAY_JOB_ID"), slurm("SLURM_ARRAY_TASK_ID")) {
        (Some(job), Some(task)) => Some(format!("{job}_{task}")),
        (_, _) => slurm("SLURM_JOB_ID"),
    };
    Machine {
        host: run.environment("host"),
        backend: run.environment("backend"),
        cpus: run.environment("cpus"),
        threads: run.environment("threads"),
        version: run.environment("version"),
        commit: run.environment("commit"),
        job,
    }
}

/// The output of run number `index`, called `name`, where another process of the sweep starts it.
pub fn log_of(folder: &Path, index: usize, name: &str) -> PathBuf {
    folder.join("logs").join(format!("{index:04}-{}.log", name.replace('/', "-")))
}

/// States of all runs of `sweep`: from their folders or, where not final, from SLURM.
///
/// Without an answer from SLURM the folders alone count, with a warning.
pub fn outcomes_with_jobs(sweep: &Sweep) -> Vec<RunOutcome> {
    let mut outcomes = outcomes(sweep);
    let known = jobs_of(sweep).unwrap_or_else(|error| {
        eprintln!("warning: {error}; states are those of the runs' folders alone");
        BTreeMap::new()
    });
    for run in &mut outcomes {
        if let Some(task) = known.get(&run.index) {
            merge(run, task, &sweep.folder);
        }
    }
    outcomes
}

/// The job that trains a run.
struct TaskJob {
    job: Job,
    /// Whether it may train others besides.
    is_packed: bool,
}

/// The newest job of every run that SLURM still knows.
fn jobs_of(sweep: &Sweep) -> Result<BTreeMap<usize, TaskJob>, String> {
    let submissions = submissions::read(&sweep.folder)
        .map_err(|error| format!("{}: {error}", submissions::path(&sweep.folder).display()))?;
    if submissions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<JobId> = submissions.iter().map(|submission| submission.job).collect();
    let found = Client::new().jobs(&ids).map_err(|error| error.to_string())?;
    Ok(by_index(&submissions, found))
}

fn by_index(submissions: &[Submission], found: BTreeMap<JobId, Job>) -> BTreeMap<usize, TaskJob> {
    let mut newest = BTreeMap::new();
    // Oldest first: a later submission of a run replaces an earlier one.
    for submission in submissions {
        let tasks = Tasks::of(&submission.script);
        let is_packed = tasks.are_packed();
        for (id, job) in found.iter().filter(|(id, _)| id.job == submission.job.job) {
            for run in id.task.map(|task| tasks.runs(task)).unwrap_or_default() {
                newest.insert(run as usize, TaskJob { job: job.clone(), is_packed });
            }
        }
    }
    newest
}

/// The state of a run from its job and its folder, in the sweep's `folder`.
fn merge(run: &mut RunOutcome, TaskJob { job, is_packed }: &TaskJob, folder: &Path) {
    let waits = match job.state {
        JobState::Pending | JobState::Suspended | JobState::Requeued => true,
        JobState::Running | JobState::Completing => false,
        // The folder is more reliable about an end, unless the job never started training.
        JobState::Completed
        | JobState::Cancelled
        | JobState::Failed
        | JobState::Timeout
        | JobState::NodeFail
        | JobState::Preempted
        | JobState::OutOfMemory
        | JobState::BootFail
        | JobState::Deadline
        | JobState::Other => {
            let failed = job.state != JobState::Completed && job.state != JobState::Cancelled;
            if run.state == RunState::Missing && failed {
                let code = job.exit_code.map_or(1, |status| status.code.max(1));
                run.state = RunState::Failed(code);
                let words = last_words(&output_of_task(folder, job.id));
                let reason = words.as_deref().or(job.reason.as_deref());
                let reason = reason.unwrap_or("no reason given");
                run.error = Some(format!("SLURM job {} {}: {reason}", job.id, job.state.name()));
            }
            return;
        }
    };
    match run.state {
        RunState::Finished | RunState::Running => {}
        // The job is at work on others.
        RunState::Failed(_) if *is_packed && !waits => {}
        RunState::Queued | RunState::Interrupted | RunState::Failed(_) | RunState::Missing => {
            run.state = if waits { RunState::Queued } else { RunState::Running };
            run.machine.job = Some(job.id.to_string());
        }
    }
}
