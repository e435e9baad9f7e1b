//! The submissions of a run or sweep: `slurm/jobs.jsonl` in its folder, one line each.
//!
//! The file outlasts SLURM's own record, which is gone minutes after a job's end.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::job::JobId;

/// The subfolder of a run or sweep for batch scripts and logs.
pub const FOLDER: &str = "slurm";

/// The file in [`FOLDER`].
const FILE: &str = "jobs.jsonl";

/// A submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The job, or the array.
    pub job: JobId,
    /// The tasks of an array, as passed to sbatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// The time of submission, as RFC 3339.
    pub submitted: String,
    /// The batch script.
    pub script: PathBuf,
    /// The job's output; of an array, `%A` and `%a` are not filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
}

/// The file of the run or sweep in `folder`.
pub fn path(folder: &Path) -> PathBuf {
    folder.join(FOLDER).join(FILE)
}

/// Records a submission for the run or sweep in `folder`.
///
/// # Errors
///
/// If the file cannot be written.
pub fn append(folder: &Path, submission: &Submission) -> io::Result<()> {
    let path = path(folder);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    append_line(&path, submission)
}

/// The submissions for the run or sweep in `folder`, oldest first; none where there is no file.
///
/// # Errors
///
/// If the file cannot be read.
pub fn read(folder: &Path) -> io::Result<Vec<Submission>> {
    read_lines(&path(folder))
}

/// A job's output file: `%x`, `%j` and `%%` filled in, those of array tasks left as they are.
pub fn output_of(pattern: &str, name: &str, job: JobId) -> PathBuf {
    let mut path = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            path.push(character);
            continue;
        }
        match characters.next() {
            Some('x') => path.push_str(name),
            Some('j') => path.push_str(&job.job.to_string()),
            Some('%') => path.push('%'),
            Some(other) => path.extend(['%', other]),
            None => path.push('%'),
        }
    }
    path.into()
}

/// Appends a record to a file of JSON lines in one write.
pub(crate) fn append_line(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    OpenOptions::new().create(true).append(true).open(path)?.write_all(&line)
}

/// The records of a file of JSON lines, without those that do not parse.
pub(crate) fn read_lines<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<Vec<T>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // A crash may have left half a line.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn submissions_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), []);
        let submission = Submission {
            job: "12".parse().unwrap(),
            array: Some("0-5%2".into()),
            submitted: "2026-11-22T08:00:00Z".into(),
            script: "slurm/job.sh".into(),
            output: None,
        };
        append(folder.path(), &submission).unwrap();
        append_line(&path(folder.path()), &"something else").unwrap();
        append(folder.path(), &submission).unwrap();
        assert_eq!(read(folder.path()).unwrap(), [submission.clone(), submission]);
        let text = fs::read_to_string(path(folder.path())).unwrap();
        let first = "{\"job\":\"12\",\"array\":\"0-5%2\",\"submitted\":\"2026-11-22T08:00:00Z\",\
                     \"script\":\"slurm/job.sh\"}";
        assert_eq!(text.lines().next(), Some(first));
    }

    #[test]
    fn patterns_of_outputs() {
        let path = output_of("/r/%x-%j-100%%-%A.out", "zoh", "12".parse().unwrap());
        assert_eq!(path, Path::new("/r/zoh-12-100%-%A.out"));
    }
}
