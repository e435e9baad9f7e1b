//! One step of training: forward, backward, and the update, or none where the numbers are not finite.

use burn::tensor::Tensor;
use vim_kernels::supports_multi_tensor;
use vim_model::Vim;

use super::Trainer;
use super::report::Metric;
use crate::comm::Comm;
use crate::config::NonFinite;
use crate::error::Error;
use crate::train::batches::Targets;
use crate::train::ema::Ema;
use crate::train::optim::{AdamW, Clip, Gradients, clip_factor};
use crate::train::pass::forward_backward;

/// The numbers that the host reads from the device at a step, and all that it decides by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readings {
    pub(crate) loss: f64,
    pub(crate) grad_norm: f64,
}

impl Readings {
    /// Waits for the device, once.
    pub(crate) fn read(loss: Tensor<1>, square_norm: Option<Tensor<1>>) -> Self {
        let numbers = Tensor::cat([Some(loss), square_norm].into_iter().flatten().collect(), 0);
        let numbers: Vec<f32> = numbers.into_data().iter().collect();
        let number = |place: usize| numbers.get(place).map_or(0.0, |&number| f64::from(number));
        Self { loss: number(0), grad_norm: number(1).sqrt() }
    }

    /// What is not finite, if anything.
    pub(crate) fn fault(self) -> Option<String> {
        [("loss", self.loss), ("gradient norm", self.grad_norm)]
            .into_iter()
            .find(|(_, number)| !number.is_finite())
            .map(|(what, number)| format!("the {what} is {number}"))
    }
}

/// A step whose numbers the host has not seen yet, or has where it had to before it could take the step.
#[derive(Debug)]
#[must_use = "a step that is not finished is not counted, and its numbers are not checked"]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, for the length of a step")]
pub(crate) enum Queued {
    /// All of it is before the device.
    Unread { loss: Tensor<1>, square_norm: Tensor<1> },
    /// It had to be read before the step could be taken.
    Read(Readings),
}

impl Queued {
    /// Waits for the device, and takes back what the optimizer counted if the step turned out to change nothing.
    pub(crate) fn read(self, optimizer: &mut AdamW) -> Readings {
        match self {
            Self::Read(readings) => readings,
            Self::Unread { loss, square_norm } => {
                let readings = Readings::read(loss, Some(square_norm));
                if readings.fault().is_some() {
                    optimizer.steps -= 1;
                }
                readings
            }
        }
    }
}

/// Updates `model` and its moving average if loss and gradient are finite.
///
/// On a GPU all of it is queued behind the backward pass before anything is read, and does nothing by itself where they
/// are not: the host prepares the next batch while the device works.
pub(crate) fn update(
    optimizer: &mut AdamW,
    ema: Option<&mut Ema>,
    model: Vim,
    loss: Tensor<1>,
    gradients: Gradients,
    limit: Option<f64>,
    lr: f64,
) -> (Vim, Queued) {
    let (model, guard, queued) = match optimizer.square_norm(&gradients) {
        Some(square) if supports_multi_tensor(&square.device()) => {
            // Not finite where the loss is not.
            let guard = square.clone() + (loss.clone() - loss.clone());
            let clip = Clip::To { square_norm: guard.clone(), limit };
            let model = optimizer.step(model, gradients, clip, lr);
            (model, Some(guard), Queued::Unread { loss, square_norm: square })
        }
        square => {
            let readings = Readings::read(loss, square);
            if readings.fault().is_some() {
                return (model, Queued::Read(readings));
            }
            let clip = Clip::By(clip_factor(readings.grad_norm, limit));
            (optimizer.step(model, gradients, clip, lr), None, Queued::Read(readings))
        }
    };
    if let Some(ema) = ema {
        match optimizer.packed().zip(guard) {
            Some((weights, guard)) => ema.update_at_once(weights, optimizer.steps, guard),
            None => ema.update(&model, optimizer.steps),
        }
    }
    (model, queued)
}

