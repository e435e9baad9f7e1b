//! The nodes of a run: which of them this process is to start the ranks of, how they meet, and how
//! they end alike. Each says how its ranks have ended, node 0 decides which of them was the cause,
//! and all end with it.
//!
//! | file | content |
//! |---|---|
//! | `ending-NNNN` | a node's ranks are being ended |
//! | `end-NNNN.json` | how a node's ranks have ended: a [`NodeEnd`] |
//! | `verdict.json` | how all of the run has: a [`Verdict`], of node 0 |
//! | `left-NNNN` | a node has read it |

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vim_comm::{CommError, Node, Rendezvous, meet_nodes};
use vim_run::host_name;
use vim_run::signals::{Interrupted, StopRequest};

use super::{RankError, attempts, build, minutes};
use crate::config::{Config, dotted_values};
use crate::error::{Error, code};
use crate::train::TrainOptions;

/// The folder in `run.root` where ranks meet, one folder for each attempt.
const MEETINGS: &str = ".ranks";
const VERDICT: &str = "verdict.json";
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// How long to wait for other nodes once this one has been told to end.
const HURRY: Duration = Duration::from_secs(3);
/// How long others may take to notice that the run has ended, besides [`GRACE`].
const NOTICE: Duration = Duration::from_secs(5);
/// How long the other ranks have to end after the first one.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// Which node of how many this process stands for, in which attempt at a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodePlace {
    pub(super) number: usize,
    pub(super) count: usize,
    /// The attempt's name, which is never used again.
    attempt: String,
}

impl NodePlace {
    /// As the command line says, or the step of SLURM that this process is a task of; else the only
    /// node.
    pub(super) fn of(options: &TrainOptions, config: &Config) -> Result<Self, RankError> {
        match (options.nodes, options.node, &options.attempt) {
            (Some(count), Some(number), Some(attempt)) => {
                Self::named(number.into(), count.into(), attempt)
            }
            _ => Self::of_step(config.slurm.nodes as usize, |name| env::var(name).ok()),
        }
    }

    fn named(number: usize, count: usize, attempt: &str) -> Result<Self, RankError> {
        if number >= count {
            return Err(RankError::NoNode { number, count });
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if attempt.is_empty() || attempt.starts_with('.') || !attempt.chars().all(is_plain) {
            return Err(RankError::Attempt(attempt.to_owned()));
        }
        Ok(Self { number, count, attempt: attempt.to_owned() })
    }

    /// The place in the step of a job that has `asked` nodes (`slurm.nodes`).
    fn of_step(asked: usize, variable: impl Fn(&str) -> Option<String>) -> Result<Self, RankError> {
        if asked == 1 {
            return Ok(Self::single());
        }
        let Some(job) = variable("SLURM_JOB_ID") else {
            eprintln!(
                "warning: slurm.nodes = {asked} is what a job asks for: this machine trains alone, \
                 unless --nodes, --node and --attempt say otherwise"
            );
            return Ok(Self::single());
        };
        let number = |name| variable(name)?.parse::<usize>().ok();
        let (Some(step), Some(nodes), Some(tasks), Some(node)) = (
            variable("SLURM_STEP_ID"),
            number("SLURM_STEP_NUM_NODES"),
            number("SLURM_STEP_NUM_TASKS"),
            number("SLURM_NODEID"),
        ) else {
            return Err(RankError::NoStep { asked });
        };
        if nodes != asked || tasks != asked {
            return Err(RankError::Step { asked, nodes, tasks });
        }
        let restarts = variable("SLURM_RESTART_COUNT").unwrap_or_else(|| "0".into());
        Ok(Self { number: node, count: asked, attempt: format!("{job}.{step}.{restarts}") })
    }

    /// The only node, in an attempt that the process's number and the time tell from others.
    fn single() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let attempt = format!("{}-{}-{}", host_name(), process::id(), since.as_millis());
        Self { number: 0, count: 1, attempt }
    }

    /// Where the ranks of this attempt meet.
    pub(super) fn folder(&self, config: &Config) -> PathBuf {
        config.run.root.join(MEETINGS).join(&self.attempt)
    }

