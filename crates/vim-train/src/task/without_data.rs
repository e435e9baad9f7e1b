//! Tasks without data, for commands that time or count: a given number of classes, random images.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_comm::Comm;
use vim_model::ImageSize;

use super::Objective;
use crate::config::Config;
use crate::error::Error;

/// An objective that needs no data to compute a step.
pub trait WithoutData: Objective + Sized {
    /// The objective of `config` for `classes` classes.
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error>;

    /// A batch of `count` random images of the model's size, with every class in turn.
    fn random(&self, count: usize, device: &Device) -> Self::Inputs;
}

/// `[B, 3, H, W]` of normally distributed numbers.
pub fn images(count: usize, size: ImageSize, device: &Device) -> Tensor<4> {
    let shape = [count, 3, size.height, size.width];
    // Made as one row: CubeCL would pad the rows of pixels, which no batch of `train` has.
    let elements: usize = shape.iter().product();
    Tensor::<1>::random([elements], Distribution::Normal(0.0, 1.0), device).reshape(shape)
}

/// Every class in turn, `[count]`.
pub(super) fn labels(count: usize, classes: usize, device: &Device) -> Tensor<1, Int> {
    let labels: Vec<i32> = (0..count).map(|i| (i % classes) as i32).collect();
    Tensor::from_data(TensorData::new(labels, [count]), device)
}
