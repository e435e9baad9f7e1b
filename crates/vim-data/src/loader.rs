//! Batches of a split, assembled by threads.

use std::sync::Arc;

use crate::{
    augment::AugmentPlan, batch::Batch, config::Augment, dataset::Stored, error::DataError,
    pool::OrderedPool, sampler, split::Split,
};

/// How a split is cut into batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderConfig {
    /// Images per batch, ≥ 1.
    pub batch_size: usize,
    /// Threads, ≥ 1. The batches do not depend on it.
    pub workers: usize,
    /// Key of the order and of the augmentation.
    pub seed: u64,
    /// What is done to each image.
    pub augment: Augment,
    /// Whether each epoch has an order of its own; otherwise the split's.
    pub shuffle: bool,
    /// Whether a last, partial batch is left out.
    pub drop_last: bool,
}

impl LoaderConfig {
    /// Shuffled and augmented, whole batches only.
    #[must_use]
    pub fn training(batch_size: usize, workers: usize, seed: u64, augment: Augment) -> Self {
        Self { batch_size, workers, seed, augment, shuffle: true, drop_last: true }
    }

    /// In the split's order, as it is, with the last partial batch.
    #[must_use]
    pub fn evaluation(batch_size: usize, workers: usize) -> Self {
        let augment = Augment::None;
        Self { batch_size, workers, seed: 0, augment, shuffle: false, drop_last: false }
    }
}

/// Turns a split into batches, epoch by epoch.
#[derive(Clone, Debug)]
pub struct Loader {
    split: Split,
    config: LoaderConfig,
}

impl Loader {
    /// Checks the configuration; starts nothing.
    ///
    /// # Errors
    /// If `batch_size` or `workers` is 0, or an epoch would hold no batch.
    pub fn new(split: Split, config: LoaderConfig) -> Result<Self, DataError> {
        let positive = |key, value: usize| match value {
            0 => Err(DataError::InvalidConfig { key, value: "0".into(), expected: "1 or more" }),
            _ => Ok(()),
        };
        positive("batch_size", config.batch_size)?;
        positive("data.workers", config.workers)?;
        let loader = Self { split, config };
        if loader.batches_per_epoch() == 0 {
            let (images, batch_size) = (loader.split.len(), config.batch_size);
            return Err(DataError::NoBatches { images, batch_size });
        }
        loader.image_size()?;
        Ok(loader)
    }

    /// The side of every image, in pixels.
    fn image_size(&self) -> Result<usize, DataError> {
        match self.split.stored() {
            Stored::Pixels { size: [height, width] } if height == width => Ok(height),
            Stored::Pixels { .. } | Stored::Files => Err(DataError::InvalidConfig {
                key: "data.dataset",
                value: "images of many sizes".into(),
                expected: "square images of one size: files are not loaded yet",
            }),
        }
    }

    /// The split that is loaded.
    #[must_use]
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Batches in an epoch, ≥ 1.
    #[must_use]
    pub fn batches_per_epoch(&self) -> usize {
        match self.config.drop_last {
            true => self.split.len() / self.config.batch_size,
            false => self.split.len().div_ceil(self.config.batch_size),
        }
    }

    /// The most batches that exist at a time, besides those the consumer holds.
    #[must_use]
    pub fn max_in_flight(&self) -> usize {
        self.config.workers + 2
    }

    /// Starts the threads and yields the batches of `epoch` in order, from `first_batch` on.
    ///
    /// No image before `first_batch` is read. At or past the end, the iterator is empty.
    #[must_use]
    pub fn epoch(&self, epoch: u64, first_batch: usize) -> EpochIter {
        let order = self
            .config
            .shuffle
            .then(|| sampler::shuffled(self.split.len(), self.config.seed, epoch));
        let job = EpochJob { loader: self.clone(), epoch, order };
        let job = Arc::new(move |batch| job.assemble(batch));
        let batches = first_batch..self.batches_per_epoch();
        EpochIter {
            pool: OrderedPool::start(batches, self.config.workers, self.max_in_flight(), job),
        }
    }
}

/// The batches of one epoch, in order. Dropping it stops the threads.
///
/// After an error it yields nothing more: a failed epoch never looks like a short one, since the error
/// comes first.
#[derive(Debug)]
pub struct EpochIter {
    pool: OrderedPool<Batch>,
}

impl Iterator for EpochIter {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pool.next()
    }
}

/// What every thread of an epoch shares.
struct EpochJob {
    loader: Loader,
    epoch: u64,
    /// `None`: the split's own order.
    order: Option<Vec<usize>>,
}

impl EpochJob {
    fn assemble(&self, batch: usize) -> Result<Batch, DataError> {
        let Loader { split, config } = &self.loader;
        let size = self.loader.image_size()?;
        let start = batch * config.batch_size;
        let end = split.len().min(start + config.batch_size);
        let indices: Vec<usize> = (start..end)
            .map(|place| split.index(self.order.as_ref().map_or(place, |order| order[place])))
            .collect();

        let mut images = vec![0; indices.len() * 3 * size * size]; // [B, H, W, 3]
        let mut original = Vec::new();
        for (target, &index) in images.chunks_exact_mut(3 * size * size).zip(&indices) {
            split.dataset().read(index, &mut original)?;
            AugmentPlan::draw(config.augment, config.seed, self.epoch, index)
                .apply(&original, size, target);
        }
        let labels = indices.iter().map(|&index| split.dataset().label(index)).collect();
        Ok(Batch { images, labels, indices, height: size, width: size })
    }
}
