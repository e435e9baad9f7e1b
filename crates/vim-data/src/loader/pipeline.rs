//! Threads that read files and make batches ahead of the consumer, handed over in order.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{any::Any, ops::Range, time::Duration};

use super::assembly::{Assembly, EpochPlans, FinishedBatch, Task, TaskResult};
use super::stats::{Counters, LoaderStage, LoaderStats};
use super::worker::{Worker, read};
use super::{LoaderConfig, batch::BufferPool};
use crate::{dataset::Encoding, error::DataError, split::Split};

/// Files that may wait for a worker, per reader.
const AHEAD: usize = 4;

/// Prefix of the threads' names. A panic on one of them becomes an error about its batch.
pub const THREAD_PREFIX: &str = "vim-data-";

/// The threads, and what they share.
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    split: Split,
    config: Arc<LoaderConfig>,
    counters: Counters,
    pool: Arc<BufferPool>,
    /// The most batches in the making or waiting.
    capacity: u64,
    /// The most files read ahead of the workers; 0 if workers read themselves.
    ahead: usize,
    state: Mutex<State>,
    /// For readers: there is room for a file.
    room: Condvar,
    /// For workers: there is work.
    work: Condvar,
    /// For the consumer: a batch is finished.
    ready: Condvar,
}

struct State {
    plans: EpochPlans,
    /// Numbers of the batches that are not opened yet.
    unopened: Range<u64>,
    /// Numbers of the batches that the consumer has not received yet.
    awaited: Range<u64>,
    /// Tasks of opened batches that no thread has taken.
    tasks: VecDeque<Task>,
    /// Tasks whose file is read.
    loaded: VecDeque<Task>,
    /// Number of tasks whose file is being read.
    reading: usize,
    /// Unused buffers of files.
    spare: Vec<Vec<u8>>,
    making: BTreeMap<u64, Assembly>,
    finished: BTreeMap<u64, Result<FinishedBatch, DataError>>,
    stopped: bool,
}

impl Pipeline {
    pub(super) fn start(batches: Range<u64>, plans: EpochPlans, capacity: usize) -> Self {
        let (split, config) = (plans.split.clone(), Arc::clone(&plans.config));
        let readers = match split.encoding() {
            Encoding::Pixels { .. } => 0,
            Encoding::Files => config.readers,
        };
        let state = State {
            plans,
            unopened: batches.clone(),
            awaited: batches.clone(),
            tasks: VecDeque::new(),
            loaded: VecDeque::new(),
            reading: 0,
            spare: Vec::new(),
            making: BTreeMap::new(),
            finished: BTreeMap::new(),
            stopped: false,
        };
        let shared = Arc::new(Shared {
            split,
            counters: Counters::new(),
            pool: Arc::new(BufferPool::default()),
            capacity: capacity as u64,
            ahead: AHEAD * readers,
            state: Mutex::new(state),
            room: Condvar::new(),
            work: Condvar::new(),
            ready: Condvar::new(),
            config,
        });
        let mut pipeline = Self { shared, threads: Vec::new() };
        if !batches.is_empty() {
            let workers = pipeline.shared.config.workers;
            let reads = (0..readers).map(|reader| ("read", reader, Shared::read_ahead as fn(&_)));
            let works = (0..workers).map(|worker| ("work", worker, Shared::make as fn(&_)));
            for (kind, number, run) in reads.chain(works) {
                if let Err(source) = pipeline.spawn(format!("{THREAD_PREFIX}{kind}-{number}"), run)
                {
                    let error = DataError::Spawn { worker: number, source };
                    pipeline.shared.refuse(batches.start, error);
                    break;
                }
            }
        }
        pipeline
    }

    fn spawn(&mut self, name: String, run: fn(&Shared)) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(thread::Builder::new().name(name).spawn(move || run(&shared))?);
        Ok(())
    }

    /// Whether [`next`](Self::next) would not wait.
    pub(super) fn is_ready(&self) -> bool {
        let state = self.shared.lock();
        state.awaited.is_empty() || state.finished.contains_key(&state.awaited.start)
    }

    /// The next batch in order; waits for it. After an error there is none.
    pub(super) fn next(&mut self) -> Option<Result<FinishedBatch, DataError>> {
        let mut state = self.shared.lock();
        loop {
            // Checked first: after an error, later batches may be finished and must not be
            // returned.
            if state.awaited.is_empty() {
                return None;
            }
            let number = state.awaited.start;
            if let Some(batch) = state.finished.remove(&number) {
                state.awaited.start += 1;
                if batch.is_err() {
                    state.awaited.end = state.awaited.start;
                    state.stopped = true;
                }
                self.shared.room.notify_all();
                self.shared.work.notify_all();
                return Some(batch);
            }
            state = self.shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stops the threads; there is no next batch.
    pub(super) fn stop(&mut self) {
        let mut state = self.shared.lock();
        state.stopped = true;
        state.awaited.end = state.awaited.start;
        self.shared.room.notify_all();
        self.shared.work.notify_all();
    }

    pub(super) fn waited(&self, time: Duration) {
        self.shared.counters.waited(time);
    }

    pub(super) fn stats(&self) -> LoaderStats {
        let ready = self.shared.lock().finished.len();
        self.shared.counters.stats(ready)
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // Panics were caught and handed over as errors; the result holds nothing.
            let _ = thread.join();
        }
    }
}

