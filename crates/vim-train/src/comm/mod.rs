//! What the processes or devices of a run tell each other. One device tells itself nothing.

use burn::optim::GradientsParams;

/// The seam through which a run on several devices averages its gradients.
pub trait Comm {
    /// Which of the run's devices this is, from 0.
    fn rank(&self) -> usize;

    /// How many devices the run has.
    fn size(&self) -> usize;

    /// The mean of the devices' gradients.
    fn mean_gradients(&mut self, gradients: GradientsParams) -> GradientsParams;

    /// The mean of the devices' values.
    fn mean(&mut self, value: f64) -> f64;
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

    fn mean_gradients(&mut self, gradients: GradientsParams) -> GradientsParams {
        gradients
    }

    fn mean(&mut self, value: f64) -> f64 {
        value
    }
}
