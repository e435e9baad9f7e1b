//! SLURM's commands as functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::cluster::{SINFO_FORMAT, parse_sinfo};
use crate::command::{Answer, run};
use crate::error::SlurmError;
use crate::fallback::{SACCT_FORMAT, SQUEUE_FORMAT, parse_sacct, parse_squeue};
use crate::fit::fit;
use crate::job::{Job, JobId, parse_jobs};
use crate::request::Request;
use crate::script::BatchScript;

/// What SLURM's commands say when the controller is away for a moment.
const PASSING: [&str; 5] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Resource temporarily unavailable",
];

/// What SLURM's commands say of a job that they do not know, or know no more.
const UNKNOWN_JOB: &str = "Invalid job id specified";

/// SLURM, as this machine reaches it.
///
/// Every command has a time limit, and questions are repeated while the controller is away;
/// submissions are not, for one may have arrived all the same. Variables of a job that this process
/// may belong to are kept from the commands.
#[derive(Clone, Debug)]
pub struct Client {
    limit: Duration,
    attempts: u32,
    pause: Duration,
}

impl Default for Client {
    fn default() -> Self {
        Self { limit: Duration::from_secs(30), attempts: 3, pause: Duration::from_secs(2) }
    }
}

impl Client {
    /// A client with patience for a busy controller.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A client for a process that is about to be killed.
    #[must_use]
    pub fn hasty() -> Self {
        Self { limit: Duration::from_secs(8), attempts: 2, pause: Duration::from_millis(500) }
    }

    /// A client that asks once and waits for at most `limit`: for somebody who wants to know whether SLURM answers.
    #[must_use]
    pub fn once(limit: Duration) -> Self {
        Self { limit, attempts: 1, pause: Duration::ZERO }
    }

    /// Whether SLURM is here.
    ///
    /// # Errors
    ///
    /// If its commands are not, or its controller does not answer.
    pub fn check(&self) -> Result<(), SlurmError> {
        self.ask("sbatch", &["--version"])?;
        self.ask("scontrol", &["show", "config"]).map(|_| ())
    }

    /// Whether the cluster can meet `request`; returns what its owner should know.
    ///
    /// # Errors
    ///
    /// What it cannot meet, or why that cannot be asked.
    pub fn check_request(&self, request: &Request) -> Result<Vec<String>, SlurmError> {
        let answer = self.ask("sinfo", &["-h", "-e", "-o", SINFO_FORMAT])?;
        let kinds = parse_sinfo(&answer.stdout).map_err(|line| unknown(&answer, line))?;
        fit(request, &kinds)
    }

    /// Task numbers of arrays are below this.
    ///
    /// # Errors
    ///
    /// If SLURM does not say.
    pub fn max_array_size(&self) -> Result<u32, SlurmError> {
        let answer = self.ask("scontrol", &["show", "config"])?;
        max_array_size(&answer.stdout)
            .ok_or_else(|| unknown(&answer, "no MaxArraySize among its settings".into()))
    }

    /// What SLURM says of when and where a job would start.
    ///
    /// # Errors
    ///
    /// If it would not take the job.
    pub fn test_only(&self, script: &BatchScript) -> Result<String, SlurmError> {
        // In memory or not, sbatch reads a file.
        let folder = std::env::temp_dir();
        let path = folder.join(format!("vim-train-{}.sh", std::process::id()));
        write(&path, &script.render()?)?;
        let answer = self.ask("sbatch", &["--test-only", &path.to_string_lossy()]);
        // It lies in a folder that is emptied anyway.
        let _ = fs::remove_file(&path);
        let line = answer?.stderr;
        Ok(line.strip_prefix("sbatch: ").unwrap_or(&line).to_owned())
    }

    /// Makes the folder of the output, writes the batch script to `path` and submits it.
    ///
    /// # Errors
    ///
    /// If SLURM does not take the job, or a file cannot be written. A job whose output cannot be
    /// written would end without a word.
    pub fn submit(&self, script: &BatchScript, path: &Path) -> Result<JobId, SlurmError> {
        let text = script.render()?;
        let output = Path::new(&script.output);
        for folder in [output.parent(), path.parent()].into_iter().flatten() {
            make_writable(folder)?;
        }
        write(path, &text)?;
        self.submit_script(path, &[])
    }

    /// Submits the batch script in `path` with `options` over its own.
    ///
    /// # Errors
    ///
    /// If SLURM does not take the job.
    pub fn submit_script(&self, path: &Path, options: &[String]) -> Result<JobId, SlurmError> {
        let mut arguments = vec!["--parsable".to_owned()];
        arguments.extend_from_slice(options);
        arguments.push(path.to_string_lossy().into_owned());
        let answer = run("sbatch", &arguments, self.limit).map_err(|mut error| {
            if let SlurmError::TimedOut { after, .. } = &mut error {
                *after = "; the job may be in the queue all the same: look with squeue --me before trying again";
            }
            error
        })?;
        let answer = taken(answer)?;
        // With several clusters their name follows.
        let id = answer.stdout.trim().split(';').next().unwrap_or_default();
        id.parse().map_err(|_| unknown(&answer, answer.stdout.trim().to_owned()))
    }

