//! A forward pass as a graph, checked before it is timed.

use burn::tensor::{Distribution, Tensor};
use vim_kernels::{Graph, KernelError};
use vim_model::Vim;

use crate::error::Error;

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

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn logits_are_compared_by_their_bits() {
        let row = |numbers: [f32; 2]| Tensor::<2>::from_data([numbers], &Device::flex());
        assert!(check_bits(row([0.0, f32::NAN]), row([0.0, f32::NAN])).is_ok());
        let error = check_bits(row([0.0, 1.0]), row([-0.0, 1.0])).expect_err("another sign");
        assert_eq!(error.to_string(), "1 of 2 logits of the graph are not those launched");
    }
}
