//! Saving in the background: order, errors, what is kept, what a run saves and when.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use vim_model::NamedArrays;
use vim_train::run::checkpoint::Checkpoints;
use vim_train::run::metrics::JsonlWriter;
use vim_train::run::saver::{Saver, Snapshot};
use vim_train::run::storage::{Disk, Storage};

use crate::checkpoint::state;
use crate::faults::Faulty;
use crate::train::{Bench, assert_code};

/// A disk on which files can be written only while its gate is open.
#[derive(Clone, Debug, Default)]
struct Gated(Arc<(Mutex<bool>, Condvar)>);

impl Gated {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

impl Storage for Gated {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Disk.create_dir(path)
    }
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
        Disk.write(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        Disk.sync_dir(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }
}

fn saver(storage: Box<dyn Storage>) -> (TempDir, Saver) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join("checkpoints");
    let checkpoints = Checkpoints::with_storage(&checkpoints, 2, storage).unwrap();
    (folder, Saver::new(checkpoints))
}

fn start(folder: &TempDir, saver: &mut Saver, step: u64, is_best: bool) -> Result<(), String> {
    let files = vec![("model", NamedArrays::default())];
    let snapshot = Snapshot { files, state: state(step), is_best, is_archived: false };
    let metrics = JsonlWriter::appending(&folder.path().join("metrics.jsonl")).unwrap();
    saver.start(snapshot, metrics).map_err(|error| error.to_string())
}

#[test]
fn a_save_does_not_wait_and_the_next_one_does() {
    let gate = Gated::default();
    let (folder, mut saver) = saver(Box::new(gate.clone()));
    start(&folder, &mut saver, 10, true).unwrap();
    saver.check().unwrap();
    assert!(saver.checkpoints().steps().is_empty(), "it has not been let through yet");
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    start(&folder, &mut saver, 20, false).unwrap();
    assert_eq!(saver.checkpoints().steps()[0], 10, "before the second began");
    assert_eq!(saver.checkpoints().best_step(), Some(10), "marked in the same order");
    saver.wait().unwrap();
    assert_eq!(saver.checkpoints().steps(), [10, 20]);
    opener.join().unwrap();
}

#[test]
fn dropping_waits_for_what_is_in_flight() {
    let gate = Gated::default();
    let (folder, mut saver) = saver(Box::new(gate.clone()));
    start(&folder, &mut saver, 10, false).unwrap();
    let opener = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        gate.open();
    });
    drop(saver);
    let left = Checkpoints::open(&folder.path().join("checkpoints"), 2).unwrap();
    assert_eq!(left.latest_valid().unwrap().checkpoint.unwrap().state.step, 10);
    opener.join().unwrap();
}

#[test]
fn an_error_comes_back_once_and_the_earlier_checkpoint_is_kept() {
    let faulty = Faulty::new(io::ErrorKind::StorageFull, u64::MAX / 4);
    let (folder, mut saver) = saver(Box::new(faulty.clone()));
    start(&folder, &mut saver, 10, false).unwrap();
    saver.wait().unwrap();
    faulty.arm(0);
    start(&folder, &mut saver, 20, true).unwrap();
    let error = loop {
        // As the loop does at every step.
        if let Err(error) = saver.check() {
            break error.to_string();
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(error.contains("no room for a checkpoint"), "{error}");
    saver.wait().unwrap();
    assert_eq!((saver.checkpoints().steps(), saver.checkpoints().best_step()), (vec![10], None));
    faulty.arm(u64::MAX / 2);
    start(&folder, &mut saver, 30, false).unwrap();
    saver.wait().unwrap();
    assert_eq!(saver.checkpoints().steps(), [10, 30]);
}

/// The steps whose checkpoints a run left.
fn steps(bench: &Bench, name: &str) -> Vec<u64> {
    let names = fs::read_dir(bench.folder(name).join("checkpoints")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<u64> =
        names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn checkpoints_by_steps_epochs_and_minutes() {
    let bench = Bench::new();
    // An epoch has 8 steps; an evaluation is saved if it is the best, so there is none before the
    // last.
    let without = [
        "--set",
        "data.val_fraction=0",
        "--set",
        "data.shapes={ train = 256, test = 64, val = 0 }",
    ];
    for (name, every, expected) in [
        ("steps", "7st", vec![7, 14, 21, 24]),
        ("epochs", "0.5ep", vec![4, 8, 12, 16, 20, 24]),
        // 6 µs: no step is so short.
        ("minutes", "0.0000001min", (1..=24).collect()),
    ] {
        let every = format!("checkpoint.every={every}");
        let more = [&without[..], &["--set", &every, "--set", "checkpoint.keep_last=99"]].concat();
        assert_code(&bench.train(name, &more), 0);
        assert_eq!(steps(&bench, name), expected, "{every}");
        assert_eq!(bench.metrics(name), bench.metrics("steps"), "saving changes no result");
    }
    let timing = fs::read_to_string(bench.folder("minutes").join("timing.jsonl")).unwrap();
    for line in timing.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let stall = record["save_stall_s"].as_f64().unwrap();
        assert!(stall >= 0.0 && stall <= record["elapsed_s"].as_f64().unwrap(), "{line}");
    }
}

#[test]
fn archived_checkpoints_stay() {
    let bench = Bench::new();
    let more = ["--set", "checkpoint.archive=\"5st\"", "--set", "checkpoint.every=2st", "--set"];
    let more = [&more[..], &["train.eval_every=3ep"]].concat();
    assert_code(&bench.train("a", &more), 0);
    // The archived, the newest two, and the best, which is the last.
    assert_eq!(steps(&bench, "a"), [5, 10, 15, 20, 22, 24]);
    let list = fs::read_to_string(bench.folder("a").join("checkpoints/archive")).unwrap();
    let names: Vec<_> = [5, 10, 15, 20].map(|step| format!("step-{step:08}")).to_vec();
    assert_eq!(list.lines().collect::<Vec<_>>(), names);

    let refused = bench.train("b", &["--set", "checkpoint.archive=0ep"]);
    assert_code(&refused, 78);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("checkpoint.archive"));
}
