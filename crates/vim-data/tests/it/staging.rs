//! Archives copied to the node's disk: same data, one copy, no trace of interrupted ones.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{os::unix::fs::FileExt, thread};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;
use vim_data::{DataConfig, DataError, EnvPaths, Splits, Stage, StagingStatus};

use crate::trees::{config, content, published, train, unpacked, val};

/// The archives of [`published`], and an empty disk.
struct Bench {
    data: TempDir,
    disk: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { data: published(), disk: tempfile::tempdir().unwrap() }
    }

    fn config(&self, stage: Stage) -> DataConfig {
        let val_labels = Some(self.data.path().join("val.txt"));
        DataConfig { val_labels, stage, ..config(self.data.path()) }
    }

    fn open(&self, stage: Stage) -> Result<Splits, DataError> {
        open_on(&self.config(stage), self.disk.path())
    }

    /// Files on the disk by the end of their names.
    fn staged(&self, end: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.disk.path().join("vim-train-staged")) else {
            return vec![];
        };
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_str().unwrap().ends_with(end))
            .collect();
        paths.sort();
        paths
    }

    /// The copy of the training archive, and its lock, taken as by a process that makes the copy.
    fn locked_copy(&self) -> (PathBuf, File) {
        drop(self.open(Stage::Require).unwrap());
        let copy = self.train_copy();
        let lock = File::open(beside(&copy, ".lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        (copy, lock)
    }

    /// The copy of the training archive.
    fn train_copy(&self) -> PathBuf {
        let found = self.staged("_train.tar");
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    }
}

fn beside(copy: &Path, end: &str) -> PathBuf {
    let mut name = copy.to_owned().into_os_string();
    name.push(end);
    name.into()
}

fn open_on(config: &DataConfig, disk: &Path) -> Result<Splits, DataError> {
    let node_disk = Some(disk.to_owned());
    vim_data::open_in::<vim_data::Class>(config, &EnvPaths { node_disk, ..EnvPaths::default() })
}

fn assert_right(splits: &Splits) {
    assert!(content(&splits.train) == train() && content(&splits.test) == val());
}

/// Waits for the end of the background copying.
fn ended(splits: &Splits) -> StagingStatus {
    let start = Instant::now();
    loop {
        let status = splits.staging.as_ref().unwrap().status();
        if status.ended {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{status:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn copies_are_made_and_read() {
    for stage in [Stage::Auto, Stage::Require] {
        let bench = Bench::new();
        let splits = bench.open(stage).unwrap();
        assert_right(&splits); // at whatever point the copying is
        let status = ended(&splits);
        assert_eq!((status.staged, &status.failure), (status.bytes, &None));
        for name in ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"] {
            let copies = bench.staged(name);
            assert_eq!(copies.len(), 1);
            let source = fs::read(bench.data.path().join(name)).unwrap();
            assert!(fs::read(&copies[0]).unwrap() == source, "{name}");
        }
        assert!(bench.staged(".partial").is_empty());
        assert_right(&splits);
        // That it is the copy which is read shows when it is not the source's content any more.
        let file = OpenOptions::new().write(true).open(bench.train_copy()).unwrap();
        file.write_all_at(&[0; 1 << 16], 0).unwrap();
        assert!(content(&splits.train) != train());
        assert!(content(&splits.test) == val());
    }
}

#[test]
fn a_second_run_uses_the_copies() {
    let bench = Bench::new();
    drop(bench.open(Stage::Require).unwrap());
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let before = modified(&bench.train_copy());
    assert_right(&bench.open(Stage::Require).unwrap());
    assert_eq!(modified(&bench.train_copy()), before);
    // The source may even be slow or away.
    let splits = bench.open(Stage::Require).unwrap();
    let archive = bench.data.path().join("ILSVRC2012_img_train.tar");
    fs::write(&archive, "gone").unwrap();
    assert_right(&splits);
}

#[test]
fn a_changed_archive_is_staged_anew() {
    let bench = Bench::new();
    drop(bench.open(Stage::Require).unwrap());
    let archive = bench.data.path().join("ILSVRC2012_img_train.tar");
    File::open(&archive).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert_right(&bench.open(Stage::Require).unwrap());
    assert_eq!(bench.staged("_train.tar").len(), 2);
}

#[test]
fn several_at_once_make_one_copy() {
    let bench = Bench::new();
    drop(bench.open(Stage::Off).unwrap()); // the index
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_right(&bench.open(Stage::Require).unwrap()));
        }
    });
    assert_eq!((bench.staged(".tar").len(), bench.staged(".partial").len()), (2, 0));
}

