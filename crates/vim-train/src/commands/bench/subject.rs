//! A model and its steps.

use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use vim_comm::Comm;
use vim_dense::predicted;
use vim_model::{ImageSize, VimConfig};

use super::graph::record;
use super::{Latency, Mode, ModeChoice, Throughput};
use crate::commands::profile::timer::quantile;
use crate::config::{Config, TaskKind};
use crate::device::memory::{device_memory, peak_resident, reset_peak, resident};
use crate::device::wait;
use crate::error::Error;
use crate::task::Objective;
use crate::task::classification::Classifier;
use crate::task::detection::ObjectDetector;
use crate::task::kinds::cost;
use crate::task::segmentation::PixelClassifier;
use crate::task::without_data::{WithoutData, images};
use crate::train::state::TrainState;
use crate::train::step::Phase;
use crate::train::step::Requests;

/// A model with random weights, and its training setup.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub(super) config: &'a Config,
    /// Of the classifier, or of what a segmenter's or detector's heads are on.
    pub(super) model: VimConfig,
    /// Classes of the head or heads.
    pub(super) classes: usize,
    /// The size of the pictures that windows slide over.
    pub(super) picture: ImageSize,
    /// Whether a forward pass is recorded once and replayed.
    pub(super) graph: bool,
    device: &'a Device,
    /// The ranks that train together.
    comm: Comm,
}

type Times = (Latency, Throughput);

impl<'a> Subject<'a> {
    /// The model of `config` for `classes` classes.
    pub(super) fn new(
        config: &'a Config,
        device: &'a Device,
        classes: usize,
        picture: ImageSize,
    ) -> Result<Self, Error> {
        let model = match config.task {
            TaskKind::Classification => config.model.with_classes(classes)?,
            TaskKind::Segmentation | TaskKind::Detection => {
                // Without it, as of a full A, nothing tells the number of parameters.
                cost(config, classes)?;
                config.model.clone()
            }
        };
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        Ok(Self { config, model, classes, picture, graph: false, device, comm: Comm::single() })
    }

    /// The same, its forward passes recorded and replayed.
    pub(super) fn with_graph(self, mode: ModeChoice) -> Result<Self, Error> {
        let reason = match (mode, self.config.task) {
            (ModeChoice::Infer, TaskKind::Classification) => {
                return Ok(Self { graph: true, ..self });
            }
            (ModeChoice::Infer, TaskKind::Segmentation | TaskKind::Detection) => {
                "of task = \"classification\" alone a forward pass is recorded"
            }
            (ModeChoice::Train | ModeChoice::Both | ModeChoice::Slide, _) => {
                "a forward pass alone is recorded: add --mode infer"
            }
        };
        Err(Error::failed(format!("--graph: {reason}")))
    }

    /// The same, trained together with other ranks, on a shard each.
    pub(super) fn with_ranks(self, comm: Comm) -> Self {
        Self { comm, ..self }
    }

    /// The size of the images of a step in `mode`.
    pub(super) fn image_size(&self, mode: Mode) -> ImageSize {
        match mode {
            Mode::Infer | Mode::Train => self.model.image_size,
            Mode::Slide => self.picture,
        }
    }

    /// Times steps of `batch` images, with several ranks on each.
    pub(super) fn measure(
        &self,
        mode: Mode,
        batch: usize,
        plan: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        match (mode, self.config.task) {
            (Mode::Train, TaskKind::Classification) => self.train::<Classifier>(batch, plan, meter),
            (Mode::Train, TaskKind::Segmentation) => {
                self.train::<PixelClassifier>(batch, plan, meter)
            }
            (Mode::Train, TaskKind::Detection) => self.train::<ObjectDetector>(batch, plan, meter),
            (Mode::Infer, TaskKind::Detection) => self.detect(batch, plan, meter),
            (Mode::Infer, TaskKind::Classification) => self.classify(batch, plan, meter),
            (Mode::Infer | Mode::Slide, TaskKind::Segmentation) => {
                self.segment(mode, batch, plan, meter)
            }
            (Mode::Slide, TaskKind::Classification | TaskKind::Detection) => Err(Error::failed(
                "--mode slide: windows slide over the pictures of task = \"segmentation\" alone",
            )),
        }
    }