impl State {
    /// The next task. Opens a batch if no task is left and there is room for one.
    fn take(&mut self, shared: &Shared) -> Option<Task> {
        if self.tasks.is_empty()
            && !self.unopened.is_empty()
            && self.unopened.start < self.awaited.start + shared.capacity
        {
            let number = self.unopened.start;
            self.unopened.start += 1;
            match self.plans.plan(number) {
                Ok(plan) => {
                    let LoaderConfig { batch_size, size, .. } = *shared.config;
                    let (assembly, tasks) =
                        Assembly::open(number, plan, batch_size, size, &shared.pool);
                    self.making.insert(number, assembly);
                    self.tasks.extend(tasks);
                    // Other threads may have work now.
                    shared.work.notify_all();
                    shared.room.notify_all();
                }
                Err(error) => self.fail(shared, number, error),
            }
        }
        self.tasks.pop_front()
    }

    /// Whether there will be no more tasks.
    fn is_drained(&self) -> bool {
        self.unopened.is_empty()
            && self.tasks.is_empty()
            && self.loaded.is_empty()
            && self.reading == 0
    }

    /// Records an error as the result of batch `number`; an earlier error of that batch stays.
    fn fail(&mut self, shared: &Shared, number: u64, error: DataError) {
        self.making.remove(&number);
        if number >= self.awaited.start {
            self.finished.entry(number).or_insert(Err(error));
        }
        // Batches after it are not needed.
        self.unopened.end = self.unopened.start;
        self.tasks.retain(|task| task.batch < number);
        self.loaded.retain(|task| task.batch < number);
        shared.ready.notify_one();
    }
}

impl Shared {
    /// The state stays consistent at every unlock, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, number: u64, error: DataError) {
        self.lock().fail(self, number, error);
    }

    /// The body of a reader: reads files until there are none left, or nobody wants them.
    fn read_ahead(&self) {
        while let Some((mut task, mut file)) = self.take_unread() {
            let index = self.split.index(task.groups[0].position);
            // The worker tries again what fails here, and handles the failure.
            let read = self.counters.timed(LoaderStage::Read, || {
                shielded(task.batch, || read(self.split.dataset(), index, &mut file))
            });
            let mut state = self.lock();
            state.reading -= 1;
            match read {
                Ok(()) => task.file = Some(file),
                Err(_) => state.spare.push(file),
            }
            if !state.stopped {
                state.loaded.push_back(task);
            }
            drop(state);
            self.work.notify_one();
        }
        // Workers may be waiting for tasks that will not come.
        self.work.notify_all();
    }

    fn take_unread(&self) -> Option<(Task, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.stopped || (state.unopened.is_empty() && state.tasks.is_empty()) {
                return None;
            }
            if state.loaded.len() + state.reading < self.ahead
                && let Some(task) = state.take(self)
            {
                state.reading += 1;
                let file = state.spare.pop().unwrap_or_default();
                return Some((task, file));
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The body of a worker: makes parts of batches until there are none left, or nobody wants
    /// them.
    fn make(&self) {
        let mut worker = None;
        while let Some(mut task) = self.take_ready() {
            let number = task.batch;
            let file = task.file.take();
            let made = shielded(number, || {
                let worker = match &mut worker {
                    Some(worker) => worker,
                    None => worker.insert(Worker::new(&self.split, &self.config, &self.counters)?),
                };
                worker.make(task, file.as_deref())
            });
            if made.is_err() {
                // A panic may have left its buffers in any state.
                worker = None;
            }
            self.put(number, made, file);
        }
    }

    fn take_ready(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let task = match self.ahead {
                0 => state.take(self),
                _ => state.loaded.pop_front(),
            };
            if task.is_some() {
                self.room.notify_one();
                return task;
            }
            if state.is_drained() {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds a worker's result to its batch.
    fn put(&self, number: u64, made: Result<TaskResult, DataError>, file: Option<Vec<u8>>) {
        let mut state = self.lock();
        state.spare.extend(file);
        let made = match made {
            Ok(made) => made,
            Err(error) => return state.fail(self, number, error),
        };
        let last = state.making.get_mut(&number).is_some_and(|assembly| assembly.add(made));
        if last && let Some(assembly) = state.making.remove(&number) {
            let batch = assembly.finish(&self.pool);
            state.finished.insert(number, Ok(batch));
            self.ready.notify_one();
        }
    }
}

/// Runs `work`; a panic becomes an error about the batch.
fn shielded<T>(batch: u64, work: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        Err(DataError::WorkerPanicked { batch, message: message(&*payload) })
    })
}

/// A panic's message, if it is text.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