    /// Where the nodes meet before that.
    fn meeting(&self, config: &Config) -> PathBuf {
        self.folder(config).join("nodes")
    }

    /// Waits for the other nodes, this one being about to start `ranks`; `shards` is the number of
    /// shards where it does not follow from that of the ranks. Returns all nodes.
    pub(super) fn meet(
        &self,
        config: &Config,
        ranks: usize,
        shards: Option<usize>,
        stop: &StopRequest,
    ) -> Result<Vec<Node>, Error> {
        let values = dotted_values(config).into_iter();
        let own = Node {
            number: self.number,
            count: self.count,
            host: host_name(),
            pid: process::id(),
            ranks,
            shards,
            build: build(),
            configuration: values.map(|(key, value)| (key, value.to_string())).collect(),
        };
        if self.count == 1 {
            return Ok(vec![own]);
        }
        eprintln!(
            "node {} of {}: waiting for the others in {}",
            self.number,
            self.count,
            self.folder(config).display()
        );
        let (folder, timeout) = (self.meeting(config), minutes(config.devices.rendezvous));
        let met = meet_nodes(&folder, &own, timeout, &|| stop.get().is_some());
        met.map_err(|error| match (error, stop.get()) {
            (CommError::Aborted { .. }, Some(stop)) => {
                let error: Error = Interrupted { stop }.into();
                self.give_up(config, &error);
                error
            }
            (error, _) => error.into(),
        })
    }

    /// Tells the nodes that wait for this one that it does not come.
    pub(super) fn give_up(&self, config: &Config, error: &Error) {
        if self.count > 1 {
            let reason = format!("node {} ({}): {error}", self.number, host_name());
            // Where that cannot be written, they wait for as long as devices.rendezvous says.
            let _ = vim_comm::abort(&self.meeting(config), &reason);
        }
    }

    /// Removes what earlier attempts have left whose supervisor was killed.
    pub(super) fn clean_before(&self, config: &Config) {
        attempts::remove_left(&config.run.root.join(MEETINGS), &self.attempt);
    }
}

/// A rank that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankEnd {
    /// Rank, node and device.
    pub(super) name: String,
    /// What became of it.
    pub(super) what: String,
    /// Its own exit code; none if a signal killed it.
    pub(super) exited: Option<u8>,
    /// The exit code of the run for it.
    pub(super) code: u8,
    /// Whether it failed by itself, and not because another one was gone.
    pub(super) is_cause: bool,
    /// Whether this is a node that is gone without a word.
    pub(super) is_node: bool,
}

/// How a node's ranks have ended.
#[derive(Debug, Serialize, Deserialize)]
struct NodeEnd {
    failure: Option<RankEnd>,
}

/// How the run has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// The exit code of all nodes.
    pub(super) code: u8,
    /// Which rank ended it, where rank 0 does not say how the run ended.
    pub(super) failure: Option<RankEnd>,
}

impl Verdict {
    /// Of a run that has not failed.
    fn good() -> Self {
        Self { code: 0, failure: None }
    }
}

/// The ends of all nodes.
pub(super) struct Ends<'a> {
    pub(super) rendezvous: &'a Rendezvous,
    pub(super) nodes: &'a [Node],
    /// This node.
    pub(super) number: usize,
    /// Asked to end soon: SLURM gives half a minute before it kills.
    pub(super) stop: &'a StopRequest,
}

