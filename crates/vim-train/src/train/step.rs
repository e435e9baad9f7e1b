//! A training step: forward, backward, sum over the devices, update.

use std::ops::Range;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::Tensor;
use vim_kernels::supports_multi_tensor;

use super::flat;
use super::optim::{Clip, clip_factor};
use super::state::TrainState;
use crate::comm::Comm;
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
        let mut tensors = flat::gradients(model, gradients);
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

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, TensorData};
    use vim_model::{Vim, VimConfig};

    use super::*;
    use crate::config::{Config, LossKind, TrainConfig};
    use crate::task::classification::{Classifier, Labelled, Targets};
    use crate::train::flat;

    /// With everything that is drawn per image: drop path and dropout.
    fn model(device: &Device) -> Vim {
        let config = VimConfig {
            image_size: 8.into(),
            patch_size: 4,
            depth: 3,
            d_model: 16,
            d_state: 2,
            drop_path: 0.4,
            dropout: 0.2,
            num_classes: 5,
            ..VimConfig::default()
        };
        config.init(device, 0).unwrap()
    }

    #[test]
    fn micro_batches_make_the_gradient_of_the_whole_batch() {
        let device = Device::flex().autodiff();
        let model = model(&device);
        let pixels: Vec<f32> = (0..12 * 3 * 64_u16).map(|i| (f32::from(i) * 0.37).sin()).collect();
        let images = Tensor::<4>::from_data(TensorData::new(pixels, [12, 3, 8, 8]), &device);
        let labels = Tensor::<1, Int>::from_ints([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1], &device);
        let shares = Tensor::from_floats(
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 0.0, 0.5],
            &device,
        );
        let targets = Targets::new(labels, Some(shares));
        for kind in [LossKind::CrossEntropy, LossKind::Bce] {
            let train = TrainConfig { loss: kind, ..TrainConfig::default() };
            let config = Config { train, ..Config::default() };
            let classifier = Classifier::new(&config, model.config().clone()).unwrap();
            let run = |parts, seed| -> (f64, Vec<Vec<f32>>) {
                let inputs = Labelled { images: images.clone(), targets: targets.clone() };
                let loss = |inputs, range| classifier.loss(&model, inputs, range, seed);
                let (value, gradients) =
                    forward_backward(&model, inputs, 12, parts, loss, &mut |_| Ok(())).unwrap();
                let gradients = flat::gradients(&model, gradients);
                let gradients = gradients.into_iter().map(|g| g.into_data().iter().collect());
                (f64::from(value.into_scalar::<f32>()), gradients.collect())
            };
            let distance = |a: &[Vec<f32>], b: &[Vec<f32>]| -> f64 {
                let square = |x: f64| x * x;
                let all = || a.iter().flatten().zip(b.iter().flatten());
                let far: f64 = all().map(|(a, b)| square(f64::from(a - b))).sum();
                let size: f64 = all().map(|(_, b)| square(f64::from(*b))).sum();
                (far / size).sqrt()
            };
            let (whole, wanted) = run(1, 7);
            // 12 images in 2, 3, 4 and 12 micro-batches of equal sizes, and in 5 of unequal ones.
            for parts in [2, 3, 4, 12, 5] {
                let (value, got) = run(parts, 7);
                assert_eq!(got.len(), wanted.len());
                assert!((value - whole).abs() < 1e-5, "{parts}: {value} {whole}");
                // Sums of f32 in another order.
                let far = distance(&got, &wanted);
                assert!(far < 1e-5, "{kind:?} in {parts} parts: {far:e}");
            }
            // The bound is meaningful: with another seed the gradient is far away.
            assert!(distance(&run(2, 8).1, &wanted) > 1e-2);
        }
    }

    #[test]
    fn metrics_are_the_loss_and_the_root_and_say_what_is_not_finite() {
        let read = |loss: f32, square: f32| {
            let device = Device::flex();
            let number = |number: f32| Tensor::<1>::from_floats([number], &device);
            StepMetrics::read(number(loss), Some(number(square)))
        };
        let good = read(2.5, 9.0);
        assert_eq!((good.loss, good.grad_norm, good.fault()), (2.5, 3.0, None));
        assert_eq!(read(f32::NAN, f32::NAN).fault().as_deref(), Some("the loss is NaN"));
        let large = read(1.0, f32::INFINITY).fault();
        assert_eq!(large.as_deref(), Some("the gradient norm is inf"));
    }
}
