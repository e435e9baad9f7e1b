//! The nodes of a cluster, from `sinfo`.

use crate::time::TimeLimit;
use crate::values::GpuRequest;

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
}

/// The output format of sinfo that [`parse_sinfo`] reads.
pub(crate) const SINFO_FORMAT: &str = "%P|%a|%l|%c|%m|%G";

/// Parses the output of `sinfo -h -e -o '%P|%a|%l|%c|%m|%G'`.
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
    let [partition, up, time, cpus, memory, gres] = fields.try_into().ok()?;
    // If nodes differ, sinfo prints the smallest number and a plus sign.
    let number = |text: &str| text.trim_end_matches('+').parse::<u64>().ok();
    Some(NodeKind {
        partition: partition.trim_end_matches('*').to_owned(),
        is_default: partition.ends_with('*'),
        is_up: up == "up",
        max_time: TimeLimit::of_slurm(time),
        cpus: number(cpus)?.try_into().ok()?,
        memory_mib: number(memory)?,
        gpus: gpus(gres),
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

#[cfg(test)]
mod tests {
    use super::*;

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
