//! Files that are written beside the one that they are to replace.
//!
//! Each is `.tmp-NAME`, or `.tmp-NAME-HOST-PID-NUMBER` while another process writes that one. It is
//! made anew, never opened, and is locked while it is written. So two processes that write one
//! output do not meet in one file, and what a killed process left can be told from what another one
//! writes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::host_name;
use crate::process::Presence;

const PREFIX: &str = ".tmp-";
/// The longest name of an output that is part of the temporary file's name, which may have 255
/// bytes on most file systems. A hash stands for a longer one.
const LONGEST: usize = 180;
/// After which a file of another machine that nobody changes is not being written. Locks may not
/// reach from there to here.
const ABANDONED: Duration = Duration::from_hours(24);

/// This machine in names of files.
static HOST: LazyLock<String> = LazyLock::new(|| {
    let hash = blake3::hash(host_name().as_bytes());
    hash.to_hex()[..8].to_owned()
});

/// A file that is to replace another one. Removed when dropped, unless it has done so.
#[derive(Debug)]
pub struct Temporary {
    path: PathBuf,
    /// Its lock says that it is being written.
    file: File,
    is_in_place: bool,
}

impl Temporary {
    /// An empty file beside `path`. The first in a folder removes what killed processes left there.
    pub(crate) fn beside(path: &Path) -> io::Result<Self> {
        let folder = folder_of(path);
        remove_abandoned_once(folder);
        let name = stem(path.file_name().unwrap_or_default());
        let first = folder.join(&name);
        for _ in 0..2 {
            match Self::create(first.clone()) {
                Ok((temporary, true)) => return Ok(temporary),
                // Without a lock nobody could tell it from one that a killed process left.
                Ok((_, false)) => break,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            // One that is no temporary file, or that cannot be opened, is left alone.
            let _ = remove_if_abandoned(&first, None);
        }
        loop {
            // Process-wide: threads may replace one file at once.
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let mut own = name.clone();
            own.push(format!("-{}-{}-{number}", *HOST, process::id()));
            match Self::create(folder.join(own)) {
                Ok((temporary, _)) => return Ok(temporary),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A new file at `path`, and whether the file system could lock it. Exclusive: neither a file
    /// of this name nor what a link leads to is written.
    fn create(path: PathBuf) -> io::Result<(Self, bool)> {
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        let locked = try_lock_patiently(&file);
        let temporary = Self { path, file, is_in_place: false };
        match locked {
            Ok(()) if temporary.is_at_its_path()? => Ok((temporary, true)),
            // Another process took it for abandoned before it was locked.
            Ok(()) | Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(TryLockError::Error(_)) => Ok((temporary, false)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nobody removed it or put another file in its place, as a machine can that locks do
    /// not reach.
    pub(crate) fn is_at_its_path(&self) -> io::Result<bool> {
        is_at(&self.file, &self.path)
    }

    /// Says that the file was renamed.
    pub(crate) fn renamed(mut self) {
        self.is_in_place = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.is_in_place && self.is_at_its_path().unwrap_or(false) {
            // The failure before this one matters more.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What a temporary file's name begins with for the output `name`.
fn stem(name: &OsStr) -> OsString {
    let mut stem = OsString::from(PREFIX);
    if name.len() <= LONGEST {
        stem.push(name);
    } else {
        stem.push(blake3::hash(name.as_bytes()).to_hex().as_str());
    }
    stem
}

/// Machine and process that gave a temporary file its `name`.
fn writer_of(name: &str) -> Option<(&str, u32)> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplitn(4, '-');
    let (number, pid, host) = (parts.next()?, parts.next()?, parts.next()?);
    let _output = parts.next()?;
    let is_host = host.len() == 8 && host.bytes().all(|byte| byte.is_ascii_hexdigit());
    let _number: u64 = number.parse().ok()?;
    Some((host, pid.parse().ok()?)).filter(|_| is_host)
}

/// [`remove_abandoned`] where this process has not done so: a folder may get many files.
fn remove_abandoned_once(folder: &Path) {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut done = DONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !done.contains(folder) {
        done.insert(folder.to_owned());
        drop(done);
        remove_abandoned(folder);
    }
}

/// Removes the temporary files in `folder` that no process writes any more, where it can.
pub(crate) fn remove_abandoned(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // All but the output's name is ASCII.
        if let Some((host, pid)) = writer_of(&name.to_string_lossy()) {
            // Nobody is kept from writing by a file that stays.
            let _ = remove_if_abandoned(&entry.path(), Some((host, pid)));
        }
    }
}

/// Removes the file at `path` unless it is being written. `writer` is the machine and the process
/// in its name; without them a lock alone tells.
fn remove_if_abandoned(path: &Path, writer: Option<(&str, u32)>) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let has_locks = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) if is_unsupported(&error) => false,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    let is_abandoned = match writer {
        None => has_locks,
        Some((host, _)) if host != *HOST => is_old(&metadata),
        Some((_, pid)) => has_locks || Presence::of(pid, None) == Presence::Gone,
    };
    // Another process may have removed it meanwhile, and written a new one.
    if is_abandoned && is_at(&file, path)? { fs::remove_file(path) } else { Ok(()) }
}

fn is_old(metadata: &Metadata) -> bool {
    let changed = metadata.modified().ok();
    let age = changed.and_then(|changed| SystemTime::now().duration_since(changed).ok());
    age.is_some_and(|age| age > ABANDONED)
}

/// The folder that holds `path`.
pub fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Whether `path` leads to the open `file`.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((open.dev(), open.ino()) == (named.dev(), named.ino())),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Locks `file`; retries briefly, as [`is_held`](crate::lock::is_held) takes a short shared lock.
pub(crate) fn try_lock_patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..5 {
        let tried = file.try_lock();
        if !matches!(tried, Err(TryLockError::WouldBlock)) {
            return tried;
        }
        sleep(Duration::from_millis(10));
    }
    file.try_lock()
}

/// Whether a file system has no locks.
pub(crate) fn is_unsupported(error: &io::Error) -> bool {
    let no_locks = Errno::NOLCK.raw_os_error();
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(no_locks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_writes() {
        let output = Path::new("/out/x-1-2-3.pth");
        let name = stem(output.file_name().unwrap()).into_string().unwrap();
        assert_eq!(writer_of(&format!("{name}-00ff00ff-12-0")), Some(("00ff00ff", 12)));
        for foreign in [
            ".tmp-x.pth",
            ".tmp-step-00000040",
            ".tmp-cuda-12-00ff00ff00ff",
            ".tmp-x-00ff00ff-12-mine",
            ".tmp-x-hostname-12-0",
            "tmp-x-00ff00ff-12-0",
        ] {
            assert_eq!(writer_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn what_another_machine_writes_stays_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".tmp-x-0123abcd-1-0");
        for (age, stays) in [(0, true), (23, true), (25, false)] {
            let file = File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_hours(age)).unwrap();
            drop(file);
            remove_abandoned(folder.path());
            assert_eq!(path.exists(), stays, "{age} hours");
        }
    }
}
