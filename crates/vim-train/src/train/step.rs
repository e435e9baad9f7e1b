//! A training step: forward, backward, sum over the devices, update of the weights and of their
//! moving average.

use std::mem;
use std::ops::Range;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use vim_kernels::{FlatParams, moving_average, supports_multi_tensor};

use super::optim::{Clip, clip_factor, flat_gradients, flat_values, with_flat_values};
use super::state::TrainState;
use crate::config::TrainConfig;
use crate::error::Error;
use crate::task::Objective;

impl<M: Module> TrainState<M> {
    /// Runs one step; the update does nothing if loss or gradient are not finite. The next call
    /// must be [`Self::finish`].
    ///
    /// A GPU step reads nothing back, so that the host can prepare the next batch meanwhile.
    /// `after` is called after each forward and backward pass.
    ///
    /// # Errors
    ///
    /// Those of the loss, or if a parameter has no gradient.
    pub fn step<O: Objective<Model = M>>(
        &mut self,
        objective: &O,
        inputs: O::Inputs,
        lr: f64,
        comm: &mut dyn Comm,
        mut after: impl FnMut(Phase) -> Result<(), Error>,
    ) -> Result<PendingStep, Error> {
        let seed = step_seed(self.seed, self.counters.step, comm.rank());
        let (count, model) = (O::count(&inputs), self.model());
        let loss = |inputs, range| objective.loss(model, inputs, range, seed);
        let (loss, gradients) =
            forward_backward(model, inputs, count, self.micro_batches, loss, &mut after)?;
        let mut tensors = flat_gradients(model, gradients);
        let (got, parameters) = (tensors.len(), self.optimizer.parameters().len());
        if got != parameters {
            return Err(Error::internal(format!("{got} gradients for {parameters} parameters")));
        }
        tensors.push(loss);
        let mut tensors = comm.sum(tensors);
        let loss = tensors.pop().expect("invariant: as many sums as tensors");
        Ok(self.update(loss, tensors, lr))
    }

    fn update(&mut self, loss: Tensor<1>, gradients: Vec<Tensor<1>>, lr: f64) -> PendingStep {
        let square = self.optimizer.square_norm(&gradients);
        let (clip, guard, pending) = match square {
            Some(square) if supports_multi_tensor(&square.device()) => {
                // Not finite if the loss is not.
                let guard = square.clone() + (loss.clone() - loss.clone());
                let clip = Clip::To { square_norm: guard.clone(), limit: self.clip };
                (clip, Some(guard), PendingStep::Unread { loss, square_norm: square })
            }
            square => {
                let metrics = StepMetrics::read(loss, square);
                if metrics.fault().is_some() {
                    return PendingStep::Read(metrics);
                }
                let clip = Clip::By(clip_factor(metrics.grad_norm, self.clip));
                (clip, None, PendingStep::Read(metrics))
            }
        };
        let model = self.model.take().expect("invariant: taken only here");
        let model = self.optimizer.step(model, gradients, clip, lr);
        if let Some(ema) = &mut self.ema {
            match self.optimizer.packed().zip(guard) {
                Some((weights, guard)) => ema.update_packed(weights, self.optimizer.steps, guard),
                None => ema.update(&model, self.optimizer.steps),
            }
        }
        self.model = Some(model);
        pending
    }

    /// Waits for the device, and counts the step unless it changed nothing.
    pub fn finish(&mut self, pending: PendingStep) -> StepMetrics {
        let metrics = match pending {
            PendingStep::Read(metrics) => metrics,
            PendingStep::Unread { loss, square_norm } => {
                let metrics = StepMetrics::read(loss, Some(square_norm));
                if metrics.fault().is_some() {
                    self.optimizer.steps -= 1;
                }
                metrics
            }
        };
        if metrics.fault().is_none() {
            self.counters.step += 1;
            self.counters.skipped_in_a_row = 0;
            self.counters.window.add(metrics.loss);
        }
        metrics
    }

    /// Counts a step that changed nothing.
    pub fn skip(&mut self) {
        self.counters.step += 1;
        self.counters.skipped += 1;
        self.counters.skipped_in_a_row += 1;
    }
}

/// A queued phase of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The loss of a micro-batch.
    Forward,
    /// Its gradients.
    Backward,
}

/// The unread loss of a batch of `count` images, `[1]`, and its gradients.
///
/// Micro-batches run one after the other; each loss is weighted by its share of the images, so that
/// the sum equals the batch's up to rounding. `loss` gets the whole batch and the range of images;
/// `after` is called after each pass.
pub fn forward_backward<M: Module, I: Clone>(
    model: &M,
    inputs: I,
    count: usize,
    micro_batches: usize,
    loss: impl Fn(I, Range<usize>) -> Result<Tensor<1>, Error>,
    after: &mut impl FnMut(Phase) -> Result<(), Error>,
) -> Result<(Tensor<1>, GradientsParams), Error> {
    let largest = count.div_ceil(micro_batches);
    let mut sum: Option<Tensor<1>> = None;
    // Moved into the last micro-batch, so that their memory is freed during its forward pass.
    let mut inputs = Some(inputs);
    let mut gradients = GradientsAccumulator::new();
    for first in (0..count).step_by(largest) {
        let end = (first + largest).min(count);
        let whole = if end == count { inputs.take() } else { inputs.clone() };
        let whole = whole.expect("invariant: only the last micro-batch takes them");
        let mut part = loss(whole, first..end)?;
        if end - first < count {
            part = part * ((end - first) as f64 / count as f64);
        }
        after(Phase::Forward)?;
        let value = part.clone().inner();
        sum = Some(match sum {
            Some(sum) => sum + value,
            None => value,
        });
        gradients.accumulate(model, GradientsParams::from_grads(part.backward(), model));
        after(Phase::Backward)?;
    }
    Ok((sum.expect("invariant: a batch has images"), gradients.grads()))
}