impl Ends<'_> {
    /// What node 0 decides: `own` is the failure of its ranks, and `lead` the exit code of rank 0.
    pub(super) fn decide(&self, own: Option<RankEnd>, lead: Option<u8>) -> Verdict {
        let all = self.others();
        let missing = all.iter().zip(1..).filter(|(end, _)| end.is_none()).map(|(_, node)| node);
        let gone = missing.map(|node: usize| self.gone(node));
        let others = all.iter().flatten().filter_map(|end| end.failure.clone());
        let failures = own.iter().cloned().chain(others);
        // Of a run that is finished, nobody minds who leaves without a word.
        let failures: Vec<RankEnd> = failures.chain(gone.filter(|_| own.is_some())).collect();
        let reason = self.rendezvous.aborted().unwrap_or_default();
        match cause(&failures, &reason) {
            None => Verdict::good(),
            // An end that all agreed on is told by rank 0. Nobody agrees on missing another.
            Some(cause)
                if cause.exited.is_some()
                    && cause.exited == lead
                    && (cause.code != code::UNAVAILABLE || own.as_ref() == Some(cause)) =>
            {
                Verdict { code: cause.code, failure: None }
            }
            Some(cause) => Verdict { code: cause.code, failure: Some(cause.clone()) },
        }
    }

    /// As node 0: how the others' ranks have ended; none for a node that does not say it in time.
    fn others(&self) -> Vec<Option<NodeEnd>> {
        let begin = Instant::now();
        let ends = (1..self.nodes.len()).map(|node| {
            // A node that ends its ranks says so, and then has [`GRACE`].
            let wait = || if self.rendezvous.has(&ending(node)) { GRACE + NOTICE } else { NOTICE };
            self.read(&of_node(node), begin, &wait)
        });
        ends.collect()
    }

    fn gone(&self, node: usize) -> RankEnd {
        RankEnd {
            name: format!("node {node} ({})", self.nodes[node].host),
            what: "is gone".into(),
            exited: None,
            code: code::UNAVAILABLE,
            is_cause: false,
            is_node: true,
        }
    }

    /// As node 0, last of all: tells the others, and waits until they have read it.
    pub(super) fn tell(&self, verdict: &Verdict) {
        // Nodes that do not hear of it end by themselves.
        let _ = self.write(VERDICT, verdict);
        let end = Instant::now() + NOTICE;
        for node in 1..self.nodes.len() {
            while self.rendezvous.has(&of_node(node))
                && !self.rendezvous.has(&left(node))
                && Instant::now() < end
            {
                thread::sleep(PAUSE);
            }
        }
    }

    /// As another node: says how its ranks have ended, and hears how the run has.
    pub(super) fn hear(&self, own: Option<RankEnd>) -> Verdict {
        let _ = self.write(&of_node(self.number), &NodeEnd { failure: own.clone() });
        let has_failed = own.is_some();
        let wait = || {
            // Node 0 may wait for its own ranks, and for those of a third node.
            let waits = !has_failed || self.rendezvous.has(&ending(0));
            if waits { 2 * (GRACE + NOTICE) } else { NOTICE }
        };
        let verdict = self.read(VERDICT, Instant::now(), &wait).unwrap_or_else(|| {
            let failure = own.filter(|own| own.is_cause).unwrap_or_else(|| self.gone(0));
            Verdict { code: failure.code, failure: Some(failure) }
        });
        let _ = self.rendezvous.publish(&left(self.number), b"");
        verdict
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(value)
            .map_err(|error| Error::internal(format!("{name}: {error}")))?;
        Ok(self.rendezvous.publish(name, &text)?)
    }

    /// The value in a file that another node writes, for which it has time to `wait` since `begin`.
    fn read<T: DeserializeOwned>(
        &self,
        name: &str,
        begin: Instant,
        wait: &dyn Fn() -> Duration,
    ) -> Option<T> {
        let mut hurry = None;
        while !self.rendezvous.has(name) {
            if self.stop.get().is_some() {
                hurry.get_or_insert(Instant::now() + HURRY);
            }
            let is_late = hurry.is_some_and(|hurry| Instant::now() > hurry);
            // Node 0 removes the folder when it has waited for long enough.
            if is_late || begin.elapsed() > wait() || !self.rendezvous.folder.exists() {
                return None;
            }
            thread::sleep(PAUSE);
        }
        serde_json::from_slice(&fs::read(self.rendezvous.folder.join(name)).ok()?).ok()
    }
}

