//! The nodes of a cluster, from `sinfo`.

use crate::text_form::number;
use crate::values::{GpuRequest, TimeLimit, is_gpu_kind};

/// The nodes of one kind in one partition. What is `None` is not told, and the cluster's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKind {
    /// The partition.
    pub partition: String,
    /// Whether jobs without a partition run here.
    pub is_default: bool,
    /// Whether it accepts jobs.
    pub is_up: bool,
    /// The longest time limit; also `None` if there is none.
    pub max_time: Option<TimeLimit>,
    /// Cores of a node.
    pub cpus: Option<u64>,
    /// Memory of a node in MiB.
    pub memory_mib: Option<u64>,
    /// GPUs of a node, by kind; empty for none.
    pub gpus: Option<Vec<GpuRequest>>,
    /// How many nodes there are of this kind.
    pub nodes: Option<u64>,
}

/// The output format of sinfo that [`parse_sinfo`] reads.
pub(crate) const SINFO_FORMAT: &str = "%P|%a|%l|%c|%m|%G|%D";

/// Parses the output of `sinfo -h -e -o '%P|%a|%l|%c|%m|%G|%D'`. A field that does not parse is not
/// told, and a line without fields is none of sinfo's.
///
/// # Errors
///
/// The first line, if none has fields.
pub fn parse_sinfo(answer: &str) -> Result<Vec<NodeKind>, String> {
    let kinds: Vec<NodeKind> = answer.lines().filter_map(parse).collect();
    match answer.lines().find(|line| !line.trim().is_empty()) {
        Some(line) if kinds.is_empty() => Err(line.trim().to_owned()),
        Some(_) | None => Ok(kinds),
    }
}

fn parse(line: &str) -> Option<NodeKind> {
    let (partition, rest) = line.trim().split_once('|')?;
    let fields: Vec<&str> = rest.split('|').map(str::trim).collect();
    let field = |number: usize| fields.get(number).copied();
    Some(NodeKind {
        partition: partition.trim_end_matches('*').to_owned(),
        is_default: partition.ends_with('*'),
        is_up: field(0) == Some("up"),
        max_time: field(1).and_then(TimeLimit::of_slurm),
        cpus: field(2).and_then(count),
        memory_mib: field(3).and_then(count),
        gpus: field(4).and_then(gpus),
        nodes: field(5).and_then(count),
    })
}

/// A number such as `64`, `1K` (1024), or `515000+` where nodes differ and this is the smallest.
/// `N/A` is none, nor is `1.5K`, which may be rounded.
fn count(text: &str) -> Option<u64> {
    let text = text.trim_end_matches('+');
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let with_unit =
        units.into_iter().find_map(|(unit, times)| Some((text.strip_suffix(unit)?, times)));
    let (digits, times) = with_unit.unwrap_or((text, 1));
    Some(number(digits)? * times)
}

/// The GPUs in a list of resources such as `gpu:h100:4(S:0,1),nvme:1`; none if one does not parse.
fn gpus(gres: &str) -> Option<Vec<GpuRequest>> {
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
    if outside.eq_ignore_ascii_case("n/a") {
        return None;
    }
    let is_gpu = |item: &&str| *item == "gpu" || item.starts_with("gpu:");
    outside.split(',').map(str::trim).filter(is_gpu).map(gpus_of).collect()
}

/// `gpu:h100:4`, `gpu:4`, and without a number, which is one, `gpu:h100` and `gpu`.
fn gpus_of(item: &str) -> Option<GpuRequest> {
    let of_kind = |kind: Option<String>| GpuRequest { kind, count: 1 };
    let Some((_, rest)) = item.split_once(':') else { return Some(of_kind(None)) };
    let one = || is_gpu_kind(rest).then(|| of_kind(Some(rest.to_owned())));
    rest.parse().ok().or_else(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_every_form() {
        for (gres, expected) in [
            ("gpu:h100:4", Some(&["h100:4"][..])),
            ("gpu:a100:2(S:0,1),gpu:a100_1g.5gb:7(S:0),nvme:1", Some(&["a100:2", "a100_1g.5gb:7"])),
            ("gpu:4,shard:16", Some(&["4"])),
            ("gpu:h100,gpu", Some(&["h100:1", "1"])),
            ("(null)", Some(&[])),
            ("gpu:h100:many", None),
            ("N/A", None),
        ] {
            let shown = gpus(gres).map(|gpus| gpus.iter().map(ToString::to_string).collect());
            let expected = expected.map(|it| it.iter().map(|&text| text.to_owned()).collect());
            assert_eq!(shown, expected as Option<Vec<String>>, "{gres}");
        }
    }

    #[test]
    fn lines_of_sinfo() {
        let kinds = parse_sinfo(
            "gpu*|up|7-00:00:00|64|515000+|gpu:a100:4\ncpu|down|infinite|1.5K|192000|(null)\n",
        )
        .unwrap();
        assert_eq!((kinds[0].partition.as_str(), kinds[0].is_default), ("gpu", true));
        assert_eq!((kinds[0].cpus, kinds[0].memory_mib), (Some(64), Some(515_000)));
        assert_eq!(kinds[0].max_time.unwrap().seconds, 604_800);
        assert_eq!((kinds[1].max_time, kinds[1].is_up), (None, false));
        assert_eq!(
            (kinds[1].cpus, kinds[1].memory_mib),
            (None, Some(192_000)),
            "it may be rounded"
        );
        assert_eq!(parse_sinfo("what?\nno").unwrap_err(), "what?");
        assert_eq!(parse_sinfo("\n"), Ok(Vec::new()));
    }
}
