//! Saving in the background: order, errors, retention.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use vim_run::checkpoint::{Checkpoints, Content, Saver, Snapshot};
use vim_run::metrics::JsonlWriter;
use vim_run::storage::{Disk, Storage};

use crate::checkpoint::state;
use crate::faults::Faulty;

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
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(is_open, |is_open| !*is_open).unwrap());
        Disk.write(path, bytes)
    }
}

fn saver(storage: Box<dyn Storage>) -> (TempDir, Saver) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = folder.path().join("checkpoints");
    let checkpoints = Checkpoints::with_storage(&checkpoints, 2, storage).unwrap();
    (folder, Saver::new(checkpoints))
}

fn start(folder: &TempDir, saver: &mut Saver, step: u64, is_best: bool) -> Result<(), String> {
    let content: Content = Box::new(|| Ok(Vec::new()));
    let files = vec![("model", content)];
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
