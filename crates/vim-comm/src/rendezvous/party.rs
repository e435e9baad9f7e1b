//! What ranks and nodes say of themselves, whether they fit together, and how the nodes of a run
//! find each other before their ranks do.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::list;
use super::{Rendezvous, record};
use crate::error::CommError;
use crate::place::Place;

/// Variable that lets several ranks share a GPU when it is `1`. NCCL does not promise that it
/// works; tests use it.
pub const SHARE_GPU: &str = "VIM_TRAIN_SHARE_GPU";

/// Keys that are named where configurations differ.
const NAMED: usize = 3;

/// A process that meets others, one for each number.
pub(super) trait Party: Clone + Serialize + DeserializeOwned {
    /// What it is one of, such as `rank`.
    const KIND: &'static str;

    /// Which one it is, from 0.
    fn number(&self) -> usize;

    /// What it is called.
    fn name(&self) -> String;

    /// Why the last of `parties` does not fit to the others, which fit together.
    fn problem(parties: &[Self]) -> Option<String>;

    /// The error of those that are not `there`.
    fn missing(rendezvous: &Rendezvous, there: There<'_>) -> CommError;
}

/// Whether the process of a number is there.
pub(super) type There<'a> = &'a dyn Fn(usize) -> bool;

/// Whether [`SHARE_GPU`] is set.
pub fn shares_gpu() -> bool {
    env::var_os(SHARE_GPU).is_some_and(|value| value == "1")
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Which rank it is.
    pub place: Place,
    /// The machine's name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The kind of its device, such as `NVIDIA H200`.
    pub device: String,
    /// What tells its device from all others, such as a GPU's UUID; `None` if devices may be
    /// shared.
    #[serde(default)]
    pub device_id: Option<String>,
    /// The program's version and source.
    pub build: String,
    /// The version of the library that exchanges, such as NCCL's.
    #[serde(default)]
    pub library: Option<String>,
    /// A hash of the configuration.
    pub configuration: String,
}

impl Member {
    /// `rank 3 (gpu07, process 4711)`.
    pub fn name(&self) -> String {
        format!("rank {} ({}, process {})", self.place.rank(), self.host, self.pid)
    }
}

impl Party for Member {
    const KIND: &'static str = "rank";

    fn number(&self) -> usize {
        self.place.rank()
    }

    fn name(&self) -> String {
        self.name()
    }

    fn problem(members: &[Self]) -> Option<String> {
        let share = shares_gpu();
        let (new, others) = members.split_last()?;
        let of_two = || others.iter().find_map(|other| ranks_differ(other, new, share));
        let why = problem_of_one(new, share).or_else(of_two)?;
        Some(format!("the ranks do not fit together: {why}"))
    }

    fn missing(rendezvous: &Rendezvous, there: There<'_>) -> CommError {
        rendezvous.missing(there)
    }
}

/// Why `member` cannot be one of several ranks.
fn problem_of_one(member: &Member, share: bool) -> Option<String> {
    // The driver names a slice after its GPU, as `NVIDIA H200 MIG 1g.18gb`.
    let is_slice = member.device.contains(" MIG ") && member.place.world() > 1 && !share;
    is_slice.then(|| {
        let (name, device) = (member.name(), &member.device);
        format!("{name} has a MIG slice ({device}), which trains alone: set devices.gpus=1")
    })
}

fn ranks_differ(a: &Member, b: &Member, share: bool) -> Option<String> {
    let differ = |what: &str, of_a: &str, of_b: &str| {
        let text = format!("{} has {what} {of_a}, {} {of_b}", a.name(), b.name());
        (of_a != of_b).then_some(text)
    };
    let nodes = |of: &Member| format!("{:?}", of.place.ranks_of_nodes());
    let library = |of: &Member| of.library.clone().unwrap_or_else(|| "none".into());
    let double = a.device_id.is_some() && a.device_id == b.device_id && !share;
    let spread = a.place.node() == b.place.node() && a.host != b.host;
    differ("the build", &a.build, &b.build)
        .or_else(|| differ("ranks on its nodes", &nodes(a), &nodes(b)))
        .or_else(|| differ("the configuration", &a.configuration, &b.configuration))
        .or_else(|| differ("the library", &library(a), &library(b)))
        .or_else(|| double.then(|| format!("{} and {} have the same GPU", a.name(), b.name())))
        .or_else(|| {
            let node = a.place.node();
            spread.then(|| format!("{} and {} are both of node {node}", a.name(), b.name()))
        })
}

/// What is unusual about ranks that fit together.
pub(super) fn warnings(members: &[Member]) -> Vec<String> {
    let Some(first) = members.first() else { return Vec::new() };
    let other = members.iter().find(|member| member.device != first.device);
    let text = |other: &Member| {
        format!(
            "the ranks have GPUs of several kinds ({} at {}, {} at {}): the slowest one sets the pace, and other numbers of ranks may round otherwise",
            first.device,
            first.name(),
            other.device,
            other.name()
        )
    };
    other.map(text).into_iter().collect()
}

/// What the process that starts a node's ranks says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Which node it is, from 0.
    pub number: usize,
    /// Of how many.
    pub count: usize,
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// How many ranks it starts.
    pub ranks: usize,
    /// The parts of a batch, where they do not follow from the number of ranks; node 0's count.
    #[serde(default)]
    pub shards: Option<usize>,
    /// The program's version and source.
    pub build: String,
    /// The configuration: keys and values.
    pub configuration: BTreeMap<String, String>,
}

