//! Who makes a copy, and how the others come by it.
//!
//! Beside `NAME` there may be `NAME.lock` and `NAME.partial`. Whoever holds the lock may write the partial
//! file, and renames it to `NAME` once it is whole and has been compared. The lock is the operating
//! system's: it ends with the process that holds it, however that ends, and another one begins anew.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock, statvfs},
    io::Errno,
};

use super::Staged;
use super::copy::copy;
use crate::error::StagingError;

/// How often one looks whether another process is done.
const PAUSE: Duration = Duration::from_millis(100);

/// Left free on the disk: others write there, too.
const RESERVE: u64 = 256 << 20;

/// Makes the folder of the copies.
pub(super) fn make_folder(folder: &Path) -> Result<(), StagingError> {
    fs::create_dir_all(folder).map_err(StagingError::io(folder))
}

/// Whether the archives that are not there yet have room.
pub(super) fn check_room(disk: &Path, archives: &[Arc<Staged>]) -> Result<(), StagingError> {
    let disk_space =
        statvfs(disk).map_err(|error| StagingError::io(disk)(io::Error::from(error)))?;
    let free = disk_space.f_bavail.saturating_mul(disk_space.f_frsize);
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    // What another process has copied so far is no longer free, and is not needed again.
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
            return Err(StagingError::Stopped { path: source.path().to_owned() });
        }
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
            Err(error) => return Err(io(error.into())),
        }
    }
    // Another process may have finished between the look and the lock.
    if use_existing(archive)? {
        return Ok(());
    }
    let partial = beside(target, ".partial");
    let copied = copy(archive, &partial, stop)
        .and_then(|()| fs::rename(&partial, target).map_err(StagingError::io(target)));
    if copied.is_err() {
        archive.ready.store(0, Ordering::Release);
        // The error to report is the first one; whoever copies next begins with an empty file.
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
