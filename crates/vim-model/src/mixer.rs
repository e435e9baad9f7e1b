//! The mixer: outer projections around one direction, or around two.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::module::linear;
use vim_kernels::ScanOptions;

use crate::config::{Bimamba, GateGradient};
use crate::direction::Direction;

/// Mixes tokens along their order.
///
/// `out_proj(forward(x, z) + backward(x, z))` with `x, z = in_proj(input)`, halved where `divide_out` says so,
/// times `gamma` where there is one.
#[derive(Module, Debug)]
pub struct Mixer {
    /// `M` → `2D` without bias: the scanned half `x`, then the gate `z`.
    pub in_proj: Linear,
    /// From the first token to the last.
    pub forward: Direction,
    /// From the last token to the first; absent where only the other is gone.
    pub backward: Option<Direction>,
    /// `D` → `M` without bias.
    pub out_proj: Linear,
    /// Layer scale: gain of every channel, `[M]`.
    pub gamma: Option<Param<Tensor<1>>>,
    /// How the forward and the backward direction scan.
    #[module(skip)]
    pub(crate) ways: [ScanOptions; 2],
    /// What the two directions share.
    #[module(skip)]
    pub(crate) bimamba: Bimamba,
    /// What the gate of two directions that share a drive gets back.
    #[module(skip)]
    pub(crate) gate_gradient: GateGradient,
    /// Whether their sum is halved.
    #[module(skip)]
    pub(crate) divide_out: bool,
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
    /// Zhu et al. 2024, algorithm 1; the original's `bimamba_type`, `if_divide_out` and
    /// `init_layer_scale`. Its v1 convolves once, from the first token on, and scans what comes of it both ways.
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

        let [first, last] = self.ways;
        let sum = match (&self.backward, self.bimamba) {
            (Some(backward), Bimamba::V2) => {
                self.forward.forward(x.clone(), z.clone(), first) + backward.forward(x, z, last)
            }
            (Some(backward), Bimamba::V1 | Bimamba::None) => {
                let drive = self.forward.drive(x, first);
                let back = if self.gate_gradient == GateGradient::Upstream {
                    z.clone().detach()
                } else {
                    z.clone()
                };
                self.forward.scan(drive.clone(), z, first) + backward.scan(drive, back, last)
            }
            (None, _) => self.forward.forward(x, z, first),
        };
        let out = self.out_proj.forward(sum);
        // A power of two: exact, and cheaper on M than on D channels.
        let out = if self.divide_out { out * 0.5 } else { out };
        match &self.gamma {
            Some(gamma) => out * gamma.val().unsqueeze(),
            None => out,
        }
    }
}
