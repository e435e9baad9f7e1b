//! Work on many images by several threads, with progress.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::{ops::Range, panic, thread};

use crate::dataset::{OnProgress, Progress};
use crate::error::DataError;

/// Images between two reports of progress.
const REPORT: usize = 64;

/// Progress of all threads, over several ranges.
pub(crate) struct ProgressCounter<'a> {
    images: AtomicUsize,
    bytes: AtomicU64,
    total: usize,
    watch: OnProgress<'a>,
}

impl<'a> ProgressCounter<'a> {
    pub(crate) fn new(total: usize, watch: OnProgress<'a>) -> Self {
        Self { images: AtomicUsize::new(0), bytes: AtomicU64::new(0), total, watch }
    }

    fn add(&self, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let images = self.images.fetch_add(1, Ordering::Relaxed) + 1;
        if images.is_multiple_of(REPORT) || images == self.total {
            (self.watch)(Progress { images, total: self.total, bytes });
        }
    }

    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Examines one image: returns the result and the bytes read.
pub(crate) type Examine<'a, S, T> =
    dyn Fn(&mut S, usize) -> Result<(T, u64), DataError> + Sync + 'a;

/// The results of `examine` for each index in `range`, in order.
///
/// Every thread has its own state, made by `start`. After an error no more images are examined.
pub(crate) fn for_each<S, T: Send>(
    range: Range<usize>,
    workers: usize,
    count: &ProgressCounter<'_>,
    start: &(dyn Fn() -> Result<S, DataError> + Sync),
    examine: &Examine<'_, S, T>,
) -> Result<Vec<T>, DataError> {
    let next = AtomicUsize::new(range.start);
    let failed = AtomicBool::new(false);
    let work = || -> Result<Vec<(usize, T)>, DataError> {
        let mut state = start()?;
        let mut seen = Vec::new();
        while !failed.load(Ordering::Relaxed) {
            // In order, so that archives are read from front to back.
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= range.end {
                break;
            }
            let (what, bytes) = examine(&mut state, index)?;
            count.add(bytes);
            seen.push((index, what));
        }
        Ok(seen)
    };
    let mut seen = Vec::with_capacity(range.len());
    thread::scope(|scope| {
        let spawn =
            |_| scope.spawn(|| work().inspect_err(|_| failed.store(true, Ordering::Relaxed)));
        let threads: Vec<_> = (0..workers.clamp(1, range.len().max(1))).map(spawn).collect();
        threads.into_iter().try_for_each(|thread| {
            // A panic is passed on: those of decoders have become errors already.
            seen.extend(thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?);
            Ok::<_, DataError>(())
        })
    })?;
    seen.sort_unstable_by_key(|&(index, _)| index);
    Ok(seen.into_iter().map(|(_, what)| what).collect())
}