/// The failure that ended the run: of those that are a cause the one that was seen first, which
/// `reason` names.
fn cause<'a>(failures: &'a [RankEnd], reason: &str) -> Option<&'a RankEnd> {
    let first = |of: &[&'a RankEnd]| {
        let named = of.iter().copied().find(|failure| reason.starts_with(&failure.name));
        named.or_else(|| of.first().copied())
    };
    let causes: Vec<&RankEnd> = failures.iter().filter(|failure| failure.is_cause).collect();
    // A node that is gone without a word explains more than a rank that misses another one.
    let gone: Vec<&RankEnd> = failures.iter().filter(|failure| failure.is_node).collect();
    first(&causes).or_else(|| first(&gone)).or_else(|| first(&Vec::from_iter(failures)))
}

/// The file by which a node says that it ends its ranks.
pub(super) fn ending(node: usize) -> String {
    format!("ending-{node:04}")
}

fn of_node(node: usize) -> String {
    format!("end-{node:04}.json")
}

fn left(node: usize) -> String {
    format!("left-{node:04}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_step(asked: usize, variables: &[(&str, &str)]) -> Result<NodePlace, String> {
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
        let place = NodePlace::of_step(asked, |name| find(name).map(|(_, v)| (*v).to_owned()));
        place.map_err(|error| error.to_string())
    }

    #[test]
    fn a_step_says_which_node_this_is() {
        let job = ("SLURM_JOB_ID", "7");
        let step = [
            job,
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_NODEID", "1"),
        ];
        let place = of_step(2, &step).unwrap();
        assert_eq!(place, NodePlace { number: 1, count: 2, attempt: "7.0.0".into() });
        let again = [&step[..], &[("SLURM_RESTART_COUNT", "3")]].concat();
        assert_eq!(of_step(2, &again).unwrap().attempt, "7.0.3");
        // What a job does with its own steps is its own affair where a run has one node.
        assert_eq!(of_step(1, &step).unwrap().count, 1);
        assert_eq!(of_step(2, &[]).unwrap().count, 1, "no job");
        let error = of_step(2, &[job]).unwrap_err();
        assert!(error.contains("srun --nodes=2 --ntasks-per-node=1"), "{error}");
        let error = of_step(3, &step).unwrap_err();
        assert!(
            error.starts_with("slurm.nodes = 3, but this step has 2 tasks on 2 nodes"),
            "{error}"
        );
    }

    #[test]
    fn attempts_and_nodes_are_checked() {
        let of = |number, count, attempt| NodePlace::named(number, count, attempt);
        assert_eq!(of(1, 2, "monday-3").unwrap().attempt, "monday-3");
        assert!(of(2, 2, "x").unwrap_err().to_string().contains("nodes are numbered from 0 to 1"));
        for name in ["", ".", "../x", "a b", "a/b"] {
            assert!(matches!(of(0, 2, name), Err(RankError::Attempt(_))), "{name}");
        }
    }

    fn end(name: &str, code: u8, is_cause: bool) -> RankEnd {
        RankEnd {
            name: name.into(),
            what: "ended".into(),
            exited: Some(code),
            code,
            is_cause,
            is_node: false,
        }
    }

    #[test]
    fn the_cause_is_the_first_that_failed_by_itself() {
        let misses = end("rank 0 (node a, cpu)", 69, false);
        let memory = end("rank 2 (node b, cuda:0)", 71, true);
        let killed = end("rank 5 (node c, cuda:1)", 69, true);
        let gone = RankEnd { is_node: true, ..end("node 1 (b)", 69, false) };
        let of = |all: &[&RankEnd], reason: &str| {
            let all: Vec<RankEnd> = all.iter().copied().cloned().collect();
            cause(&all, reason).cloned()
        };
        assert_eq!(of(&[], ""), None);
        assert_eq!(of(&[&misses], ""), Some(misses.clone()));
        assert_eq!(of(&[&misses, &memory], "rank 0 (node a, cpu) ended"), Some(memory.clone()));
        assert_eq!(of(&[&memory, &killed], "rank 5 (node c, cuda:1) ended"), Some(killed.clone()));
        assert_eq!(of(&[&memory, &killed], ""), Some(memory));
        assert_eq!(of(&[&misses, &gone], "rank 0 (node a, cpu) ended"), Some(gone));
    }
}
