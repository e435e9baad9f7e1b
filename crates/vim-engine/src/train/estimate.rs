//! How fast a run would train here, by a few of its own steps.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use vim_comm::Comm;

use super::state::TrainState;
use super::step::{Passes, Requests, StepGraph};
use crate::config::{BatchSize, Config};
use crate::device::SelectedDevice;
use crate::error::Error;
use crate::task::kinds::with_task;
use crate::task::{BatchStream, Objective, Task};

/// Images of the first steps on a CPU: a step that has begun cannot be stopped, and a whole batch
/// may take minutes. On a GPU few images take as long as many.
const FIRST: usize = 4;
/// Steps that are timed, after those that are not.
const STEPS: u64 = 3;

/// Images and seconds of steps so far; none where the time begins.
type Timed = (usize, f64);

/// Training images a second of the run of `config` on `device`, with its images as they come from
/// the disk, by steps of at most `limit`; `None` if none ends within it. On a GPU it begins when
/// the first step has compiled the kernels, and the batches that were made meanwhile do not count.
///
/// What a step still does at the limit goes on in a thread of its own: the process should end soon.
/// A GPU is waited for, as its driver is not to be in use when a process ends.
pub fn speed(
    config: &Config,
    device: &SelectedDevice,
    limit: Duration,
) -> Result<Option<f64>, Error> {
    with_task!(config.task, T => images_per_second::<T>(config, device, limit))
}

/// As [`speed`], of the task `T`.
pub(crate) fn images_per_second<T: Task + 'static>(
    config: &Config,
    device: &SelectedDevice,
    limit: Duration,
) -> Result<Option<f64>, Error> {
    let (sender, timed) = channel();
    let (is_cpu, config, device) = (device.is_cpu(), config.clone(), device.clone());
    let work = move || {
        if let Err(error) = steps::<T>(&config, &device, limit, &sender) {
            // Who waited may be gone.
            let _ = sender.send(Err(error));
        }
    };
    let thread = thread::Builder::new().name("time".into()).spawn(work);
    let thread = thread.map_err(Error::io("start", "a thread"))?;
    // Opening the data and compiling may take longer, and are part of every run.
    if let Ok(told) = timed.recv() {
        told?;
    }
    let (start, mut speed) = (Instant::now(), None);
    while let Ok(told) = timed.recv_timeout(limit.saturating_sub(start.elapsed())) {
        let (images, seconds) = told?;
        speed = Some(images as f64 / seconds);
    }
    // The next step that ends is then the last.
    drop(timed);
    if !is_cpu {
        // What it panicked of is on stderr, and no time is known.
        let _ = thread.join();
    }
    Ok(speed)
}

/// Takes steps of few images, and of whole batches if they will end within `limit`; of whole
/// batches alone on a GPU. `told` gets the times, the first where the time begins.
fn steps<T: Task>(
    config: &Config,
    selected: &SelectedDevice,
    limit: Duration,
    told: &Sender<Result<Timed, Error>>,
) -> Result<(), Error> {
    let (whole, is_cpu) = (config.train.images(), selected.is_cpu());
    let begin = || {
        let _ = told.send(Ok((0, 0.0)));
        Instant::now()
    };
    let (first, untimed) = match is_cpu {
        true => (FIRST.min(whole), 0),
        false => (whole, config.data.prefetch as u64 + 1),
    };
    let mut begun = None;
    for batch in [first, whole] {
        let mut config = config.clone();
        if batch < whole {
            config.train.batch_size = BatchSize::Images(batch);
            (config.train.shards, config.train.accumulate) = (None, 1);
        }
        let task = T::open(&config, &selected.device, &Comm::single(), &[])?;
        let (objective, device) = (task.objective(), selected.device.clone().autodiff());
        let mut state = TrainState::new(objective, &config, objective.init(&device)?);
        let mut graph = StepGraph::of(&config, objective, &device, 1)?;
        let mut batches = task.batches(0..untimed + STEPS + 1);
        if is_cpu {
            begun.get_or_insert_with(begin);
        }
        let (mut from, mut images) = (Instant::now(), 0);
        for step in 0..=untimed + STEPS {
            let mut shards = Vec::new();
            for _ in 0..config.train.shards() {
                let Some(next) = batches.next() else { return Ok(()) };
                shards.push(task.upload(&next?, &device)?);
            }
            let (comm, asked) = (Comm::single(), Requests::default());
            let passes = Passes::Graph(&mut graph);
            let pending = state.step(objective, shards, 0.0, &comm, asked, passes)?;
            state.finish(pending);
            images += batch;
            begun.get_or_insert_with(begin);
            if (is_cpu || step > 0)
                && told.send(Ok((images, from.elapsed().as_secs_f64()))).is_err()
            {
                return Ok(());
            }
            if step == 0 || step == untimed {
                // What is set up once, such as compiled kernels, does not count again.
                (from, images) = (Instant::now(), 0);
            }
        }
        let next = from.elapsed().div_f64(STEPS as f64).mul_f64(whole as f64 / batch as f64);
        let elapsed = begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        if batch == whole || elapsed + next * 2 > limit {
            return Ok(());
        }
    }
    Ok(())
}
