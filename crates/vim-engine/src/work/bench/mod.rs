//! How fast whole models are, and in how much memory.
//!
//! `rows.rs` measures: one row for each method, mode and batch size, by the steps of
//! `train/measure.rs`; they go to a table and to a [`Document`] as they come. `compare/` turns
//! documents into tables and plots. `scaling.rs` measures a training step on several numbers of
//! GPUs, `phases.rs` its phases.

pub mod compare;
pub mod phases;
pub mod rows;
pub mod scaling;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

use crate::error::Error;
use crate::train::measure::{Latency, Throughput};
use crate::train::ranks::Team;

/// What is timed on ranks, and how it is shown.
#[derive(Debug)]
pub struct RankStepOptions {
    /// Configuration file that describes the model and its training.
    pub config: PathBuf,
    /// The assignments over it.
    pub sets: Vec<String>,
    /// Classes of the head; `None` leaves them to the task.
    pub classes: Option<usize>,
    /// Steps before the clock starts.
    pub warmup: usize,
    /// What the process that starts ranks tells one of them.
    pub rank: Option<String>,
    /// Write over the file that is there.
    pub force: bool,
    /// Whether one JSON document is printed instead of a table.
    pub json: bool,
}

impl RankStepOptions {
    /// The rank that this process is; `None` where the user started it.
    fn team(&self) -> Result<Option<Team>, Error> {
        self.rank.as_deref().map(Team::of).transpose()
    }
}

/// What a row measures.
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
    /// Windows over larger pictures.
    Slide,
}

impl Mode {
    /// Operations of a step in forward passes: backward counts as two, the update as none.
    ///
    /// `None` of windows, whose number the model's operations do not tell.
    pub(crate) fn passes(self) -> Option<u64> {
        match self {
            Self::Infer => Some(1),
            Self::Train => Some(3),
            Self::Slide => None,
        }
    }
}

/// What `bench` writes and `bench compare` reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    /// `bench`.
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
    /// What is measured.
    pub mode: Mode,
    /// Whether the step replays a graph of recorded launches.
    #[serde(default)]
    pub graph: bool,
    /// Images of a step.
    pub batch: usize,
    /// A square's side, or height and width; of `slide`, the picture's.
    pub image_size: serde_json::Value,
    /// Tokens of an image.
    pub tokens: usize,
    /// Type of the activations.
    pub dtype: String,
    /// Trainable numbers.
    pub parameters: u64,
    /// Multiply–adds of one image, forward; absent where they are not counted (a full A).
    pub macs_per_image: Option<u64>,
    /// Operations of one image, forward, two for each multiply–add.
    pub flops_per_image: Option<u64>,
    /// Steps one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Steps queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<Throughput>,
    /// Operations per second: per image × img/s, × 3 in training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_s: Option<f64>,
    /// The most memory in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// `device`, or `host` where the device uses the process's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_of: Option<String>,
    /// Why there are no times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
