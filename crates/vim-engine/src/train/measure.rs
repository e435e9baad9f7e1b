//! How long a step takes, without data: a model with random weights, on synthetic images.
//!
//! `bench`, `bench scaling` and `bench phases` time steps here and nowhere else, and `profile` and
//! `doctor` take their quantiles from here.

use std::time::{Duration, Instant};

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use vim_comm::Comm;
use vim_model::{Cost, ImageSize};

use super::state::TrainState;
use super::step::{Passes, Phase, Requests, StepGraph};
use crate::config::Config;
use crate::device::memory::{Meter, held};
use crate::device::wait;
use crate::error::Error;
use crate::task::Task;
use crate::task::kinds::{cost, parameters, with_task};
use crate::task::without_data::{Pass, WithoutData, images};

/// A model with random weights, and its training setup.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) config: &'a Config,
    /// Classes of the head or heads.
    pub(crate) classes: usize,
    /// With its heads; `None` where operations are not counted (a full A).
    pub(crate) cost: Option<Cost>,
    /// Trainable numbers.
    pub(crate) parameters: u64,
    /// The ranks that train together, on a shard each.
    comm: Comm,
    device: &'a Device,
}

impl<'a> Subject<'a> {
    /// The model of `config`, for as many classes as its task usually has where none are given.
    pub(crate) fn new(
        config: &'a Config,
        device: &'a Device,
        classes: Option<usize>,
        comm: Comm,
    ) -> Result<Self, Error> {
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        let classes = classes.unwrap_or(config.task.usual_classes());
        let cost = cost(config, classes).ok();
        let parameters = parameters(config, classes)?;
        Ok(Self { config, classes, cost, parameters, comm, device })
    }

    /// Times training steps of `batch` images, with several ranks on each.
    pub(crate) fn train(
        &self,
        batch: usize,
        limits: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        with_task!(self.config.task, T => {
            self.train_as::<<T as Task>::Objective>(batch, limits, meter)
        })
    }

    /// Times training steps as one of several ranks, of each of `batches`, the images of a rank.
    /// `found` gets the times, which count the images of all ranks, and the most bytes that a rank
    /// had in use.
    pub(crate) fn train_on_ranks(
        &self,
        batches: &[usize],
        (warmup, steps): (usize, usize),
        phases: bool,
        mut found: impl FnMut(Times, Option<u64>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // A limit of time would let ranks take different numbers of steps.
        let limits = StepLimits { warmup, steps, budget: Duration::MAX, phases };
        let (before, comm) = (held(), &self.comm);
        for &batch in batches {
            let mut meter = Meter::start(self.device, before);
            let mut times = self.train(batch, limits, &mut meter)?;
            times.throughput.img_s *= comm.size() as f64;
            times.throughput.images *= comm.size() as u64;
            let own = meter.peak().map_or(0, |(bytes, _)| bytes);
            let all = comm.gather(&own.to_le_bytes())?;
            let number = |bytes: &Vec<u8>| bytes.as_slice().try_into().map(u64::from_le_bytes).ok();
            found(times, all.iter().filter_map(number).max().filter(|&most| most > 0))?;
        }
        // No rank leaves while another one reads.
        comm.gather(&[])?;
        Ok(())
    }

    /// Times forward passes of `batch` images of `size`.
    pub(crate) fn infer(
        &self,
        pass: Pass,
        (batch, size): (usize, ImageSize),
        limits: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        with_task!(self.config.task, T => {
            self.infer_as::<<T as Task>::Objective>(pass, (batch, size), limits, meter)
        })
    }

    fn infer_as<O: WithoutData>(
        &self,
        pass: Pass,
        (batch, size): (usize, ImageSize),
        limits: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        let start = Instant::now();
        let objective = O::without_data(self.config, self.classes, &self.comm)?;
        let model = objective.init(self.device)?;
        self.device.seed(self.config.run.seed);
        let images = images(batch, size, self.device);
        let forward = O::forward(self.config, &model, images, pass)?;
        let times = measure(self.device, limits, batch, start, || {
            let sum = forward()?;
            meter.sample();
            drop(sum);
            Ok(())
        })?;
        // Reading a result reports a failed device at the latest.
        let sum = forward()?.into_data().iter().next().unwrap_or(f32::NAN);
        if sum.is_finite() { Ok(times) } else { Err(not_finite(&format!("the sum is {sum}"))) }
    }

    fn train_as<O: WithoutData>(
        &self,
        batch: usize,
        limits: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        let start = Instant::now();
        let device = self.device.clone().autodiff();
        device.seed(self.config.run.seed);
        let objective = O::without_data(self.config, self.classes, &self.comm)?;
        let inputs = objective.random(batch, &device);
        let mut state = TrainState::new(&objective, self.config, objective.init(&device)?)
            .with_micro_batches(self.config.train.accumulate.min(batch));
        // Minimum learning rate: the weights must stay finite, not learn.
        let lr = self.config.optim.warmup_lr;
        let mut step = |passes: Passes<'_, _>| {
            let (shards, asked) = (vec![inputs.clone()], Requests::default());
            let pending = state.step(&objective, shards, lr, &self.comm, asked, passes)?;
            // Reads the loss and the norm, as the loop does.
            state.finish(pending).fault().map_or(Ok(()), |fault| Err(not_finite(&fault)))
        };
        let mut graph = StepGraph::of(self.config, &objective, &device, self.comm.size())?;
        let times = measure(self.device, limits, batch, start, || {
            if graph.why_not().is_none() {
                step(Passes::Graph(&mut graph))?;
            } else {
                step(Passes::Watched(&mut |phase| {
                    if phase == Phase::Backward {
                        meter.sample();
                    }
                    Ok(())
                }))?;
            }
            meter.sample();
            Ok(())
        })?;
        if !limits.phases {
            return Ok(times);
        }
        let (start, mut phases) = (Instant::now(), Vec::new());
        for _ in 0..limits.steps {
            let (mut last, mut spans) = (start.elapsed(), Vec::new());
            let mut passed = |phase| {
                wait(self.device)?;
                let now = start.elapsed();
                spans.push(Span { name: name(phase), start: last, length: now - last });
                last = now;
                Ok(())
            };
            step(Passes::Watched(&mut |phase| passed(Some(phase))))?;
            passed(None)?;
            phases.push(spans);
        }
        Ok(Times { phases, ..times })
    }
}

