//! What a loader does when something goes wrong or is left unfinished.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use vim_data::{
    AugmentPreset, DataError, Dataset, Encoding, Fingerprint, Loader, LoaderConfig, Recipe, Shapes,
    ShapesConfig, ShapesPart, Split, Statistics,
};

use crate::fixture::shapes;

/// A dataset of one-pixel images that counts reads, and fails where told.
#[derive(Default)]
struct Probe {
    reads: Arc<AtomicUsize>,
    delay: Duration,
    error_at: Option<usize>,
    panic_at: Option<usize>,
}

impl Dataset for Probe {
    fn len(&self) -> usize {
        1_000
    }

    fn encoding(&self) -> Encoding {
        Encoding::Pixels { size: [1, 1] }
    }

    fn class_names(&self) -> &[String] {
        static ONLY: [String; 1] = [String::new()];
        &ONLY
    }

    fn name(&self, index: usize) -> String {
        format!("probe {index}")
    }

    fn label(&self, _: usize) -> u32 {
        0
    }

    fn read(&self, index: usize, into: &mut Vec<u8>) -> Result<(), DataError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        thread::sleep(self.delay);
        assert_ne!(self.panic_at, Some(index), "probe panics");
        if self.error_at == Some(index) {
            return Err(DataError::NotAnArchive("probe".into()));
        }
        *into = vec![index as u8; 3];
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        Statistics::IMAGENET
    }

    fn fingerprint(&self) -> Fingerprint {
        let shapes = Shapes::new(ShapesConfig::default(), ShapesPart::Train).unwrap();
        shapes.fingerprint() // any will do
    }
}

fn loader(probe: Probe, workers: usize) -> Loader {
    let config = LoaderConfig::evaluation(10, [1, 1], workers, 0.875);
    Loader::new(Split::whole(Arc::new(probe)), config).unwrap()
}

/// Fails instead of hanging.
fn within_seconds<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    receive.recv_timeout(Duration::from_secs(seconds)).expect("the loader hangs")
}

#[test]
fn an_error_comes_at_its_place_and_ends_the_epoch() {
    for workers in [1, 3] {
        let results: Vec<_> = within_seconds(30, move || {
            loader(Probe { error_at: Some(57), ..Probe::default() }, workers).epoch(0, 0).collect()
        });
        assert_eq!(results.len(), 6);
        assert!(results[..5].iter().all(Result::is_ok));
        assert!(matches!(
            &results[5],
            Err(DataError::BadImage { name, reason })
                if name == "probe 57" && reason.contains("neither gzip nor tar")
        ));
    }
}

#[test]
fn a_panic_comes_as_an_error() {
    for workers in [1, 3] {
        let results: Vec<_> = within_seconds(30, move || {
            loader(Probe { panic_at: Some(20), ..Probe::default() }, workers).epoch(0, 0).collect()
        });
        assert_eq!(results.len(), 3);
        assert!(matches!(
            &results[2],
            Err(DataError::WorkerPanicked { batch: 2, message }) if message.contains("probe panics")
        ));
    }
}

#[test]
fn dropping_early_stops_the_threads() {
    for (workers, taken) in [(1, 0), (1, 1), (4, 0), (4, 3), (4, 100)] {
        let reads = Arc::new(AtomicUsize::new(0));
        let probe = Probe {
            reads: Arc::clone(&reads),
            delay: Duration::from_micros(100),
            ..Probe::default()
        };
        within_seconds(30, move || {
            let mut batches = loader(probe, workers).epoch(0, 0);
            for _ in 0..taken {
                batches.next().unwrap().unwrap();
            }
        });
        let after = reads.load(Ordering::SeqCst);
        assert!(after <= 10 * (taken + 5), "{after} reads for {taken} batches");
        thread::sleep(Duration::from_millis(20));
        assert_eq!(reads.load(Ordering::SeqCst), after, "a thread outlived its iterator");
    }
}

#[test]
fn batches_in_flight_are_bounded() {
    let reads = Arc::new(AtomicUsize::new(0));
    let loader = loader(Probe { reads: Arc::clone(&reads), ..Probe::default() }, 3);
    assert_eq!(loader.max_in_flight(), 5);
    let mut batches = loader.epoch(0, 0);
    for taken in 0..4 {
        let expected = 10 * (taken + 5);
        let deadline = Instant::now() + Duration::from_secs(20);
        while reads.load(Ordering::SeqCst) < expected {
            assert!(Instant::now() < deadline, "the threads do not work ahead");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(30));
        assert_eq!(reads.load(Ordering::SeqCst), expected, "after {taken} batches");
        batches.next().unwrap().unwrap();
    }
}

#[test]
fn entering_late_reads_nothing_before() {
    let reads = Arc::new(AtomicUsize::new(0));
    let loader = loader(Probe { reads: Arc::clone(&reads), ..Probe::default() }, 2);
    let count = within_seconds(30, move || loader.epoch(0, 97).map(Result::unwrap).count());
    assert_eq!(count, 3);
    assert_eq!(reads.load(Ordering::SeqCst), 30);
}

#[test]
fn impossible_configurations_are_refused() {
    let new = |batch_size, workers| {
        let train = vim_data::open(&shapes(20, 0, 5), 0).unwrap().train;
        let recipe = Recipe::preset(AugmentPreset::None);
        Loader::new(train, LoaderConfig::training(batch_size, [32, 32], workers, 0, recipe))
    };
    assert!(matches!(new(0, 1), Err(DataError::InvalidConfig { key: "train.batch_size", .. })));
    assert!(matches!(new(4, 0), Err(DataError::InvalidConfig { key: "data.workers", .. })));
    assert!(matches!(new(21, 1), Err(DataError::NoBatches { images: 20, batch_size: 21 })));
    assert!(new(20, 1).is_ok());
}
