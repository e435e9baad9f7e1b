//! How many shards a run has, and what says so.

use serde::{Deserialize, Serialize};

use super::devices;
use crate::config::Config;
use crate::run_folder::recorded_config;
use crate::train::TrainOptions;

/// What the number of shards comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::train) enum ShardsFrom {
    /// `train.shards`.
    Key,
    /// The record of the run that goes on.
    Record,
    /// The number of ranks that the run starts on.
    Ranks,
}

/// The number of shards of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::train) struct ShardCount {
    pub(in crate::train) count: usize,
    pub(in crate::train) from: ShardsFrom,
}

impl ShardCount {
    /// The number where it does not follow from that of the ranks.
    pub(super) fn asked(options: &TrainOptions, config: &Config) -> Option<Self> {
        if let Some(count) = config.train.shards {
            return Some(Self { count, from: ShardsFrom::Key });
        }
        // A run that goes on has the shards that it began with.
        let count = if options.fresh { None } else { recorded(config) }?;
        Some(Self { count, from: ShardsFrom::Record })
    }

    /// The number that a run of `config` would have, of which nothing starts.
    pub(in crate::train) fn planned(options: &TrainOptions, config: &Config) -> Self {
        Self::asked(options, config).unwrap_or_else(|| {
            // Where the GPUs are missing, as on a login node, a job is to have them.
            let ranks = devices(options, config, false)
                .map_or_else(|_| config.devices.gpus.numbers(0).len(), |devices| devices.len());
            let nodes = options.nodes.map_or(config.slurm.nodes as usize, usize::from);
            Self { count: ranks.max(1) * nodes, from: ShardsFrom::Ranks }
        })
    }

    /// In a line.
    pub(in crate::train) fn describe(self) -> String {
        let count = self.count;
        match self.from {
            ShardsFrom::Key => format!("train.shards {count}"),
            ShardsFrom::Record => format!("train.shards {count}, as recorded when the run began"),
            ShardsFrom::Ranks => format!(
                "train.shards {count}, by default the number of ranks, and recorded; another \
                 number gives other results (docs/distributed.md)"
            ),
        }
    }
}

/// The shards of the run in the folder of `config`, if there is one.
fn recorded(config: &Config) -> Option<usize> {
    // A damaged record is named where the folder is opened.
    let recorded = recorded_config(&config.run_folder().ok()?).ok()?;
    Some(recorded.train.shards())
}
