//! What the devices of a run tell each other. One device tells itself nothing.

use burn::tensor::Tensor;

/// The communicator of a run's devices.
pub trait Comm {
    /// Which of the run's devices this is, from 0.
    fn rank(&self) -> usize;

    /// How many devices the run has.
    fn size(&self) -> usize;

    /// The sum of each of these flat tensors over the devices: the gradients, and last the loss.
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
