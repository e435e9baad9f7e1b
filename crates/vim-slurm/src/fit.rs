//! Whether the nodes of a cluster can meet a request.
//!
//! sbatch refuses most impossible requests, but not all: a job with a time limit above the
//! partition's waits forever.

use vim_config::hint;

use crate::error::SlurmError;
use crate::nodes::NodeKind;
use crate::request::JobRequest;
use crate::values::{GpuRequest, MemoryPer};

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
    // Where the partition is left open, nodes of which too little is told do not speak for others.
    let is_clear = |kind: &&NodeKind| untold(request, kind).is_empty();
    let is_met = request.partition.is_some() && !fitting.is_empty() || fitting.iter().any(is_clear);
    if let (false, Some((_, error))) = (is_met, closest) {
        return Err(error);
    }
    check_nodes(request, &fitting)?;
    let first = fitting.first().filter(|_| fitting.iter().all(|kind| !kind.is_up));
    let closed = first.map(|kind| {
        format!("partition `{}` takes no jobs now: this one will wait", kind.partition)
    });
    // Nodes of which all is told that matters may fit as well.
    let untold = fitting.iter().map(|kind| (untold(request, kind), &kind.partition));
    let untold = untold.min_by_key(|(untold, _)| untold.len()).filter(|(it, _)| !it.is_empty());
    let unchecked = untold.map(|(untold, partition)| {
        let untold = untold.join(" and ");
        format!("sinfo does not tell {untold} of the nodes of partition `{partition}`: unchecked")
    });
    Ok(closed.into_iter().chain(unchecked).collect())
}

/// What matters to `request` and is not told of these nodes.
fn untold(request: &JobRequest, kind: &NodeKind) -> Vec<&'static str> {
    let all = [
        ("the GPUs", request.gpus.is_some() && kind.gpus.is_none()),
        ("the cores", request.cpus.is_some() && kind.cpus.is_none()),
        ("the memory", request.memory.is_some() && kind.memory_mib.is_none()),
    ];
    all.into_iter().filter(|(_, matters)| *matters).map(|(what, _)| what).collect()
}