impl Node {
    /// `node 1 (gpu08, process 4711)`.
    pub fn name(&self) -> String {
        format!("node {} ({}, process {})", self.number, self.host, self.pid)
    }
}

/// Waits in `folder`, which all nodes see, until as many as [`Node::count`] have come; returns all
/// of them by their numbers. Node 0 checks that they fit together. Waits no longer than `timeout`,
/// or once `is_over`.
///
/// # Errors
///
/// As [`Rendezvous::meet`], with [`CommError::MissingNodes`] for nodes that do not come;
/// [`CommError::Aborted`] if it is over.
pub fn meet_nodes(
    folder: &Path,
    own: &Node,
    timeout: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Node>, CommError> {
    let place = Place::new(own.number, vec![1; own.count]).ok_or_else(|| {
        let why = format!("node {} of {} does not exist", own.number, own.count);
        CommError::Refused { why }
    })?;
    // Whatever else an earlier attempt has left there, this says what it is.
    if list(folder)?.contains(&record(own.number)) {
        let why = format!(
            "{} is the second node {} in {}: do two have the same number, or was this attempt made \
             before?",
            own.name(),
            own.number,
            folder.display()
        );
        return Err(CommError::Refused { why });
    }
    Rendezvous { folder: folder.to_owned(), place, timeout }.meet_as(own, is_over)
}

impl Party for Node {
    const KIND: &'static str = "node";

    fn number(&self) -> usize {
        self.number
    }

    fn name(&self) -> String {
        self.name()
    }

    fn problem(nodes: &[Self]) -> Option<String> {
        let (new, others) = nodes.split_last()?;
        let why = others.iter().find_map(|other| nodes_differ(other, new))?;
        Some(format!("the nodes do not fit together: {why}"))
    }

    fn missing(rendezvous: &Rendezvous, there: There<'_>) -> CommError {
        let count = rendezvous.place.world();
        CommError::MissingNodes {
            nodes: (0..count).filter(|&node| !there(node)).collect(),
            count,
            folder: rendezvous.folder.clone(),
            waited: rendezvous.timeout,
        }
    }
}

fn nodes_differ(a: &Node, b: &Node) -> Option<String> {
    let (of_a, of_b) = (a.name(), b.name());
    if a.count != b.count {
        return Some(format!("{of_a} is one of {}, {of_b} of {}", a.count, b.count));
    }
    if a.build != b.build {
        return Some(format!("{of_a} has the build {}, {of_b} {}", a.build, b.build));
    }
    let keys = a
        .configuration
        .keys()
        .chain(b.configuration.keys().filter(|key| !a.configuration.contains_key(*key)));
    let value = |of: &Node, key: &String| {
        of.configuration.get(key).cloned().unwrap_or_else(|| "not set".to_owned())
    };
    let differ = |key: &String| {
        let (of_a, of_b) = (value(a, key), value(b, key));
        (of_a != of_b).then(|| format!("{key} ({of_a} there, {of_b} here)"))
    };
    let mut differing: Vec<String> = keys.filter_map(differ).collect();
    if differing.is_empty() {
        return None;
    }
    let more = differing.len().saturating_sub(NAMED);
    differing.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{of_b} has another configuration than {of_a}: {}{more}", differing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: usize) -> Member {
        Member {
            place: Place::new(rank, vec![2, 2]).unwrap(),
            host: format!("gpu{}", rank / 2),
            pid: 4711,
            device: "NVIDIA H200".into(),
            device_id: Some(format!("GPU-{rank}")),
            build: "0.1.0 (abc)".into(),
            library: Some("2.28.9".into()),
            configuration: "1234".into(),
        }
    }

    #[test]
    fn ranks_fit_together_or_it_is_said_why_not() {
        let fitting: Vec<Member> = (0..4).map(member).collect();
        assert!((1..=4).all(|count| Member::problem(&fitting[..count]).is_none()));
        assert!(warnings(&fitting).is_empty());
        let with = |change: &dyn Fn(&mut Member)| {
            let mut members = fitting.clone();
            change(&mut members[3]);
            Member::problem(&members).unwrap_or_default()
        };
        let text = with(&|m| m.build = "0.2.0".into());
        assert_eq!(
            text,
            "the ranks do not fit together: rank 0 (gpu0, process 4711) has the build 0.1.0 (abc), rank 3 (gpu1, process 4711) 0.2.0"
        );
        assert!(with(&|m| m.configuration = "5".into()).contains("has the configuration 1234"));
        assert!(with(&|m| m.library = None).contains("has the library 2.28.9"));
        assert!(with(&|m| m.device_id = Some("GPU-1".into())).ends_with("have the same GPU"));
        assert_eq!(with(&|m| m.device_id = None), "");
        assert!(with(&|m| m.host = "gpu2".into()).ends_with("are both of node 1"));
        let other = Place::new(3, vec![3, 1]).unwrap();
        assert!(with(&|m| m.place = other.clone()).contains("ranks on its nodes [2, 2]"));
    }

    #[test]
    fn several_kinds_of_gpu_are_told() {
        let mut members: Vec<Member> = (0..4).map(member).collect();
        members[2].device = "NVIDIA A100".into();
        assert!(Member::problem(&members).is_none());
        let warnings = warnings(&members);
        assert!(warnings[0].contains("NVIDIA H200 at rank 0"), "{warnings:?}");
        assert!(warnings[0].contains("NVIDIA A100 at rank 2"), "{warnings:?}");
    }

    #[test]
    fn a_slice_of_a_gpu_trains_alone() {
        let mut slice = member(1);
        slice.device = "cuda, NVIDIA H200 MIG 1g.18gb".into();
        let text = Member::problem(&[member(0), slice.clone()]).unwrap();
        let wanted = "the ranks do not fit together: rank 1 (gpu0, process 4711) has a MIG slice (cuda, NVIDIA H200 MIG 1g.18gb), which trains alone: set devices.gpus=1";
        assert_eq!(text, wanted);
        assert!(problem_of_one(&slice, true).is_none(), "tests may");
        slice.place = Place::single();
        assert!(Member::problem(&[slice]).is_none());
    }

    #[test]
    fn tests_may_share_a_gpu() {
        let (a, mut b) = (member(0), member(1));
        b.device_id = a.device_id.clone();
        assert!(ranks_differ(&a, &b, false).is_some());
        assert!(ranks_differ(&a, &b, true).is_none());
    }

    fn node(number: usize) -> Node {
        let configuration = [("train.batch_size", "32"), ("optim.lr", "0.1")];
        Node {
            number,
            count: 2,
            host: format!("gpu{number}"),
            pid: 4711,
            ranks: 4,
            shards: None,
            build: "0.1.0 (abc)".into(),
            configuration: configuration.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        }
    }

    #[test]
    fn nodes_fit_together_or_it_is_said_why_not() {
        let with = |change: &dyn Fn(&mut Node)| {
            let mut nodes = [node(0), node(1)];
            change(&mut nodes[1]);
            Node::problem(&nodes).unwrap_or_default()
        };
        assert_eq!(with(&|_| {}), "");
        // A node may have another number of GPUs.
        assert_eq!(with(&|node| node.ranks = 3), "");
        let names = "node 0 (gpu0, process 4711)";
        assert_eq!(
            with(&|node| node.build = "0.2.0".into()),
            format!(
                "the nodes do not fit together: {names} has the build 0.1.0 (abc), node 1 (gpu1, \
                 process 4711) 0.2.0"
            )
        );
        assert!(
            with(&|node| node.count = 3).ends_with("is one of 2, node 1 (gpu1, process 4711) of 3")
        );
        let changed = with(&|node| {
            node.configuration.insert("train.batch_size".into(), "64".into());
            node.configuration.remove("optim.lr");
        });
        assert!(
            changed.ends_with(
                "node 1 (gpu1, process 4711) has another configuration than node 0 (gpu0, process \
                 4711): optim.lr (0.1 there, not set here), train.batch_size (32 there, 64 here)"
            ),
            "{changed}"
        );
    }

    #[test]
    fn nodes_that_do_not_come_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let wait = Duration::from_millis(50);
        let error = meet_nodes(folder.path(), &node(0), wait, &|| false).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("after 50ms, 1 of 2 nodes are missing in "), "{text}");
        assert!(text.contains(": node 1: "), "{text}");
        // The same number again, as in an attempt whose name was used before.
        let error = meet_nodes(folder.path(), &node(0), wait, &|| false).unwrap_err();
        assert!(matches!(error, CommError::Refused { .. }), "{error}");
        let other = tempfile::tempdir().unwrap();
        let error = meet_nodes(other.path(), &node(1), wait, &|| true).unwrap_err();
        assert!(matches!(error, CommError::Aborted { .. }), "{error}");
        assert!(meet_nodes(other.path(), &node(2), wait, &|| false).is_err());
    }
}
