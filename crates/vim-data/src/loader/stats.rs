//! Counters of a loader, and its time per stage.

use std::time::{Duration, Instant};
use std::{sync::atomic::AtomicU64, sync::atomic::Ordering::Relaxed};

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

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
}

/// Counted by all threads.
#[derive(Debug)]
pub(super) struct Counters {
    start: Instant,
    images: AtomicU64,
    decoded: AtomicU64,
    bytes: AtomicU64,
    warned: AtomicU64,
    busy: [AtomicU64; 4],
    waited: AtomicU64,
}

impl Counters {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            start: Instant::now(),
            images: zero(),
            decoded: zero(),
            bytes: zero(),
            warned: zero(),
            busy: [zero(), zero(), zero(), zero()],
            waited: zero(),
        }
    }

    /// Runs `work` and counts its time.
    pub(super) fn timed<T>(&self, stage: LoaderStage, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let made = work();
        self.busy[stage as usize].fetch_add(nanoseconds(start.elapsed()), Relaxed);
        made
    }

    pub(super) fn made(&self, images: usize) {
        self.images.fetch_add(images as u64, Relaxed);
    }

    pub(super) fn decoded(&self, warned: bool) {
        self.decoded.fetch_add(1, Relaxed);
        self.warned.fetch_add(u64::from(warned), Relaxed);
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn waited(&self, time: Duration) {
        self.waited.fetch_add(nanoseconds(time), Relaxed);
    }

    pub(super) fn stats(&self, ready: usize) -> LoaderStats {
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Relaxed));
        LoaderStats {
            images: self.images.load(Relaxed),
            decoded: self.decoded.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            warned: self.warned.load(Relaxed),
            busy: self.busy.each_ref().map(time),
            waited: time(&self.waited),
            ready,
            elapsed: self.start.elapsed(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
