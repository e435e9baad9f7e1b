//! Archives copied to the node's own disk while images are read from the source.
//!
//! One thread copies the archives in order, from front to back. An image is read from the copy as
//! soon as its bytes are copied and compared, from the source until then; the data are the same
//! either way.
//!
//! Processes of one node share the copies. Beside `NAME` there may be `NAME.lock` and
//! `NAME.partial`. The process that holds the lock writes the partial file, and renames it to
//! `NAME` once it is complete and compared. The lock is the operating system's: it ends with its
//! process, and another process starts again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::{io, os::unix::fs::FileExt, panic, time::Duration};

use rustix::fs::{Advice, fadvise, statvfs};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::index::{Extent, FileStamp};
use crate::error::StagingError;

/// Folder on the node's disk.
const FOLDER: &str = "vim-train-staged";

/// Interval at which other processes are polled.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes copied, compared and made available at a time.
const CHUNK: usize = 8 << 20;

/// Left free on the disk for others.
const RESERVE: u64 = 256 << 20;

/// Whether archives are copied to the node's own disk, the folder that `$SLURM_TMPDIR` names.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// If there is such a folder with room: in the background, while images are read from the
    /// source.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Before anything is read, or the run ends with an error.
    Require,
}

/// Archives on their way to the node's disk. Dropping it ends the copying, not the copies made.
#[derive(Debug)]
pub struct Staging {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), StagingError>>>,
}

/// Progress of staging.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StagingStatus {
    /// Bytes in all archives.
    pub bytes: u64,
    /// Bytes that are read from the copies.
    pub staged: u64,
    /// Whether the thread has ended.
    pub ended: bool,
    /// Why copying was given up. Images are read from the source then.
    pub failure: Option<String>,
}

/// What the thread works on.
#[derive(Debug)]
struct Shared {
    archives: Vec<Arc<Staged>>,
    stop: AtomicBool,
    /// Why the thread gave up, if it did; not set while it works.
    failure: OnceLock<Option<String>>,
}

/// One archive and its copy.
#[derive(Debug)]
pub(crate) struct Staged {
    source: FileStamp,
    /// The path of the complete copy.
    target: PathBuf,
    /// The copy, complete or partial: a rename does not affect open files.
    copy: OnceLock<File>,
    /// Number of bytes from its start that may be read.
    ready: AtomicU64,
}