impl Trainer<'_> {
    /// One step, which [`finish_step`](Self::finish_step) must follow before anything else is done with the model.
    pub(super) fn step(
        &mut self,
        images: Tensor<4>,
        targets: &Targets,
        lr: f64,
    ) -> Result<Queued, Error> {
        let model = self.model.take().expect("invariant: taken only within a step");
        let seed = drop_seed(self.config.run.seed, self.state.step, self.comm.rank());
        let parts = self.config.train.accumulate;
        let result = forward_backward(&model, images, targets, &self.loss, seed, parts);
        let (loss, gradients) = match result {
            Ok(done) => done,
            Err(error) => {
                self.model = Some(model);
                return Err(error.into());
            }
        };
        let gradients = Gradients::new(&model, self.comm.mean_gradients(gradients));
        let parameters = self.num_parameters;
        if gradients.len() != parameters {
            let got = gradients.len();
            self.model = Some(model);
            return Err(Error::Internal(format!("{got} gradients for {parameters} parameters")));
        }
        let clip = self.config.train.clip_grad;
        let (optimizer, ema) = (&mut self.optimizer, self.ema.as_mut());
        let (model, queued) = update(optimizer, ema, model, loss, gradients, clip, lr);
        self.model = Some(model);
        Ok(queued)
    }

    /// Counts a step; returns the norm of the gradient, or nothing if the step was skipped.
    pub(super) fn finish_step(&mut self, queued: Queued) -> Result<Option<f64>, Error> {
        let Readings { loss, grad_norm } = queued.read(&mut self.optimizer);
        let readings = Readings { loss: self.comm.mean(loss), grad_norm };
        if let Some(fault) = readings.fault() {
            return self.not_finite(fault).map(|()| None);
        }
        self.state.step += 1;
        self.state.skipped_in_a_row = 0;
        self.state.window.add(readings.loss);
        Ok(Some(grad_norm))
    }

    /// A step that may not happen: the end of the run, or a step that is counted and changes nothing else.
    fn not_finite(&mut self, fault: String) -> Result<(), Error> {
        let step = self.state.step + 1;
        let train = &self.config.train;
        let in_a_row = self.state.skipped_in_a_row + 1;
        let what = match train.non_finite {
            NonFinite::Skip if in_a_row <= train.max_non_finite => {
                let most = train.max_non_finite;
                self.log.line(format!(
                    "warning: step {step} is skipped, {fault} ({in_a_row} in a row, {most} at most)"
                ));
                let epoch = self.state.step / self.loader.batches_per_epoch() as u64;
                self.metrics.append(&Metric::Skipped { step, epoch, reason: &fault, in_a_row })?;
                self.state.step = step;
                self.state.skipped += 1;
                self.state.skipped_in_a_row = in_a_row;
                return Ok(());
            }
            NonFinite::Skip => format!("{fault}, as at the {} steps before it", in_a_row - 1),
            NonFinite::Stop => fault,
        };
        Err(Error::Diverged { step, what: format!("{what}{}", self.newest()) })
    }

    fn newest(&mut self) -> String {
        // One may be in flight; should it fail, an earlier one is the last.
        if let Err(error) = self.saver.wait() {
            self.log.line(format!("warning: {error}"));
        }
        let checkpoints = self.saver.checkpoints();
        match checkpoints.steps().last() {
            Some(step) => format!(
                "; the newest checkpoint is of step {step}, {}",
                checkpoints.path_of(*step).display()
            ),
            None => "; there is no checkpoint yet".into(),
        }
    }
}

/// A seed for the blocks dropped at a step, different for every run, step and device.
fn drop_seed(seed: u64, step: u64, rank: usize) -> u64 {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&step.to_le_bytes());
    key[16..].copy_from_slice(&(rank as u64).to_le_bytes());
    let hash = blake3::hash(&key);
    hash.as_bytes().iter().take(8).fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn readings_are_the_loss_and_the_root_and_say_what_is_not_finite() {
        let read = |loss: f32, square: f32| {
            let device = Device::flex();
            let number = |number: f32| Tensor::<1>::from_floats([number], &device);
            Readings::read(number(loss), Some(number(square)))
        };
        let good = read(2.5, 9.0);
        assert_eq!((good.loss, good.grad_norm, good.fault()), (2.5, 3.0, None));
        assert_eq!(read(f32::NAN, f32::NAN).fault().as_deref(), Some("the loss is NaN"));
        let large = read(1.0, f32::INFINITY).fault();
        assert_eq!(large.as_deref(), Some("the gradient norm is inf"));
    }
}