    /// Images to logits.
    fn classify(&self, batch: usize, plan: StepLimits, meter: &mut Meter) -> Result<Times, Error> {
        let objective = Classifier::without_data(self.config, self.classes, &self.comm)?;
        let model = objective.init(self.device)?;
        let images = self.images(batch, Mode::Infer);
        let sum = |logits: Tensor<2>| logits.abs().sum();
        if self.graph {
            let graph = record(&model, &images)?;
            return self.infer(batch, plan, meter, || Ok(sum(graph.replay(images.clone())?)));
        }
        self.infer(batch, plan, meter, || Ok(sum(model.forward(images.clone())?)))
    }

    /// Images to detections with masks, which the host chooses.
    fn detect(&self, batch: usize, plan: StepLimits, meter: &mut Meter) -> Result<Times, Error> {
        let objective = ObjectDetector::without_data(self.config, self.classes, &self.comm)?;
        let model = objective.init(self.device)?;
        let images = self.images(batch, Mode::Infer);
        let size = [self.model.image_size.height, self.model.image_size.width];
        self.infer(batch, plan, meter, || {
            let found = model.detect(images.clone(), &vec![size; batch])?;
            let scores: f32 = found.iter().flat_map(|found| &found.scores).sum();
            Ok(Tensor::full([1], scores, self.device))
        })
    }

    /// Images, or pictures by windows, to the class of each of their pixels.
    fn segment(
        &self,
        mode: Mode,
        batch: usize,
        plan: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        let objective = PixelClassifier::without_data(self.config, self.classes, &self.comm)?;
        let model = objective.init(self.device)?;
        let (crop, size) = (self.model.image_size, self.image_size(mode));
        let stride = self.config.pairs().stride([crop.height, crop.width]);
        let images = self.images(batch, mode);
        self.infer(batch, plan, meter, || {
            let logits = match mode {
                Mode::Slide => model.slide(images.clone(), stride)?,
                Mode::Infer | Mode::Train => model.forward(images.clone())?,
            };
            let seen = predicted(logits, [size.height, size.width])?;
            Ok(seen.labels.float().sum() + seen.probabilities.sum())
        })
    }

    /// Times `forward`, whose result is read once, at the end.
    fn infer(
        &self,
        batch: usize,
        plan: StepLimits,
        meter: &mut Meter,
        forward: impl Fn() -> Result<Tensor<1>, Error>,
    ) -> Result<Times, Error> {
        let times = measure(self.device, plan, batch, || {
            let sum = forward()?;
            meter.sample();
            drop(sum);
            Ok(())
        })?;
        // Reading a result reports a failed device at the latest.
        let sum = forward()?.into_data().iter().next().unwrap_or(f32::NAN);
        if sum.is_finite() {
            return Ok(times);
        }
        Err(Error::failed(format!("the sum of the results is {sum}: what was timed is no use")))
    }

    fn train<O: WithoutData>(
        &self,
        batch: usize,
        plan: StepLimits,
        meter: &mut Meter,
    ) -> Result<Times, Error> {
        let device = self.device.clone().autodiff();
        device.seed(self.config.run.seed);
        let objective = O::without_data(self.config, self.classes, &self.comm)?;
        let inputs = objective.random(batch, &device);
        let mut state = TrainState::new(&objective, self.config, objective.init(&device)?)
            .with_micro_batches(self.config.train.accumulate.min(batch));
        measure(self.device, plan, batch, || {
            // Minimum learning rate: the weights must stay finite, not learn.
            let (shards, lr) = (vec![inputs.clone()], self.config.optim.warmup_lr);
            let asked = Requests::default();
            let pending = state.step(&objective, shards, lr, &self.comm, asked, |phase| {
                if phase == Phase::Backward {
                    meter.sample();
                }
                Ok(())
            })?;
            // Reads the loss and the norm, as the loop does.
            if let Some(fault) = state.finish(pending).fault() {
                return Err(Error::failed(format!("{fault}: what was timed is no use")));
            }
            meter.sample();
            Ok(())
        })
    }

    fn images(&self, batch: usize, mode: Mode) -> Tensor<4> {
        self.device.seed(self.config.run.seed);
        images(batch, self.image_size(mode), self.device)
    }
}

/// Number and time limit of the measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepLimits {
    pub(super) warmup: usize,
    /// Steps timed one by one, and steps queued.
    pub(super) steps: usize,
    /// Time limit of each part, after its first step (two in the warm-up).
    pub(super) budget: Duration,
}

