//! The sections that belong to this crate, and their defaults.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use strum::{Display, EnumString, VariantArray};
use vim_kernels::{Precision, Recompute};
use vim_model::{DecayGroups, Resize};

use super::compared::Part;
use super::error::{ConfigError, Problem};
use super::values::{BatchSize, Gpus, Interval, ResultsPage, WordOrBool};

/// The `[run]` section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Name of the run's folder in `run.root`. `{key}` stands for the value of any key, as in
    /// `{optim.lr}`.
    pub name: String,
    /// Folder that holds the runs' folders.
    #[schemars(extend("format" = "path"))]
    pub root: PathBuf,
    /// Seed of everything random: initial values, order of the images, augmentation, drop path.
    pub seed: u64,
    /// Whether the run ends with `results.html` in its folder, a page of its curves, classes and
    /// worst mistakes: `"auto"`, as where it is left out, when it is finished, unless it is of a
    /// sweep or `--steps` limits it; `true` when it has done what it was asked; `false` never.
    #[serde(skip_serializing_if = "ResultsPage::is_default")]
    pub page: ResultsPage,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            name: "{model.discretization}-s{run.seed}".into(),
            root: "data/runs".into(),
            seed: 0,
            page: ResultsPage::default(),
        }
    }
}

/// What training minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Cross-entropy of the softmax over the classes with the smoothed, mixed targets.
    #[default]
    CrossEntropy,
    /// Binary cross-entropy of every class's own logit with the same targets, the mean over classes
    /// and images.
    Bce,
}

/// What to do at a step whose loss or gradient is not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NonFinite {
    /// Stop the run, exit code 76.
    #[default]
    Stop,
    /// Leave weights, moments and moving average as they are and go on with the next batch.
    Skip,
}

/// The running statistics that a moving average of weights has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmaStatistics {
    /// Averaged as the weights are.
    #[default]
    Averaged,
    /// The model's own.
    Model,
}

/// What the backward pass computes again; see [`Recompute`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "named as those of `Recompute`")]
pub enum RecomputeChoice {
    /// As little as the device's memory allows, from the second step on.
    #[default]
    Auto,
    Nothing,
    Inputs,
    States,
}

impl RecomputeChoice {
    pub(super) const WORDS: [(&str, Self); 4] = [
        ("auto", Self::Auto),
        ("nothing", Self::Nothing),
        ("inputs", Self::Inputs),
        ("states", Self::States),
    ];
}

/// What the first step computes again: where it kept all, the recording of the third step found too
/// little memory free.
impl From<RecomputeChoice> for Recompute {
    fn from(choice: RecomputeChoice) -> Self {
        match choice {
            RecomputeChoice::Auto | RecomputeChoice::Nothing | RecomputeChoice::Inputs => {
                Self::Inputs
            }
            RecomputeChoice::States => Self::States,
        }
    }
}

impl<'de> Deserialize<'de> for RecomputeChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrBool {
            expected: "`\"auto\"`, `\"nothing\"`, `\"inputs\"` or `\"states\"`",
            words: &Self::WORDS,
            // As files of before the words have them.
            of_bool: |states| if states { Self::States } else { Self::Inputs },
        })
    }
}

impl JsonSchema for RecomputeChoice {
    fn schema_name() -> Cow<'static, str> {
        "RecomputeChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let [auto, nothing, inputs, states] = Self::WORDS.map(|(word, _)| word);
        json_schema!({
            "description": "What is computed again.",
            "oneOf": [
                { "const": auto },
                { "const": nothing },
                { "const": inputs },
                { "const": states },
                { "type": "boolean" }
            ]
        })
    }
}

