//! What a node says of itself, and how the nodes of a run find each other before their ranks do.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::files::list;
use super::{Party, Rendezvous, There, record};
use crate::error::CommError;
use crate::place::Place;

/// Keys that are named where configurations differ.
const NAMED: usize = 3;

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
        let why = others.iter().find_map(|other| problem_of_two(other, new))?;
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

fn problem_of_two(a: &Node, b: &Node) -> Option<String> {
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
