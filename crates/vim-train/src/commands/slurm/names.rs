//! Submitted runs by name, and the errors of their jobs.

use std::fs;
use std::path::{Path, PathBuf};

use vim_run::MAX_DEPTH;
use vim_slurm::submissions::{self, Submission};
use vim_slurm::{Client, Job, JobId, expand};

use crate::commands::sweep::Tasks;
use crate::config::{Config, nearest};
use crate::error::{Error, Failure, code};

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
    pub(super) fn last(&self) -> &Submission {
        self.submissions.last().expect("invariant: read only where there is one")
    }

    /// The newest task for run number `run` of this sweep, with its submission.
    pub(super) fn task(&self, run: u32) -> Result<(JobId, &Submission), Error> {
        let mut newest = self.submissions.iter().rev();
        let found = newest.find_map(|submission| Some((task(submission, run)?, submission)));
        found.ok_or_else(|| {
            let name = &self.name;
            Error::data(format!(
                "{name}: no array that was submitted has a run {run}: `vim-train sweep status` numbers them"
            ))
        })
    }

    /// The runs that `job`, of `submission`, trains together, in words: `, which trains runs 4-7`;
    /// nothing if it is one.
    pub(super) fn together(job: JobId, submission: &Submission) -> String {
        let several = job.task.and_then(|task| Tasks::of(&submission.script).several(task));
        several.map_or_else(String::new, |runs| format!(", which trains {runs},"))
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
    let numbers = expand(submission.array.as_deref()?)?;
    let tasks = Tasks::of(&submission.script);
    let number = numbers.into_iter().find(|number| tasks.runs(*number).contains(&run))?;
    Some(JobId { job: submission.job.job, task: Some(number) })
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

/// Resolves `names`: a run's folder or configuration, its name in `root`, or a folder of runs; all
/// of `root` if empty.
pub(super) fn some(names: &[PathBuf], root: &Path) -> Result<Vec<Submitted>, Error> {
    if names.is_empty() {
        return all(root);
    }
    let mut found = Vec::new();
    for name in names {
        let folders = places(name, root)?;
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
    for folder in places(name, root)? {
        if let Some(submitted) = Submitted::read(&folder, last_part(&folder))? {
            return Ok(submitted);
        }
    }
    Err(unknown(name, root)?)
}

/// Where the run or sweep `name` may be: of a configuration file in the folder that it says.
fn places(name: &Path, root: &Path) -> Result<Vec<PathBuf>, Error> {
    if !name.is_file() {
        return Ok(vec![name.to_owned(), root.join(name)]);
    }
    let config = Config::load_sweep(name, &[])?;
    Ok(vec![match &config.sweep {
        Some(sweep) => config.run.root.join(&sweep.name),
        None => config.run_folder()?,
    }])
}

fn unknown(name: &Path, root: &Path) -> Result<Error, Error> {
    let known: Vec<String> = all(root)?.into_iter().map(|submitted| submitted.name).collect();
    let name = name.display().to_string();
    let nearest = nearest(&name, &known);
    let nearest = nearest.map_or_else(String::new, |name| format!(" (is it `{name}`?)"));
    Ok(Error::data(format!(
        "{name} is neither the folder nor the name of a run submitted from {}{nearest}: `vim-train slurm status` names them, --root looks elsewhere",
        root.display()
    )))
}

fn last_part(folder: &Path) -> String {
    // The canonical path gives `.` a name.
    let full = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned()
}

/// Errors of submitted runs and their jobs.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// A run is submitted already.
    #[error(
        "{} has job {job} already ({state}): wait for it, cancel it by `vim-train slurm cancel`, or chain another one to it by --after {job}",
        path.display()
    )]
    Queued { path: PathBuf, job: JobId, state: &'static str },

    /// The awaited job failed; the code is 0 if it was killed.
    #[error("job {job} ended: {state}, exit code {code}; `vim-train slurm logs` shows its output")]
    Ended { job: JobId, state: &'static str, code: u8 },
}

impl Failure for JobError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Queued { .. } => code::EXISTS,
            Self::Ended { code: 0, .. } => code::FAILED,
            Self::Ended { code, .. } => *code,
        }
    }
}
