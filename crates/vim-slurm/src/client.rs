//! SLURM's commands as methods.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::command::{Answer, run};
use crate::error::SlurmError;
use crate::fallback::{SACCT_FORMAT, SQUEUE_FORMAT, parse_sacct, parse_squeue};
use crate::fit::fit;
use crate::job::{Job, JobId, parse_jobs};
use crate::nodes::{SINFO_FORMAT, parse_sinfo};
use crate::request::JobRequest;
use crate::script::BatchScript;

/// Messages of SLURM's commands while the controller is temporarily unreachable.
const TRANSIENT: [&str; 5] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection refused",
    "Connection timed out",
    "Resource temporarily unavailable",
];

/// The message of SLURM's commands about an unknown or forgotten job.
const UNKNOWN_JOB: &str = "Invalid job id specified";

/// SLURM, through its commands on this machine.
///
/// Every command has a time limit. Queries are repeated while the controller is unreachable;
/// submissions are not, because a submission without an answer may have succeeded. The commands do
/// not see the variables of a job that this process belongs to.
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
    /// A client that waits for a busy controller.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client for a process that is about to be killed.
    pub fn hasty() -> Self {
        Self { limit: Duration::from_secs(8), attempts: 2, pause: Duration::from_millis(500) }
    }

    /// A client that asks once and waits for at most `limit`, to find out whether SLURM answers.
    pub fn once(limit: Duration) -> Self {
        Self { limit, attempts: 1, pause: Duration::ZERO }
    }

    /// Checks that SLURM is available.
    ///
    /// # Errors
    ///
    /// If its commands are missing, or its controller does not answer.
    pub fn check(&self) -> Result<(), SlurmError> {
        self.ask("sbatch", &["--version"])?;
        self.ask("scontrol", &["show", "config"]).map(|_| ())
    }

    /// Checks that the cluster can meet `request`; returns warnings for the user.
    ///
    /// # Errors
    ///
    /// What the cluster cannot meet, or why it cannot be asked.
    pub fn check_request(&self, request: &JobRequest) -> Result<Vec<String>, SlurmError> {
        let answer = self.ask("sinfo", &["-h", "-e", "-o", SINFO_FORMAT])?;
        let kinds = parse_sinfo(&answer.stdout).map_err(|line| unknown(&answer, line))?;
        fit(request, &kinds)
    }

    /// The exclusive limit of task numbers in arrays.
    ///
    /// # Errors
    ///
    /// If SLURM does not tell.
    pub fn max_array_size(&self) -> Result<u32, SlurmError> {
        let answer = self.ask("scontrol", &["show", "config"])?;
        max_array_size(&answer.stdout)
            .ok_or_else(|| unknown(&answer, "no MaxArraySize among its settings".into()))
    }

    /// SLURM's estimate of when and where a job would start.
    ///
    /// # Errors
    ///
    /// If SLURM would refuse the job.
    pub fn test_only(&self, script: &BatchScript) -> Result<String, SlurmError> {
        // sbatch reads the script from a file.
        let folder = std::env::temp_dir();
        let path = folder.join(format!("vim-train-{}.sh", std::process::id()));
        write(&path, &script.render()?)?;
        let answer = self.ask("sbatch", &["--test-only", &path.to_string_lossy()]);
        // The temporary folder is emptied anyway.
        let _ = fs::remove_file(&path);
        let line = answer?.stderr;
        Ok(line.strip_prefix("sbatch: ").unwrap_or(&line).to_owned())
    }

    /// Creates the folder of the output, writes the batch script to `path` and submits it.
    ///
    /// # Errors
    ///
    /// If SLURM refuses the job, or a file cannot be written. The output's folder is checked
    /// because a job that cannot write its output ends without a message.
    pub fn submit(&self, script: &BatchScript, path: &Path) -> Result<JobId, SlurmError> {
        let text = script.render()?;
        let output = Path::new(&script.output);
        for folder in [output.parent(), path.parent()].into_iter().flatten() {
            make_writable(folder)?;
        }
        write(path, &text)?;
        self.submit_script(path, &[])
    }

    /// Submits the batch script in `path`; `options` override its own.
    ///
    /// # Errors
    ///
    /// If SLURM refuses the job.
    pub fn submit_script(&self, path: &Path, options: &[String]) -> Result<JobId, SlurmError> {
        let mut arguments = vec!["--parsable".to_owned()];
        arguments.extend_from_slice(options);
        arguments.push(path.to_string_lossy().into_owned());
        let answer = run("sbatch", &arguments, self.limit).map_err(|mut error| {
            if let SlurmError::TimedOut { after, .. } = &mut error {
                *after = "; the job may be in the queue all the same: look with squeue --me \
                          before trying again";
            }
            error
        })?;
        let answer = succeeded(answer)?;
        // On a federation of clusters, the cluster's name follows.
        let id = answer.stdout.trim().split(';').next().unwrap_or_default();
        id.parse().map_err(|_| unknown(&answer, answer.stdout.trim().to_owned()))
    }

    /// The job `id`; `None` if SLURM has forgotten it.
    ///
    /// # Errors
    ///
    /// If SLURM cannot be asked.
    pub fn job(&self, id: JobId) -> Result<Option<Job>, SlurmError> {
        Ok(self.jobs(&[id])?.into_values().find(|job| id.task.is_none() || job.id == id))
    }

    /// The jobs and array tasks `ids`, without those that SLURM has forgotten.
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
            // Some sites forbid scontrol to users.
            Err(SlurmError::Refused { .. } | SlurmError::Missing(_)) => {
                let arguments = ["-h", "-r", "-t", "all", "-j", &shown, "-o", SQUEUE_FORMAT];
                match self.ask("squeue", &arguments) {
                    Ok(answer) => return Ok(parse_squeue(&answer.stdout)),
                    Err(SlurmError::Refused { message, .. }) if message.contains(UNKNOWN_JOB) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
        // Accounting, where a site has it, remembers jobs longer than the controller.
        let arguments = ["-n", "-P", "-X", "-j", &shown, "-o", SACCT_FORMAT];
        match self.ask("sacct", &arguments) {
            Ok(answer) => Ok(parse_sacct(&answer.stdout)),
            Err(SlurmError::Refused { .. } | SlurmError::Missing(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Requeues a job.
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
    /// If SLURM refuses, or cannot be asked. A job that has already ended is not an error.
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

    /// Runs a command that is safe to repeat.
    fn ask(&self, program: &str, arguments: &[&str]) -> Result<Answer, SlurmError> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut attempt = 1;
        loop {
            let result = run(program, &arguments, self.limit).and_then(succeeded);
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

/// Whether `job` is `id` or a task of the array `id`.
fn concerns(id: JobId, job: &Job) -> bool {
    job.id == id || job.id.job == id.job && id.task.is_none()
}

/// The answer, if the command succeeded.
fn succeeded(answer: Answer) -> Result<Answer, SlurmError> {
    if answer.status.success() {
        return Ok(answer);
    }
    let Answer { command, stderr: message, .. } = answer;
    if TRANSIENT.iter().any(|transient| message.contains(transient)) {
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

/// Creates a folder and checks that files can be created in it.
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
