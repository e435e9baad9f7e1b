//! The bidirectional mixer.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::module::linear;
use vim_kernels::{ScanOptions, scans_both_at_once};

use crate::both::both;
use crate::direction::Direction;

/// Mixes tokens in both directions with shared outer projections.
///
/// `out_proj((forward(x, z) + backward(x, z)) / 2)` with `x, z = in_proj(input)`.
#[derive(Module, Debug)]
pub struct Mixer {
    /// `M` → `2D` without bias: the scanned half `x`, then the gate `z`.
    pub in_proj: Linear,
    /// From the first token to the last.
    pub forward: Direction,
    /// From the last token to the first.
    pub backward: Direction,
    /// `D` → `M` without bias.
    pub out_proj: Linear,
    /// How both directions scan, but for the direction.
    #[module(skip)]
    pub(crate) scan: ScanOptions,
}

impl Mixer {
    /// Mixes the tokens of every image.
    ///
    /// # Shapes
    ///
    /// - `input`, and the result: `[B, L, M]`
    ///
    /// # Source
    ///
    /// Zhu et al. 2024, algorithm 1; the original's `bimamba_type = "v2"` with `if_divide_out`.
    #[must_use]
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        // Two products with halves of the weight rather than halves of one product: a half of the
        // product is strided, and the gradient of taking it writes all of it again.
        let [x_weight, z_weight] = self
            .in_proj
            .weight
            .val()
            .chunk(2, 1)
            .try_into()
            .expect("invariant: in_proj has 2D columns");
        let x = linear(input.clone(), x_weight, None); // [B, L, D]
        let z = linear(input, z_weight, None); // [B, L, D]

        if scans_both_at_once(&x.device()) && self.forward.a_off.is_none() {
            let sum = both(&self.forward, &self.backward, x, z, self.scan);
            return self.out_proj.forward(sum) * 0.5;
        }
        let along = |direction: &Direction, reverse| {
            direction.forward(x.clone(), z.clone(), ScanOptions { reverse, ..self.scan })
        };
        let sum = along(&self.forward, false) + along(&self.backward, true);
        self.out_proj.forward(sum) * 0.5 // a power of two: exact, and cheaper on M than on D channels
    }
}
