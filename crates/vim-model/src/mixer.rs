//! The mixer: outer projections around one direction, or around two.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use vim_kernels::{Precision, KernelChoice, ScanOptions, mixer_inner, has_fused_mixer};

use crate::config::{Bimamba, GateGradient};
use crate::direction::{Direction, multiply};

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
    /// In what numbers it multiplies.
    #[module(skip)]
    pub(crate) precision: Precision,
    /// Whether scans compute their states again on the way back.
    #[module(skip)]
    pub(crate) recompute: bool,
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
        let sum = if let Some(backward) = &self.backward
            && self.both_at_once(&input.device())
        {
            let xz = multiply(input, self.in_proj.weight.val(), self.precision); // [B, L, 2D]
            let (ahead, back) = (self.forward.inner(), backward.inner());
            mixer_inner(xz, ahead, back, self.ways[0], self.precision, self.recompute)
                .expect("invariant: init checked the shapes and the choice of kernel")
        } else {
            self.one_after_the_other(input)
        };
        let weight = self.out_proj.weight.val();
        // A power of two: exact, and cheapest on the weight.
        let weight = if self.divide_out { weight * 0.5 } else { weight };
        let out = multiply(sum, weight, self.precision);
        match &self.gamma {
            Some(gamma) => {
                let gamma = gamma.val().cast(out.dtype());
                out * gamma.unsqueeze()
            }
            None => out,
        }
    }

    /// The sum of the directions, each by operations of its own: `[B, L, D]`.
    fn one_after_the_other(&self, input: Tensor<3>) -> Tensor<3> {
        let precision = self.precision;
        // Two products with halves of the weight rather than halves of one product: a half of the
        // product is strided, and the gradient of taking it writes all of it again.
        let [x_weight, z_weight] = self
            .in_proj
            .weight
            .val()
            .chunk(2, 1)
            .try_into()
            .expect("invariant: in_proj has 2D columns");
        let part = |weight| multiply(input.clone(), weight, precision);
        let (x, z) = (part(x_weight), part(z_weight)); // [B, L, D]

        let [first, last] = self.ways;
        match (&self.backward, self.bimamba) {
            (Some(backward), Bimamba::V2) => {
                self.forward.forward(x.clone(), z.clone(), first, precision)
                    + backward.forward(x, z, last, precision)
            }
            (Some(backward), Bimamba::V1 | Bimamba::None) => {
                let drive = self.forward.drive(x, first, precision);
                let back = if self.gate_gradient == GateGradient::Upstream {
                    z.clone().detach()
                } else {
                    z.clone()
                };
                self.forward.scan(drive.clone(), z, first) + backward.scan(drive, back, last)
            }
            (None, _) => self.forward.forward(x, z, first, precision),
        }
    }

    /// Whether one launch takes both directions: where the kernels can, and the two differ in nothing but
    /// their weights.
    pub(crate) fn both_at_once(&self, device: &Device) -> bool {
        let [first, last] = self.ways;
        let alike = ScanOptions { reverse: first.reverse, ..last } == first;
        alike
            && self.bimamba == Bimamba::V2
            && self.forward.a_off.is_none()
            && first.choice != KernelChoice::Reference
            && has_fused_mixer(device)
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use burn::tensor::TensorData;
    use vim_kernels::Discretization;

    use super::*;
    use crate::{Preset, VimConfig};

    fn wave(shape: [usize; 3], step: f32, device: &Device) -> Tensor<3> {
        let count = shape.iter().product::<usize>();
        let numbers: Vec<f32> = (0..count).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }

    fn numbers<const R: usize>(tensor: Tensor<R>) -> Vec<f32> {
        tensor.into_data().try_to_vec().expect("f32")
    }

    // Two directions with weights of their own, an odd number of images, tokens and channels. One operation with an
    // adjoint of its own against many, differentiated by Burn: what differs is the order of the products' sums.
    #[test]
    fn both_at_once_are_one_after_the_other() {
        let config = VimConfig {
            image_size: 12.into(),
            patch_size: 4,
            stride: 4,
            depth: 1,
            d_model: 17,
            expand: 3,
            d_state: 5,
            num_classes: 2,
            ..VimConfig::preset(Preset::Tiny)
        };
        let device = Device::default().autodiff();
        assert!(has_fused_mixer(&device), "this test is for a GPU with CUDA");
        for method in [Discretization::Zoh, Discretization::Poly] {
            let mut model = config.init(&device, 7).expect("a valid model");
            for way in &mut model.layers[0].mixer.ways {
                *way = ScanOptions { method, delta_softplus: true, ..*way };
            }
            let mixer = &model.layers[0].mixer;
            let grad = wave([3, 10, 17], 0.13, &device);
            let run = |at_once: bool| {
                let input = wave([3, 10, 17], 0.37, &device).require_grad();
                let y = if at_once {
                    mixer.forward(input.clone())
                } else {
                    let sum = mixer.one_after_the_other(input.clone());
                    multiply(sum, mixer.out_proj.weight.val(), mixer.precision)
                        * if mixer.divide_out { 0.5 } else { 1.0 }
                };
                let grads = (y.clone() * grad.clone()).sum().backward();
                let mut all = vec![numbers(y), numbers(input.grad(&grads).expect("a gradient"))];
                let of = |t: Tensor<2>| numbers(t.grad(&grads).expect("a gradient"));
                all.extend([&mixer.in_proj, &mixer.out_proj].map(|p| of(p.weight.val())));
                let back = mixer.backward.as_ref().expect("two directions");
                for way in [&mixer.forward, back] {
                    let inner = way.inner();
                    all.extend([inner.a_log, inner.x_proj, inner.dt_proj].map(of));
                    for weight in [inner.d, inner.delta_bias, inner.conv_bias] {
                        all.push(numbers(weight.grad(&grads).expect("a gradient")));
                    }
                    all.push(numbers(inner.conv_weight.grad(&grads).expect("a gradient")));
                }
                all
            };
            for (i, (got, want)) in run(true).iter().zip(run(false)).enumerate() {
                assert_eq!(got.len(), want.len(), "array {i}");
                let scale = want.iter().fold(1e-30_f32, |m, w| m.max(w.abs()));
                let off = got.iter().zip(&want).fold(0.0_f32, |m, (g, w)| m.max((g - w).abs()));
                assert!(off <= 1e-5 * scale, "{method}: array {i}: {off} of {scale}");
            }
        }
    }
}