fn not_finite(what: &str) -> Error {
    Error::failed(format!("{what}: a step that is not finite is not timed"))
}

/// Of a phase; the last is none of the queued ones.
fn name(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(Phase::Forward) => "forward",
        Some(Phase::Backward) => "backward",
        Some(Phase::Pack) => "pack",
        Some(Phase::Exchange) => "exchange",
        None => "update",
    }
}

/// Number and time limit of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    pub(crate) warmup: usize,
    /// Steps timed one by one, steps queued, and steps timed by phases.
    pub(crate) steps: usize,
    /// Time limit of each part, after its first step (two in the warm-up).
    pub(crate) budget: Duration,
    /// Whether training steps are timed by phases, too.
    pub(crate) phases: bool,
}

/// What was measured of the steps of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// From making the model to the end of its first step, with all compilation.
    pub(crate) first_step_s: f64,
    pub(crate) latency: Latency,
    pub(crate) throughput: Throughput,
    /// The phases of each step, with a wait after each, where they are timed.
    pub(crate) phases: Vec<Vec<Span>>,
}

/// A phase of a step, from the start of the first step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) name: &'static str,
    pub(crate) start: Duration,
    pub(crate) length: Duration,
}

/// Times of synchronised steps in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Steps timed.
    pub steps: usize,
    /// Median.
    pub median_ms: f64,
    /// 10th percentile.
    pub p10_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// Mean.
    pub mean_ms: f64,
    /// Standard deviation of the sample; 0 for one step.
    pub std_ms: f64,
    /// The shortest.
    pub min_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// Throughput of queued steps with one synchronisation at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Images per second.
    pub img_s: f64,
    /// Images of all steps.
    pub images: u64,
    /// Time of all steps.
    pub seconds: f64,
}

