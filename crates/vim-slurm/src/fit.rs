//! The nodes of a cluster, from `sinfo`, and whether they can meet a request.
//!
//! sbatch refuses most impossible requests, but not all: a job with a time limit above the
//! partition's waits forever.

use vim_config::hint;

use crate::error::SlurmError;
use crate::request::JobRequest;
use crate::values::{GpuRequest, MemoryPer, TimeLimit};

/// The nodes of one kind in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKind {
    /// The partition.
    pub partition: String,
    /// Whether jobs without a partition run here.
    pub is_default: bool,
    /// Whether it accepts jobs.
    pub is_up: bool,
    /// The longest time limit; `None` for none.
    pub max_time: Option<TimeLimit>,
    /// Cores of a node.
    pub cpus: u32,
    /// Memory of a node in MiB.
    pub memory_mib: u64,
    /// GPUs of a node, by kind.
    pub gpus: Vec<GpuRequest>,
    /// How many nodes there are of this kind, if that is told.
    pub nodes: Option<u32>,
}

/// The output format of sinfo that [`parse_sinfo`] reads.
pub(crate) const SINFO_FORMAT: &str = "%P|%a|%l|%c|%m|%G|%D";

/// Parses the output of `sinfo -h -e -o '%P|%a|%l|%c|%m|%G|%D'`.
///
/// # Errors
///
/// The first line that does not parse.
pub fn parse_sinfo(answer: &str) -> Result<Vec<NodeKind>, String> {
    let lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| parse(line).ok_or_else(|| line.to_owned())).collect()
}

fn parse(line: &str) -> Option<NodeKind> {
    let fields: Vec<&str> = line.split('|').collect();
    let [partition, up, time, cpus, memory, gres, rest @ ..] = &fields[..] else { return None };
    // If nodes differ, sinfo prints the smallest number and a plus sign.
    let number = |text: &str| text.trim_end_matches('+').parse::<u64>().ok();
    Some(NodeKind {
        partition: partition.trim_end_matches('*').to_owned(),
        is_default: partition.ends_with('*'),
        is_up: *up == "up",
        max_time: TimeLimit::of_slurm(time),
        cpus: number(cpus)?.try_into().ok()?,
        memory_mib: number(memory)?,
        gpus: gpus(gres),
        nodes: rest.first().and_then(|count| number(count)?.try_into().ok()),
    })
}

/// The GPUs in a list of resources such as `gpu:h100:4(S:0,1),nvme:1`.
fn gpus(gres: &str) -> Vec<GpuRequest> {
    let mut depth = 0_usize;
    let outside: String = gres
        .chars()
        .filter(|c| {
            depth = match c {
                '(' => depth + 1,
                ')' => depth.saturating_sub(1),
                _ => return depth == 0,
            };
            false
        })
        .collect();
    outside.split(',').filter_map(|item| item.strip_prefix("gpu:")?.parse().ok()).collect()
}

/// Checks that one of the `kinds` of nodes can meet `request`; returns warnings for the user.
///
/// # Errors
///
/// What no kind of node can meet.
pub fn fit(request: &JobRequest, kinds: &[NodeKind]) -> Result<Vec<String>, SlurmError> {
    let candidates: Vec<&NodeKind> = match &request.partition {
        // The job runs in one of the listed partitions.
        Some(names) => {
            for name in names.split(',') {
                check_partition(name, kinds)?;
            }
            let named = |kind: &&NodeKind| names.split(',').any(|name| name == kind.partition);
            kinds.iter().filter(named).collect()
        }
        // The site may choose any partition.
        None => kinds.iter().collect(),
    };
    // The error of the kind that passed the most checks.
    let mut closest: Option<(usize, SlurmError)> = None;
    let mut fitting: Vec<&NodeKind> = Vec::new();
    for kind in &candidates {
        let Some((depth, error)) = objection(request, kind) else {
            fitting.push(kind);
            continue;
        };
        if closest.as_ref().is_none_or(|(known, _)| depth > *known) {
            closest = Some((depth, error));
        }
    }
    let Some(first) = fitting.first() else {
        return closest.map_or_else(|| Ok(Vec::new()), |(_, error)| Err(error));
    };
    check_nodes(request, &fitting)?;
    let closed = (!first.is_up)
        .then(|| format!("partition `{}` takes no jobs now: this one will wait", first.partition));
    Ok(closed.into_iter().collect())
}

