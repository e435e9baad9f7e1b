//! What a loader does when something goes wrong or is left unfinished.

use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use vim_data::{AugmentPreset, Batch, Class, DataError, Loader, LoaderConfig, OnBad, Recipe};

use crate::fixture::shapes;
use crate::memory::Memory;

fn loader(images: Memory, workers: usize) -> Loader {
    Loader::new(images.split(), LoaderConfig::evaluation(10, [1, 1], workers, 0.875)).unwrap()
}

/// Fails instead of hanging.
fn within_seconds<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    receive.recv_timeout(Duration::from_secs(seconds)).expect("the loader hangs")
}

/// An epoch with an image that fails, by one thread and by several.
fn faulty_epochs(images: impl Fn() -> Memory) -> [Vec<Result<Batch, DataError>>; 2] {
    [1, 3].map(|workers| {
        let images = images();
        within_seconds(30, move || loader(images, workers).epoch(0, 0).collect())
    })
}

#[test]
fn an_error_comes_at_its_place_and_ends_the_epoch() {
    for results in faulty_epochs(|| {
        let images = Memory::pixels();
        images.failures[57].store(u32::MAX, Ordering::SeqCst);
        images
    }) {
        assert_eq!(results.len(), 6);
        assert!(results[..5].iter().all(Result::is_ok));
        assert!(matches!(
            &results[5],
            Err(DataError::BadImage { name, reason })
                if name == "image 57" && reason.contains("the disk is away")
        ));
    }
}

/// What cannot get better is read once at a visit, and nobody waits for it.
#[test]
fn a_damaged_file_is_read_once() {
    for kind in [ErrorKind::InvalidData, ErrorKind::FileTooLarge, ErrorKind::UnexpectedEof] {
        for (workers, readers) in [(1, 1), (3, 2)] {
            let images = Memory { failure: kind, ..Memory::files(20) };
            images.failures[7].store(u32::MAX, Ordering::SeqCst);
            let reads = Arc::clone(&images.reads);
            let config = LoaderConfig::evaluation(5, [8, 8], workers, 0.875);
            let config = LoaderConfig { readers, on_bad: OnBad::CountAsWrong, ..config };
            let loader = Loader::new(images.split(), config).unwrap();
            let mut batches = loader.batches(0..8);
            let begun = Instant::now();
            let unread: Vec<_> = batches.by_ref().map(|batch| batch.unwrap().unread).collect();
            let none = Vec::new();
            assert_eq!(unread[..3], [none.clone(), vec![2], none]);
            assert_eq!((unread.len(), reads.load(Ordering::SeqCst)), (8, 40), "two epochs");
            let bad = batches.take_bad();
            assert!(bad.len() == 2 && bad[0].reason.contains("the disk is away"), "{bad:?}");
            // One that may get better is waited for twice: 2.2 s each time.
            assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_panic_comes_as_an_error() {
    for results in faulty_epochs(|| Memory { panic_at: Some(20), ..Memory::pixels() }) {
        assert_eq!(results.len(), 3);
        assert!(matches!(
            &results[2],
            Err(DataError::WorkerPanicked { batch: 2, message }) if message.contains("panics")
        ));
    }
}

#[test]
fn dropping_early_stops_the_threads() {
    for (workers, taken) in [(1, 0), (1, 1), (4, 0), (4, 3), (4, 100)] {
        let images = Memory { delay: Duration::from_micros(100), ..Memory::pixels() };
        let reads = Arc::clone(&images.reads);
        within_seconds(30, move || {
            let mut batches = loader(images, workers).epoch(0, 0);
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
    let images = Memory::pixels();
    let reads = Arc::clone(&images.reads);
    let loader = loader(images, 3);
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
    let images = Memory::pixels();
    let reads = Arc::clone(&images.reads);
    let loader = loader(images, 2);
    let count = within_seconds(30, move || loader.epoch(0, 97).map(Result::unwrap).count());
    assert_eq!(count, 3);
    assert_eq!(reads.load(Ordering::SeqCst), 30);
}

#[test]
fn impossible_configurations_are_refused() {
    let new = |batch_size, workers, preset| {
        let train = vim_data::open::<Class>(&shapes(20, 0, 5)).unwrap().train;
        let recipe = Recipe::preset(preset);
        Loader::new(train, LoaderConfig::training(batch_size, [32, 32], workers, 0, recipe))
    };
    let plain = AugmentPreset::None;
    assert!(matches!(new(21, 1, plain), Err(DataError::NoBatches { images: 20, batch_size: 21 })));
    assert!(new(20, 1, plain).is_ok());
    for (batch_size, workers, preset, expected) in [
        (0, 1, plain, "train.batch_size = 0"),
        (4, 0, plain, "data.workers = 0"),
        (7, 1, AugmentPreset::Deit, "train.batch_size = 7"),
    ] {
        let error = new(batch_size, workers, preset).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
