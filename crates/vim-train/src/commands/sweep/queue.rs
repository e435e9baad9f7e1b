//! SLURM's view of a sweep's runs.

use std::collections::BTreeMap;
use std::path::Path;

use vim_slurm::submissions::{self, Submission};
use vim_slurm::{Client, Job, JobId, JobState};
use vim_sweep::{RunOutcome, RunState};

use super::folder::Sweep;
use super::outcomes::outcomes;

/// Prefix of a batch script's name; the array's offset and the submission's number follow.
const SCRIPT: &str = "tasks-from-";

/// The name of the batch script of an array whose tasks add `offset` to their numbers.
pub(super) fn script_name(offset: u32, number: usize) -> String {
    format!("{SCRIPT}{offset}-{number}.sh")
}

/// The offset that [`script_name`] was made with.
pub(crate) fn offset_of(script: &Path) -> Option<u32> {
    let name = script.file_name()?.to_str()?.strip_prefix(SCRIPT)?;
    name.split_once('-')?.0.parse().ok()
}

/// States of all runs of `sweep`: from their folders or, where not final, from SLURM.
///
/// Without an answer from SLURM the folders alone count, with a warning.
pub(super) fn outcomes_with_jobs(sweep: &Sweep) -> Vec<RunOutcome> {
    let mut outcomes = outcomes(sweep);
    let known = jobs_of(sweep).unwrap_or_else(|error| {
        eprintln!("warning: {error}; states are those of the runs' folders alone");
        BTreeMap::new()
    });
    for run in &mut outcomes {
        if let Some(job) = known.get(&run.index) {
            merge(run, job);
        }
    }
    outcomes
}

/// The newest job of every run that SLURM still knows.
fn jobs_of(sweep: &Sweep) -> Result<BTreeMap<usize, Job>, String> {
    let submissions = submissions::read(&sweep.folder)
        .map_err(|error| format!("{}: {error}", submissions::path(&sweep.folder).display()))?;
    if submissions.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<JobId> = submissions.iter().map(|submission| submission.job).collect();
    let found = Client::new().jobs(&ids).map_err(|error| error.to_string())?;
    Ok(by_index(&submissions, found))
}

fn by_index(submissions: &[Submission], found: BTreeMap<JobId, Job>) -> BTreeMap<usize, Job> {
    let mut newest = BTreeMap::new();
    // Oldest first: a later submission of a run replaces an earlier one.
    for submission in submissions {
        let offset = offset_of(&submission.script).unwrap_or(0);
        for (id, job) in found.iter().filter(|(id, _)| id.job == submission.job.job) {
            if let Some(task) = id.task {
                newest.insert((task + offset) as usize, job.clone());
            }
        }
    }
    newest
}

/// The state of a run from `job` and its folder.
fn merge(run: &mut RunOutcome, job: &Job) {
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
                let reason = job.reason.as_deref().unwrap_or("no reason given");
                run.error = Some(format!("SLURM job {} {}: {reason}", job.id, job.state.name()));
            }
            return;
        }
    };
    match run.state {
        RunState::Finished | RunState::Running => {}
        RunState::Queued | RunState::Interrupted | RunState::Failed(_) | RunState::Missing => {
            run.state = if waits { RunState::Queued } else { RunState::Running };
            run.machine.job = Some(job.id.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_remembers_its_offset() {
        let name = script_name(2002, 3);
        assert_eq!(offset_of(Path::new("/x/slurm").join(name).as_path()), Some(2002));
        assert_eq!(offset_of(Path::new("job.sh")), None);
    }
}
