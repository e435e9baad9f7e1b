//! What a checkpoint remembers besides the model and the optimizer.

use serde::{Deserialize, Serialize};

/// Where training stands: all that a resumed run needs besides the named files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch that the next step belongs to, from 0.
    pub epoch: u64,
    /// Batch within that epoch that comes next, from 0.
    pub batch: u64,
    /// The best evaluation so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Losses since the last record of them.
    #[serde(default)]
    pub window: Window,
    /// Steps that were skipped because their numbers were not finite.
    #[serde(default)]
    pub skipped: u64,
    /// Those of them since the last that was not.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Whether the evaluation that was due at this step is still to be made.
    #[serde(default)]
    pub eval_pending: bool,
    /// Length of `metrics.jsonl` in bytes.
    pub metrics_len: u64,
    /// Steps of an epoch: what the data's size came to.
    #[serde(default)]
    pub steps_per_epoch: u64,
    /// What computed, such as `cpu`.
    #[serde(default)]
    pub device: String,
}

/// A mean in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    #[serde(with = "exact")]
    sum: f64,
    count: u64,
}

impl Window {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.sum += number;
        self.count += 1;
    }

    /// The mean of what was added, if anything was.
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// An evaluation, and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Its metric; larger is better.
    #[serde(with = "exact")]
    pub metric: f64,
    /// Steps done then.
    pub step: u64,
    /// What was evaluated.
    #[serde(default)]
    pub weights: Weights,
}

/// Weights of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// Those that are trained.
    #[default]
    Model,
    /// Their moving average.
    Ema,
}

impl Weights {
    /// Their name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Ema => "ema",
        }
    }
}

/// A float as text: the JSON reader's own floats may be one unit in the last place off.
mod exact {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
