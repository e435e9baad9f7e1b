//! A training step: forward, backward, sum over shards and ranks, update of the weights and of
//! their moving average.
//!
//! A batch is cut into shards. Each rank computes some of them, one after the other, and their
//! gradients are added in the order of a tree over all shards: so the bytes of a run do not depend
//! on the number of ranks.

mod joint;
mod metrics;

use std::mem;
use std::ops::Range;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use vim_comm::Comm;
use vim_kernels::{FlatParams, moving_average, supports_multi_tensor};
use vim_run::checkpoint::Window;

use super::optim::{Clip, clip_factor, flat_gradients, flat_values, with_flat_values};
use super::shards;
use super::state::TrainState;
use crate::config::TrainConfig;
use crate::error::Error;
use crate::task::{Draw, Objective};
use metrics::Tail;
pub use metrics::{PendingStep, Requests, StepMetrics};

impl<M: Module> TrainState<M> {
    /// Runs one step on this rank's shards of the batch, which every rank has as many of; the
    /// update does nothing if loss or gradient are not finite. The next call must be
    /// [`Self::finish`].
    ///
    /// A GPU step reads nothing back, so that the host can prepare the next batch meanwhile.
    /// `after` is called after each [`Phase`].
    ///
    /// # Errors
    ///
    /// Those of the loss and of the sum over the ranks, or if a parameter has no gradient.
    pub fn step<O: Objective<Model = M>>(
        &mut self,
        objective: &O,
        shards: Vec<O::Inputs>,
        lr: f64,
        comm: &Comm,
        requests: Requests,
        mut after: impl FnMut(Phase) -> Result<(), Error>,
    ) -> Result<PendingStep, Error> {
        let mut packing = self.packing.take();
        let (seed, model) = (step_seed(self.seed, self.counters.step), self.model());
        let (own, parameters) = (shards.len(), self.optimizer.parameters().len());
        let draw = |number: usize, count: usize| {
            let shard = comm.rank() * own + number;
            Draw { seed, first: shard * count }
        };
        let split = |count| Split { count, shards: own * comm.size(), parts: self.micro_batches };
        let pack = |model: &M, loss: Tensor<1>, gradients| {
            let mut tensors = flat_gradients(model, gradients);
            if tensors.len() != parameters {
                let got = tensors.len();
                return Err(Error::internal(format!(
                    "{got} gradients for {parameters} parameters"
                )));
            }
            tensors.push(if comm.size() == 1 { loss } else { requests.behind(loss) });
            Ok(tensors)
        };
        let sum = if O::JOINT {
            let count = shards.first().map_or(0, O::count);
            let draws: Vec<Draw> = (0..own).map(|number| draw(number, count)).collect();
            let all = joint::forward_backward(
                objective,
                model,
                shards,
                split(count),
                &draws,
                &mut after,
            )?;
            let all = all.into_iter().map(|(loss, gradients)| pack(model, loss, gradients));
            shards::sum_of_rank(all, comm, &mut packing)?
        } else {
            let shards = shards.into_iter().enumerate().map(|(number, inputs)| {
                let count = O::count(&inputs);
                let draw = draw(number, count);
                let loss = |inputs, range| objective.loss(model, inputs, range, draw);
                let (loss, gradients) =
                    forward_backward(model, inputs, split(count), loss, &mut after)?;
                pack(model, loss, gradients)
            });
            shards::sum_of_rank(shards, comm, &mut packing)?
        };
        let is_shared = comm.size() > 1;
        if is_shared {
            after(Phase::Pack)?;
        }
        let mut tensors = shards::sum_of_ranks(sum, comm, packing.as_ref())?;
        if is_shared {
            after(Phase::Exchange)?;
        }
        self.packing = packing;
        let values = tensors.pop().expect("invariant: as many sums as tensors");
        let tail = Tail { values, parts: O::PARTS.len() };
        Ok(self.update(tail, requests, tensors, lr))
    }

    fn update(
        &mut self,
        tail: Tail,
        requests: Requests,
        gradients: Vec<Tensor<1>>,
        lr: f64,
    ) -> PendingStep {
        let square = self.optimizer.square_norm(&gradients);
        let loss = tail.values.clone().narrow(0, 0, 1);
        let (clip, guard, pending) = match square {
            Some(square) if supports_multi_tensor(&square.device()) => {
                // Not finite if the loss is not.
                let guard = square.clone() + (loss.clone() - loss.clone());
                let clip = Clip::To { square_norm: guard.clone(), limit: self.clip };
                let square_norm = square;
                (clip, Some(guard), PendingStep::Unread { tail, square_norm, requests })
            }
            square => {
                let metrics = StepMetrics::read(tail, square, requests);
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
            PendingStep::Unread { tail, square_norm, requests } => {
                let metrics = StepMetrics::read(tail, Some(square_norm), requests);
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
            self.counters.parts.resize(metrics.parts.len(), Window::default());
            let windows = self.counters.parts.iter_mut();
            windows.zip(&metrics.parts).for_each(|(window, &part)| window.add(part));
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
    /// With several ranks, this rank's gradients behind each other.
    Pack,
    /// Their sum over the ranks.
    Exchange,
}

/// How a batch is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Images of a shard.
    pub count: usize,
    /// Shards of the batch.
    pub shards: usize,
    /// Micro-batches of a shard.
    pub parts: usize,
}

/// What a shard adds to the unread loss of its batch with its parts, `[1 + P]`, and to its
/// gradients.
///
/// Micro-batches run one after the other; each loss is weighted by its share of the batch's images,
/// so that the sum over all shards equals the batch's up to rounding. `loss` gets the whole shard
/// and the range of images; `after` is called after each pass.
pub fn forward_backward<M: Module, I: Clone>(
    model: &M,
    inputs: I,
    Split { count, shards, parts }: Split,
    loss: impl Fn(I, Range<usize>) -> Result<Tensor<1>, Error>,
    after: &mut impl FnMut(Phase) -> Result<(), Error>,
) -> Result<(Tensor<1>, GradientsParams), Error> {
    let (largest, all) = (count.div_ceil(parts), count * shards);
    let mut sum: Option<Tensor<1>> = None;
    // Moved into the last micro-batch, so that their memory is freed during its forward pass.
    let mut inputs = Some(inputs);
    let mut gradients = GradientsAccumulator::new();
    for first in (0..count).step_by(largest) {
        let end = (first + largest).min(count);
        let whole = if end == count { inputs.take() } else { inputs.clone() };
        let whole = whole.expect("invariant: only the last micro-batch takes them");
        let mut part = loss(whole, first..end)?;
        if end - first < all {
            part = part * ((end - first) as f64 / all as f64);
        }
        after(Phase::Forward)?;
        let value = part.clone().inner();
        sum = Some(match sum {
            Some(sum) => sum + value,
            None => value,
        });
        // Behind it are its parts.
        let loss = if part.dims() == [1] { part } else { part.narrow(0, 0, 1) };
        let own = GradientsParams::from_grads(loss.backward(), model);
        after(Phase::Backward)?;
        // An accumulator visits every parameter again.
        if let (true, Some(sum)) = (end - first == count, &sum) {
            return Ok((sum.clone(), own));
        }
        gradients.accumulate(model, own);
    }
    Ok((sum.expect("invariant: a batch has images"), gradients.grads()))
}

/// The seed of a step's random draws, different for every run and step.
fn step_seed(seed: u64, step: u64) -> u64 {
    // The last eight bytes were the device's number; they keep the draws of earlier runs.
    let mut key = [0; 24];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&step.to_le_bytes());
    let hash = blake3::hash(&key);
    hash.as_bytes().iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
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
