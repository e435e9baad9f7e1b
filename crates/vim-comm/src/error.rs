//! Why ranks cannot exchange anything.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::place::Place;

/// Why ranks cannot find each other, or cannot exchange anything any more.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommError {
    /// Ranks did not arrive in time.
    #[error("after {waited:?}, {} of {} ranks are missing in {}: {}", ranks.len(), place.world(), folder.display(), by_node(ranks, place))]
    Missing {
        /// Those that are missing.
        ranks: Vec<usize>,
        /// The rank that waited.
        place: Box<Place>,
        /// Where it waited.
        folder: PathBuf,
        /// How long.
        waited: Duration,
    },

    /// Nodes did not arrive in time.
    #[error(
        "after {waited:?}, {} of {count} nodes are missing in {}: node {}: did they start, and do all see this folder?",
        nodes.len(), folder.display(), numbers(nodes)
    )]
    MissingNodes {
        /// Those that are missing.
        nodes: Vec<usize>,
        /// Of how many.
        count: usize,
        /// Where this node waited.
        folder: PathBuf,
        /// How long.
        waited: Duration,
    },

    /// All ranks are there, but one did not say what the others need.
    #[error("after {waited:?}, {} has no {what}: rank 0 did not write it", folder.display())]
    Silent {
        /// The file.
        what: String,
        /// Where.
        folder: PathBuf,
        /// How long this rank waited.
        waited: Duration,
    },

    /// The ranks do not fit together; all of them get the same text.
    #[error("{why}")]
    Refused {
        /// What does not fit.
        why: String,
    },

    /// The run was ended elsewhere.
    #[error("the run was ended: {reason}")]
    Aborted {
        /// What the one that ended it gave as the reason.
        reason: String,
    },

    /// A rank is gone.
    #[error("rank {rank} is gone")]
    Lost {
        /// Which one.
        rank: usize,
    },

    /// Ranks called different functions, or with different sizes: a defect of the caller.
    #[error("the ranks part: {why}")]
    Parted {
        /// Who did what.
        why: String,
    },

    /// This communicator does not carry such tensors, or such ranks.
    #[error("{what}")]
    Unsupported {
        /// What it does not carry.
        what: String,
    },

    /// There is no library of NCCL.
    #[error("several GPUs need NCCL 2.12 or newer, which was not found: {tried}")]
    NoLibrary {
        /// Each file that was tried, and why it was not taken.
        tried: String,
    },

    /// NCCL failed.
    #[error("{problem}")]
    Nccl {
        /// What it says.
        problem: String,
    },

    /// The tensor could not be computed.
    #[error("cannot read the tensor to sum: {problem}")]
    Tensor {
        /// The device's reason.
        problem: String,
    },

    /// A check found a wrong sum.
    #[error("rank {rank}: {what}")]
    Wrong {
        /// The rank that found it.
        rank: usize,
        /// Which sum, and how it is wrong.
        what: String,
    },

    /// The ranks' folder has too long a path for a socket, and there cannot be one elsewhere.
    #[error(
        "cannot {action} {}: {source}; the socket of the ranks is there because the path of {} is too long for it: shorten that (run.root), or set TMPDIR to a folder that can be written and has a short path",
        path.display(),
        folder.display()
    )]
    Socket {
        /// What was attempted.
        action: &'static str,
        /// The socket or its folder.
        path: PathBuf,
        /// The ranks' folder.
        folder: PathBuf,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },

    /// A file, folder or socket cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file, folder or socket.
        path: PathBuf,
        /// The operating system's reason.
        source: Arc<io::Error>,
    },
}

/// What a panic on a device's thread begins with where an exchange failed there.
const IN_PANIC: &str = "an exchange of the ranks failed: ";

impl CommError {
    /// Ends a task on a device's thread, which has nobody to return an error to.
    #[cfg(feature = "cuda")]
    pub(crate) fn panic(problem: &str) -> ! {
        panic!("{IN_PANIC}{problem}")
    }

    /// The failure of an exchange that ended a task on a device's thread, by the text of its panic:
    /// another rank is gone, or the network.
    pub fn of_panic(text: &str) -> Option<Self> {
        let (_, problem) = text.split_once(IN_PANIC)?;
        // CubeCL puts the text in brackets.
        let problem = problem.strip_suffix(')').unwrap_or(problem);
        Some(Self::Nccl { problem: format!("{IN_PANIC}{problem}") })
    }

    /// For `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source: Arc::new(source) }
    }
}

/// `1, 2`.
fn numbers(all: &[usize]) -> String {
    all.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// `node 0: rank 1; node 1: ranks 2, 3`.
fn by_node(ranks: &[usize], place: &Place) -> String {
    let of_node = |node: usize| {
        let ranks = ranks.iter().filter(|&&rank| place.node_of(rank) == node);
        let names: Vec<String> = ranks.map(usize::to_string).collect();
        let word = if names.len() == 1 { "rank" } else { "ranks" };
        (!names.is_empty()).then(|| format!("node {node}: {word} {}", names.join(", ")))
    };
    (0..place.nodes()).filter_map(of_node).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_are_named_by_node() {
        let error = CommError::Missing {
            ranks: vec![1, 2, 3],
            place: Box::new(Place::new(0, vec![2, 2]).unwrap()),
            folder: "/run/ranks/7".into(),
            waited: Duration::from_secs(600),
        };
        let text = "after 600s, 3 of 4 ranks are missing in /run/ranks/7: node 0: rank 1; node 1: ranks 2, 3";
        assert_eq!(error.to_string(), text);
    }
}
