//! Threads that read files and make batches ahead of the consumer, handed over in order.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fmt, mem, ops::Range, time::Instant};

use super::stats::{BadSample, LoaderStage, LoaderStats, Tally};
use super::worker::{Assembly, BufferPool, Task, Worker, read};
use super::{Batch, Loader, Order};
use crate::dataset::{Encoding, Sample};
use crate::error::DataError;

/// Files that may wait for a worker, per reader.
const AHEAD: usize = 4;

/// Prefix of the threads' names. A panic on one of them becomes an error about its batch.
pub const THREAD_PREFIX: &str = "vim-data-";

/// Batches, in order. Dropping it stops the threads.
///
/// After an error it yields nothing more. A failed epoch never looks like a short one, since the
/// error comes first.
pub struct Batches {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    tally: Tally,
}

/// What the threads share.
struct Shared {
    loader: Loader,
    start: Instant,
    /// Of images and of label maps.
    pools: [Arc<BufferPool>; 2],
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

#[derive(Default)]
struct State {
    /// The epoch that was planned last, and its order.
    order: Option<(u64, Order)>,
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
    spare: Vec<Sample>,
    making: BTreeMap<u64, Assembly>,
    finished: BTreeMap<u64, Result<(Batch, Vec<BadSample>), DataError>>,
    stats: LoaderStats,
    stopped: bool,
}

impl Batches {
    pub(super) fn start(loader: Loader, batches: Range<u64>) -> Self {
        let workers = loader.config.workers;
        let readers = match loader.split.encoding() {
            Encoding::Pixels { .. } => 0,
            Encoding::Files => loader.config.readers,
        };
        let (unopened, awaited) = (batches.clone(), batches.clone());
        let shared = Arc::new(Shared {
            loader,
            start: Instant::now(),
            pools: Default::default(),
            ahead: AHEAD * readers,
            state: Mutex::new(State { unopened, awaited, ..State::default() }),
            room: Condvar::new(),
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut threads = Vec::new();
        if !batches.is_empty() {
            let reads =
                (0..readers).map(|reader| ("read", reader, Shared::read_ahead as fn(&Shared)));
            let works = (0..workers).map(|worker| ("work", worker, Shared::make as fn(&Shared)));
            for (kind, worker, run) in reads.chain(works) {
                let of_thread = Arc::clone(&shared);
                let thread = thread::Builder::new().name(format!("{THREAD_PREFIX}{kind}-{worker}"));
                match thread.spawn(move || run(&of_thread)) {
                    Ok(thread) => threads.push(thread),
                    Err(source) => {
                        let error = DataError::Spawn { worker, source };
                        shared.lock().fail(&shared, batches.start, error);
                        break;
                    }
                }
            }
        }
        Self { shared, threads, tally: Tally::default() }
    }

    /// What was done and how long it took, so far.
    pub fn stats(&self) -> LoaderStats {
        let state = self.shared.lock();
        let (ready, elapsed) = (state.finished.len(), self.shared.start.elapsed());
        LoaderStats { ready, elapsed, ..state.stats }
    }

    /// Whether the next batch is ready, or there is none: `next` does not wait.
    pub fn is_ready(&self) -> bool {
        let state = self.shared.lock();
        state.awaited.is_empty() || state.finished.contains_key(&state.awaited.start)
    }

    /// The images that could not be read since the last call, in the order of the batches.
    pub fn take_bad(&mut self) -> Vec<BadSample> {
        mem::take(&mut self.tally.samples)
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = Instant::now();
        let mut state = self.shared.lock();
        let made = loop {
            // Checked first: after an error, later batches may be finished and must not be
            // returned.
            if state.awaited.is_empty() {
                return None;
            }
            let number = state.awaited.start;
            match state.finished.remove(&number) {
                Some(made) => break made,
                None => state = wait(&self.shared.ready, state),
            }
        };
        state.stats.waited += start.elapsed();
        state.awaited.start += 1;
        // Counted in the order of batches: the number of threads does not decide where a run gives
        // up.
        let tally = &mut self.tally;
        let batch = made.and_then(|(batch, bad)| tally.add(bad, batch.len()).map(|()| batch));
        if batch.is_err() {
            state.stop();
        }
        self.shared.room.notify_all();
        self.shared.work.notify_all();
        Some(batch)
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.shared.lock().stop();
        self.shared.room.notify_all();
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // Panics were caught and handed over as errors; the result holds nothing.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Batches").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl State {
    /// Stops the threads; there is no next batch.
    fn stop(&mut self) {
        self.stopped = true;
        self.awaited.end = self.awaited.start;
    }

    /// The next task. Opens a batch if no task is left and there is room for one.
    fn take(&mut self, shared: &Shared) -> Option<Task> {
        if self.tasks.is_empty()
            && !self.unopened.is_empty()
            && self.unopened.start < self.awaited.start + shared.loader.max_in_flight() as u64
        {
            let number = self.unopened.start;
            self.unopened.start += 1;
            match shared.loader.plan(number, &mut self.order) {
                Ok(plan) => {
                    let config = &shared.loader.config;
                    let (assembly, tasks) = Assembly::open(number, plan, config, &shared.pools);
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

    /// The body of a reader: reads files until there are none left, or nobody wants them.
    fn read_ahead(&self) {
        let split = &self.loader.split;
        while let Some((mut task, mut sample)) = self.take_unread() {
            let index = split.index(task.groups[0].position);
            let mut stats = LoaderStats::default();
            // The worker handles the failure; it tries again what may get better.
            let read = stats.timed(LoaderStage::Read, || {
                shielded(task.batch, || read(split.dataset(), index, &mut sample))
            });
            let mut state = self.lock();
            state.stats.add(&stats);
            state.reading -= 1;
            match read {
                Ok(()) => task.sample = Some(sample),
                Err(error) => {
                    state.spare.push(sample);
                    let is_lasting =
                        !error.is_io() && !matches!(error, DataError::WorkerPanicked { .. });
                    task.unreadable = is_lasting.then_some(error);
                }
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

    fn take_unread(&self) -> Option<(Task, Sample)> {
        let mut state = self.lock();
        loop {
            if state.stopped || (state.unopened.is_empty() && state.tasks.is_empty()) {
                return None;
            }
            if state.loaded.len() + state.reading < self.ahead
                && let Some(task) = state.take(self)
            {
                state.reading += 1;
                let sample = state.spare.pop().unwrap_or_default();
                return Some((task, sample));
            }
            state = wait(&self.room, state);
        }
    }

    /// The body of a worker: makes parts of batches until there are none left, or nobody wants
    /// them.
    fn make(&self) {
        let mut worker = None;
        while let Some(mut task) = self.take_ready() {
            let (number, part) = (task.batch, task.number);
            let made = shielded(number, || {
                let worker = match &mut worker {
                    Some(worker) => worker,
                    None => worker.insert(Worker::new(&self.loader)?),
                };
                worker.make(&mut task)
            });
            let mut state = self.lock();
            state.spare.extend(task.sample);
            match made {
                Ok(made) => {
                    state.stats.add(&made.stats);
                    let assembly = state.making.get_mut(&number);
                    let is_last = assembly.is_some_and(|assembly| assembly.add(part, made));
                    if is_last && let Some(assembly) = state.making.remove(&number) {
                        state.finished.insert(number, Ok(assembly.finish(&self.pools)));
                        self.ready.notify_one();
                    }
                }
                Err(error) => {
                    state.fail(self, number, error);
                    worker = None; // a panic may have left its buffers in any state
                }
            }
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
            state = wait(&self.work, state);
        }
    }
}

fn wait<'a>(signal: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
    signal.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work`; a panic becomes an error about the batch.
fn shielded<T>(batch: u64, work: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = message.unwrap_or_else(|| "no message".to_owned());
        Err(DataError::WorkerPanicked { batch, message })
    })
}