    /// What SLURM knows of a job; `None` if it has forgotten it.
    ///
    /// # Errors
    ///
    /// If SLURM cannot be asked.
    pub fn job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        Ok(self.jobs(&[id])?.into_values().find(|job| id.task.is_none() || job.id == id))
    }

    /// What SLURM knows of jobs and of the tasks of arrays; what it has forgotten is absent.
    ///
    /// # Errors
    ///
    /// If SLURM cannot be asked.
    pub fn jobs(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, Job>, SlurmError> {
        let mut known = BTreeMap::new();
        for id in ids {
            let jobs = self.tasks(*id)?;
            known
                .extend(jobs.into_iter().filter(|job| concerns(*id, job)).map(|job| (job.id, job)));
        }
        Ok(known)
    }

    fn tasks(&self, id: JobId) -> Result<Vec<Job>, SlurmError> {
        let shown = id.to_string();
        match self.ask("scontrol", &["-o", "show", "job", &shown]) {
            Ok(answer) => return parse_jobs(&answer.stdout).map_err(|line| unknown(&answer, line)),
            Err(SlurmError::Refused { message, .. }) if message.contains(UNKNOWN_JOB) => {}
            // Some sites keep scontrol from their users.
            Err(SlurmError::Refused { .. } | SlurmError::Missing { .. }) => {
                let arguments = ["-h", "-r", "-t", "all", "-j", &shown, "-o", SQUEUE_FORMAT];
                match self.ask("squeue", &arguments) {
                    Ok(answer) => return Ok(parse_squeue(&answer.stdout)),
                    Err(SlurmError::Refused { message, .. }) if message.contains(UNKNOWN_JOB) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
        // Forgotten after some minutes; accounting remembers longer, where there is any.
        let arguments = ["-n", "-P", "-X", "-j", &shown, "-o", SACCT_FORMAT];
        match self.ask("sacct", &arguments) {
            Ok(answer) => Ok(parse_sacct(&answer.stdout)),
            Err(SlurmError::Refused { .. } | SlurmError::Missing { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Puts a job back into the queue.
    ///
    /// # Errors
    ///
    /// If SLURM refuses, or cannot be asked.
    pub fn requeue(&self, id: JobId) -> Result<(), SlurmError> {
        self.ask("scontrol", &["requeue", &id.to_string()]).map(|_| ())
    }

    /// Cancels jobs.
    ///
    /// # Errors
    ///
    /// If SLURM refuses, or cannot be asked. A job that has ended is no error.
    pub fn cancel(&self, ids: &[JobId]) -> Result<(), SlurmError> {
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let words: Vec<&str> = ids.iter().map(String::as_str).collect();
        match self.ask("scancel", &words) {
            Err(SlurmError::Refused { message, .. })
                if message.contains(UNKNOWN_JOB) || message.contains("already completing") =>
            {
                Ok(())
            }
            answer => answer.map(|_| ()),
        }
    }

    /// Runs a command that may be repeated.
    fn ask(&self, program: &str, arguments: &[&str]) -> Result<Answer, SlurmError> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut attempt = 1;
        loop {
            let result = run(program, &arguments, self.limit).and_then(taken);
            match result {
                Err(SlurmError::Unreachable { .. } | SlurmError::TimedOut { .. })
                    if attempt < self.attempts =>
                {
                    sleep(self.pause * attempt);
                    attempt += 1;
                }
                result => return result,
            }
        }
    }
}

/// Whether a job is the one asked for, or a task of the array asked for.
fn concerns(id: JobId, job: &Job) -> bool {
    job.id == id || job.id.job == id.job && id.task.is_none()
}

/// The answer of a command that succeeded.
fn taken(answer: Answer) -> Result<Answer, SlurmError> {
    if answer.status.success() {
        return Ok(answer);
    }
    let Answer { command, stderr: message, .. } = answer;
    if PASSING.iter().any(|passing| message.contains(passing)) {
        return Err(SlurmError::Unreachable { command, message });
    }
    Err(SlurmError::Refused { command, message })
}

fn unknown(answer: &Answer, line: String) -> SlurmError {
    SlurmError::Answer { command: answer.command.clone(), answer: line }
}

fn max_array_size(config: &str) -> Option<u32> {
    let line = config.lines().find(|line| line.starts_with("MaxArraySize"))?;
    line.split_once('=')?.1.trim().parse().ok()
}

fn write(path: &Path, text: &str) -> Result<(), SlurmError> {
    fs::write(path, text).map_err(SlurmError::io("write", path))
}

/// Makes a folder, and tries whether files can be made in it.
fn make_writable(folder: &Path) -> Result<(), SlurmError> {
    fs::create_dir_all(folder).map_err(SlurmError::io("make", folder))?;
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    fs::write(&probe, "").map_err(SlurmError::io("write into", folder))?;
    fs::remove_file(&probe).map_err(SlurmError::io("remove from", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_arrays() {
        let recorded = include_str!("../tests/it/fixtures/config.txt");
        assert_eq!(max_array_size(recorded), Some(1001));
        assert_eq!(max_array_size("KillWait = 5 sec\n"), None);
    }
}