/// The numbers of a step that the host reads.
#[derive(Clone, Copy, Debug)]
pub struct StepMetrics {
    /// Mean over the batch.
    pub loss: f64,
    /// Over all parameters, before clipping.
    pub grad_norm: f64,
}

impl StepMetrics {
    /// Waits for the device, once.
    fn read(loss: Tensor<1>, square_norm: Option<Tensor<1>>) -> Self {
        let numbers = Tensor::cat([Some(loss), square_norm].into_iter().flatten().collect(), 0);
        let numbers: Vec<f32> = numbers.into_data().iter().collect();
        let number = |place: usize| numbers.get(place).map_or(0.0, |&number| f64::from(number));
        Self { loss: number(0), grad_norm: number(1).sqrt() }
    }

    /// Which number is not finite, if any.
    pub fn fault(self) -> Option<String> {
        [("loss", self.loss), ("gradient norm", self.grad_norm)]
            .into_iter()
            .find(|(_, number)| !number.is_finite())
            .map(|(what, number)| format!("the {what} is {number}"))
    }
}

/// A queued step: loss and norm are still on the device (GPU), or already read (CPU).
#[derive(Debug)]
#[must_use = "a step that is not finished is not counted, and its numbers are not checked"]
#[expect(clippy::large_enum_variant, reason = "one exists at a time, for the length of a step")]
pub enum PendingStep {
    /// Loss and square of the gradient's norm, `[1]` each.
    Unread {
        /// Mean over the batch.
        loss: Tensor<1>,
        /// Before clipping.
        square_norm: Tensor<1>,
    },
    /// The numbers had to be read before the update.
    Read(StepMetrics),
}

/// The seed of a step's random draws, different for every run, step and device.
fn step_seed(seed: u64, step: u64, rank: usize) -> u64 {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&step.to_le_bytes());
    key[16..].copy_from_slice(&(rank as u64).to_le_bytes());
    let hash = blake3::hash(&key);
    hash.as_bytes().iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

/// A communicator between a run's devices.
pub trait Comm {
    /// Index of this device in the run, from 0.
    fn rank(&self) -> usize;

    /// Number of devices in the run.
    fn size(&self) -> usize;

    /// Sums each flat tensor over the devices: the gradients, and last the loss.
    fn sum(&mut self, tensors: Vec<Tensor<1>>) -> Vec<Tensor<1>>;
}

/// A run on one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleDevice;

impl Comm for SingleDevice {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn sum(&mut self, tensors: Vec<Tensor<1>>) -> Vec<Tensor<1>> {
        tensors
    }
}

/// The average of the weights, always in f32; starts as the initial weights.
///
/// # Source
///
/// timm 0.4.12's `ModelEma`, which the original keeps at 0.99996; the warm-up is TensorFlow's
/// `ExponentialMovingAverage` with `num_updates`.
#[derive(Clone, Debug)]
pub struct Ema {
    decay: f64,
    warmup: bool,
    averages: Averages,
}

/// One tensor per parameter, or one for all.
#[derive(Clone, Debug)]
enum Averages {
    Each(Vec<Tensor<1>>),
    Packed(Box<(FlatParams, Tensor<1>)>),
}

impl Averages {
    /// One tensor per parameter.
    fn each(self) -> Vec<Tensor<1>> {
        match self {
            Self::Each(averages) => averages,
            Self::Packed(packed) => packed.0.parts(&packed.1),
        }
    }
}

impl Ema {
    /// The average of `train.ema`, if set, starting from `model`.
    pub fn new<M: Module>(train: &TrainConfig, model: &M) -> Option<Self> {
        let decay = train.ema?;
        let averages = Averages::Each(flat_values(model));
        Some(Self { decay, warmup: train.ema_warmup, averages })
    }

    /// Adds the weights after the `updates`-th optimizer step to the average.
    pub fn update<M: Module>(&mut self, model: &M, updates: u64) {
        // Taken, because a second reference would prevent updates in place.
        let averages = mem::replace(&mut self.averages, Averages::Each(Vec::new())).each();
        let decay = self.decay_at(updates);
        let pairs = averages.into_iter().zip(flat_values(model));
        let averages =
            pairs.map(|(average, value)| average.mul_scalar(decay) + value.mul_scalar(1.0 - decay));
        self.averages = Averages::Each(averages.collect());
    }

    /// [`Self::update`] with packed weights, for devices with
    /// [multi-tensor kernels](vim_kernels::supports_multi_tensor). Changes nothing where
    /// `square_norm`, the squared gradient norm, `[1]`, is not finite.
    pub fn update_packed(
        &mut self,
        (packing, value): (&FlatParams, &Tensor<1>),
        updates: u64,
        square_norm: Tensor<1>,
    ) {
        let average = match &self.averages {
            Averages::Each(averages) => packing.pack(averages.clone()),
            Averages::Packed(packed) => packed.1.clone(),
        };
        let average = moving_average(average, value.clone(), square_norm, self.decay_at(updates));
        self.averages = Averages::Packed(Box::new((packing.clone(), average)));
    }

    fn decay_at(&self, updates: u64) -> f64 {
        let updates = updates as f64;
        if self.warmup { self.decay.min((1.0 + updates) / (10.0 + updates)) } else { self.decay }
    }

    /// `model` with the average in place of its weights, for evaluation.
    pub fn model<M: Module>(&self, model: &M) -> M {
        with_flat_values(model.clone(), self.averages.clone().each()).valid()
    }
}

#[cfg(test)]
mod tests;