/// Checks that some partition has as many of the `fitting` nodes as are requested.
fn check_nodes(request: &JobRequest, fitting: &[&NodeKind]) -> Result<(), SlurmError> {
    let of_partition = |name: &str| -> Option<u64> {
        fitting.iter().filter(|kind| kind.partition == name).map(|kind| kind.nodes).sum()
    };
    let counts = fitting.iter().map(|kind| (of_partition(&kind.partition), &kind.partition));
    // Where a number is not told, it is the cluster's to say.
    match counts.max_by_key(|(count, _)| count.unwrap_or(u64::MAX)) {
        Some((Some(most), partition)) if most < request.nodes.into() => {
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
    if let (Some(gpus), Some(there)) = (&request.gpus, &kind.gpus) {
        if there.is_empty() {
            let problem = format!(
                "the nodes of partition `{partition}` have no GPUs: name another partition, or set \
                 slurm.gpus_per_node = 0 and devices.backend = \"cpu\""
            );
            return unmet(0, "gpus_per_node", problem);
        }
        let is_asked = |has: &&GpuRequest| gpus.kind.is_none() || has.kind == gpus.kind;
        let asked: Vec<&GpuRequest> = there.iter().filter(is_asked).collect();
        if asked.is_empty() {
            let names = there.iter().filter_map(|has| has.kind.as_deref());
            let asked = gpus.kind.as_deref().unwrap_or_default();
            let problem =
                format!("no GPU `{asked}` in partition `{partition}`{}", hint(asked, names));
            return unmet(1, "gpus_per_node", problem);
        }
        // A request without a kind is met by several kinds together.
        if asked.iter().map(|has| u64::from(has.count)).sum::<u64>() < gpus.count.into() {
            let there: Vec<String> = there.iter().map(ToString::to_string).collect();
            let problem = format!(
                "{gpus} is more than a node of partition `{partition}` has: {}",
                there.join(", ")
            );
            return unmet(2, "gpus_per_node", problem);
        }
    }
    if let (Some(cpus), Some(there)) = (request.cpus, kind.cpus)
        && u64::from(cpus) > there
    {
        let problem =
            format!("{cpus} cores are more than a node of partition `{partition}` has: {there}");
        return unmet(3, "cpus_per_task", problem);
    }
    if let (Some((per, amount)), Some(there)) = (request.memory, kind.memory_mib) {
        let times = match per {
            MemoryPer::Node => 1,
            MemoryPer::Cpu => request.cpus.unwrap_or(1),
            MemoryPer::Gpu => request.gpus.as_ref().map_or(1, |gpus| gpus.count),
        };
        if amount.mib().saturating_mul(times.into()) > there {
            let problem = format!(
                "{amount} times {times} is more than a node of partition `{partition}` has: \
                 {there} MiB"
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
    use crate::nodes::parse_sinfo;

    const SINFO: &str = "main*|up|1-00:00:00|16|64000|gpu:h100:4|3\n\
                         main*|up|1-00:00:00|16|64000|gpu:h100:8|1\n\
                         long|down|7-00:00:00|16|64000|gpu:h100:2|1\n\
                         cpu|up|infinite|40|192000|(null)\n";

    fn fits(config: &str) -> Result<Vec<String>, String> {
        fits_in(SINFO, config)
    }

    fn fits_in(sinfo: &str, config: &str) -> Result<Vec<String>, String> {
        let config: SlurmConfig = toml::from_str(config).unwrap();
        let request = config.request(None, 1).unwrap();
        fit(&request, &parse_sinfo(sinfo).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_without_a_kind_is_met_by_several_kinds_together() {
        let sinfo = "gpu*|up|1-00:00:00|64|500000|gpu:turing:1(S:0),gpu:ampere:3(S:1)|1\n";
        for count in ["4", "\"ampere:3\"", "\"turing:1\""] {
            assert_eq!(fits_in(sinfo, &format!("gpus_per_node = {count}")), Ok(vec![]), "{count}");
        }
        for (count, said) in
            [("5", "5"), ("\"ampere:4\"", "ampere:4"), ("\"turing:2\"", "turing:2")]
        {
            let message = fits_in(sinfo, &format!("gpus_per_node = {count}")).unwrap_err();
            let more = "is more than a node of partition `gpu` has: turing:1, ampere:3";
            assert_eq!(message, format!("slurm.gpus_per_node: {said} {more}"));
        }
        let message = fits_in(sinfo, "gpus_per_node = \"amper:1\"").unwrap_err();
        assert!(message.contains("did you mean `ampere`? (known: turing, ampere)"), "{message}");
    }

    #[test]
    fn lines_that_do_not_matter_stop_nothing() {
        let sinfo = "module: cluster tools loaded\n\
                     old|up|infinite|N/A|N/A|gpu:k80:many|n/a\n\
                     big*|up|1-00:00:00|1K|2M|gpu:h100:8|2K\n\
                     torn|up\n";
        let big = "partition = \"big\"\nmem = \"2T\"\ngpus_per_node = 8\n";
        let fits = |more: &str| fits_in(sinfo, &format!("{big}{more}"));
        assert_eq!(fits("cpus_per_task = 1024\nnodes = 2048"), Ok(vec![]));
        let cores =
            "slurm.cpus_per_task: 1025 cores are more than a node of partition `big` has: 1024";
        assert_eq!(fits("cpus_per_task = 1025"), Err(cores.into()));
        let nodes = "slurm.nodes: 2049 nodes are more than partition `big` has that fit: 2048";
        assert_eq!(fits("nodes = 2049"), Err(nodes.into()));
        // Nodes of which nothing is told are there, and said to be unchecked.
        for (partition, memory, untold) in [
            ("old", "", "the GPUs and the cores"),
            ("torn", "mem = \"1G\"", "the GPUs and the cores and the memory"),
        ] {
            let config = format!("partition = \"{partition}\"\ncpus_per_task = 2\n{memory}");
            let said = format!(
                "sinfo does not tell {untold} of the nodes of partition `{partition}`: unchecked"
            );
            assert_eq!(fits_in(sinfo, &config), Ok(vec![said]));
        }
        // Without a partition it is those that tell.
        assert_eq!(fits_in(sinfo, "gpus_per_node = 8\ncpus_per_task = 2"), Ok(vec![]));
        let nine = "slurm.gpus_per_node: 9 is more than a node of partition `big` has: h100:8";
        assert_eq!(fits_in(sinfo, "gpus_per_node = 9"), Err(nine.into()));
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
}