/// The `[train]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Passes over the training images.
    pub epochs: u64,
    /// Optimizer steps of the whole run, in place of `train.epochs` passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Images per optimizer step, on all devices together; `"auto"` on a GPU: the largest multiple
    /// of 8 images a shard that its memory holds, sought and recorded when the run first starts.
    /// No learning rate is scaled by it.
    pub batch_size: BatchSize,
    /// In what numbers the model computes, in training and evaluation: `f32`; `tf32`, in which
    /// NVIDIA's tensor cores round what they multiply to 11 bits; `bf16`, activations and products
    /// in bf16. Weights, gradients of weights, the residual stream, norms and every sum are f32 in
    /// each. `bf16` needs an NVIDIA GPU.
    pub precision: Precision,
    /// What the backward pass computes again instead of keeping it, on a CPU or with CUDA, with the
    /// same numbers: `"nothing"`; `"inputs"`, what the scans read; `"states"`, the scans' states as
    /// well, on a GPU two fifths of the memory less for a seventh of the time more; `"auto"`,
    /// nothing on a GPU that no other process uses and of which the first step took a third or
    /// less, else the inputs. `true` is `"states"`, `false` `"inputs"`.
    pub recompute: RecomputeChoice,
    /// Parts that a shard of a batch is computed in, one after the other, for memory; it divides
    /// the shard's images.
    /// The gradient is that of the whole batch up to rounding, and what is drawn is the same.
    pub accumulate: usize,
    /// Parts of a batch, shared out among the devices, each mixed within itself; a divisor of
    /// `batch_size`, and part of what the run is. Left out: as many as the devices that the run
    /// starts on, so that another number of them gives other results. The same bytes come out on
    /// every number of devices that divides it by a power of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<usize>,
    /// What is minimised: `cross_entropy` of the softmax, or `bce`, binary cross-entropy of every
    /// class, with the same smoothed, mixed targets.
    pub loss: LossKind,
    /// With `train.loss = "bce"`: classes whose target is above this are targets of 1, all others
    /// of 0. The original's is 0, which asks for `label_smoothing = 0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bce_threshold: Option<f64>,
    /// Share of the target that is spread evenly over all classes, 0 ≤ share < 1.
    pub label_smoothing: f64,
    /// Largest norm of the gradient of all parameters together; a longer one is scaled down to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_grad: Option<f64>,
    /// Decay of a moving average of the weights, 0 ≤ decay < 1: after every optimizer step `average
    /// ← decay · average + (1 − decay) · weights`. It is evaluated beside the model, and may be the
    /// best. Not set: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema: Option<f64>,
    /// Whether the decay grows into `train.ema`: it is at most (1 + t) / (10 + t) at the t-th
    /// update.
    pub ema_warmup: bool,
    /// With `train.ema` in segmentation: which running statistics of batch normalization the
    /// average has: their average, as in timm (`"averaged"`), or the model's own (`"model"`), as in
    /// configurations of version 1. Left out: `"averaged"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ema_statistics: Option<EmaStatistics>,
    /// What a step does whose loss or gradient norm is not finite: `stop` the run (exit code 76),
    /// or `skip`, which changes nothing, records it and goes on with the next batch.
    pub non_finite: NonFinite,
    /// With `train.non_finite = "skip"`: the most such steps in a row; one more stops
    /// the run.
    pub max_non_finite: u64,
    /// How often to evaluate on the validation images, in steps or epochs; without any, on the test
    /// images (`data.watch_test`).
    pub eval_every: Interval,
    /// Weights to start from: a file (.pth, .pt, .safetensors), the folder of a checkpoint or run,
    /// or a run's name in `run.root`. A head of other classes is replaced, positions of another
    /// grid are resized. Read at the start of a fresh run only. In a sweep `{key}` stands for that
    /// key's value, as in `run.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "path"))]
    pub init: Option<PathBuf>,
    /// How `train.init`'s positions are taken to another grid.
    pub init_pos_embed: Resize,
    /// Parts in which the weights of `train.init` may have been trained otherwise: `"method"`,
    /// `"model"`, `"normalization"`, `"split"`. Left out: none, and a difference is an error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub init_allow: Vec<Part>,
    /// Which of the head's numbers `train.init` gives where its classes are not those of the data:
    /// none (`"same_classes"`), or those of classes of the same name (`"common"`).
    #[serde(skip_serializing_if = "InitHead::is_default")]
    pub init_head: InitHead,
    /// Whether a run may go on although its training or test images are not those that it began
    /// with.
    #[serde(skip_serializing_if = "is_false")]
    pub allow_changed_data: bool,
    /// Learning rate of a layer over that of the layer after it, 0 < factor ≤ 1: block i of n
    /// learns at `lr · factor^(n − i)`, what makes the tokens at `lr · factor^(n + 1)`, the last
    /// norm and the head at `lr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_decay: Option<f64>,
}

impl TrainConfig {
    /// Optimizer steps of the whole run, where an epoch has `steps_per_epoch`.
    pub fn total_steps(&self, steps_per_epoch: u64) -> u64 {
        self.steps.unwrap_or(steps_per_epoch * self.epochs)
    }

    /// Passes over the training images, a begun one included, where one has `steps_per_epoch`.
    pub fn passes(&self, steps_per_epoch: u64) -> u64 {
        self.steps.map_or(self.epochs, |steps| steps.div_ceil(steps_per_epoch.max(1)))
    }

