//! The job of SLURM in which several runs of a sweep are trained. It is requeued once, when all of
//! them have saved; the runs leave it alone.

use std::fs;
use std::path::PathBuf;

use vim_run::metrics::Scores;
use vim_run::signals::Stop;
use vim_run::{ExitReason, ExitRecord, LOG, Log, Resume};
use vim_slurm::submissions::FOLDER;
use vim_slurm::{JobId, SlurmConfig};
use vim_sweep::PlannedRun;

use super::folder::{Sweep, outcome};
use crate::Error;
use crate::config::Loaded;
use crate::train::job_attempt::{JobAttempt, Successor};

/// What an attempt of the job is recorded with.
pub(crate) struct SharedJob {
    config: SlurmConfig,
    folder: PathBuf,
    log: Log,
}

impl SharedJob {
    /// The job that this process belongs to, if any. Its history is in `slurm/NAME` of the sweep's
    /// folder.
    pub(crate) fn of(
        sweep: &Sweep,
        entries: &[&PlannedRun],
        name: &str,
    ) -> Result<Option<Self>, Error> {
        let (Some(_), Some(first)) = (JobId::of_this_process(), entries.first()) else {
            return Ok(None);
        };
        let config = Loaded::run(&sweep.folder.join(&first.config), &[])?.config.slurm;
        let folder = sweep.folder.join(FOLDER).join(name);
        fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
        let log = Log::open(&folder.join(LOG))?;
        Ok(Some(Self { config, folder, log }))
    }

    /// This attempt of the job.
    pub(crate) fn attempt(&self) -> JobAttempt<'_> {
        JobAttempt::new(&self.config, &self.folder, &self.log, Resume::Auto, false)
    }
}

/// The steps that the runs have done together.
pub(crate) fn steps(sweep: &Sweep, entries: &[&PlannedRun]) -> u64 {
    entries.iter().filter_map(|entry| outcome(sweep, entry).step).sum()
}

/// Records the end of an attempt, whose runs have done `step` steps; after `stop` requeues or
/// resubmits the job. Returns what goes on with the runs, if something does.
pub(crate) fn end(
    attempt: &JobAttempt<'_>,
    step: u64,
    exit_code: u8,
    stop: Option<Stop>,
) -> Option<Successor> {
    let reason = match (stop, exit_code) {
        (Some(_), _) => ExitReason::Interrupted,
        (None, 0) => ExitReason::Finished,
        (None, _) => ExitReason::Failed,
    };
    let exit = ExitRecord { reason, step, scores: Scores::default(), error: None, exit_code };
    attempt.end(&exit, stop)
}
