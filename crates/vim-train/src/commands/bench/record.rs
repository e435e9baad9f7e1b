//! The document that `bench` writes and `bench compare` reads.

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// What a step is.
#[derive(
    Clone,
    Copy,
    Debug,
    Display,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    VariantArray,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// A forward pass in evaluation.
    Infer,
    /// Forward, loss, backward, norm, clipping, update.
    Train,
}

impl Mode {
    /// Forward passes' worth of operations in a step: the backward pass is counted as two, the update as none.
    #[must_use]
    pub fn passes(self) -> u64 {
        match self {
            Self::Infer => 1,
            Self::Train => 3,
        }
    }
}

/// All that one call of `bench` measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// What wrote it: `bench`.
    pub command: String,
    /// The configuration file.
    pub config: String,
    /// The named size it is of, or is based on.
    pub model: String,
    /// Classes of the head.
    pub num_classes: usize,
    /// Steps before the clock starts.
    pub warmup: usize,
    /// Steps timed, unless the budget ended them.
    pub steps: usize,
    /// Seconds for each part of a row.
    pub budget_s: f64,
    /// What the processor or the GPU calls itself.
    pub hardware: Option<String>,
    /// What measured, as in a run's `env.json`.
    pub environment: serde_json::Value,
    /// Keys given by `--set`.
    pub overrides: Vec<String>,
    /// A row for each method, mode and batch size.
    pub results: Vec<Row>,
}

/// One method in one mode at one batch size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The discretization, or that of either way.
    pub method: String,
    /// What a step is.
    pub mode: Mode,
    /// Images a step.
    pub batch: usize,
    /// A square's side, or height and width.
    pub image_size: serde_json::Value,
    /// Tokens of an image.
    pub tokens: usize,
    /// What the model computes in.
    pub dtype: String,
    /// Trainable numbers.
    pub parameters: u64,
    /// Multiply–adds of one image, forward; absent where they are not counted (a full A).
    pub macs_per_image: Option<u64>,
    /// Operations of one image, forward, two for each multiply–add.
    pub flops_per_image: Option<u64>,
    /// Of steps waited for one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Of steps queued one behind the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Operations per second: those of an image times img/s, and in training times three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_s: Option<f64>,
    /// The most memory in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Whose memory: `device`, or `host` where the process's own is the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_of: Option<String>,
    /// Why there are no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Times of a step in milliseconds, the device waited for after each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Steps timed.
    pub steps: usize,
    /// Half of them took longer.
    pub median_ms: f64,
    /// A tenth was faster.
    pub p10_ms: f64,
    /// A tenth was slower.
    pub p90_ms: f64,
    /// Their mean.
    pub mean_ms: f64,
    /// Standard deviation of the sample; 0 for one step.
    pub std_ms: f64,
    /// The fastest.
    pub min_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// Images over time, of steps queued one behind the other with one wait at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Images per second.
    pub img_s: f64,
    /// Images that went through in that time.
    pub images: u64,
    /// The time.
    pub seconds: f64,
}
