//! The mixer: outer projections around one direction, or around two.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use vim_kernels::{
    KernelChoice, KernelError, Precision, ScanOptions, halved_linear, has_fused_mixer, linear,
    mixer_inner,
};

use crate::config::{Bimamba, GateGradient, LayerScale, MixerConfig, ModelError};
use crate::direction::Direction;
use crate::init::{Rule, Scope};

impl MixerConfig {
    /// Builds the mixer. Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if a value is out of range, if two do not go together, or if `device` lacks a
    /// kernel that is forced.
    pub fn init(&self, device: &Device, seed: u64) -> Result<Mixer, ModelError> {
        self.check()?;
        self.ssm.scan.resolve(device)?;
        Ok(self.init_in(&Scope::root(device, seed)))
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> Mixer {
        let (d_model, d_inner) = (self.d_model, self.d_inner());
        let (in_proj, out_proj) = (scope.child("in_proj"), scope.child("out_proj"));
        // One residual branch per block: the stream's variance does not grow with depth.
        let out_rule = Rule::fan_in(d_inner * self.depth);
        let at = scope.child("backward");
        Mixer {
            in_proj: in_proj.linear([d_model, 2 * d_inner], Rule::fan_in(d_model), None),
            forward: Direction::init_in(self, false, &scope.child("forward")),
            backward: match self.bimamba {
                Bimamba::None => None,
                Bimamba::V1 => Some(Direction::init_a_in(self, true, &at)),
                Bimamba::V2 => Some(Direction::init_in(self, true, &at)),
            },
            out_proj: out_proj.linear([d_inner, d_model], out_rule, None),
            gamma: match self.layer_scale {
                LayerScale::None => None,
                LayerScale::Starts(value) => {
                    Some(scope.param("gamma", [d_model], Rule::Constant(value as f32)))
                }
            },
            bimamba: self.bimamba,
            gate_gradient: self.ssm.v1_gate_gradient.unwrap_or_default(),
            divide_out: self.divide_out(),
            precision: Precision::default(),
            recompute: false,
        }
    }
}

/// Mixes tokens along their order.
///
/// `out_proj(forward(x, z) + backward(x, z))` with `x, z = in_proj(input)`, halved if `divide_out`
/// is set, times `gamma` if there is one.
#[derive(Module, Debug)]
pub struct Mixer {
    /// `M` → `2D` without bias: the scanned half `x`, then the gate `z`.
    pub in_proj: Linear,
    /// From the first token to the last.
    pub forward: Direction,
    /// From the last token to the first; absent in a [`Bimamba::None`].
    pub backward: Option<Direction>,
    /// `D` → `M` without bias.
    pub out_proj: Linear,
    /// Layer scale: gain of every channel, `[M]`.
    pub gamma: Option<Param<Tensor<1>>>,
    /// What the two directions share.
    #[module(skip)]
    pub bimamba: Bimamba,
    /// The gradient that the gate of a [`Bimamba::V1`] gets.
    #[module(skip)]
    pub gate_gradient: GateGradient,
    /// Whether the sum of the directions is halved.
    #[module(skip)]
    pub divide_out: bool,
    /// Precision of the products.
    #[module(skip)]
    pub precision: Precision,
    /// Whether the backward pass computes the states of the scans again instead of keeping them.
    #[module(skip)]
    pub recompute: bool,
}

impl Mixer {
    /// Mixes the tokens of every image.
    ///
    /// # Shapes
    ///
    /// - `input`, and the result: `[B, L, M]`
    ///
    /// # Errors
    ///
    /// [`KernelError`] as [`Direction::forward`].
    ///
    /// # Source
    ///
    /// Zhu et al. 2024, algorithm 1; the original's `bimamba_type`, `if_divide_out` and
    /// `init_layer_scale`. Its v1 convolves once, from the first token on, and scans the result
    /// both ways.
    pub fn forward(&self, input: Tensor<3>) -> Result<Tensor<3>, KernelError> {
        let sum = if let Some(backward) = &self.backward
            && self.is_fused(&input.device())
        {
            let xz = linear(input, self.in_proj.weight.val(), None, self.precision)?; // [B, L, 2D]
            let (forward, options) = (self.forward.weights(), self.forward.scan_options);
            mixer_inner(xz, forward, backward.weights(), options, self.precision, self.recompute)?
        } else {
            self.unfused(input)?
        };
        let weight = self.out_proj.weight.val();
        let out = if self.divide_out {
            halved_linear(sum, weight, self.precision)?
        } else {
            linear(sum, weight, None, self.precision)?
        };
        let Some(gamma) = &self.gamma else { return Ok(out) };
        let gamma = gamma.val().cast(out.dtype());
        Ok(out * gamma.unsqueeze())
    }

