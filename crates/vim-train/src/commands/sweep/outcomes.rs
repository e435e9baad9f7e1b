//! States of a sweep's runs, from their folders.

use std::path::Path;

use vim_sweep::{Machine, PlannedRun, RunOutcome, RunState, Score};

use super::folder::Sweep;
use crate::commands::runs::{Evaluated, Run, Status, holds_run};

/// The state of the run in `folder`.
pub(super) fn state(folder: &Path) -> RunState {
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

/// All runs of `sweep` in the plan's order.
pub(super) fn outcomes(sweep: &Sweep) -> Vec<RunOutcome> {
    sweep.plan.entries.iter().map(|entry| outcome(sweep, entry)).collect()
}

/// One run of `sweep`.
pub(super) fn outcome(sweep: &Sweep, entry: &PlannedRun) -> RunOutcome {
    let run = Run::read(&sweep.run(entry), entry.name.clone());
    let history = &run.history;
    let evaluations = history.val.iter().map(|scores| score("val", scores));
    let scores = evaluations.chain(history.test.iter().map(|scores| score("test", scores)));
    let values = if run.config.is_empty() {
        Sweep::frozen(&sweep.folder, entry).unwrap_or_default()
    } else {
        run.config.clone()
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
        losses: history.loss_curve(),
        images_per_second: history.median_speed(),
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