/// Warms up and times `step`, which takes `batch` images.
fn measure(
    device: &Device,
    plan: StepLimits,
    batch: usize,
    mut step: impl FnMut() -> Result<(), Error>,
) -> Result<Times, Error> {
    // The first two steps compile and tune, for minutes on a GPU: the budget starts after them.
    let mut start = Instant::now();
    for done in 0..plan.warmup {
        if done < 2 {
            start = Instant::now();
        } else if start.elapsed() >= plan.budget {
            break;
        }
        step()?;
        wait(device)?;
    }

    let (start, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || (times.len() < plan.steps && start.elapsed() < plan.budget) {
        let start = Instant::now();
        step()?;
        wait(device)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let latency = latency(times);

    // The host runs ahead of the device: the number of steps must be known beforehand.
    let fit = plan.budget.as_secs_f64() * 1e3 / latency.median_ms;
    let steps = (fit as usize).clamp(1, plan.steps);
    let start = Instant::now();
    for _ in 0..steps {
        step()?;
    }
    wait(device)?;
    Ok((latency, throughput(batch, steps, start.elapsed())))
}

fn latency(mut times: Vec<f64>) -> Latency {
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
    Latency {
        steps: times.len(),
        median_ms: quantile(&times, 0.5),
        p10_ms: quantile(&times, 0.1),
        p90_ms: quantile(&times, 0.9),
        mean_ms: mean,
        std_ms: if times.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 },
        min_ms: quantile(&times, 0.0),
        max_ms: quantile(&times, 1.0),
    }
}

/// Throughput counts the steps that ran, not those requested.
fn throughput(batch: usize, steps: usize, time: Duration) -> Throughput {
    let (images, seconds) = ((batch * steps) as u64, time.as_secs_f64());
    Throughput { img_s: images as f64 / seconds, images, seconds }
}

#[derive(Debug)]
pub(super) struct Meter {
    device: Device,
    /// Memory of the process before the first row.
    before: u64,
    /// Peak of the device among the samples.
    peak: Option<u64>,
    /// Whether the system could reset the process's peak.
    host: bool,
}

impl Meter {
    /// Starts watching; `before` is the process's memory before the first row.
    pub(super) fn start(device: &Device, before: u64) -> Self {
        // Release the previous row's memory from the framework's pools.
        device.memory_cleanup();
        let mut meter = Self { device: device.clone(), before, peak: None, host: reset_peak() };
        meter.sample();
        meter
    }

    /// Samples the device; call it where usage is high.
    pub(super) fn sample(&mut self) {
        self.peak = self.peak.max(device_memory(&self.device));
    }

    /// Peak bytes and their owner; `None` if unknown.
    pub(super) fn peak(&self) -> Option<(u64, &'static str)> {
        match self.peak {
            Some(bytes) => Some((bytes, "device")),
            None if self.host => Some((peak_resident()?.saturating_sub(self.before), "host")),
            None => None,
        }
    }
}

/// Memory of this process, 0 if unknown.
pub(super) fn held() -> u64 {
    resident().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn statistics_of_times() {
        let of = latency(vec![4.0, 2.0, 9.0]);
        assert_eq!((of.steps, of.median_ms, of.min_ms, of.max_ms), (3, 4.0, 2.0, 9.0));
        assert_eq!(of.mean_ms, 5.0);
        assert!((of.std_ms - 13f64.sqrt()).abs() < 1e-12, "{}", of.std_ms); // (9 + 1 + 16)/2
        assert_eq!(latency(vec![7.0]).std_ms, 0.0);
    }

    #[test]
    fn images_are_those_of_the_steps_that_ran() {
        let plan = StepLimits { warmup: 2, steps: 4, budget: Duration::from_secs(60) };
        let mut steps = 0;
        let (latency, throughput) = measure(&Device::flex(), plan, 3, || {
            steps += 1;
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((steps, latency.steps, throughput.images), (2 + 4 + 4, 4, 12));
        assert!((throughput.img_s * throughput.seconds - 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_budget_that_is_spent_leaves_two_steps_to_warm_up_and_one_of_each_part() {
        let plan = StepLimits { warmup: 9, steps: 1000, budget: Duration::from_nanos(1) };
        let mut steps = 0;
        let (latency, throughput) = measure(&Device::flex(), plan, 5, || {
            steps += 1;
            sleep(Duration::from_millis(1));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((steps, latency.steps, throughput.images), (2 + 1 + 1, 1, 5));
        assert!(latency.median_ms >= 1.0);
    }

    #[test]
    fn the_first_failure_ends_it() {
        let plan = StepLimits { warmup: 2, steps: 4, budget: Duration::from_secs(60) };
        let result = measure(&Device::flex(), plan, 1, || Err(Error::failed("full")));
        assert!(result.is_err_and(|error| error.to_string() == "full"));
    }
}
