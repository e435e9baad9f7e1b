//! The SLURM job, if this is one, and whether jobs can be submitted from here.

use std::num::NonZero;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use vim_slurm::Client;

use super::Context;
use super::finding::Finding;
use crate::device::machine::Machine;

/// Time limit of a SLURM command; they hang while the controller is down.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which stderr names the pending check.
const QUIET: Duration = Duration::from_secs(1);

/// Returns the result of `work`; if it is slow, stderr says that it waits for `what`.
fn saying<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (done, waits) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if waits.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                eprintln!("waiting for {what}");
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// Checks that the job's allocation matches the run's needs.
pub(super) fn job(context: &Context) -> Vec<Finding> {
    let cores = available_parallelism().map_or(1, NonZero::get);
    job_on(&context.machine, cores)
}

fn job_on(machine: &Machine, cores: usize) -> Vec<Finding> {
    let what = "slurm";
    let Some(id) = machine.text("SLURM_JOB_ID") else {
        return vec![Finding::pass(what, "not in a job")];
    };
    let number = |name| machine.text(name).and_then(|text| text.parse::<usize>().ok());
    let named = [
        ("partition", "SLURM_JOB_PARTITION"),
        ("nodes", "SLURM_JOB_NODELIST"),
        ("tasks", "SLURM_NTASKS"),
        ("cpus per task", "SLURM_CPUS_PER_TASK"),
        ("gpus", "SLURM_GPUS_ON_NODE"),
        ("restarts", "SLURM_RESTART_COUNT"),
    ];
    let known: Vec<String> = named
        .iter()
        .filter_map(|(what, name)| Some(format!("{what} {}", machine.text(name)?)))
        .collect();
    let detail = [vec![format!("job {id}")], known].concat().join(", ");
    let mut findings = Vec::new();
    let mut warn = |advice: String| findings.push(Finding::warn(what, &detail, advice));
    if let Some(tasks) = number("SLURM_NTASKS").filter(|tasks| *tasks > 1) {
        warn(format!(
            "a run is one process: ask for --ntasks=1 instead of {tasks}, and more --cpus-per-task"
        ));
    }
    if let Some(asked) = number("SLURM_CPUS_PER_TASK").filter(|asked| *asked > cores) {
        warn(format!(
            "this process may use {cores} cores of {asked}: start it by srun --cpus-per-task={asked}, which srun does not take from sbatch"
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::pass(what, detail));
    }
    findings
}

/// SLURM's commands, and whether its controller answers them.
pub(super) fn commands(context: &Context) -> Vec<Finding> {
    let what = "slurm commands";
    let found = context.machine.folders("PATH").into_iter().map(|folder| folder.join("sbatch"));
    let Some(sbatch) = found.into_iter().find(|path| path.is_file()) else {
        return vec![Finding::pass(what, "no sbatch here: jobs are submitted from elsewhere")];
    };
    let client = Client::once(PATIENCE);
    let asked = format!("SLURM's controller, for {} s at most", PATIENCE.as_secs());
    let answer = saying(&asked, || client.check().and_then(|()| client.max_array_size()));
    vec![match answer {
        Ok(tasks) => {
            Finding::pass(what, format!("{}, arrays of up to {tasks} tasks", sbatch.display()))
        }
        Err(error) => Finding::warn(
            what,
            format!("{}: {error}", sbatch.display()),
            "jobs cannot be submitted, queued again or asked about from here",
        ),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    fn machine(variables: &[(&str, &str)]) -> Machine {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Machine { variables: variables.collect(), ..Machine::default() }
    }

    #[test]
    fn a_job_that_suits_and_two_that_do_not() {
        let none = job_on(&machine(&[]), 2);
        assert_eq!(none, [Finding::pass("slurm", "not in a job")]);

        let job = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "1"), ("SLURM_CPUS_PER_TASK", "8")];
        let suits = job_on(&machine(&job), 8);
        assert_eq!(suits, [Finding::pass("slurm", "job 7, tasks 1, cpus per task 8")]);

        let cores = job_on(&machine(&job), 1);
        assert_eq!(cores.len(), 1);
        assert_eq!(cores[0].verdict, Verdict::Warn);
        assert!(cores[0].line().contains("srun --cpus-per-task=8"));

        let tasks = job_on(&machine(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]), 8);
        assert!(tasks[0].line().contains("--ntasks=1 instead of 4"));
    }
}
