//! Forward passes of many batches of one shape: from some on, replays of a graph.

use burn::tensor::Tensor;
use vim_kernels::{Graph, KernelError, supports_multi_tensor};

/// Passes that are launched before one is recorded, which takes three more.
const LAUNCHED: usize = 3;

/// The passes of a model whose weights stay as they are while this lives. A replay has the bits of
/// what it replaces.
#[derive(Debug)]
pub(crate) struct Replayed<F> {
    forward: F,
    launched: usize,
    graph: Option<Graph<F, 4, 2>>,
}

impl<F: Fn(Tensor<4>) -> Result<Tensor<2>, KernelError> + Clone> Replayed<F> {
    pub(crate) fn new(forward: F) -> Self {
        Self { forward, launched: 0, graph: None }
    }

    /// `[B, K]` of `images`, `[B, 3, H, W]`.
    pub(crate) fn run(&mut self, images: Tensor<4>) -> Result<Tensor<2>, KernelError> {
        if let Some(graph) = self.graph.as_ref().filter(|graph| graph.takes(&images)) {
            return graph.replay(images);
        }
        let is_due = self.launched == LAUNCHED && self.graph.is_none();
        if is_due && supports_multi_tensor(&images.device()) {
            match Graph::capture(images.clone(), self.forward.clone()) {
                Ok(graph) => return self.graph.insert(graph).replay(images),
                // As it was.
                Err(KernelError::NoGraph { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.launched += 1;
        (self.forward)(images)
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use std::cell::Cell;

    use burn::module::Module;
    use burn::tensor::{Device, DeviceKind};

    use super::*;
    use crate::train::optim::tests::small_on;

    #[test]
    fn replays_have_the_bits_of_launches_and_other_shapes_are_launched() {
        let device = Device::wgpu(DeviceKind::DefaultDevice);
        let (model, launched) = (small_on(&device, 0), Cell::new(0));
        let model = model.valid();
        let images = |batch: usize, seed: usize| {
            let numbers = (0..batch * 3 * 64).map(|i| ((i * (seed + 2)) as f32).sin());
            let numbers: Vec<f32> = numbers.collect();
            Tensor::<1>::from_floats(&numbers[..], &device).reshape([batch, 3, 8, 8])
        };
        let mut passes = Replayed::new(|images| {
            launched.set(launched.get() + 1);
            model.forward(images)
        });
        let bits = |logits: Tensor<2>| -> Vec<f32> { logits.into_data().iter().collect() };
        for seed in 0..8 {
            let (batch, before) = (if seed == 6 { 1 } else { 2 }, launched.get());
            let got = bits(passes.run(images(batch, seed)).unwrap());
            assert_eq!(got, bits(model.forward(images(batch, seed)).unwrap()), "{seed}");
            let is_replay = launched.get() == before;
            assert_eq!(is_replay, [4, 5, 7].contains(&seed), "{seed}");
        }
    }
}
