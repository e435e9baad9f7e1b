//! The processor, memory, limits and the clock; the SLURM job, if this is one.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, available_parallelism};
use std::time::{Duration, SystemTime};

use rustix::process::{Resource, getrlimit};
use vim_run::rfc3339;
use vim_slurm::Client;

use super::disk::{Probe, existing};
use super::{Context, Finding, size};
use crate::device::machine::Machine;
use crate::device::threads;

const GIB: u64 = 1 << 30;

/// Cores that this process may use, and whether others use them.
pub(super) fn cpu(context: &Context) -> Vec<Finding> {
    let what = "cpu";
    let cores = available_parallelism().map_or(1, NonZero::get);
    let info = context.machine.read("proc/cpuinfo").unwrap_or_default();
    let installed = info.lines().filter(|line| line.starts_with("processor")).count();
    let name = info.lines().find(|line| line.starts_with("model name"));
    let name =
        name.and_then(|line| line.split_once(':')).map_or("processor", |(_, name)| name.trim());
    let load = context.machine.read("proc/loadavg");
    let load = load.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let threads = threads::count();
    let load_text = load.map_or_else(String::new, |load| format!(", load {load:.1}"));
    let detail =
        format!("{name}: {cores} of {installed} cores usable, {threads} threads{load_text}");
    if threads > cores {
        let advice = format!("set devices.threads to {cores} or leave it out");
        return vec![Finding::warn(what, detail, advice)];
    }
    if installed >= 8 && cores == 1 {
        let advice = "a run needs several for its images: ask SLURM by --cpus-per-task=8 (and repeat it to srun)";
        return vec![Finding::warn(what, detail, advice)];
    }
    let loaded = load.is_some_and(|load| installed > 0 && load > 1.5 * installed as f64);
    let advice = "others use this machine: times will not compare";
    vec![Finding::pass(what, detail).warn_if(loaded, advice)]
}

/// Free memory of the machine and within the control group.
pub(super) fn memory(context: &Context) -> Vec<Finding> {
    let what = "memory";
    let Some(free) = available(&context.machine) else {
        return vec![Finding::warn(what, "/proc/meminfo cannot be read", "look yourself")];
    };
    let limit = group_limit(&context.machine);
    let detail = match (limit, asked(&context.machine)) {
        (Some(limit), _) => format!("{} free, {} allowed to this job", size(free), size(limit)),
        (None, Some(asked)) => {
            format!("{} free, {} asked of SLURM, which sets no limit here", size(free), size(asked))
        }
        (None, None) => format!("{} free", size(free)),
    };
    let little = limit.map_or(free, |limit| limit.min(free)) < 4 * GIB;
    let advice = "a run takes a few GiB beside its images: ask SLURM for more by --mem, or lower data.prefetch and train.batch_size";
    vec![Finding::pass(what, detail).warn_if(little, advice)]
}

fn available(machine: &Machine) -> Option<u64> {
    let text = machine.read("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Memory requested by the job on this node (SLURM counts MiB); the site decides whether it is a
/// limit.
fn asked(machine: &Machine) -> Option<u64> {
    let mib = machine.text("SLURM_MEM_PER_NODE")?.parse::<u64>().ok()?;
    Some(mib << 20).filter(|bytes| *bytes > 0)
}

/// The least that any control group around this process allows, as SLURM and containers set it.
fn group_limit(machine: &Machine) -> Option<u64> {
    let groups = machine.read("proc/self/cgroup")?;
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(kind), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (top, file) = match kind {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if kind.split(',').any(|one| one == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A group's limit also applies to its children.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = machine.read(Path::new(top).join(group).join(file));
            limits.extend(text.and_then(|text| text.trim().parse::<u64>().ok()));
        }
    }
    // cgroup v1 writes "none" as a number larger than any memory.
    limits.into_iter().min().filter(|limit| *limit < 1 << 60)
}

/// Files that may be open: archives, images and sockets of the driver count.
pub(super) fn open_files(_: &Context) -> Vec<Finding> {
    let limit = getrlimit(Resource::Nofile).current;
    let detail = limit.map_or_else(|| "no limit".into(), |limit| format!("{limit} at a time"));
    let few = limit.is_some_and(|limit| limit < 1024);
    vec![Finding::pass("open files", detail).warn_if(few, "raise it: ulimit -n 4096")]
}

/// Compares the clocks of this machine and of the runs' disk: the newest file is found by time.
pub(super) fn clock(context: &Context) -> Vec<Finding> {
    let what = "clock";
    let folder = existing(&context.config.run.root);
    let now = SystemTime::now();
    let written = Probe::new(&folder).and_then(|probe| {
        File::create(&probe.path)?.sync_all()?;
        fs::metadata(&probe.path)?.modified()
    });
    let detail = rfc3339(now);
    // Another check reports a folder that cannot be written.
    let Ok(written) = written else { return vec![Finding::pass(what, detail)] };
    let apart = written.duration_since(now).unwrap_or_else(|error| error.duration());
    if apart.as_secs() >= 5 {
        let detail = format!("{detail}, {} s apart from the disk of run.root", apart.as_secs());
        let advice = "tell the cluster's support: times in logs will not fit together";
        return vec![Finding::warn(what, detail, advice)];
    }
    vec![Finding::pass(what, detail)]
}

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
    use super::super::Verdict;
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine { root: folder.path().into(), ..Machine::default() };
        (folder, machine)
    }

    #[test]
    fn the_least_limit_around_counts() {
        let (_folder, two) = machine(&[
            ("proc/self/cgroup", "0::/slurm/job_7/step_0\n"),
            ("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n"),
            ("sys/fs/cgroup/slurm/job_7/memory.max", "4000000000\n"),
            ("sys/fs/cgroup/slurm/memory.max", "9000000000\n"),
        ]);
        assert_eq!(group_limit(&two), Some(4_000_000_000));
        let (_folder, one) = machine(&[
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/slurm/job_7\n"),
            ("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "2000000000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(group_limit(&one), Some(2_000_000_000));
        let (_folder, none) = machine(&[
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(group_limit(&none), None);
    }

    #[test]
    fn memory_that_is_free() {
        let text = "MemTotal:       24000000 kB\nMemAvailable:    1000000 kB\n";
        let (_folder, machine) = machine(&[("proc/meminfo", text)]);
        assert_eq!(available(&machine), Some(1_024_000_000));
        assert_eq!(asked(&machine), None);
        let variables = [("SLURM_MEM_PER_NODE".into(), "2048".into())].into();
        assert_eq!(asked(&Machine { variables, ..machine }), Some(2 << 30));
    }

    fn with_variables(variables: &[(&str, &str)]) -> Machine {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Machine { variables: variables.collect(), ..Machine::default() }
    }

    #[test]
    fn a_job_that_suits_and_two_that_do_not() {
        let none = job_on(&with_variables(&[]), 2);
        assert_eq!(none, [Finding::pass("slurm", "not in a job")]);

        let job = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "1"), ("SLURM_CPUS_PER_TASK", "8")];
        let suits = job_on(&with_variables(&job), 8);
        assert_eq!(suits, [Finding::pass("slurm", "job 7, tasks 1, cpus per task 8")]);

        let cores = job_on(&with_variables(&job), 1);
        assert_eq!(cores.len(), 1);
        assert_eq!(cores[0].verdict, Verdict::Warn);
        assert!(cores[0].line().contains("srun --cpus-per-task=8"));

        let tasks = job_on(&with_variables(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]), 8);
        assert!(tasks[0].line().contains("--ntasks=1 instead of 4"));
    }
}
