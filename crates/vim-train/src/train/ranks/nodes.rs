//! The nodes of a run: which of them this process is to start the ranks of, and how they meet.

use std::env;
use std::path::PathBuf;
use std::process;
use std::time::SystemTime;

use vim_comm::{CommError, Node, meet_nodes};
use vim_run::host_name;
use vim_run::signals::{Interrupted, StopRequest};

use super::{RankError, build, minutes};
use crate::config::{Config, dotted_values};
use crate::error::Error;
use crate::train::TrainArgs;

/// The folder in `run.root` where ranks meet, one folder for each attempt.
const MEETINGS: &str = ".ranks";

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
    pub(super) fn of(args: &TrainArgs, config: &Config) -> Result<Self, RankError> {
        match (args.nodes, args.node, &args.attempt) {
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

    /// Removes what earlier attempts of this job have left, whose first node was killed.
    pub(super) fn clean_before(&self, config: &Config) {
        let parts = |name: &str| -> Option<(String, u32)> {
            let (step, restarts) = name.rsplit_once('.')?;
            let (job, _) = step.split_once('.')?;
            Some((job.to_owned(), restarts.parse().ok()?))
        };
        let Some((job, restarts)) = parts(&self.attempt) else { return };
        let entries = std::fs::read_dir(config.run.root.join(MEETINGS)).into_iter().flatten();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if parts(&name).is_some_and(|(of, earlier)| of == job && earlier < restarts) {
                // What stays is of no use to anybody, and small.
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
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

    #[test]
    fn earlier_attempts_of_the_job_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.run.root = root.path().to_owned();
        for name in ["7.0.0", "7.0.1", "7.1.0", "7.0.2", "70.0.0", "vm-12-99", "named"] {
            std::fs::create_dir_all(root.path().join(MEETINGS).join(name)).unwrap();
        }
        NodePlace { number: 0, count: 2, attempt: "7.0.2".into() }.clean_before(&config);
        let left = std::fs::read_dir(root.path().join(MEETINGS)).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["7.0.2", "70.0.0", "named", "vm-12-99"]);
    }
}
