//! One layer: add, norm, mixer.

use burn::module::Module;
use burn::tensor::Tensor;

use crate::mixer::Mixer;
use crate::norm::Norm;

/// Adds what comes in to the residual stream, and mixes the normalized sum.
#[derive(Module, Debug)]
pub struct Block {
    /// Before the mixer.
    pub norm: Norm,
    /// The only sub-layer: there is no MLP.
    pub mixer: Mixer,
}

impl Block {
    /// Takes the previous block's output and the residual stream to this block's.
    ///
    /// The sum is taken at the start of the next block, so that one kernel takes it and the norm;
    /// the first block has no residual yet.
    ///
    /// # Shapes
    ///
    /// - `hidden`, `residual`, and both results: `[B, L, M]`
    #[must_use]
    pub fn forward(
        &self,
        hidden: Tensor<3>,
        residual: Option<Tensor<3>>,
    ) -> (Tensor<3>, Tensor<3>) {
        let (normed, residual) = self.norm.forward(hidden, residual, self.mixer.ways[0].choice);
        (self.mixer.forward(normed), residual)
    }
}
