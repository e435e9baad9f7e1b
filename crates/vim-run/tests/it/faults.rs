//! Checkpoints on a storage that fails at a chosen operation.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vim_run::checkpoint::{CheckpointError, Checkpoints};
use vim_run::storage::{Disk, Storage};

use crate::checkpoint::save;

/// Fails operation number `first` (from 0) and the `count - 1` after it, once armed.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    done: Arc<AtomicU64>,
    first: Arc<AtomicU64>,
    count: u64,
    kind: ErrorKind,
}

impl Faulty {
    pub(crate) fn new(kind: ErrorKind, count: u64) -> Self {
        Self { done: Arc::default(), first: Arc::new(AtomicU64::new(u64::MAX / 2)), count, kind }
    }

    /// Counts operations anew and fails from number `first` on.
    pub(crate) fn arm(&self, first: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.first.store(first, Ordering::Relaxed);
    }

    fn attempt(&self) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        let first = self.first.load(Ordering::Relaxed);
        let fails = (first..first.saturating_add(self.count)).contains(&number);
        if fails { Err(self.kind.into()) } else { Ok(()) }
    }
}

/// Removing never fails: freeing space works on a full disk.
impl Storage for Faulty {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.attempt()?;
        Disk.create_dir(path)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.attempt() {
            // As a full disk does: some of it is there.
            Disk.write(path, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        Disk.write(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.attempt()?;
        Disk.rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.attempt()?;
        Disk.sync_dir(path)
    }
}

/// Checkpoints after steps 10 (the best), 20, 30 and 40, all kept, on a faulty storage.
fn four(folder: &Path, storage: &Faulty) -> Checkpoints {
    let checkpoints = Checkpoints::with_storage(folder, 9, Box::new(storage.clone())).unwrap();
    for step in [10, 20, 30, 40] {
        save(&checkpoints, step).unwrap();
    }
    checkpoints.mark_best(10).unwrap();
    checkpoints
}

#[test]
fn whatever_fails_the_earlier_checkpoints_are_whole() {
    let mut failures = 0;
    for operation in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let storage = Faulty::new(ErrorKind::PermissionDenied, u64::MAX / 4);
        let checkpoints = four(folder.path(), &storage);
        storage.arm(operation);
        let saved = save(&checkpoints, 50);
        storage.arm(u64::MAX / 2);
        let latest = Checkpoints::open(folder.path(), 9).unwrap().latest_valid().unwrap();
        assert!(latest.passed_over.is_empty(), "operation {operation} left a damaged checkpoint");
        let step = latest.checkpoint.unwrap().state.step;
        if saved.is_ok() {
            assert_eq!(step, 50);
            break;
        }
        failures += 1;
        assert!(matches!(saved, Err(CheckpointError::Io { .. })));
        assert!(step == 40 || step == 50, "operation {operation} lost checkpoint 40");
        assert_eq!(checkpoints.steps()[..4], [10, 20, 30, 40]);
    }
    assert!(failures >= 7, "a save has more operations than the {failures} that were tried");
}

#[test]
fn replacing_a_checkpoint_fails_without_losing_it() {
    for operation in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let storage = Faulty::new(ErrorKind::PermissionDenied, 1);
        let checkpoints = four(folder.path(), &storage);
        storage.arm(operation);
        let saved = save(&checkpoints, 40);
        assert_eq!(checkpoints.steps(), [10, 20, 30, 40], "operation {operation}");
        if saved.is_ok() {
            break;
        }
    }
}

#[test]
fn a_full_disk_is_made_room_on_once() {
    for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let folder = tempfile::tempdir().unwrap();
        let storage = Faulty::new(kind, 1);
        let checkpoints = four(folder.path(), &storage);
        storage.arm(1);
        save(&checkpoints, 50).unwrap();
        assert_eq!(checkpoints.steps(), [10, 40, 50], "all but the best and the newest made room");
    }
}

#[test]
fn room_is_never_made_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Faulty::new(ErrorKind::StorageFull, 1);
    let checkpoints = four(folder.path(), &storage);
    checkpoints.archive(20).unwrap();
    storage.arm(1);
    save(&checkpoints, 50).unwrap();
    assert_eq!(checkpoints.steps(), [10, 20, 40, 50]);
}

#[test]
fn a_disk_that_stays_full_is_an_error_that_costs_nothing_but_old_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Faulty::new(ErrorKind::StorageFull, u64::MAX / 4);
    let checkpoints = four(folder.path(), &storage);
    storage.arm(2);
    let error = save(&checkpoints, 50).unwrap_err();
    assert!(matches!(error, CheckpointError::Full { .. }), "{error}");
    assert_eq!(checkpoints.steps(), [10, 40]);
    assert_eq!(checkpoints.best_step(), Some(10));
    storage.arm(u64::MAX / 2);
    let latest = checkpoints.latest_valid().unwrap();
    assert_eq!(latest.checkpoint.unwrap().state.step, 40);
    let names = std::fs::read_dir(folder.path()).unwrap();
    let hidden = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with('.');
    let left = names.filter(|name| hidden(&name.as_ref().unwrap().file_name())).count();
    assert_eq!(left, 0, "the unfinished folder is gone");
}
