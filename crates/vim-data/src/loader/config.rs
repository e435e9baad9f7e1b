//! What a loader is told: batches, threads, and what becomes of images that cannot be read.

use std::{borrow::Cow, env, fmt, thread};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use strum::VariantArray;

use super::{OrderKey, OrderKind};
use crate::dense::DenseRecipe;
use crate::objects::ObjectRecipe;
use crate::statistics::Statistics;
use crate::{error::DataError, transforms::recipe::Recipe};

/// How a split is cut into batches.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// Images per batch that the loader yields, in training a shard of a step's batch: ≥ 1.
    pub batch_size: usize,
    /// Height and width of the images that are made, in pixels.
    pub size: [usize; 2],
    /// Threads that decode and augment, ≥ 1. The batches do not depend on it.
    pub workers: usize,
    /// Threads that read files, ≥ 1, so that no worker waits for storage. Images in memory need
    /// none.
    pub readers: usize,
    /// Steps whose batches may wait for the consumer, ≥ 1.
    pub prefetch: usize,
    /// Key of the order and of the augmentation.
    pub seed: u64,
    /// Which shards this loader makes.
    pub shards: Shards,
    /// What the batches are for.
    pub purpose: Purpose,
    /// What becomes of an image that cannot be read.
    pub on_bad: OnBad,
    /// The colour of pixels that RandAugment moves in from outside the image.
    pub fill: [u8; 3],
}

/// The shards that a loader makes: the batch of a training step is cut into `of` shards, which
/// several loaders share; each shard has the same images whichever loader makes it.
///
/// In evaluation a shard is a batch: of each `of` consecutive ones, the loader makes its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The first shard, from 0.
    pub first: usize,
    /// Shards, ≥ 1, that follow each other.
    pub count: usize,
    /// Shards of a whole batch, ≥ 1.
    pub of: usize,
}

impl Shards {
    /// Whole batches.
    pub const WHOLE: Self = Self { first: 0, count: 1, of: 1 };

    /// The shards of process `rank`, where `world` processes share `of` shards evenly.
    pub fn of_rank(rank: usize, world: usize, of: usize) -> Self {
        let count = of / world;
        Self { first: rank * count, count, of }
    }
}

/// What batches are for.
#[derive(Clone, Debug, PartialEq)]
pub enum Purpose {
    /// Shuffled and augmented, whole batches only.
    Training(Recipe),
    /// As [`Self::Training`], of images with label maps.
    Dense(DenseRecipe),
    /// As [`Self::Training`], of images with objects.
    Objects(ObjectRecipe),
    /// In the split's order, by the evaluation transform; the last batch is filled up with images
    /// that do not count.
    Evaluation {
        /// Share of the resized image that is kept, see [`crate::EvalTransform`].
        crop_ratio: f64,
    },
}

impl LoaderConfig {
    /// For training on whole batches, with one reader for each worker and four batches ahead, and
    /// ImageNet's mean from outside the images.
    pub fn training(
        batch_size: usize,
        size: [usize; 2],
        workers: usize,
        seed: u64,
        recipe: Recipe,
    ) -> Self {
        let (purpose, on_bad) = (Purpose::Training(recipe), OnBad::Replace);
        let (readers, shards, fill) = (workers, Shards::WHOLE, Statistics::IMAGENET.fill());
        Self {
            batch_size,
            size,
            workers,
            readers,
            prefetch: 4,
            seed,
            shards,
            purpose,
            on_bad,
            fill,
        }
    }

    /// For evaluation of all images.
    pub fn evaluation(
        batch_size: usize,
        size: [usize; 2],
        workers: usize,
        crop_ratio: f64,
    ) -> Self {
        let (purpose, on_bad) = (Purpose::Evaluation { crop_ratio }, OnBad::Fail);
        let recipe = Recipe::default();
        Self { purpose, on_bad, ..Self::training(batch_size, size, workers, 0, recipe) }
    }

