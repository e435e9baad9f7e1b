//! Carrying out what was decided about an interrupted job.

use crate::cause::{Action, Decision};
use crate::client::Client;
use crate::error::SlurmError;
use crate::job::{Job, JobId};

/// What has become of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the queue again, and runs again once this life is over.
    Requeued,
    /// Another job goes on when it has ended.
    Resubmitted(JobId),
    /// SLURM will requeue it when it has killed this process.
    Wait,
    /// It ends.
    Left,
}

impl Client {
    /// Carries out a `decision` about `job`, which this process belongs to.
    ///
    /// A job that SLURM will not requeue is submitted again.
    ///
    /// # Errors
    ///
    /// If SLURM refuses that too, or does not answer.
    pub fn carry_out(&self, decision: &Decision, job: &Job) -> Result<Outcome, SlurmError> {
        match decision.action {
            Action::Leave => Ok(Outcome::Left),
            Action::Wait => Ok(Outcome::Wait),
            Action::Resubmit => self.resubmit(job).map(Outcome::Resubmitted),
            Action::Requeue => match self.requeue(job.id) {
                Ok(()) => Ok(Outcome::Requeued),
                // Forbidden here. What gave no answer may have happened, and is not done twice.
                Err(SlurmError::Refused { command, message }) => match self.resubmit(job) {
                    Ok(next) => Ok(Outcome::Resubmitted(next)),
                    Err(_) => Err(SlurmError::Refused { command, message }),
                },
                Err(error) => Err(error),
            },
        }
    }

    /// Submits the script of `job` again, for when `job` has ended; of an array, its task alone.
    ///
    /// # Errors
    ///
    /// If SLURM refuses, or the job has no script in a file.
    pub fn resubmit(&self, job: &Job) -> Result<JobId, SlurmError> {
        let missing = || SlurmError::Refused {
            command: "sbatch".into(),
            message: format!("job {} has no batch script in a file to submit again", job.id),
        };
        let script = job.script.as_ref().filter(|script| script.is_file()).ok_or_else(missing)?;
        let mut options = vec![format!("--dependency=afterany:{}", job.id)];
        options.extend(job.id.task.map(|task| format!("--array={task}")));
        let id = self.submit_script(script, &options)?;
        Ok(JobId { task: job.id.task, ..id })
    }
}
