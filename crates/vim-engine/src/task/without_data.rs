//! Tasks without data, for commands that time or count: a given number of classes, random images.

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use vim_comm::Comm;
use vim_kernels::{Graph, KernelError};
use vim_model::{Cost, ImageSize, ModelError, Vim};

use super::Objective;
use crate::config::Config;
use crate::error::Error;

/// An objective that needs no data to compute a step.
pub trait WithoutData: Objective + Sized {
    /// The objective of `config` for `classes` classes.
    fn without_data(config: &Config, classes: usize, comm: &Comm) -> Result<Self, Error>;

    /// Parameters and operations of the model of `config`, with its heads.
    fn cost(config: &Config, classes: usize) -> Result<Cost, ModelError>;

    /// A batch of `count` random images of the model's size, with every class in turn.
    fn random(&self, count: usize, device: &Device) -> Self::Inputs;

    /// What takes `images` by `pass` to what an evaluation reads; an error if the task has no such
    /// pass.
    fn forward<'a>(
        config: &Config,
        model: &'a Self::Model,
        images: Tensor<4>,
        pass: Pass,
    ) -> Result<Forward<'a>, Error>;
}

/// A forward pass; the sum of its results needs all of them.
pub type Forward<'a> = Box<dyn Fn() -> Result<Tensor<1>, Error> + 'a>;

/// How images pass through a model in evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// As they are.
    Whole,
    /// Likewise, by launches that were recorded once.
    Recorded,
    /// By windows of the model's size.
    Windows,
}

impl Pass {
    /// The error of a task that has no such pass.
    pub(super) fn refused(self) -> Error {
        let (flag, task) = match self {
            Self::Whole | Self::Recorded => {
                ("--graph: a forward pass is recorded", "classification")
            }
            Self::Windows => ("--mode slide: windows slide over the pictures", "segmentation"),
        };
        Error::failed(format!("{flag} of task = \"{task}\" alone"))
    }
}

/// Batches of which a graph's logits are compared with those of the launches.
const REPLAYS: u64 = 3;

/// The forward pass of images like `images`, recorded; its logits have the bits of those launched.
pub(super) fn record<'a>(
    model: &'a Vim,
    images: &Tensor<4>,
) -> Result<Graph<impl Fn(Tensor<4>) -> Result<Tensor<2>, KernelError> + use<'a>, 4, 2>, Error> {
    let graph = Graph::capture(images.clone(), |images| model.forward(images))?;
    for seed in 0..REPLAYS {
        images.device().seed(seed);
        let images = images.random_like(Distribution::Normal(0.0, 1.0));
        let launched = model.forward(images.clone())?;
        check_bits(launched, graph.replay(images)?)?;
    }
    Ok(graph)
}

/// Checks that logits replayed have the bits of those launched.
fn check_bits(launched: Tensor<2>, replayed: Tensor<2>) -> Result<(), Error> {
    let bits = |logits: Tensor<2>| -> Vec<u32> {
        logits.into_data().iter::<f32>().map(f32::to_bits).collect()
    };
    let (launched, replayed) = (bits(launched), bits(replayed));
    let differ = launched.iter().zip(&replayed).filter(|(a, b)| a != b).count();
    if launched.len() == replayed.len() && differ == 0 {
        return Ok(());
    }
    let count = launched.len();
    Err(Error::failed(format!("{differ} of {count} logits of the graph are not those launched")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_compared_by_their_bits() {
        let row = |numbers: [f32; 2]| Tensor::<2>::from_data([numbers], &Device::flex());
        assert!(check_bits(row([0.0, f32::NAN]), row([0.0, f32::NAN])).is_ok());
        let error = check_bits(row([0.0, 1.0]), row([-0.0, 1.0])).expect_err("another sign");
        assert_eq!(error.to_string(), "1 of 2 logits of the graph are not those launched");
    }
}
