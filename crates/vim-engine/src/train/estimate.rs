//! How fast a run would train here, by a few of its own steps.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use vim_comm::Comm;

use super::state::TrainState;
use super::step::Requests;
use crate::config::{BatchSize, Config};
use crate::error::Error;
use crate::task::kinds::with_task;
use crate::task::{BatchStream, Objective, Task};

/// Images of the first steps: a step that has begun cannot be stopped, and a whole batch may take
/// minutes.
const FIRST: usize = 4;
/// Steps of a whole batch, after a first one.
const STEPS: u64 = 3;

/// Images and seconds of steps so far; none at the start of the first.
type Timed = (usize, f64);

/// Training images a second of the run of `config` on `device`, with its images as they come from
/// the disk, by steps of at most `limit`; `None` if not even a small one ends within it.
///
/// What a step still does at the limit goes on in a thread of its own: the process should end soon.
pub fn speed(config: &Config, device: &Device, limit: Duration) -> Result<Option<f64>, Error> {
    with_task!(config.task, T => images_per_second::<T>(config, device, limit))
}

/// As [`speed`], of the task `T`.
pub(crate) fn images_per_second<T: Task + 'static>(
    config: &Config,
    device: &Device,
    limit: Duration,
) -> Result<Option<f64>, Error> {
    let (sender, timed) = channel();
    let (config, device) = (config.clone(), device.clone());
    let work = move || {
        if let Err(error) = steps::<T>(&config, &device, limit, &sender) {
            // Who waited may be gone.
            let _ = sender.send(Err(error));
        }
    };
    let thread = thread::Builder::new().name("time".into()).spawn(work);
    drop(thread.map_err(Error::io("start", "a thread"))?);
    // Opening the data may take longer, and is part of every run.
    if let Ok(told) = timed.recv() {
        told?;
    }
    let (start, mut speed) = (Instant::now(), None);
    while let Ok(told) = timed.recv_timeout(limit.saturating_sub(start.elapsed())) {
        let (images, seconds) = told?;
        speed = Some(images as f64 / seconds);
    }
    Ok(speed)
}

/// Takes steps of few images, and of whole batches if they will end within `limit`; `told` gets the
/// times, the first when the data are open.
fn steps<T: Task>(
    config: &Config,
    device: &Device,
    limit: Duration,
    told: &Sender<Result<Timed, Error>>,
) -> Result<(), Error> {
    let (whole, mut start) = (config.train.images(), None);
    for batch in [FIRST.min(whole), whole] {
        let mut config = config.clone();
        if batch < whole {
            config.train.batch_size = BatchSize::Images(batch);
            (config.train.shards, config.train.accumulate) = (None, 1);
        }
        let task = T::open(&config, device, &Comm::single(), &[])?;
        let (objective, device) = (task.objective(), device.clone().autodiff());
        let mut state = TrainState::new(objective, &config, objective.init(&device)?);
        let mut batches = task.batches(0..STEPS + 1);
        let begun = *start.get_or_insert_with(|| {
            let _ = told.send(Ok((0, 0.0)));
            Instant::now()
        });
        let (mut from, mut images) = (Instant::now(), 0);
        for step in 0..=STEPS {
            let mut shards = Vec::new();
            for _ in 0..config.train.shards() {
                let Some(next) = batches.next() else { return Ok(()) };
                shards.push(task.upload(&next?, &device)?);
            }
            let (comm, asked) = (Comm::single(), Requests::default());
            let pending = state.step(objective, shards, 0.0, &comm, asked, |_| Ok(()))?;
            state.finish(pending);
            images += batch;
            if told.send(Ok((images, from.elapsed().as_secs_f64()))).is_err() {
                return Ok(());
            }
            if step == 0 {
                // What is set up once, such as compiled kernels, does not count again.
                (from, images) = (Instant::now(), 0);
            }
        }
        let next = from.elapsed().div_f64(STEPS as f64).mul_f64(whole as f64 / batch as f64);
        if begun.elapsed() + next * 2 > limit {
            return Ok(());
        }
    }
    Ok(())
}
