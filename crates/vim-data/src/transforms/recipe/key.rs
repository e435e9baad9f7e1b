//! The keys that plans are drawn from.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use crate::rng;

/// One draw of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct SampleKey {
    /// The run's.
    pub seed: u64,
    /// Pass over the training images.
    pub epoch: u64,
    /// The image's index in the dataset.
    pub index: u64,
    /// Which of its draws in the epoch, `0..repeats`.
    pub repeat: u32,
    /// 0 for the image itself, then the number of the replacement for an image that cannot be read.
    pub attempt: u32,
}

impl SampleKey {
    /// A generator for one purpose, so that the draws of one part of a recipe do not affect
    /// another.
    pub(super) fn rng(&self, purpose: &str) -> ChaCha8Rng {
        let Self { seed, epoch, index, repeat, attempt } = *self;
        rng::keyed(purpose, &[seed, epoch, index, u64::from(repeat), u64::from(attempt)])
    }
}

/// One batch on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct MixKey {
    /// The run's.
    pub seed: u64,
    /// Pass over the training images.
    pub epoch: u64,
    /// Batch within the epoch.
    pub step: u64,
    /// The device: each mixes its own images.
    pub rank: u64,
}

impl MixKey {
    pub(super) fn rng(&self) -> ChaCha8Rng {
        rng::keyed("vim-data mix v1", &[self.seed, self.epoch, self.step, self.rank])
    }
}