/// Checks that some partition has as many of the `fitting` nodes as are requested.
fn check_nodes(request: &JobRequest, fitting: &[&NodeKind]) -> Result<(), SlurmError> {
    let of_partition = |name: &str| -> Option<u32> {
        fitting.iter().filter(|kind| kind.partition == name).map(|kind| kind.nodes).sum()
    };
    let counts = fitting.iter().map(|kind| (of_partition(&kind.partition), &kind.partition));
    // Where a number is not told, it is the cluster's to say.
    match counts.max_by_key(|(count, _)| count.unwrap_or(u32::MAX)) {
        Some((Some(most), partition)) if most < request.nodes => {
            let problem = format!(
                "{} nodes are more than partition `{partition}` has that fit: {most}",
                request.nodes
            );
            Err(SlurmError::Unmet { key: "nodes", problem })
        }
        Some(_) | None => Ok(()),
    }
}

fn check_partition(name: &str, kinds: &[NodeKind]) -> Result<(), SlurmError> {
    let mut known: Vec<&str> = kinds.iter().map(|kind| kind.partition.as_str()).collect();
    known.dedup();
    if known.contains(&name) {
        return Ok(());
    }
    let problem = format!("unknown partition `{name}`{}", hint(name, known));
    Err(SlurmError::Unmet { key: "partition", problem })
}

