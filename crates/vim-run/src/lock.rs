//! One process per run folder.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::error::Displaced;
use crate::process::{Presence, identity};
use crate::storage::{Disk, Storage, Temporary};
use crate::temporary::{is_at, is_unsupported, try_lock_patiently};
use crate::{host_name, rfc3339, slurm_job};

/// Name of the lock's file in a run's folder.
pub const LOCK: &str = "LOCK";

/// How long a process that was killed may take to end: it may be writing to a slow disk.
const ENDING: Duration = Duration::from_secs(30);
/// How long a process that has the lock may take to say which one it is.
const NAMELESS: Duration = Duration::from_secs(1);
/// Between two attempts at a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(50);

/// A process that uses a run folder, as recorded in the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The machine's name.
    pub host: String,
    /// The process number.
    pub pid: u32,
    /// The SLURM job, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job: Option<String>,
    /// When the process took the folder.
    pub started: String,
    /// What tells the process from a later one of the same number; earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl Holder {
    fn this_process() -> Self {
        Self {
            host: host_name(),
            pid: std::process::id(),
            slurm_job: slurm_job(),
            started: rfc3339(SystemTime::now()),
            process: identity(std::process::id()),
        }
    }

    /// The command that ends the process; none where it is not known which one that is.
    pub fn to_end(&self) -> Option<String> {
        match &self.slurm_job {
            _ if self.host.is_empty() => None,
            Some(job) => Some(format!("scancel {job}")),
            None if self.host == host_name() => Some(format!("kill {}", self.pid)),
            None => Some(format!("ssh {} kill {}", self.host, self.pid)),
        }
    }

    /// Whether the process is there; `None` of another machine's.
    fn presence(&self, host: &str) -> Option<Presence> {
        (self.host == host).then(|| Presence::of(self.pid, self.process.as_deref()))
    }

    /// How long a lock of this holder may last without being that of a run at work.
    fn patience(&self, host: &str) -> Duration {
        match self.presence(host) {
            Some(Presence::Gone | Presence::Ending) => ENDING,
            Some(Presence::Running) => Duration::ZERO,
            None if self.host.is_empty() => NAMELESS,
            None => Duration::ZERO,
        }
    }

    /// This holder, if the process is there: another one that has its number is not to be ended.
    fn if_there(self, host: &str) -> Self {
        if self.presence(host) == Some(Presence::Gone) { Self::default() } else { self }
    }

    /// Whether this holder still claims the folder, on a file system without locks.
    fn claim(&self, here: &Self, presence: impl Fn(&Self) -> Presence) -> Claim {
        if self.host.is_empty() {
            Claim::None
        } else if self.host == here.host {
            let is_gone = self.pid == here.pid || presence(self) == Presence::Gone;
            if is_gone { Claim::None } else { Claim::Held }
        } else if self.slurm_job.is_some() && self.slurm_job == here.slurm_job {
            // An earlier attempt of this job, on a node that it lost.
            Claim::None
        } else {
            Claim::Unknown
        }
    }
}

/// The claim of a recorded holder where there are no locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    None,
    Held,
    /// The process is or was on another machine.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.is_empty() {
            return formatter.write_str("another process, which is starting or ending");
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
/// The operating system's lock on the file decides; it ends with its process. The content names the
/// holder and may be stale. Without file locks the content decides: a clean exit empties it, and
/// otherwise it holds unless its process is known to be dead.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    enforced: bool,
}

/// Why a folder cannot be locked.
#[derive(Debug)]
pub enum LockError {
    /// Another process holds the lock.
    Held(Holder),
    /// A process on another machine is recorded, and there are no locks to tell whether it runs.
    Recorded(Holder),
    /// The file cannot be opened, locked or written.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Lock {
    /// Locks the file `path`, which is created if missing; [`LockError::Held`] at once if a process
    /// that is at work holds the lock. One that was killed is given the time to end.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let host = host_name();
        Self::acquire_while(path, |holder| holder.patience(&host))
    }

    /// [`Self::acquire`] that gives any holder the time `patience`.
    pub fn acquire_within(path: &Path, patience: Duration) -> Result<Self, LockError> {
        Self::acquire_while(path, |_| patience)
    }

    fn acquire_while(
        path: &Path,
        patience: impl Fn(&Holder) -> Duration,
    ) -> Result<Self, LockError> {
        let begin = Instant::now();
        loop {
            match Self::attempt(path) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => {}
                Err(LockError::Held(holder)) => {
                    if begin.elapsed() >= patience(&holder) {
                        return Err(LockError::Held(holder.if_there(&host_name())));
                    }
                    sleep(PAUSE);
                }
                Err(error @ (LockError::Recorded(_) | LockError::Io(_))) => return Err(error),
            }
        }
    }

    /// Locks the file `path`; none if it was moved meanwhile.
    fn attempt(path: &Path) -> Result<Option<Self>, LockError> {
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path)?;
        let enforced = match try_lock_patiently(&file) {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => return Err(LockError::Held(recorded(&mut file)?)),
            Err(TryLockError::Error(error)) if is_unsupported(&error) => {
                let holder = recorded(&mut file)?;
                let presence = |of: &Holder| Presence::of(of.pid, of.process.as_deref());
                match holder.claim(&Holder::this_process(), presence) {
                    Claim::None => false,
                    Claim::Held => return Err(LockError::Held(holder)),
                    Claim::Unknown => return Err(LockError::Recorded(holder)),
                }
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        };
        // The previous holder may have moved the folder aside between opening and locking.
        if !is_at(&file, path)? {
            return Ok(None);
        }
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        let holder = serde_json::to_string(&Holder::this_process()).map_err(io::Error::other)?;
        writeln!(file, "{holder}")?;
        Ok(Some(Self { file, path: path.to_owned(), enforced }))
    }

    /// Whether the file system has locks; without them two runs can collide.
    pub fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// Checks that the file's path still leads to the locked file: the lock moves with its folder,
    /// and another run may be in the old place by now.
    pub fn check(&self) -> Result<(), Displaced> {
        // If the path cannot be examined, the write that follows reports why.
        if is_at(&self.file, &self.path).unwrap_or(true) {
            return Ok(());
        }
        let folder = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let now = fs::read_link(link).ok();
        let now = now.filter(|path| is_at(&self.file, path).unwrap_or(false));
        Err(Displaced { folder: folder(&self.path), moved_to: now.as_deref().map(folder) })
    }

    /// The disk, if the folder is still this process's.
    fn disk(&self) -> io::Result<Disk> {
        self.check().map_err(io::Error::other)?;
        Ok(Disk)
    }
}

