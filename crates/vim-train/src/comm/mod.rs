//! Communication between the devices of a run.

use burn::tensor::Tensor;

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
