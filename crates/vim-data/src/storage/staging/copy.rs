//! Copying one archive.

use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{os::unix::fs::FileExt, path::Path};

use rustix::fs::{Advice, fadvise};

use super::Staged;
use crate::{error::StagingError, storage::index::cache::FileStamp};

/// Bytes copied, compared and made available at a time.
const CHUNK: usize = 8 << 20;

impl Staged {
    /// Makes the first `ready` bytes of `copy` readable.
    pub(super) fn publish(&self, copy: File, ready: u64) {
        // A copy that was opened before stays: it has the same bytes.
        let _ = self.copy.set(copy);
        self.ready.store(ready, Ordering::Release);
    }
}

/// Copies an archive to `partial`, in order, so that a network file system reads ahead.
///
/// Every chunk is read back and its checksum compared before it is made readable. At the end the
/// length and the time of the source are compared: a wrong copy is an error.
pub(super) fn copy(
    archive: &Staged,
    partial: &Path,
    stop: &AtomicBool,
) -> Result<(), StagingError> {
    let path = archive.source.path();
    let (reading, writing) = (StagingError::io(path), StagingError::io(partial));
    let source = File::open(path).map_err(&reading)?;
    // A failure of the advice does no harm.
    let _ = fadvise(&source, 0, None, Advice::Sequential);
    let mut options = OpenOptions::new();
    let target = options.read(true).write(true).create(true).truncate(true);
    let target = target.open(partial).map_err(&writing)?;
    archive.publish(target.try_clone().map_err(&writing)?, 0);

    let (mut chunk, mut back) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    while at < archive.source.bytes() {
        if stop.load(Ordering::Acquire) {
            return Err(StagingError::Stopped(path.to_owned()));
        }
        let length = (archive.source.bytes() - at).min(CHUNK as u64) as usize;
        let (chunk, back) = (&mut chunk[..length], &mut back[..length]);
        source.read_exact_at(chunk, at).map_err(&reading)?;
        target.write_all_at(chunk, at).map_err(&writing)?;
        target.read_exact_at(back, at).map_err(&writing)?;
        if crc32c::crc32c(chunk) != crc32c::crc32c(back) {
            return Err(StagingError::Differs { path: path.to_owned(), at });
        }
        at += length as u64;
        archive.ready.store(at, Ordering::Release);
    }
    target.sync_all().map_err(&writing)?;
    let unchanged = FileStamp::of(path).map_err(&reading)? == archive.source;
    match unchanged && target.metadata().map_err(&writing)?.len() == at {
        true => Ok(()),
        false => Err(StagingError::Changed(path.to_owned())),
    }
}