#[test]
fn one_that_is_being_copied_elsewhere_is_waited_for_without_stopping() {
    let bench = Bench::new();
    let (copy, lock) = bench.locked_copy();
    let aside = bench.disk.path().join("aside");
    fs::rename(&copy, &aside).unwrap();

    let splits = bench.open(Stage::Auto).unwrap();
    assert_right(&splits);
    thread::sleep(Duration::from_millis(300));
    let status = splits.staging.as_ref().unwrap().status();
    assert!(!status.ended && status.staged < status.bytes, "{status:?}");
    assert!(bench.staged(".partial").is_empty(), "the other one copies");
    // The other one finishes.
    fs::rename(&aside, &copy).unwrap();
    assert_eq!(ended(&splits).failure, None);
    assert_right(&splits);

    // The other one ends in the middle: somebody else begins anew.
    fs::remove_file(&copy).unwrap();
    fs::write(beside(&copy, ".partial"), [7; 1 << 16]).unwrap();
    let splits = bench.open(Stage::Auto).unwrap();
    thread::sleep(Duration::from_millis(200));
    drop(lock);
    assert_eq!(ended(&splits).failure, None);
    let source = fs::read(bench.data.path().join("ILSVRC2012_img_train.tar")).unwrap();
    assert!(fs::read(&copy).unwrap() == source);
    assert_right(&splits);
}

#[test]
fn ending_early_leaves_nothing_half_done() {
    let bench = Bench::new();
    let (copy, _lock) = bench.locked_copy();
    fs::remove_file(&copy).unwrap();
    let splits = bench.open(Stage::Auto).unwrap();
    let start = Instant::now();
    drop(splits); // while it waits for the lock
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(bench.staged("_train.tar").is_empty() && bench.staged(".partial").is_empty());
}

#[test]
fn what_cannot_be_staged_is_an_error_only_if_required() {
    let bench = Bench::new();
    let nowhere = EnvPaths::default();
    let refused =
        vim_data::open_in::<vim_data::Class>(&bench.config(Stage::Require), &nowhere).unwrap_err();
    assert!(refused.to_string().contains("$SLURM_TMPDIR"), "{refused}");
    assert!(
        vim_data::open_in::<vim_data::Class>(&bench.config(Stage::Auto), &nowhere)
            .unwrap()
            .staging
            .is_none()
    );
    assert!(bench.open(Stage::Off).unwrap().staging.is_none());

    let folders = unpacked();
    let of = |stage| DataConfig { stage, ..config(folders.path()) };
    let refused = open_on(&of(Stage::Require), bench.disk.path()).unwrap_err().to_string();
    assert!(refused.contains("vim-train data pack"), "{refused}");
    assert!(open_on(&of(Stage::Auto), bench.disk.path()).unwrap().staging.is_none());

    // Not a folder at all.
    let file = bench.data.path().join("val.txt");
    assert!(open_on(&bench.config(Stage::Require), &file).is_err());
    let splits = open_on(&bench.config(Stage::Auto), &file).unwrap();
    assert!(splits.notes[0].contains("read where they are"), "{:?}", splits.notes);
    assert_right(&splits);
    // On the disk already.
    let splits = open_on(&bench.config(Stage::Require), bench.data.path()).unwrap();
    assert!(splits.staging.is_none());
}

#[test]
fn a_disk_without_room_is_not_filled() {
    let bench = Bench::new();
    let archive = bench.data.path().join("ILSVRC2012_img_train.tar");
    let mut bytes = fs::read(&archive).unwrap();
    bytes.truncate(bytes.len() - 1024);
    let mut header = tar::Header::new_gnu();
    header.set_path("huge.bin").unwrap();
    header.set_size(4 << 40); // of holes
    header.set_cksum();
    bytes.extend_from_slice(header.as_bytes());
    fs::write(&archive, &bytes).unwrap();
    let length = bytes.len() as u64 + (4 << 40) + 1024;
    OpenOptions::new().write(true).open(&archive).unwrap().set_len(length).unwrap();

    let refused = bench.open(Stage::Require).unwrap_err().to_string();
    assert!(refused.contains("4398.0 GB") && refused.contains("are free"), "{refused}");
    let splits = bench.open(Stage::Auto).unwrap();
    let note = splits.notes.iter().find(|note| note.contains("are free"));
    assert!(note.is_some(), "{:?}", splits.notes);
    assert_right(&splits);
    assert!(bench.staged("").is_empty());
}
