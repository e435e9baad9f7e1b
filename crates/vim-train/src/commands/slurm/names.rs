//! Submitted runs by name.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use vim_run::MAX_DEPTH;
use vim_slurm::submissions::{self, Submission};
use vim_slurm::{Client, Job, JobId, expand};

use super::error::JobError;
use crate::commands::sweep::offset_of;
use crate::config::nearest;
use crate::error::Error;

/// One run of a sweep, as `slurm logs`, `status`, `requeue` and `cancel` take it.
#[derive(Debug, Args)]
pub struct TaskArg {
    /// Of a sweep: the number of the run in `vim-train sweep status`, from 0.
    #[arg(long, value_name = "I")]
    pub task: Option<u32>,
}

/// A run or sweep with its submissions.
#[derive(Clone, Debug)]
pub(super) struct Submitted {
    /// Its name, or path below the root.
    pub(super) name: String,
    pub(super) folder: PathBuf,
    /// Oldest first, and at least one.
    pub(super) submissions: Vec<Submission>,
}

impl Submitted {
    /// The last submission.
    pub(super) fn last(&self) -> &Submission {
        self.submissions.last().expect("invariant: read only where there is one")
    }

    /// The newest task for run number `run` of this sweep, with its submission.
    pub(super) fn task(&self, run: u32) -> Result<(JobId, &Submission), Error> {
        let mut newest = self.submissions.iter().rev();
        let found = newest.find_map(|submission| Some((task(submission, run)?, submission)));
        let problem = || {
            format!(
                "no array that was submitted has a run {run}: `vim-train sweep status` numbers them"
            )
        };
        found.ok_or_else(|| {
            JobError::NoOutput { name: self.name.clone(), problem: problem() }.into()
        })
    }

    fn read(folder: &Path, name: String) -> Result<Option<Self>, Error> {
        let submissions =
            submissions::read(folder).map_err(Error::io("read", submissions::path(folder)))?;
        let submitted = Self { name, folder: folder.to_owned(), submissions };
        Ok((!submitted.submissions.is_empty()).then_some(submitted))
    }
}

/// The task of `submission` for run number `run`.
fn task(submission: &Submission, run: u32) -> Option<JobId> {
    let number = run.checked_sub(offset_of(&submission.script).unwrap_or(0))?;
    let tasks = expand(submission.array.as_deref()?)?;
    tasks.contains(&number).then_some(JobId { job: submission.job.job, task: Some(number) })
}

/// SLURM's record of a job or array task.
pub(super) fn known(client: &Client, id: JobId) -> Result<Option<Job>, Error> {
    // Pending tasks may be listed under the array's number alone.
    let array = JobId { task: None, ..id };
    let mut jobs = client.jobs(&[array])?;
    Ok(jobs.remove(&id).or_else(|| jobs.remove(&array)))
}

/// All submitted runs in `root`, by name.
pub(super) fn all(root: &Path) -> Result<Vec<Submitted>, Error> {
    fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
        if submissions::path(folder).is_file() {
            found.push(folder.to_owned());
        }
        if depth == 0 {
            return;
        }
        // Skip folders that cannot be listed.
        let inside = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in inside.filter(|entry| entry.path().is_dir()) {
            collect(&entry.path(), depth - 1, found);
        }
    }
    let mut found = Vec::new();
    collect(root, MAX_DEPTH, &mut found);
    found.sort();
    let named = found.into_iter().map(|folder| {
        let below = folder.strip_prefix(root).ok().filter(|below| !below.as_os_str().is_empty());
        let name = below.map_or_else(|| last_part(&folder), |below| below.display().to_string());
        Submitted::read(&folder, name)
    });
    Ok(named.collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().collect())
}

/// Resolves `names`: a run's folder, its name in `root`, or a folder of runs; all of `root` if
/// empty.
pub(super) fn some(names: &[PathBuf], root: &Path) -> Result<Vec<Submitted>, Error> {
    if names.is_empty() {
        return all(root);
    }
    let mut found = Vec::new();
    for name in names {
        let folders = [name.clone(), root.join(name)];
        let inside = folders.iter().find(|folder| folder.is_dir()).map(|folder| all(folder));
        let inside = inside.transpose()?.unwrap_or_default();
        if inside.is_empty() {
            return Err(unknown(name, root)?);
        }
        found.extend(inside);
    }
    Ok(found)
}

/// Resolves `name` to a single run.
pub(super) fn one(name: &Path, root: &Path) -> Result<Submitted, Error> {
    for folder in [name.to_owned(), root.join(name)] {
        if let Some(submitted) = Submitted::read(&folder, last_part(&folder))? {
            return Ok(submitted);
        }
    }
    Err(unknown(name, root)?)
}

fn unknown(name: &Path, root: &Path) -> Result<Error, Error> {
    let known: Vec<String> = all(root)?.into_iter().map(|submitted| submitted.name).collect();
    let name = name.display().to_string();
    Ok(JobError::NotSubmitted { nearest: nearest(&name, &known), name, root: root.to_owned() }
        .into())
}

fn last_part(folder: &Path) -> String {
    // The canonical path gives `.` a name.
    let full = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned()
}