impl Staging {
    /// Starts to copy `archives` to `node_disk`, if that has room.
    pub(crate) fn start(node_disk: &Path, archives: &[PathBuf]) -> Result<Self, StagingError> {
        let folder = node_disk.join(FOLDER);
        let staged: Result<Vec<Arc<Staged>>, StagingError> = archives
            .iter()
            .map(|path| Staged::new(path, &folder).map(Arc::new).map_err(StagingError::io(path)))
            .collect();
        let shared = Arc::new(Shared {
            archives: staged?,
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
        });
        fs::create_dir_all(&folder).map_err(StagingError::io(&folder))?;
        check_room(node_disk, &shared.archives)?;
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("vim-data-staging".into())
            .spawn(move || theirs.work())
            .map_err(StagingError::io(&folder))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The copy of an archive.
    pub(crate) fn copy_of(&self, archive: &Path) -> Option<Arc<Staged>> {
        self.shared.archives.iter().find(|staged| staged.source.path == archive).cloned()
    }

    /// Waits until all copies are whole.
    pub(crate) fn wait(&mut self) -> Result<(), StagingError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    /// How far it has come.
    pub fn status(&self) -> StagingStatus {
        let Shared { archives, failure, .. } = &*self.shared;
        StagingStatus {
            bytes: archives.iter().map(|archive| archive.source.bytes).sum(),
            staged: archives.iter().map(|archive| archive.ready.load(Ordering::Acquire)).sum(),
            ended: failure.get().is_some(),
            failure: failure.get().cloned().flatten(),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its failure is in `shared`.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The body of the thread.
    fn work(&self) -> Result<(), StagingError> {
        let result = self.archives.iter().try_for_each(|archive| stage(archive, &self.stop));
        // The thread alone sets it, once.
        let _ = self.failure.set(result.as_ref().err().map(ToString::to_string));
        result
    }
}

impl Staged {
    fn new(path: &Path, folder: &Path) -> io::Result<Self> {
        let source = FileStamp::of(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Another version of an archive has another name: a copy is never stale.
        let target = folder.join(format!("{}-{name}", source.hash()));
        Ok(Self { source, target, copy: OnceLock::new(), ready: AtomicU64::new(0) })
    }

    /// Makes the first `ready` bytes of `copy` readable.
    fn publish(&self, copy: File, ready: u64) {
        // A copy that was opened before stays: it has the same bytes.
        let _ = self.copy.set(copy);
        self.ready.store(ready, Ordering::Release);
    }

    /// Reads from the copy, if the bytes are there.
    ///
    /// A copy that fails to be read is not used again: the source has the same bytes.
    pub(crate) fn read(&self, extent: Extent, into: &mut [u8]) -> bool {
        let end = extent.offset.saturating_add(extent.length);
        if self.ready.load(Ordering::Acquire) < end {
            return false;
        }
        let Some(copy) = self.copy.get() else { return false };
        let read = copy.read_exact_at(into, extent.offset);
        if read.is_err() {
            self.ready.store(0, Ordering::Release);
        }
        read.is_ok()
    }
}

/// Checks that there is room for the archives that are not copied yet.
fn check_room(disk: &Path, archives: &[Arc<Staged>]) -> Result<(), StagingError> {
    let disk_space =
        statvfs(disk).map_err(|error| StagingError::io(disk)(io::Error::from(error)))?;
    let free = disk_space.f_bavail.saturating_mul(disk_space.f_frsize);
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    // The bytes that another process has copied are no longer free and not needed again.
    let missing = |archive: &Arc<Staged>| {
        let there = length(&archive.target).max(length(&beside(&archive.target, ".partial")));
        archive.source.bytes.saturating_sub(there)
    };
    let needed: u64 = archives.iter().map(missing).sum();
    if needed > 0 && needed.saturating_add(RESERVE) > free {
        return Err(StagingError::NoRoom { path: disk.to_owned(), needed, free });
    }
    Ok(())
}

/// Returns once the archive's copy is whole, made here or by another process.
fn stage(archive: &Staged, stop: &AtomicBool) -> Result<(), StagingError> {
    let Staged { source, target, .. } = archive;
    let lock = beside(target, ".lock");
    let io = StagingError::io(&lock);
    let lock = OpenOptions::new().create(true).append(true).open(&lock).map_err(&io)?;
    loop {
        if use_existing(archive)? {
            return Ok(());
        }
        if stop.load(Ordering::Acquire) {
            return Err(StagingError::Stopped(source.path.to_owned()));
        }
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(io(error)),
        }
    }
    // Another process may have finished before the lock was taken.
    if use_existing(archive)? {
        return Ok(());
    }
    let partial = beside(target, ".partial");
    let copied = copy(archive, &partial, stop)
        .and_then(|()| fs::rename(&partial, target).map_err(StagingError::io(target)));
    if copied.is_err() {
        archive.ready.store(0, Ordering::Release);
        // The first error is the one to report; the next process starts with an empty file.
        let _ = fs::remove_file(&partial);
    }
    copied
}

/// Copies an archive to `partial`, in order, so that a network file system reads ahead.
///
/// Every chunk is read back and its checksum compared before it is made readable. At the end the
/// length and the time of the source are compared: a wrong copy is an error.
fn copy(archive: &Staged, partial: &Path, stop: &AtomicBool) -> Result<(), StagingError> {
    let path = &archive.source.path;
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
    while at < archive.source.bytes {
        if stop.load(Ordering::Acquire) {
            return Err(StagingError::Stopped(path.to_owned()));
        }
        let length = (archive.source.bytes - at).min(CHUNK as u64) as usize;
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

/// Opens a copy that is whole, if there is one.
fn use_existing(archive: &Staged) -> Result<bool, StagingError> {
    let io = StagingError::io(&archive.target);
    let file = match File::open(&archive.target) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io(error)),
    };
    if file.metadata().map_err(&io)?.len() != archive.source.bytes {
        return Ok(false); // not made by us: replaced
    }
    archive.publish(file, archive.source.bytes);
    Ok(true)
}

/// `NAME.end` beside `NAME`.
fn beside(target: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_from_the_copy_once_all_of_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
        fs::write(&source, [1; 100]).unwrap();
        fs::write(&copy, [2; 100]).unwrap(); // other bytes, to tell the two apart
        let staged = Staged::new(&source, folder.path()).unwrap();
        let read = |offset, length| {
            let mut bytes = vec![0; length];
            let extent = Extent { offset, length: length as u64 };
            staged.read(extent, &mut bytes).then_some(bytes)
        };
        assert_eq!(read(0, 1), None);
        staged.copy.set(File::open(&copy).unwrap()).unwrap();
        assert_eq!(read(0, 1), None);
        staged.ready.store(50, Ordering::Release);
        assert_eq!(read(0, 50), Some(vec![2; 50]));
        assert_eq!(read(49, 1), Some(vec![2]));
        assert_eq!((read(49, 2), read(50, 1), read(99, 1)), (None, None, None));
        // Truncated from outside: not used again.
        fs::write(&copy, [2; 10]).unwrap();
        assert_eq!((read(20, 10), read(0, 1)), (None, None));
    }
}
