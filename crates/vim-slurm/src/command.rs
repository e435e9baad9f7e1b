//! Running SLURM's commands: with a time limit, in a clean environment.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use wait_timeout::ChildExt;

use crate::error::SlurmError;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The command line, for messages.
    pub(crate) command: String,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error, on one line.
    pub(crate) stderr: String,
}

/// Runs `program` for at most `limit`: SLURM's commands hang while the controller is unreachable.
pub(crate) fn run(
    program: &str,
    arguments: &[String],
    limit: Duration,
) -> Result<Answer, SlurmError> {
    let command = shown(program, arguments);
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(clean(env::vars_os()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return SlurmError::Missing(program.to_owned());
            }
            SlurmError::io("run", program)(error)
        })?;
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let status = child.wait_timeout(limit).map_err(SlurmError::io("run", program))?;
    let Some(status) = status else {
        // An error means that it ended in between.
        let _ = child.kill();
        child.wait().map_err(SlurmError::io("run", program))?;
        return Err(SlurmError::TimedOut { command, seconds: limit.as_secs(), after: "" });
    };
    let text = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Answer { command, status, stdout: text(stdout), stderr: one_line(&text(stderr)) })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // After an error, what was read before it is kept.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The environment without the variables of an enclosing job, such as `SLURM_MEM_PER_NODE`: sbatch
/// takes them as options, which contradict those of the script.
fn clean(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    let keeps = |name: &str| {
        let prefixes = ["SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_"];
        name == "SLURM_CONF" || !prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    // Without this variable, lists of tasks are truncated.
    let whole_lists = [("SLURM_BITSTR_LEN".into(), "0".into())];
    variables.filter(move |(name, _)| name.to_str().is_none_or(keeps)).chain(whole_lists)
}

fn shown(program: &str, arguments: &[String]) -> String {
    let words = std::iter::once(program).chain(arguments.iter().map(String::as_str));
    shlex::try_join(words).unwrap_or_else(|_| program.to_owned())
}

/// A message on one line, without the `program: error: ` that SLURM puts before each line.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.map(|line| line.split_once(": error: ").map_or(line, |(_, rest)| rest));
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<Answer, SlurmError> {
        run("sh", &["-c".into(), script.into()], limit)
    }

    #[test]
    fn output_and_complaints_are_apart() {
        let answer =
            sh("echo 7; echo 'sbatch: error: no' >&2; exit 3", Duration::from_secs(10)).unwrap();
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("7\n", "no"));
        assert_eq!(answer.status.code(), Some(3));
    }

    #[test]
    fn nothing_is_waited_for_without_end() {
        let start = Instant::now();
        let error = sh("exec sleep 60", Duration::from_millis(200)).unwrap_err();
        assert!(matches!(error, SlurmError::TimedOut { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
        let error = run("no-such-program", &[], Duration::from_secs(1)).unwrap_err();
        assert!(error.to_string().contains("`no-such-program` is not to be found"), "{error}");
    }

    #[test]
    fn the_surroundings_of_a_job_are_left_out() {
        let names =
            ["PATH", "SLURM_CONF", "SLURM_MEM_PER_NODE", "SBATCH_ACCOUNT", "SRUN_CPUS_PER_TASK"];
        let left: Vec<OsString> = clean(names.iter().map(|name| (name.into(), "x".into())))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(left, ["PATH", "SLURM_CONF", "SLURM_BITSTR_LEN"]);
    }
}
