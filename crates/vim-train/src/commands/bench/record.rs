//! The document that `bench` writes and `bench compare` reads.

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

/// The kind of step.
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
    /// Operations of a step in forward passes: backward counts as two, the update as none.
    pub fn passes(self) -> u64 {
        match self {
            Self::Infer => 1,
            Self::Train => 3,
        }
    }
}

/// The results of one `bench` call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// The command, `bench`.
    pub command: String,
    /// The configuration file.
    pub config: String,
    /// The preset, or the base preset.
    pub model: String,
    /// Classes of the head.
    pub num_classes: usize,
    /// Steps before the clock starts.
    pub warmup: usize,
    /// Steps to time within the budget.
    pub steps: usize,
    /// Seconds for each part of a row.
    pub budget_s: f64,
    /// Name of the processor or the GPU.
    pub hardware: Option<String>,
    /// The program and machine, as in a run's `env.json`.
    pub environment: serde_json::Value,
    /// Keys given by `--set`.
    pub overrides: Vec<String>,
    /// A row for each method, mode and batch size.
    pub results: Vec<Row>,
}

/// One method in one mode at one batch size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The discretization, or one per direction.
    pub method: String,
    /// The kind of step.
    pub mode: Mode,
    /// Images a step.
    pub batch: usize,
    /// A square's side, or height and width.
    pub image_size: serde_json::Value,
    /// Tokens of an image.
    pub tokens: usize,
    /// Compute precision.
    pub dtype: String,
    /// Number of trainable parameters.
    pub parameters: u64,
    /// Multiply–adds of one image, forward; absent where they are not counted (a full A).
    pub macs_per_image: Option<u64>,
    /// Operations of one image, forward, two for each multiply–add.
    pub flops_per_image: Option<u64>,
    /// Latency of synchronised steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Throughput of queued steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Operations per second: per image × img/s, × 3 in training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_s: Option<f64>,
    /// Peak memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// `device`, or `host` where the device uses the process's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_of: Option<String>,
    /// Why there are no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Times of synchronised steps in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Steps timed.
    pub steps: usize,
    /// Median.
    pub median_ms: f64,
    /// 10th percentile.
    pub p10_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation of the sample; 0 for one step.
    pub std_ms: f64,
    /// The fastest.
    pub min_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// Throughput of queued steps with one synchronisation at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Images per second.
    pub img_s: f64,
    /// Number of images.
    pub images: u64,
    /// Duration.
    pub seconds: f64,
}
