//! The state in a checkpoint besides model and optimizer.

use serde::{Deserialize, Serialize};

/// The position of training: all that a resumed run needs besides the named files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch of the next step, from 0.
    pub epoch: u64,
    /// Next batch within that epoch, from 0.
    pub batch: u64,
    /// The best evaluation so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Losses since the last record.
    #[serde(default)]
    pub window: Window,
    /// Steps skipped because loss or gradient were not finite.
    #[serde(default)]
    pub skipped: u64,
    /// Skipped steps since the last step that was not skipped.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Whether the evaluation due at this step is still pending.
    #[serde(default)]
    pub eval_pending: bool,
    /// Length of `metrics.jsonl` in bytes.
    pub metrics_len: u64,
    /// Steps of an epoch, from the data's size.
    #[serde(default)]
    pub steps_per_epoch: u64,
    /// The device, such as `cpu`.
    #[serde(default)]
    pub device: String,
}

/// A running mean.
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

    /// The mean of the added numbers, if any.
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The best evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The primary score.
    #[serde(with = "exact")]
    pub metric: f64,
    /// Steps done at the evaluation.
    pub step: u64,
    /// The evaluated weights.
    #[serde(default)]
    pub weights: Weights,
}

/// Weights of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// The trained weights.
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

/// A float as text: the JSON reader may be off by one unit in the last place.
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