/// The disk as long as the folder is in its place; afterwards nothing is written or removed.
impl Storage for Arc<Lock> {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.disk()?.create_dir(path)
    }

    fn temporary(&self, path: &Path) -> io::Result<Temporary> {
        self.disk()?.temporary(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.disk()?.write(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk()?.rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk()?.sync_dir(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk()?.remove(path)
    }
}

/// Whether a process holds the lock at `path`; `None` if unknown. Changes nothing.
pub fn is_held(path: &Path) -> Option<bool> {
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

impl Drop for Lock {
    fn drop(&mut self) {
        // Content that remains is stale and is recognised as such where possible.
        let _ = self.file.set_len(0);
    }
}

/// The holder recorded in the lock file.
fn recorded(file: &mut File) -> io::Result<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_locks_a_name_is_believed_unless_its_process_is_known_to_be_gone() {
        let holder = |host: &str, pid, job: Option<&str>| Holder {
            host: host.into(),
            pid,
            slurm_job: job.map(Into::into),
            ..Holder::default()
        };
        let here = holder("a", 7, Some("12"));
        let claim = |of: Holder| {
            of.claim(&here, |of| if of.pid == 3 { Presence::Running } else { Presence::Gone })
        };
        assert_eq!(claim(Holder::default()), Claim::None, "it ended in good order");
        assert_eq!(claim(holder("a", 3, None)), Claim::Held);
        assert_eq!(claim(holder("a", 4, None)), Claim::None, "its process is gone");
        assert_eq!(claim(holder("a", 7, None)), Claim::None, "its number is ours now");
        assert_eq!(
            claim(holder("b", 3, Some("12"))),
            Claim::None,
            "our job, before it was requeued"
        );
        assert_eq!(claim(holder("b", 4, Some("13"))), Claim::Unknown);
        assert_eq!(claim(holder("b", 4, None)), Claim::Unknown);
    }

    #[test]
    fn a_stranger_with_the_number_of_a_holder_is_not_to_be_ended() {
        let host = host_name();
        let own = Holder::this_process();
        assert_eq!(own.patience(&host), Duration::ZERO);
        assert!(own.clone().if_there(&host).to_end().is_some());
        let earlier = Holder { process: Some("another boot/1".into()), ..own.clone() };
        assert_eq!(earlier.patience(&host), ENDING, "its lock ends soon");
        assert_eq!(earlier.if_there(&host).to_end(), None);
        assert_eq!(Holder::default().patience(&host), NAMELESS);
        let elsewhere = Holder { host: "elsewhere".into(), ..own };
        assert_eq!(elsewhere.patience(&host), Duration::ZERO);
    }

    #[test]
    fn records_of_earlier_versions_are_read() {
        let text = r#"{"host":"a","pid":5,"started":"2026-01-31T08:15:00Z"}"#;
        let holder: Holder = serde_json::from_str(text).unwrap();
        assert_eq!((holder.pid, &holder.process), (5, &None));
        assert_eq!(serde_json::to_string(&holder).unwrap(), text);
    }

    #[test]
    fn a_holder_can_be_ended() {
        let holder = Holder { host: "elsewhere".into(), pid: 5, ..Holder::default() };
        assert_eq!(holder.to_end().unwrap(), "ssh elsewhere kill 5");
        assert_eq!(Holder { host: host_name(), ..holder.clone() }.to_end().unwrap(), "kill 5");
        assert_eq!(Holder { slurm_job: Some("9".into()), ..holder }.to_end().unwrap(), "scancel 9");
        assert_eq!(Holder::default().to_end(), None);
    }
}
