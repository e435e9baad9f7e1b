//! The output files of jobs and of array tasks.

use std::fs;
use std::path::PathBuf;

use vim_slurm::JobId;
use vim_slurm::submissions::FOLDER;

use super::error::JobError;
use super::names::Submitted;
use crate::error::Error;

/// The output of a job.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) job: JobId,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The output of a whole job.
    File(PathBuf),
    /// The output of a task: the job's name precedes this suffix.
    Ending { folder: PathBuf, ending: String },
}

impl Output {
    /// The output of the last submission, or of the newest task for run number `run` of a sweep.
    pub(super) fn of(submitted: &Submitted, run: Option<u32>) -> Result<Self, Error> {
        let (name, last) = (submitted.name.clone(), submitted.last());
        match (run, &last.output, &last.array) {
            (None, Some(path), None) => {
                Ok(Self { job: last.job, place: Place::File(path.clone()) })
            }
            (None, None, None) => {
                let folder = submitted.folder.join(FOLDER);
                let problem = format!(
                    "nothing says where the output of job {} is: look into {}",
                    last.job,
                    folder.display()
                );
                Err(JobError::NoOutput { name, problem }.into())
            }
            (None, _, Some(_)) => {
                let problem = format!(
                    "job {} is an array: --task I shows the output of one of its runs, by its number in `vim-train sweep status`",
                    last.job
                );
                Err(JobError::NoOutput { name, problem }.into())
            }
            (Some(run), ..) => {
                let (job, _) = submitted.task(run)?;
                let ending = format!("-{job}.out");
                let place = Place::Ending { folder: submitted.folder.join(FOLDER), ending };
                Ok(Self { job, place })
            }
        }
    }

    /// The output file's present or future path.
    pub(super) fn path(&self) -> PathBuf {
        match &self.place {
            Place::File(path) => path.clone(),
            Place::Ending { folder, ending } => {
                let files = fs::read_dir(folder).into_iter().flatten().flatten();
                let mut paths = files.map(|entry| entry.path());
                let found = paths.find(|path| path.to_string_lossy().ends_with(ending));
                found.unwrap_or_else(|| folder.join(format!("*{ending}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vim_slurm::submissions::Submission;

    use super::*;

    fn submission(job: u64, array: Option<&str>, script: &str) -> Submission {
        Submission {
            job: JobId { job, task: None },
            array: array.map(str::to_owned),
            submitted: String::new(),
            script: script.into(),
            output: Some("/x/%x-%A_%a.out".into()),
        }
    }

    #[test]
    fn a_run_is_found_in_the_newest_array_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join(FOLDER);
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("study-8_3.out"), "").unwrap();
        let submitted = Submitted {
            name: "study".into(),
            folder: folder.path().to_owned(),
            submissions: vec![
                submission(7, Some("0-11%2"), "tasks-from-0-1.sh"),
                submission(8, Some("3,5"), "tasks-from-0-2.sh"),
                submission(9, Some("0-4"), "tasks-from-1001-3.sh"),
            ],
        };
        let found = |run| Output::of(&submitted, Some(run)).map(|o| (o.job.to_string(), o.path()));
        assert_eq!(found(3).unwrap(), ("8_3".into(), inside.join("study-8_3.out")));
        // Not written yet.
        assert_eq!(found(4).unwrap(), ("7_4".into(), inside.join("*-7_4.out")));
        assert_eq!(found(1003).unwrap().0, "9_2");
        for (run, message) in [
            (
                Some(12),
                "study: no array that was submitted has a run 12: `vim-train sweep status` numbers them",
            ),
            (
                None,
                "study: job 9 is an array: --task I shows the output of one of its runs, by its number in `vim-train sweep status`",
            ),
        ] {
            assert_eq!(Output::of(&submitted, run).unwrap_err().to_string(), message);
        }
    }
}
