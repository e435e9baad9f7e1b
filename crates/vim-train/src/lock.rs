//! One process per run folder.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::run_env::{host_name, slurm_job};
use crate::timestamp::rfc3339;

/// A process that uses a run folder, as its lock file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Name of its machine.
    pub host: String,
    /// Its process number there.
    pub pid: u32,
    /// Its SLURM job, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job: Option<String>,
    /// When it started.
    pub started: String,
}

impl Holder {
    fn this_process() -> Self {
        Self {
            host: host_name(),
            pid: std::process::id(),
            slurm_job: slurm_job(),
            started: rfc3339(SystemTime::now()),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.is_empty() {
            return formatter.write_str("another process, which is just starting");
        }
        write!(formatter, "process {} on {}", self.pid, self.host)?;
        if let Some(job) = &self.slurm_job {
            write!(formatter, " (SLURM job {job})")?;
        }
        write!(formatter, ", running since {}", self.started)
    }
}

/// The right to write into a folder, until dropped.
///
/// What counts is the operating system's lock on the file, which ends with the process that holds
/// it, however it ends. The content says who that is, and may be stale.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    enforced: bool,
}

/// Why a folder cannot be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds the lock.
    Held(Holder),
    /// The file cannot be opened, locked or written.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Lock {
    /// Locks by the file `path`, which is created if it is not there.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] at once if another process has it.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        loop {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .read(true)
                .write(true)
                .open(path)?;
            let enforced = match try_lock_patiently(&file) {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text)?;
                    return Err(LockError::Held(serde_json::from_str(&text).unwrap_or_default()));
                }
                Err(TryLockError::Error(error)) if is_unsupported(&error) => false,
                Err(TryLockError::Error(error)) => return Err(error.into()),
            };
            // Between opening and locking, the folder may have been moved aside by the process that had it.
            if !is_at(&file, path) {
                continue;
            }
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            let holder =
                serde_json::to_string(&Holder::this_process()).map_err(io::Error::other)?;
            writeln!(file, "{holder}")?;
            return Ok(Self { _file: file, enforced });
        }
    }

    /// Whether the file system has locks; some cluster mounts do not, and two runs can then collide.
    #[must_use]
    pub fn is_enforced(&self) -> bool {
        self.enforced
    }
}

/// Locks `file`; waits a moment for one who only looks, as [`is_held`] does.
fn try_lock_patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..5 {
        let tried = file.try_lock();
        if !matches!(tried, Err(TryLockError::WouldBlock)) {
            return tried;
        }
        sleep(Duration::from_millis(10));
    }
    file.try_lock()
}

/// Whether a process holds the lock at `path`; `None` if that cannot be told. Changes nothing.
pub(crate) fn is_held(path: &Path) -> Option<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(false),
        Err(_) => return None,
    };
    match file.try_lock_shared() {
        Ok(()) => Some(false),
        Err(TryLockError::WouldBlock) => Some(true),
        Err(TryLockError::Error(_)) => None,
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    let no_locks = rustix::io::Errno::NOLCK.raw_os_error();
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(no_locks)
}