/// Warms up and times `step`, which takes `batch` images; `start` is before anything was made.
fn measure(
    device: &Device,
    limits: StepLimits,
    batch: usize,
    start: Instant,
    mut step: impl FnMut() -> Result<(), Error>,
) -> Result<Times, Error> {
    // The first two steps compile and tune, for minutes on a GPU: the budget starts after them.
    let (mut first_step_s, mut begin) = (0.0, start);
    for done in 0..limits.warmup {
        if done < 2 {
            begin = Instant::now();
        } else if begin.elapsed() >= limits.budget {
            break;
        }
        step()?;
        wait(device)?;
        if done == 0 {
            first_step_s = start.elapsed().as_secs_f64();
        }
    }

    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || (times.len() < limits.steps && begin.elapsed() < limits.budget) {
        let start = Instant::now();
        step()?;
        wait(device)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let latency = Latency::of(times);

    // The host runs ahead of the device: the number of steps must be known beforehand.
    let fit = limits.budget.as_secs_f64() * 1e3 / latency.median_ms;
    let steps = (fit as usize).clamp(1, limits.steps);
    let start = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    wait(device)?;
    // Those of the steps that ran, not of those requested.
    let (images, seconds) = ((batch * steps) as u64, start.elapsed().as_secs_f64());
    let throughput = Throughput { img_s: images as f64 / seconds, images, seconds };
    Ok(Times { first_step_s, latency, throughput, phases: Vec::new() })
}

impl Latency {
    /// The statistics of `times`, in milliseconds.
    pub(crate) fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let count = times.len() as f64;
        let mean_ms = times.iter().sum::<f64>() / count;
        let squares: f64 = times.iter().map(|time| (time - mean_ms).powi(2)).sum();
        Self {
            steps: times.len(),
            median_ms: quantile(&times, 0.5),
            p10_ms: quantile(&times, 0.1),
            p90_ms: quantile(&times, 0.9),
            mean_ms,
            std_ms: if times.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
            min_ms: quantile(&times, 0.0),
            max_ms: quantile(&times, 1.0),
        }
    }
}

/// The quantile `share` of `sorted`, interpolated linearly.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(one), Some(two)) => one + (two - one) * (at - low as f64),
        (_, _) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    fn limits(warmup: usize, steps: usize, budget: Duration) -> StepLimits {
        StepLimits { warmup, steps, budget, phases: false }
    }

    fn timed(limits: StepLimits, batch: usize, step: impl FnMut() -> Result<(), Error>) -> Times {
        measure(&Device::flex(), limits, batch, Instant::now(), step)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn statistics_of_times() {
        let of = Latency::of(vec![4.0, 2.0, 9.0]);
        assert_eq!((of.steps, of.median_ms, of.min_ms, of.max_ms), (3, 4.0, 2.0, 9.0));
        assert_eq!(of.mean_ms, 5.0);
        assert!((of.std_ms - 13f64.sqrt()).abs() < 1e-12, "{}", of.std_ms); // (9 + 1 + 16)/2
        assert_eq!(Latency::of(vec![7.0]).std_ms, 0.0);
    }

    #[test]
    fn quantiles() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert!((quantile(&values, 0.9) - 4.6).abs() < 1e-12);
        assert_eq!(quantile(&values[..1], 0.9), 1.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn images_are_those_of_the_steps_that_ran() {
        let mut steps = 0;
        let times = timed(limits(2, 4, Duration::from_secs(60)), 3, || {
            steps += 1;
            Ok(())
        });
        let (latency, throughput) = (times.latency, times.throughput);
        assert_eq!((steps, latency.steps, throughput.images), (2 + 4 + 4, 4, 12));
        assert!((throughput.img_s * throughput.seconds - 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_budget_that_is_spent_leaves_two_steps_to_warm_up_and_one_of_each_part() {
        let mut steps = 0;
        let times = timed(limits(9, 1000, Duration::from_nanos(1)), 5, || {
            steps += 1;
            sleep(Duration::from_millis(1));
            Ok(())
        });
        assert_eq!((steps, times.latency.steps, times.throughput.images), (2 + 1 + 1, 1, 5));
        assert!(times.latency.median_ms >= 1.0 && times.first_step_s >= 1e-3);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let limits = limits(2, 4, Duration::from_secs(60));
        let failing = || Err(Error::failed("full"));
        let result = measure(&Device::flex(), limits, 1, Instant::now(), failing);
        assert!(result.is_err_and(|error| error.to_string() == "full"));
    }
}