/// Why nodes of this kind do not fit, and how many checks they passed.
fn objection(request: &JobRequest, kind: &NodeKind) -> Option<(usize, SlurmError)> {
    let partition = &kind.partition;
    let unmet = |depth, key, problem: String| Some((depth, SlurmError::Unmet { key, problem }));
    if let Some(gpus) = &request.gpus {
        let same = |kind: &Option<String>| gpus.kind.is_none() || *kind == gpus.kind;
        let there: Vec<String> = kind.gpus.iter().map(ToString::to_string).collect();
        if there.is_empty() {
            let problem = format!(
                "the nodes of partition `{partition}` have no GPUs: name another partition, or set \
                 slurm.gpus_per_node = 0 and devices.backend = \"cpu\""
            );
            return unmet(0, "gpus_per_node", problem);
        }
        if !kind.gpus.iter().any(|has| same(&has.kind)) {
            let names = kind.gpus.iter().filter_map(|has| has.kind.as_deref());
            let asked = gpus.kind.as_deref().unwrap_or_default();
            let problem =
                format!("no GPU `{asked}` in partition `{partition}`{}", hint(asked, names));
            return unmet(1, "gpus_per_node", problem);
        }
        if !kind.gpus.iter().any(|has| same(&has.kind) && has.count >= gpus.count) {
            let problem = format!(
                "{gpus} is more than a node of partition `{partition}` has: {}",
                there.join(", ")
            );
            return unmet(2, "gpus_per_node", problem);
        }
    }
    if let Some(cpus) = request.cpus.filter(|cpus| *cpus > kind.cpus) {
        let problem = format!(
            "{cpus} cores are more than a node of partition `{partition}` has: {}",
            kind.cpus
        );
        return unmet(3, "cpus_per_task", problem);
    }
    if let Some((per, amount)) = request.memory {
        let times = match per {
            MemoryPer::Node => 1,
            MemoryPer::Cpu => request.cpus.unwrap_or(1),
            MemoryPer::Gpu => request.gpus.as_ref().map_or(1, |gpus| gpus.count),
        };
        let asked = amount.mib() * u64::from(times);
        if asked > kind.memory_mib {
            let problem = format!(
                "{amount} times {times} is more than a node of partition `{partition}` has: {} MiB",
                kind.memory_mib
            );
            return unmet(4, per.key(), problem);
        }
    }
    match (request.time, kind.max_time) {
        (Some(time), Some(longest)) if time > longest => {
            let problem = format!(
                "{time} is more than partition `{partition}` allows, and SLURM would let the job \
                 wait for ever: at most {longest}"
            );
            unmet(5, "time", problem)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SlurmConfig;

    const SINFO: &str = "main*|up|1-00:00:00|16|64000|gpu:h100:4|3\n\
                         main*|up|1-00:00:00|16|64000|gpu:h100:8|1\n\
                         long|down|7-00:00:00|16|64000|gpu:h100:2|1\n\
                         cpu|up|infinite|40|192000|(null)\n";

    fn fits(config: &str) -> Result<Vec<String>, String> {
        let config: SlurmConfig = toml::from_str(config).unwrap();
        let request = config.request(None, 1).unwrap();
        fit(&request, &parse_sinfo(SINFO).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_fits() {
        for config in [
            "partition = \"main\"\ntime = \"1-00:00:00\"\ngpus_per_node = \"h100:4\"\n\
             cpus_per_task = 16\nmem = \"62G\"",
            "time = \"5-00:00:00\"\ngpus_per_node = 2",
            "partition = \"cpu\"\ngpus_per_node = 0\ntime = \"90-00:00:00\"\nmem_per_cpu = \"4G\"\n\
             cpus_per_task = 40",
            "partition = \"cpu,main\"",
            "partition = \"main\"\nmem = \"0\"",
            "partition = \"main\"\nnodes = 4\ngpus_per_node = 4",
            // Not told.
            "partition = \"cpu\"\nnodes = 40\ngpus_per_node = 0",
        ] {
            fits(config).unwrap();
        }
        let warnings = fits("partition = \"long\"").unwrap();
        assert_eq!(warnings, ["partition `long` takes no jobs now: this one will wait"]);
    }

    #[test]
    fn what_does_not() {
        for (config, said) in [
            (
                "partition = \"mian\"",
                "slurm.partition: unknown partition `mian`, did you mean `main`? (known: main, \
                 long, cpu)",
            ),
            (
                "partition = \"main\"\ntime = \"2-00:00:00\"",
                "slurm.time: 2-00:00:00 is more than partition `main` allows, and SLURM would let \
                 the job wait for ever: at most 1-00:00:00",
            ),
            ("time = \"8-00:00:00\"", "at most 1-00:00:00"),
            (
                "gpus_per_node = \"h10:1\"",
                "no GPU `h10` in partition `main`, did you mean `h100`? (known: h100)",
            ),
            ("gpus_per_node = 9", "9 is more than a node of partition `main` has: h100:4"),
            (
                "partition = \"main\"\nnodes = 5",
                "slurm.nodes: 5 nodes are more than partition `main` has that fit: 4",
            ),
            ("nodes = 2\ngpus_per_node = 8", "partition `main` has that fit: 1"),
            ("partition = \"cpu\"", "the nodes of partition `cpu` have no GPUs"),
            ("partition = \"main\"\ncpus_per_task = 17", "slurm.cpus_per_task: 17 cores are more"),
            (
                "partition = \"main\"\nmem = \"64G\"",
                "slurm.mem: 64G times 1 is more than a node of partition `main` has: 64000 MiB",
            ),
            (
                "partition = \"main\"\nmem_per_gpu = \"40G\"\ngpus_per_node = 2",
                "slurm.mem_per_gpu: 40G times 2",
            ),
        ] {
            let message = fits(config).unwrap_err();
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn resources_of_every_form() {
        let shown = |gres| gpus(gres).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown("gpu:h100:4"), ["h100:4"]);
        assert_eq!(
            shown("gpu:a100:2(S:0,1),gpu:a100_1g.5gb:7(S:0),nvme:1"),
            ["a100:2", "a100_1g.5gb:7"]
        );
        assert_eq!(shown("gpu:4"), ["4"]);
        assert_eq!(shown("(null)"), Vec::<String>::new());
    }

    #[test]
    fn lines_of_sinfo() {
        let kinds = parse_sinfo(
            "gpu*|up|7-00:00:00|64|515000+|gpu:a100:4\ncpu|down|infinite|40|192000|(null)\n",
        )
        .unwrap();
        assert_eq!((kinds[0].partition.as_str(), kinds[0].is_default), ("gpu", true));
        assert_eq!(kinds[0].max_time.unwrap().seconds, 604_800);
        assert_eq!(
            (kinds[1].max_time, kinds[1].is_up, kinds[1].memory_mib),
            (None, false, 192_000)
        );
        assert_eq!(parse_sinfo("gpu*|up").unwrap_err(), "gpu*|up");
    }
}