    /// The sum of the directions, each by operations of its own, `[B, L, D]`.
    fn unfused(&self, input: Tensor<3>) -> Result<Tensor<3>, KernelError> {
        let precision = self.precision;
        // Two products with halves of the weight, not halves of one product: those are strided, and
        // the gradient of a slice writes the whole product again.
        let [x_weight, z_weight] = self
            .in_proj
            .weight
            .val()
            .chunk(2, 1)
            .try_into()
            .expect("invariant: in_proj has 2D columns");
        let part = |weight| linear(input.clone(), weight, None, precision);
        let (x, z) = (part(x_weight)?, part(z_weight)?); // [B, L, D]

        match (&self.backward, self.bimamba) {
            (Some(backward), Bimamba::V2) => {
                let forward = self.forward.forward(x.clone(), z.clone(), precision)?;
                Ok(forward + backward.forward(x, z, precision)?)
            }
            (Some(backward), Bimamba::V1 | Bimamba::None) => {
                let drive = self.forward.drive(x, precision)?;
                let gate = if self.gate_gradient == GateGradient::Upstream {
                    z.clone().detach()
                } else {
                    z.clone()
                };
                Ok(self.forward.scan(drive.clone(), z)? + backward.scan(drive, gate)?)
            }
            (None, _) => self.forward.forward(x, z, precision),
        }
    }

    /// Whether one operation computes both directions on `device`: where its kernels can, and the
    /// directions differ in nothing but their weights.
    pub(crate) fn is_fused(&self, device: &Device) -> bool {
        let first = self.forward.scan_options;
        let alike = |direction: &Direction| {
            ScanOptions { reverse: first.reverse, ..direction.scan_options } == first
        };
        self.backward.as_ref().is_some_and(alike)
            && self.bimamba == Bimamba::V2
            && self.forward.a_off.is_none()
            && first.choice != KernelChoice::Reference
            && has_fused_mixer(device)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;
    use vim_kernels::Discretization;

    use super::*;
    use crate::config::{Preset, VimConfig};

    fn wave(shape: [usize; 3], step: f32, device: &Device) -> Tensor<3> {
        let count = shape.iter().product::<usize>();
        let numbers: Vec<f32> = (0..count).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_data(TensorData::new(numbers, shape), device)
    }

    fn numbers<const R: usize>(tensor: Tensor<R>) -> Vec<f32> {
        tensor.into_data().try_to_vec().expect("f32")
    }

    // Two directions with weights of their own, an odd number of images, tokens and channels: one
    // operation with its own adjoint against many that Burn differentiates. Products are summed in
    // another order.
    #[test]
    fn fused_directions_are_the_unfused_ones() {
        fused_agrees(&Device::flex().autodiff());
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn fused_directions_are_the_unfused_ones_on_a_gpu() {
        fused_agrees(&Device::default().autodiff());
    }

    fn fused_agrees(device: &Device) {
        let config = VimConfig {
            image_size: 12.into(),
            patch_size: 4,
            depth: 1,
            d_model: 17,
            expand: 3,
            d_state: 5,
            num_classes: 2,
            ..VimConfig::preset(Preset::Tiny)
        };
        assert!(has_fused_mixer(device), "no fused mixer on {device:?}");
        for method in [Discretization::Zoh, Discretization::Poly] {
            let mut model = config.init(device, 7).expect("a valid model");
            let Mixer { forward, backward, .. } = &mut model.layers[0].mixer;
            for direction in [forward, backward.as_mut().expect("two directions")] {
                direction.scan_options.method = method;
            }
            let mixer = &model.layers[0].mixer;
            let grad = wave([3, 10, 17], 0.13, device);
            let run = |fused: bool| {
                let input = wave([3, 10, 17], 0.37, device).require_grad();
                let y = if fused {
                    mixer.forward(input.clone()).expect("a kernel")
                } else {
                    let sum = mixer.unfused(input.clone()).expect("a kernel");
                    let weight = mixer.out_proj.weight.val();
                    linear(sum, weight, None, mixer.precision).expect("sizes that agree")
                        * if mixer.divide_out { 0.5 } else { 1.0 }
                };
                let grads = (y.clone() * grad.clone()).sum().backward();
                let mut all = vec![numbers(y), numbers(input.grad(&grads).expect("a gradient"))];
                let of = |t: Tensor<2>| numbers(t.grad(&grads).expect("a gradient"));
                all.extend([&mixer.in_proj, &mixer.out_proj].map(|p| of(p.weight.val())));
                let back = mixer.backward.as_ref().expect("two directions");
                for way in [&mixer.forward, back] {
                    let inner = way.weights();
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