    /// Images per optimizer step; before they are sought about
    /// [as many as usual](BatchSize::USUAL).
    pub fn images(&self) -> usize {
        match self.batch_size {
            BatchSize::Auto => BatchSize::USUAL.next_multiple_of(self.step()),
            BatchSize::Images(count) => count,
        }
    }

    /// Images per optimizer step, for what depends on their number.
    pub(crate) fn known_images(&self) -> Result<usize, ConfigError> {
        match self.batch_size {
            BatchSize::Images(count) => Ok(count),
            BatchSize::Auto => {
                let why = "\"auto\" is sought when a run first starts, and recorded: write a \
                           number, such as that of the run's config.toml";
                Err(ConfigError::new("train.batch_size", Problem::Type(why.to_owned())))
            }
        }
    }

    /// What a sought batch size is a multiple of: of each shard 8 images, in equal parts.
    pub(crate) fn step(&self) -> usize {
        let parts = self.accumulate.max(1);
        let least = (1..=8).map(|times| times * parts).find(|images| images.is_multiple_of(8));
        least.unwrap_or(8 * parts) * self.shards().max(1)
    }

    /// Shards of a batch, where the number of devices has been put in: ≥ 1.
    pub fn shards(&self) -> usize {
        self.shards.unwrap_or(1)
    }
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            epochs: 300,
            steps: None,
            batch_size: BatchSize::default(),
            precision: Precision::default(),
            recompute: RecomputeChoice::default(),
            accumulate: 1,
            shards: None,
            loss: LossKind::default(),
            bce_threshold: None,
            label_smoothing: 0.1,
            clip_grad: None,
            ema: None,
            ema_warmup: false,
            ema_statistics: None,
            non_finite: NonFinite::default(),
            max_non_finite: 10,
            eval_every: Interval::Epochs(1.0),
            init: None,
            init_pos_embed: Resize::default(),
            init_allow: Vec::new(),
            init_head: InitHead::default(),
            allow_changed_data: false,
            layer_decay: None,
        }
    }
}

/// What becomes of the head of `train.init` where its classes are not those of the data.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "snake_case")]
pub enum InitHead {
    /// It is new.
    #[default]
    SameClasses,
    /// Classes of the same name keep their numbers, others are new.
    Common,
}

impl InitHead {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether a key has its default.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// An optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// AdamW (Loshchilov and Hutter 2019): Adam with decoupled weight decay.
    #[default]
    AdamW,
}

/// How the learning rate goes from its warm-up to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// A new rate at every step; the cosine begins at `lr` where the warm-up ends.
    #[default]
    Cosine,
    /// The original's: a rate an epoch, one epoch late; the cosine begins at step 0, under the
    /// warm-up.
    Reference,
    /// From `lr` at step 0 to `min_lr` at the end, new at every step, by the `power` of the share
    /// of steps that are left: a straight line by 1, which the original's segmentation runs have.
    /// The warm-up multiplies it by a factor that grows from `warmup_lr / lr` to 1.
    Poly,
    /// `lr`, times `gamma` from each of `milestones` on, new at every step; the warm-up multiplies
    /// it by a factor that grows from `warmup_lr / lr` to 1. The original's detection runs have it.
    Step,
}

/// The `[optim]` section: the optimizer, and its learning rate's linear warm-up and cosine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OptimConfig {
    /// Which optimizer.
    pub name: Optimizer,
    /// Learning rate at the end of the warm-up, its largest. It is not scaled by the batch size.
    pub lr: f64,
    /// Decoupled weight decay of the parameters that decay.
    pub weight_decay: f64,
    /// Which parameters decay: those with more than one dimension but for positions and class
    /// tokens (`reference`, what the original does), and of these not `a_log` either (`intended`,
    /// what it means to do). In segmentation positions decay too under `reference`, and
    /// `train.layer_decay` scales patches and positions alone; in detection all but positions decay
    /// under `reference`, biases and norms too.
    pub decay_groups: DecayGroups,
    /// Decay rates of the two moving averages, each 0 ≤ rate < 1.
    pub betas: [f64; 2],
    /// Added to the denominator of the update.
    pub eps: f64,
    /// How the rate goes: `cosine`, at every step and joined to the warm-up; `reference`, as the
    /// original's runs, an epoch at a time and one epoch late; `poly`, down a power of what is
    /// left, as the original's segmentation runs; or `step`, down stairs, as its detection runs.
    pub schedule: ScheduleKind,
    /// With `schedule = "step"`: when the rate falls, in steps or epochs, the first first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub milestones: Vec<Interval>,
    /// With `schedule = "step"`: what the rate is multiplied by at each of them; left out: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gamma: Option<f64>,
    /// With `schedule = "poly"`: the power of the share of steps that are left; left out: 1, a
    /// straight line. mmsegmentation's own recipes have 0.9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<f64>,
    /// Length of the linear warm-up, in steps or epochs; `"0ep"` for none. With `schedule =
    /// "reference"`, whole epochs.
    pub warmup: Interval,
    /// Learning rate that the cosine or the power ends at.
    pub min_lr: f64,
    /// Learning rate that the warm-up starts from.
    pub warmup_lr: f64,
}

