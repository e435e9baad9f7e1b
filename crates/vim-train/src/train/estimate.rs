//! How fast a run would train here, by a few of its own steps.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use vim_comm::Comm;

use super::state::TrainState;
use super::step::Requests;
use crate::config::{BatchSize, Config};
use crate::device::SelectedDevice;
use crate::error::Error;
use crate::task::{BatchStream, Objective, Task};

/// Images of the first steps on a CPU: a step that has begun cannot be stopped, and a whole batch
/// may take minutes. On a GPU few images take as long as many.
const FIRST: usize = 4;
/// Steps of a whole batch, after a first one.
const STEPS: u64 = 3;

/// Images and seconds of steps so far; none at the start of the first.
type Timed = (usize, f64);

/// Training images a second of the run of `config` on `device`, with its images as they come from
/// the disk, by steps of at most `limit`; `None` if none ends within it, of a GPU none after that
/// which compiles.
///
/// What a step still does at the limit goes on in a thread of its own: the process should end soon.
/// A GPU is waited for, as its driver is not to be in use when a process ends.
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
    // Opening the data may take longer, and is part of every run.
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

/// Takes steps of few images, and of whole batches if they will end within `limit`; `told` gets the
/// times, the first when the data are open.
fn steps<T: Task>(
    config: &Config,
    selected: &SelectedDevice,
    limit: Duration,
    told: &Sender<Result<Timed, Error>>,
) -> Result<(), Error> {
    let (whole, mut start) = (config.train.images(), None);
    let first = if selected.is_cpu() { FIRST.min(whole) } else { whole };
    for batch in [first, whole] {
        let mut config = config.clone();
        if batch < whole {
            config.train.batch_size = BatchSize::Images(batch);
            (config.train.shards, config.train.accumulate) = (None, 1);
        }
        let task = T::open(&config, &selected.device, &Comm::single(), &[])?;
        let (objective, device) = (task.objective(), selected.device.clone().autodiff());
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
            // Of a GPU the first one's time is that of compiling.
            let is_timed = step > 0 || selected.is_cpu();
            if is_timed && told.send(Ok((images, from.elapsed().as_secs_f64()))).is_err() {
                return Ok(());
            }
            if step == 0 {
                // What is set up once, such as compiled kernels, does not count again.
                (from, images) = (Instant::now(), 0);
            }
        }
        let next = from.elapsed().div_f64(STEPS as f64).mul_f64(whole as f64 / batch as f64);
        if batch == whole || begun.elapsed() + next * 2 > limit {
            return Ok(());
        }
    }
    Ok(())
}