    /// Checks what does not depend on the images.
    ///
    /// # Errors
    /// As for [`crate::Loader::new`], but for the number of batches.
    pub fn check(&self) -> Result<(), DataError> {
        for (key, value) in [
            ("train.batch_size", self.batch_size),
            ("data.workers", self.workers),
            ("data.readers", self.readers),
            ("data.prefetch", self.prefetch),
        ] {
            if value == 0 {
                let (value, expected) = ("0".to_owned(), "1 or more");
                return Err(DataError::InvalidConfig { key, value, expected });
            }
        }
        match &self.purpose {
            Purpose::Training(recipe) => {
                recipe.check_batch(self.batch_size)?;
                recipe.check_size(self.size)
            }
            Purpose::Dense(recipe) => recipe.check(),
            Purpose::Objects(recipe) => recipe.check(),
            Purpose::Evaluation { .. } => Ok(()),
        }
    }

    /// Bytes of an image's label map as it is made; 0 without.
    pub(super) fn label_map_bytes(&self) -> usize {
        match self.purpose {
            Purpose::Dense(_) => self.size[0] * self.size[1],
            Purpose::Training(_) | Purpose::Objects(_) | Purpose::Evaluation { .. } => 0,
        }
    }

    /// The key of an epoch's order; `None` in evaluation, which goes in the split's.
    pub(super) fn order_key(&self, epoch: u64) -> Option<OrderKey> {
        let (seed, world) = (self.seed, self.shards.of);
        match &self.purpose {
            Purpose::Training(recipe) => Some(recipe.order_key(seed, epoch, world)),
            Purpose::Dense(_) | Purpose::Objects(_) => {
                Some(OrderKey { kind: OrderKind::Keyed, repeats: 1, seed, epoch, world })
            }
            Purpose::Evaluation { .. } => None,
        }
    }
}

/// What becomes of an image that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBad {
    /// Another image takes its place, drawn from the same key; too many bad ones are an error.
    Replace,
    /// It is an error.
    Fail,
    /// It is black, and its place is in [`Batch::unread`](crate::Batch::unread).
    CountAsWrong,
}

/// What becomes of a training image that cannot be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum BadTrain {
    /// Another takes its place, and `bad_samples.jsonl` names it; more than 10 such images, and
    /// than one in 10 000 draws, end the run.
    #[default]
    Replace,
    /// The run ends.
    Fail,
}

/// What becomes of a validation or test image that cannot be read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum BadTest {
    /// The evaluation ends with an error.
    #[default]
    Fail,
    /// It counts as classified wrongly.
    Wrong,
}

impl From<BadTrain> for OnBad {
    fn from(bad: BadTrain) -> Self {
        match bad {
            BadTrain::Replace => Self::Replace,
            BadTrain::Fail => Self::Fail,
        }
    }
}

impl From<BadTest> for OnBad {
    fn from(bad: BadTest) -> Self {
        match bad {
            BadTest::Fail => Self::Fail,
            BadTest::Wrong => Self::CountAsWrong,
        }
    }
}

/// Most threads of a kind that a configuration may ask for: more than any machine has cores for.
pub const MOST_THREADS: usize = 1024;

/// Number of loader threads: `"auto"` or an integer, 1 to [`MOST_THREADS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// The cores of the allocation, shared among its GPUs, at most 16: [`CpuAllocation::workers`].
    #[default]
    Auto,
    /// This many.
    Fixed(usize),
}

impl Workers {
    /// The number of threads to start on this machine, ≥ 1.
    ///
    /// `auto` respects CPU affinity, control-group quotas and SLURM's allocation.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => CpuAllocation::of_this_process().workers(),
            Self::Fixed(count) => count.max(1),
        }
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(count) => serializer.serialize_u64(count as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WorkersVisitor)
    }
}

/// A visitor, since the message of `serde(untagged)` would not name both accepted forms.
struct WorkersVisitor;

