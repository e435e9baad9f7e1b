//! What a loader counts: images, time per stage, and images that could not be read.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::error::DataError;

/// A part of the work on an image.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, VariantArray, IntoStaticStr, strum::Display,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LoaderStage {
    /// Reading bytes from storage.
    Read,
    /// From a file to pixels.
    Decode,
    /// To the model's size.
    Resize,
    /// The flip and the operations.
    Augment,
}

/// What a loader did, and how long each part of it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoaderStats {
    /// Images made.
    pub images: u64,
    /// Images decoded: fewer where an image is drawn several times in a row.
    pub decoded: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Files with damage that does not matter.
    pub warned: u64,
    /// Time of all threads together, by stage in the order of [`LoaderStage`].
    pub busy: [Duration; 4],
    /// Time that the consumer waited.
    pub waited: Duration,
    /// Batches that wait for the consumer.
    pub ready: usize,
    /// Since the start.
    pub elapsed: Duration,
}

impl LoaderStats {
    /// Time of all threads together in a stage.
    pub fn busy(&self, stage: LoaderStage) -> Duration {
        self.busy[stage as usize]
    }

    /// Share of the time that the consumer waited, 0 to 1.
    pub fn waited_share(&self) -> f64 {
        self.waited.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Runs `work` and counts its time.
    pub(super) fn timed<T>(&mut self, stage: LoaderStage, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let made = work();
        self.busy[stage as usize] += start.elapsed();
        made
    }

    /// Adds what one thread did.
    pub(super) fn add(&mut self, part: &Self) {
        self.images += part.images;
        self.decoded += part.decoded;
        self.bytes += part.bytes;
        self.warned += part.warned;
        for (busy, part) in self.busy.iter_mut().zip(part.busy) {
            *busy += part;
        }
    }
}

/// An image that could not be read, and when it was needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSample {
    /// Pass over the images.
    pub epoch: u64,
    /// Number of the batch, counted over all epochs.
    pub batch: u64,
    /// Index in the dataset.
    pub index: usize,
    /// The file, or `archive:member`.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Number of bad images that is accepted however few images were drawn.
const ALWAYS: u64 = 10;
/// Number of draws per accepted bad image.
const ONE_IN: u64 = 10_000;

/// Whether a pass over `images` images would find too many of which `bad` are bad.
pub(crate) fn ends_training(bad: u64, images: u64) -> bool {
    bad > ALWAYS.max(images / ONE_IN)
}

/// Bad images so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    draws: u64,
    /// Indices of the bad images, each once however often it was drawn.
    images: BTreeSet<usize>,
    /// Those that nobody has taken.
    pub(super) samples: Vec<BadSample>,
}

impl Tally {
    /// Adds the bad images of a batch of `draws` images.
    ///
    /// # Errors
    /// If there are too many by now.
    pub(super) fn add(&mut self, bad: Vec<BadSample>, draws: usize) -> Result<(), DataError> {
        self.draws += draws as u64;
        self.images.extend(bad.iter().map(|bad| bad.index));
        let count = self.images.len() as u64;
        let most = ALWAYS.max(self.draws / ONE_IN);
        let last = bad.last().map(|last| format!("{}: {}", last.name, last.reason));
        self.samples.extend(bad);
        match last {
            Some(last) if count > most => {
                Err(DataError::TooManyBad { count, draws: self.draws, last })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_or_one_in_ten_thousand_are_borne() {
        let bad = |indices: std::ops::Range<usize>| -> Vec<BadSample> {
            let sample =
                || BadSample { name: "a".into(), reason: "b".into(), ..Default::default() };
            indices.map(|index| BadSample { index, ..sample() }).collect()
        };
        let mut tally = Tally::default();
        assert!(tally.add(bad(0..10), 64).is_ok());
        assert_eq!(std::mem::take(&mut tally.samples).len(), 10);
        // Bad images that are drawn again do not count again.
        assert!(tally.add(bad(0..10), 64).is_ok());
        assert!(tally.add(bad(0..0), 64).is_ok());
        let more = tally.add(bad(9..11), 64);
        assert!(matches!(more, Err(DataError::TooManyBad { count: 11, .. })));

        let mut tally = Tally::default();
        assert!(tally.add(bad(0..0), 1_000_000).is_ok());
        assert!(tally.add(bad(0..100), 0).is_ok());
        assert!(tally.add(bad(100..101), 1).is_err());
    }
}
