//! A model, and what a step of it is.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_model::{Vim, VimConfig};

use super::clock::{Plan, measure};
use super::memory::Meter;
use super::record::{Latency, Mode, Throughput};
use crate::config::Config;
use crate::error::Error;
use crate::train::batches::Targets;
use crate::train::ema::Ema;
use crate::train::loss::Loss;
use crate::train::optim::{AdamW, Gradients};
use crate::train::pass::forward_backward;
use crate::train::step::update;

/// A model with random weights, and how it is trained.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    config: &'a Config,
    model: VimConfig,
    device: &'a Device,
}

impl<'a> Subject<'a> {
    /// The model of `config` with a head of so many classes.
    pub(super) fn new(
        config: &'a Config,
        device: &'a Device,
        classes: usize,
    ) -> Result<Self, Error> {
        let model = VimConfig::new(&config.model, config.ssm, classes)?;
        config.ssm.scan.resolve(device)?;
        config.train.precision.check(device)?;
        Ok(Self { config, model, device })
    }

    /// What it is built from.
    pub(super) fn model(&self) -> &VimConfig {
        &self.model
    }

    /// What it computes in.
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
        // A device that could not says so at the latest when asked for a result.
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
        let targets = Targets::new(labels, None);
        let model = self.build(&device)?;
        let mut step = Training {
            config: self.config,
            ema: Ema::new(&self.config.train, &model),
            model: Some(model),
            optimizer: AdamW::new(&self.config.optim),
            loss: Loss::new(&self.config.train, self.model.num_classes)?,
            steps: 0,
        };
        measure(self.device, plan, batch, || step.take(images.clone(), &targets, meter))
    }

    fn images(&self, batch: usize, device: &Device) -> Tensor<4> {
        device.seed(self.config.run.seed);
        let size = self.model.image_size;
        let shape = [batch, 3, size.height, size.width];
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
    }
}

/// Training on one batch over and over.
struct Training<'a> {
    config: &'a Config,
    /// `None` only while a step makes the next one.
    model: Option<Vim>,
    optimizer: AdamW,
    ema: Option<Ema>,
    loss: Loss,
    steps: u64,
}

impl Training<'_> {
    /// A step as the loop takes it: it reads the loss and the norm, as that does.
    fn take(
        &mut self,
        images: Tensor<4>,
        targets: &Targets,
        meter: &mut Meter,
    ) -> Result<(), Error> {
        let model = self
            .model
            .take()
            .ok_or_else(|| Error::Internal("a step after one that failed".into()))?;
        let parts = self.config.train.accumulate.min(images.dims()[0]);
        let (loss, gradients) =
            forward_backward(&model, images, targets, &self.loss, self.steps, parts)?;
        let gradients = Gradients::new(&model, gradients);
        meter.sample();
        // The least learning rate of the schedule: how fast it learns does not matter, that it stays finite does.
        let (limit, lr) = (self.config.train.clip_grad, self.config.optim.warmup_lr);
        let (optimizer, ema) = (&mut self.optimizer, self.ema.as_mut());
        let (model, queued) = update(optimizer, ema, model, loss, gradients, limit, lr);
        if let Some(fault) = queued.read(&mut self.optimizer).fault() {
            return Err(Error::Failed(format!("{fault}: what was timed is no use")));
        }
        self.model = Some(model);
        self.steps += 1;
        meter.sample();
        Ok(())
    }
}

fn check_finite(what: &str, number: Tensor<1>) -> Result<(), Error> {
    let number: f32 = number.into_data().iter().next().unwrap_or(f32::NAN);
    if number.is_finite() {
        return Ok(());
    }
    Err(Error::Failed(format!("{what} is {number}: what was timed is no use")))
}