impl Visitor<'_> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`\"auto\"` or a number of threads, 1 to {MOST_THREADS}")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
        match text {
            "auto" => Ok(Workers::Auto),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Workers, E> {
        match usize::try_from(number) {
            Ok(count @ 1..=MOST_THREADS) => Ok(Workers::Fixed(count)),
            _ => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Workers, E> {
        match u64::try_from(number) {
            Ok(count) => self.visit_u64(count),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

impl JsonSchema for Workers {
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Number of loader threads: \"auto\" (the cores of the allocation, \
                 shared among its GPUs, at most 16) or a number.",
            "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": MOST_THREADS }]
        })
    }
}

/// Cores of this process, and the GPUs that share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuAllocation {
    /// Cores that may be used, ≥ 1: of a run's ranks, the share of one.
    pub cores: usize,
    /// GPUs that share the cores, ≥ 1: a rank uses one, and other runs of the job may use the rest.
    pub gpus: usize,
    /// Whether a scheduler allocated them.
    pub is_job: bool,
}

/// Variable with the number of processes of a run on this machine, which share its cores.
pub const LOCAL_RANKS: &str = "VIM_TRAIN_LOCAL_RANKS";

/// More loader threads do not help: one makes 400 photographs a second with the whole recipe, and
/// the fastest GPU measured trains the smallest model on 4000 (docs/benchmarks.md).
const MOST_WORKERS: usize = 16;

impl CpuAllocation {
    /// The allocation of this process: affinity and control groups, and `SLURM_CPUS_PER_TASK` where
    /// it is less, as under a SLURM that binds no cores.
    pub fn of_this_process() -> Self {
        let system = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with(system, |name| env::var(name).ok())
    }

    /// The allocation on a machine of `system` cores; `variable` looks up environment variables.
    pub fn with(system: usize, variable: impl Fn(&str) -> Option<String>) -> Self {
        let number =
            |name| variable(name)?.trim().parse().ok().filter(|&number: &usize| number > 0);
        let cores = number("SLURM_CPUS_PER_TASK").map_or(system, |given| given.min(system));
        let ranks = number(LOCAL_RANKS).unwrap_or(1);
        let gpus = number("SLURM_GPUS_ON_NODE").map_or(1, |gpus| gpus.div_ceil(ranks));
        let cores = (cores / ranks).max(1);
        Self { cores, gpus, is_job: variable("SLURM_JOB_ID").is_some() }
    }

    /// Loader threads of a run on one GPU: its share of the cores, at most 16.
    pub fn workers(self) -> usize {
        (self.cores / self.gpus).clamp(1, MOST_WORKERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(system: usize, variables: &[(&str, &str)]) -> CpuAllocation {
        let find = |name: &str| variables.iter().find(|(other, _)| *other == name);
        CpuAllocation::with(system, |name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_least_counts() {
        for (system, variables, cores, gpus, workers) in [
            (2, &[][..], 2, 1, 2),
            (64, &[], 64, 1, 16),
            (64, &[("SLURM_CPUS_PER_TASK", "16")], 16, 1, 16),
            (4, &[("SLURM_CPUS_PER_TASK", "16")], 4, 1, 4),
            (64, &[("SLURM_CPUS_PER_TASK", "16"), ("SLURM_GPUS_ON_NODE", "4")], 16, 4, 4),
            (2, &[("SLURM_GPUS_ON_NODE", "4")], 2, 4, 1),
            (16, &[(LOCAL_RANKS, "4"), ("SLURM_GPUS_ON_NODE", "4")], 4, 1, 4),
            (16, &[(LOCAL_RANKS, "2"), ("SLURM_GPUS_ON_NODE", "4")], 8, 2, 4),
            (1, &[(LOCAL_RANKS, "4")], 1, 1, 1),
            (8, &[("SLURM_CPUS_PER_TASK", "0"), ("SLURM_GPUS_ON_NODE", "x")], 8, 1, 8),
        ] {
            let found = with(system, variables);
            assert_eq!((found.cores, found.gpus, found.workers()), (cores, gpus, workers));
            assert!(!found.is_job);
        }
        assert!(with(1, &[("SLURM_JOB_ID", "7")]).is_job);
    }
}