impl Default for OptimConfig {
    fn default() -> Self {
        Self {
            name: Optimizer::AdamW,
            lr: 1e-3,
            weight_decay: 0.05,
            decay_groups: DecayGroups::default(),
            betas: [0.9, 0.999],
            eps: 1e-8,
            schedule: ScheduleKind::default(),
            milestones: Vec::new(),
            gamma: None,
            power: None,
            warmup: Interval::Epochs(5.0),
            min_lr: 1e-5,
            warmup_lr: 1e-6,
        }
    }
}

/// The `[checkpoint]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// How often to save, in steps, epochs or minutes. A crash loses no more, or twice that if it
    /// comes while one is being written.
    pub every: Interval,
    /// Newest checkpoints to keep, 2 or more; the best one and the archived are kept besides.
    pub keep_last: usize,
    /// How often to save a checkpoint that is never removed, in steps, epochs or minutes, as
    /// `"10ep"`; listed in `checkpoints/archive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<Interval>,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self { every: Interval::Epochs(1.0), keep_last: 2, archive: None }
    }
}

/// What computes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Display,
    EnumString,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Backend {
    /// The first that is there: cuda, wgpu on a real GPU, cpu. The log says which. Where a process
    /// was given a GPU, or a driver does not start that has one, cpu is an error.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// Any GPU, through Vulkan, Metal or Direct3D.
    Wgpu,
    /// LibTorch, on the processor, or on the NVIDIA GPU that a list in `gpus` names. It has no
    /// kernels of ours and is slow: for comparison.
    Tch,
}

/// Whether the kernels of a training step are launched as one.
#[derive(
    Clone, Copy, Debug, Default, Display, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum GraphChoice {
    /// On one CUDA device, where every step launches the same; the log says whether and why.
    #[default]
    Auto,
    /// Yes; an error where that cannot be.
    On,
    /// No.
    Off,
}

/// The `[devices]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DevicesConfig {
    /// What computes.
    pub backend: Backend,
    /// Which GPUs of a machine: how many, a list of their numbers, or `"all"`. A process runs on
    /// each of several, which NCCL connects (docs/distributed.md).
    pub gpus: Gpus,
    /// With several devices: how long one may make no progress before the run ends, in minutes.
    pub timeout: Interval,
    /// With several devices: how long they wait for each other at the start, in minutes.
    pub rendezvous: Interval,
    /// Threads that compute on the CPU; left out: one per core that this process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Whether a training step is recorded once and launched as a whole, a CUDA graph: where the
    /// host needs longer to launch kernels than the GPU to run them, steps become shorter. The
    /// numbers are the same to the bit.
    pub graph: GraphChoice,
}

impl Default for DevicesConfig {
    fn default() -> Self {
        Self {
            backend: Backend::default(),
            gpus: Gpus::default(),
            timeout: Interval::Minutes(30.0),
            rendezvous: Interval::Minutes(10.0),
            threads: None,
            graph: GraphChoice::default(),
        }
    }
}

/// The `[log]` section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// How often to write a record of training to `metrics.jsonl` and a line to the log, in steps
    /// or epochs. Left out: every 50 steps, every epoch or every twentieth of training, whichever
    /// is shortest; in configurations of version 1 every 50 steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<Interval>,
}

impl LogConfig {
    /// How often to record a training of `total_steps`, of which an epoch has `steps_per_epoch`.
    pub fn every(&self, steps_per_epoch: u64, total_steps: u64) -> Interval {
        let shortest = 50.min(steps_per_epoch).min(total_steps / 20).max(1);
        self.every.unwrap_or(Interval::Steps(shortest))
    }
}
