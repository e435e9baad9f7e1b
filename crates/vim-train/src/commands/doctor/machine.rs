//! The processor, memory, limits and the clock.

use std::fs::{self, File};
use std::num::NonZero;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::SystemTime;

use rustix::process::{Resource, getrlimit};
use vim_run::rfc3339;

use super::Context;
use super::disk::{Probe, existing};
use super::finding::{Finding, size};
use crate::device::machine::Machine;
use crate::device::threads;

const GIB: u64 = 1 << 30;

/// Cores that this process may use, and whether others use them.
pub(super) fn cpu(context: &Context) -> Vec<Finding> {
    let what = "cpu";
    let cores = available_parallelism().map_or(1, NonZero::get);
    let installed = context
        .machine
        .read("proc/cpuinfo")
        .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
    let name = context.machine.read("proc/cpuinfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let name = name.unwrap_or_else(|| "processor".into());
    let load = context
        .machine
        .read("proc/loadavg")
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
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
    if load.is_some_and(|load| installed > 0 && load > 1.5 * installed as f64) {
        return vec![Finding::warn(
            what,
            detail,
            "others use this machine: times will not compare",
        )];
    }
    vec![Finding::pass(what, detail)]
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
    if limit.map_or(free, |limit| limit.min(free)) < 4 * GIB {
        let advice = "a run takes a few GiB beside its images: ask SLURM for more by --mem, or lower data.prefetch and train.batch_size";
        return vec![Finding::warn(what, detail, advice)];
    }
    vec![Finding::pass(what, detail)]
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
    if limit.is_some_and(|limit| limit < 1024) {
        return vec![Finding::warn("open files", detail, "raise it: ulimit -n 4096")];
    }
    vec![Finding::pass("open files", detail)]
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

#[cfg(test)]
mod tests {
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
}
