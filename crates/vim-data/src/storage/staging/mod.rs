//! Archives copied to the node's own disk while images are read from the source.
//!
//! One thread copies the archives in order, from front to back. An image is read from the copy as
//! soon as its bytes are copied and compared, from the source until then; the data are the same
//! either way. Processes of one node share the copies; the first one makes them ([`claim`]).

mod claim;
mod copy;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fs::File, io, os::unix::fs::FileExt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use super::{index::Extent, index::cache::FileStamp};
use crate::error::StagingError;

/// Folder on the node's disk.
const FOLDER: &str = "vim-train-staged";

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
    thread: Option<JoinHandle<()>>,
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

#[derive(Debug)]
struct Shared {
    archives: Vec<Arc<Staged>>,
    stop: AtomicBool,
    /// The result of the thread; `None` while it works.
    outcome: Mutex<Option<Result<(), StagingError>>>,
    ended: Condvar,
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
            outcome: Mutex::new(None),
            ended: Condvar::new(),
        });
        claim::make_folder(&folder)?;
        claim::check_room(node_disk, &shared.archives)?;
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("vim-data-staging".into())
            .spawn(move || theirs.work())
            .map_err(StagingError::io(&folder))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The archives, in the order given.
    pub(crate) fn archives(&self) -> &[Arc<Staged>] {
        &self.shared.archives
    }

    /// Waits until all copies are whole.
    pub(crate) fn wait(&self) -> Result<(), StagingError> {
        let mut outcome = self.shared.outcome();
        loop {
            match outcome.take() {
                Some(result) => {
                    *outcome = Some(Ok(()));
                    return result;
                }
                None => {
                    outcome =
                        self.shared.ended.wait(outcome).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// How far it has come.
    pub fn status(&self) -> StagingStatus {
        let outcome = self.shared.outcome();
        let archives = &self.shared.archives;
        StagingStatus {
            bytes: archives.iter().map(|archive| archive.source.bytes()).sum(),
            staged: archives.iter().map(|archive| archive.ready.load(Ordering::Acquire)).sum(),
            ended: outcome.is_some(),
            failure: match &*outcome {
                Some(Err(error)) => Some(error.to_string()),
                Some(Ok(())) | None => None,
            },
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its result is in `outcome`.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn outcome(&self) -> MutexGuard<'_, Option<Result<(), StagingError>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of the thread.
    fn work(&self) {
        let result = self.archives.iter().try_for_each(|archive| claim::stage(archive, &self.stop));
        *self.outcome() = Some(result);
        self.ended.notify_all();
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

    /// The archive.
    pub(crate) fn source_path(&self) -> &Path {
        self.source.path()
    }

    /// Reads from the copy, if the bytes are there.
    ///
    /// A copy that fails to be read is not used again: the source has the same bytes.
    pub(crate) fn read(&self, extent: Extent, into: &mut [u8]) -> bool {
        let end = extent.offset.saturating_add(u64::from(extent.length));
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

#[cfg(test)]
mod tests {
    use std::fs;

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
            let extent = Extent { offset, length: length as u32 };
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
