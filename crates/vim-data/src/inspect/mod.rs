//! Examination of images: [`scan`](scan()) reads the headers of all images of a part,
//! [`verify`](verify()) decodes them, and [`KnownImages`] is what is known before that.

pub(crate) mod known;
mod objects;
mod pairs;
mod scan;
mod verify;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::{ops::Range, panic, thread};

use serde::Serialize;

use crate::dataset::{Dataset, OnProgress, Progress};
use crate::{error::DataError, storage::images::Images};

pub use known::{BadRule, KnownImages};
pub use objects::{scan_objects, verify_objects};
pub use pairs::{scan_pairs, verify_pairs};
pub use scan::{ClassCount, ScanReport, Sides, scan};
pub use verify::{VerifyOptions, VerifyReport, verify};

/// A remark on an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Number of the image in its part.
    pub index: usize,
    /// Where it is: a path, or `archive:member`.
    pub name: String,
    /// Its class.
    pub class: String,
    /// The remark.
    pub what: String,
}

impl Finding {
    fn of(dataset: &dyn Dataset, index: usize, what: impl ToString) -> Self {
        let has_class = dataset.label_maps().is_none() && dataset.object_classes().is_none();
        let class = has_class.then(|| dataset.class_names()[dataset.label(index) as usize].clone());
        let (name, class) = (dataset.name(index), class.unwrap_or_default());
        Self { index, name, class, what: what.to_string() }
    }

    fn new(images: &Images, index: usize, what: impl ToString) -> Self {
        let class = images.class_names()[images.label(index) as usize].clone();
        Self { index, name: images.name(index), class, what: what.to_string() }
    }
}

/// Images between two reports of progress.
const REPORT: usize = 64;

/// Progress of all threads, over several ranges.
struct ProgressCounter<'a> {
    images: AtomicUsize,
    bytes: AtomicU64,
    total: usize,
    watch: OnProgress<'a>,
}

impl<'a> ProgressCounter<'a> {
    fn new(total: usize, watch: OnProgress<'a>) -> Self {
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
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Examines one image: returns the result and the bytes read.
type Examine<'a, S, T> = dyn Fn(&mut S, usize) -> Result<(T, u64), DataError> + Sync + 'a;

/// The results of `examine` for each index in `range`, in order.
///
/// Every thread has its own state, made by `start`. After an error no more images are examined.
fn for_each<S, T: Send>(
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
