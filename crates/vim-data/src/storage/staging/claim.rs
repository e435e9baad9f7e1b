//! Decides which process makes a copy, and lets the others wait for it.
//!
//! Beside `NAME` there may be `NAME.lock` and `NAME.partial`. The process that holds the lock
//! writes the partial file, and renames it to `NAME` once it is complete and compared. The lock is
//! the operating system's: it ends with its process, and another process starts again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{ffi::OsString, io, sync::Arc, thread, time::Duration};

use rustix::fs::statvfs;

use super::{Staged, copy::copy};
use crate::error::StagingError;

/// Interval at which other processes are polled.
const PAUSE: Duration = Duration::from_millis(100);

/// Left free on the disk for others.
const RESERVE: u64 = 256 << 20;

/// Makes the folder of the copies.
pub(super) fn make_folder(folder: &Path) -> Result<(), StagingError> {
    fs::create_dir_all(folder).map_err(StagingError::io(folder))
}

/// Checks that there is room for the archives that are not copied yet.
pub(super) fn check_room(disk: &Path, archives: &[Arc<Staged>]) -> Result<(), StagingError> {
    let disk_space =
        statvfs(disk).map_err(|error| StagingError::io(disk)(io::Error::from(error)))?;
    let free = disk_space.f_bavail.saturating_mul(disk_space.f_frsize);
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    // The bytes that another process has copied are no longer free and not needed again.
    let missing = |archive: &Arc<Staged>| {
        let there = length(&archive.target).max(length(&beside(&archive.target, ".partial")));
        archive.source.bytes().saturating_sub(there)
    };
    let needed: u64 = archives.iter().map(missing).sum();
    if needed > 0 && needed.saturating_add(RESERVE) > free {
        return Err(StagingError::NoRoom { path: disk.to_owned(), needed, free });
    }
    Ok(())
}

/// Returns once the archive's copy is whole, made here or by another process.
pub(super) fn stage(archive: &Staged, stop: &AtomicBool) -> Result<(), StagingError> {
    let Staged { source, target, .. } = archive;
    let lock = beside(target, ".lock");
    let io = StagingError::io(&lock);
    let lock = OpenOptions::new().create(true).append(true).open(&lock).map_err(&io)?;
    loop {
        if use_existing(archive)? {
            return Ok(());
        }
        if stop.load(Ordering::Acquire) {
            return Err(StagingError::Stopped(source.path().to_owned()));
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

/// Opens a copy that is whole, if there is one.
fn use_existing(archive: &Staged) -> Result<bool, StagingError> {
    let io = StagingError::io(&archive.target);
    let file = match File::open(&archive.target) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io(error)),
    };
    if file.metadata().map_err(&io)?.len() != archive.source.bytes() {
        return Ok(false); // not made by us: replaced
    }
    archive.publish(file, archive.source.bytes());
    Ok(true)
}

/// `NAME.end` beside `NAME`.
fn beside(target: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(end);
    name.into()
}
