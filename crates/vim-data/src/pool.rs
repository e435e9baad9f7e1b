//! Threads that work ahead, and hand over in order.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    ops::Range,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::error::DataError;

/// Makes the item with a given number.
type Make<T> = dyn Fn(usize) -> Result<T, DataError> + Send + Sync;

/// Items of a range of numbers, made by threads in any order, yielded in order.
///
/// At most `capacity` items are being made or waiting at a time. A panic while making an item becomes
/// that item's error; after an error nothing more is yielded.
pub(crate) struct OrderedPool<T> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// The consumer took an item, or stopped.
    room: Condvar,
    /// A thread finished an item.
    ready: Condvar,
    capacity: usize,
}

struct State<T> {
    /// Numbers that no thread has taken yet.
    pending: Range<usize>,
    /// Numbers that the consumer has not received yet.
    awaited: Range<usize>,
    finished: BTreeMap<usize, Result<T, DataError>>,
    stopped: bool,
}

impl<T: Send + 'static> OrderedPool<T> {
    /// Starts up to `workers` threads on the items numbered by `range`.
    pub(crate) fn start(
        range: Range<usize>,
        workers: usize,
        capacity: usize,
        make: Arc<Make<T>>,
    ) -> Self {
        let state = State {
            pending: range.clone(),
            awaited: range.clone(),
            finished: BTreeMap::new(),
            stopped: false,
        };
        let (room, ready) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::new(state), room, ready, capacity });

        let mut threads = Vec::new();
        for worker in 0..workers.min(range.len()) {
            let (theirs, make) = (Arc::clone(&shared), Arc::clone(&make));
            let thread = thread::Builder::new().name(format!("vim-data-{worker}"));
            match thread.spawn(move || theirs.work(&*make)) {
                Ok(handle) => threads.push(handle),
                Err(source) => {
                    shared.refuse(range.start, DataError::Spawn { worker, source });
                    break;
                }
            }
        }
        Self { shared, threads }
    }
}

impl<T> OrderedPool<T> {
    /// The next item in order; waits for it.
    pub(crate) fn next(&mut self) -> Option<Result<T, DataError>> {
        let mut state = self.shared.lock();
        loop {
            // First: after an error, later items may lie ready, and stay there.
            if state.awaited.is_empty() {
                return None;
            }
            let number = state.awaited.start;
            if let Some(item) = state.finished.remove(&number) {
                state.awaited.start += 1;
                if item.is_err() {
                    state.awaited.end = state.awaited.start;
                    state.stopped = true;
                }
                self.shared.room.notify_all();
                return Some(item);
            }
            state = self.shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Drop for OrderedPool<T> {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // Panics were caught and handed over as errors; there is nothing left in the result.
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for OrderedPool<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.len();
        formatter.debug_struct("OrderedPool").field("threads", &threads).finish_non_exhaustive()
    }
}

impl<T> Shared<T> {
    /// The state stays consistent at every unlock, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread: makes items until there are none left, or nobody wants them.
    fn work(&self, make: &Make<T>) {
        while let Some(number) = self.take_number() {
            let item =
                panic::catch_unwind(AssertUnwindSafe(|| make(number))).unwrap_or_else(|payload| {
                    Err(DataError::WorkerPanicked { batch: number, message: message(&*payload) })
                });
            // Not `insert`: a refusal, already there, stays.
            self.lock().finished.entry(number).or_insert(item);
            self.ready.notify_one();
        }
    }

    /// The next number to work on, once there is room for its item.
    fn take_number(&self) -> Option<usize> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.pending.is_empty() {
                return None;
            }
            if state.pending.start < state.awaited.start + self.capacity {
                return state.pending.next();
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes `error` the only thing that the consumer gets.
    fn refuse(&self, first: usize, error: DataError) {
        let mut state = self.lock();
        state.stopped = true;
        state.finished.insert(first, Err(error));
    }
}

/// What a panic said.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
