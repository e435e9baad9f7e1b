//! Batches of a split, assembled by threads.

pub(crate) mod allocation;
mod assembly;
pub(crate) mod bad;
pub(crate) mod batch;
mod describe;
pub(crate) mod order;
mod pipeline;
mod stats;
mod worker;
pub(crate) mod workers;

use std::{fmt, ops::Range, sync::Arc, time::Instant};

use assembly::EpochPlans;
use bad::{BadSample, OnBad};
use batch::Batch;
use pipeline::Pipeline;

use crate::{error::DataError, split::Split, transforms::recipe::Recipe};

pub use describe::Described;
pub use pipeline::THREAD_PREFIX;
pub use stats::{LoaderStage, LoaderStats};

/// How a split is cut into batches.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// Images per batch, on this device: ≥ 1.
    pub batch_size: usize,
    /// Height and width of the images that are made, in pixels.
    pub size: [usize; 2],
    /// Threads that decode and augment, ≥ 1. The batches do not depend on it.
    pub workers: usize,
    /// Threads that read files, ≥ 1, so that no worker waits for storage. Images in memory need
    /// none.
    pub readers: usize,
    /// Whole batches that may wait for the consumer, ≥ 1.
    pub prefetch: usize,
    /// Key of the order and of the augmentation.
    pub seed: u64,
    /// Which of the devices this loader serves.
    pub replica: Replica,
    /// What the batches are for.
    pub purpose: Purpose,
    /// What becomes of an image that cannot be read.
    pub on_bad: OnBad,
}

/// One device of several, each of which takes its share of every batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Number of this device, from 0.
    pub rank: usize,
    /// Devices, ≥ 1.
    pub world: usize,
}

impl Replica {
    /// The only device.
    pub const SINGLE: Self = Self { rank: 0, world: 1 };
}

/// What batches are for.
#[derive(Clone, Debug, PartialEq)]
pub enum Purpose {
    /// Shuffled and augmented, whole batches only.
    Training(Recipe),
    /// In the split's order, by the evaluation transform; the last batch is filled up with images
    /// that do not count.
    Evaluation {
        /// Share of the resized image that is kept, see [`crate::EvalTransform`].
        crop_ratio: f64,
    },
}

impl LoaderConfig {
    /// For training on one device, with one reader for each worker and four batches ahead.
    pub fn training(
        batch_size: usize,
        size: [usize; 2],
        workers: usize,
        seed: u64,
        recipe: Recipe,
    ) -> Self {
        let (purpose, on_bad) = (Purpose::Training(recipe), OnBad::Replace);
        let (readers, replica) = (workers, Replica::SINGLE);
        Self { batch_size, size, workers, readers, prefetch: 4, seed, replica, purpose, on_bad }
    }

    /// For evaluation on one device.
    pub fn evaluation(
        batch_size: usize,
        size: [usize; 2],
        workers: usize,
        crop_ratio: f64,
    ) -> Self {
        let (purpose, on_bad) = (Purpose::Evaluation { crop_ratio }, OnBad::Fail);
        let (readers, replica) = (workers, Replica::SINGLE);
        Self { batch_size, size, workers, readers, prefetch: 4, seed: 0, replica, purpose, on_bad }
    }

    /// Checks what does not depend on the images.
    ///
    /// # Errors
    /// As for [`Loader::new`], but for the number of batches.
    pub fn check(&self) -> Result<(), DataError> {
        let positive = |key, value: usize| match value {
            0 => Err(DataError::InvalidConfig { key, value: "0".into(), expected: "1 or more" }),
            _ => Ok(()),
        };
        positive("train.batch_size", self.batch_size)?;
        positive("data.workers", self.workers)?;
        positive("data.readers", self.readers)?;
        positive("data.prefetch", self.prefetch)?;
        if let Purpose::Training(recipe) = &self.purpose {
            recipe.check_batch(self.batch_size)?;
            recipe.check_size(self.size)?;
        }
        Ok(())
    }
}

/// Turns a split into batches.
#[derive(Clone, Debug)]
pub struct Loader {
    split: Split,
    config: Arc<LoaderConfig>,
    per_epoch: usize,
}

impl Loader {
    /// Checks the configuration; starts nothing.
    ///
    /// # Errors
    /// If a number is 0, an epoch would hold no batch, images are mixed in batches of an odd size,
    /// or are smaller than the padding at their edges.
    pub fn new(split: Split, config: LoaderConfig) -> Result<Self, DataError> {
        config.check()?;
        let per_epoch = assembly::batches_per_epoch(&split, &config)?;
        if per_epoch == 0 {
            let (images, batch_size) = (split.len(), config.batch_size * config.replica.world);
            return Err(DataError::NoBatches { images, batch_size });
        }
        Ok(Self { split, config: Arc::new(config), per_epoch })
    }

    /// The split that is loaded.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Batches in an epoch, ≥ 1.
    pub fn batches_per_epoch(&self) -> usize {
        self.per_epoch
    }

    /// Bytes of all batches in the loader: those that wait, one in the making and one being handed
    /// over.
    pub fn memory(&self) -> usize {
        let [height, width] = self.config.size;
        self.max_in_flight() * self.config.batch_size * 3 * height * width
    }

    /// The most batches that are in the making or waiting at a time.
    pub fn max_in_flight(&self) -> usize {
        self.config.prefetch + 1
    }

    /// Starts the threads and yields the batches with numbers in `batches`, in order, through as
    /// many epochs as these are: batch `b` is batch `b mod batches_per_epoch` of epoch `b /
    /// batches_per_epoch`.
    ///
    /// Images of earlier batches are not read.
    pub fn batches(&self, batches: Range<u64>) -> Batches {
        let plans = EpochPlans::new(self.split.clone(), Arc::clone(&self.config), self.per_epoch);
        let pipeline = Pipeline::start(batches, plans, self.max_in_flight());
        Batches { pipeline, tally: bad::Tally::default() }
    }

    /// The batches of `epoch`, from `first_batch` on.
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> Batches {
        let per_epoch = self.per_epoch as u64;
        let start = epoch * per_epoch;
        self.batches(start + (first_batch as u64).min(per_epoch)..start + per_epoch)
    }
}

/// Batches, in order. Dropping it stops the threads.
///
/// After an error it yields nothing more. A failed epoch never looks like a short one, since the
/// error comes first.
pub struct Batches {
    pipeline: Pipeline,
    tally: bad::Tally,
}

impl Batches {
    /// What was done and how long it took, so far.
    pub fn stats(&self) -> LoaderStats {
        self.pipeline.stats()
    }

    /// Whether the next batch is ready, or there is none: `next` does not wait.
    pub fn is_ready(&self) -> bool {
        self.pipeline.is_ready()
    }

    /// The images that could not be read since the last call, in the order of the batches.
    pub fn take_bad(&mut self) -> Vec<BadSample> {
        self.tally.take()
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = Instant::now();
        let next = self.pipeline.next();
        self.pipeline.waited(start.elapsed());
        let made = match next? {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        // Counted in the order of batches: the number of threads does not decide where a run gives
        // up.
        match self.tally.add(made.bad, made.batch.len()) {
            Ok(()) => Some(Ok(made.batch)),
            Err(error) => {
                self.pipeline.stop();
                Some(Err(error))
            }
        }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Batches").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
