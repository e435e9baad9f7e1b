//! A model and its steps.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_model::{Vim, VimConfig};

use super::clock::{Plan, measure};
use super::memory::Meter;
use super::record::{Latency, Mode, Throughput};
use crate::comm::SingleDevice;
use crate::config::Config;
use crate::error::Error;
use crate::task::Objective;
use crate::task::classification::{Classifier, Labelled, Targets};
use crate::train::state::TrainState;
use crate::train::step::Phase;

/// A model with random weights, and its training setup.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    config: &'a Config,
    model: VimConfig,
    device: &'a Device,
}

impl<'a> Subject<'a> {
    /// The model of `config` with a head of `classes`.
    pub(super) fn new(
        config: &'a Config,
        device: &'a Device,
        classes: usize,
    ) -> Result<Self, Error> {
        let model = config.model.with_classes(classes)?;
        config.model.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        Ok(Self { config, model, device })
    }

    /// The model's configuration.
    pub(super) fn model(&self) -> &VimConfig {
        &self.model
    }

    /// Compute precision.
    pub(super) fn dtype(&self) -> String {
        self.config.train.precision.to_string()
    }

    /// The model on `device`, with random weights.
    fn build(&self, device: &Device) -> Result<Vim, Error> {
        let model = self.model.init(device, self.config.run.seed)?;
        let train = &self.config.train;
        Ok(model.with_precision(train.precision)?.with_recompute(train.recompute))
    }

    /// Times steps of `batch` images.
    pub(super) fn measure(
        &self,
        mode: Mode,
        batch: usize,
        plan: Plan,
        meter: &mut Meter,
    ) -> Result<(Latency, Throughput), Error> {
        match mode {
            Mode::Infer => self.infer(batch, plan, meter),
            Mode::Train => self.train(batch, plan, meter),
        }
    }

    fn infer(
        &self,
        batch: usize,
        plan: Plan,
        meter: &mut Meter,
    ) -> Result<(Latency, Throughput), Error> {
        let model = self.build(self.device)?;
        let images = self.images(batch, self.device);
        let times = measure(self.device, plan, batch, || {
            let logits = model.forward(images.clone())?;
            meter.sample();
            drop(logits);
            Ok(())
        })?;
        // Reading a result reports a failed device at the latest.
        check_finite("the logits", model.forward(images)?.abs().sum())?;
        Ok(times)
    }

    fn train(
        &self,
        batch: usize,
        plan: Plan,
        meter: &mut Meter,
    ) -> Result<(Latency, Throughput), Error> {
        let device = self.device.clone().autodiff();
        let images = self.images(batch, &device);
        let labels: Vec<i32> = (0..batch).map(|i| (i % self.model.num_classes) as i32).collect();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [batch]), &device);
        let inputs = Labelled { images, targets: Targets::new(labels, None) };
        let classifier = Classifier::new(self.config, self.model.clone())?;
        let mut state = TrainState::new(&classifier, self.config, classifier.init(&device)?)
            .with_micro_batches(self.config.train.accumulate.min(batch));
        measure(self.device, plan, batch, || {
            // Minimum learning rate: the weights must stay finite, not learn.
            let (inputs, lr) = (inputs.clone(), self.config.optim.warmup_lr);
            let pending = state.step(&classifier, inputs, lr, &mut SingleDevice, |phase| {
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

    fn images(&self, batch: usize, device: &Device) -> Tensor<4> {
        device.seed(self.config.run.seed);
        let size = self.model.image_size;
        let shape = [batch, 3, size.height, size.width];
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
    }
}

fn check_finite(what: &str, number: Tensor<1>) -> Result<(), Error> {
    let number: f32 = number.into_data().iter().next().unwrap_or(f32::NAN);
    if number.is_finite() {
        return Ok(());
    }
    Err(Error::failed(format!("{what} is {number}: what was timed is no use")))
}
