//! The mixer: outer projections around one direction, or around two.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use vim_kernels::{
    Discretization, KernelChoice, KernelError, Precision, ScanOptions, halved_linear,
    has_fused_mixer, linear, mixer_inner,
};

use crate::config::{
    Bimamba, DtBInit, DtRank, GateGradient, LayerScale, MOST_CHANNELS, MOST_EXPANDED, ModelError,
    SsmConfig, VimConfig, check_sizes, conflict, range,
};
use crate::direction::{Direction, DirectionConfig};
use crate::init::{Rule, Scope};

/// What a [`Mixer`] is built from.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use vim_kernels::Discretization;
/// use vim_model::MixerConfig;
///
/// let device = Device::flex();
/// let discretization = Discretization::Foh;
/// let config = MixerConfig { d_state: 8, discretization, ..MixerConfig::new(64) };
/// let mixer = config.init(&device, 0)?;
/// assert_eq!(mixer.forward(Tensor::zeros([1, 7, 64], &device))?.dims(), [1, 7, 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MixerConfig {
    /// Channels outside the mixer, `M`.
    pub d_model: usize,
    /// `D / M`.
    pub expand: usize,
    /// States per channel, `N`.
    pub d_state: usize,
    /// Taps of the convolution, `W`: 2 to 4.
    pub d_conv: usize,
    /// Rank of the step's projection, `R`.
    pub dt_rank: DtRank,
    /// How the mixer goes over the tokens.
    pub bimamba: Bimamba,
    /// Whether the sum of the two directions of a [`Bimamba::V2`] is halved; `None`: it is.
    pub divide_out: Option<bool>,
    /// Gain of every channel at the end.
    pub layer_scale: LayerScale,
    /// Mixers on the residual stream: `out_proj` starts smaller by its root.
    pub depth: usize,
    /// The method of both directions, unless `ssm` names others.
    pub discretization: Discretization,
    /// Numerics of the scan.
    pub ssm: SsmConfig,
}

impl MixerConfig {
    /// The mixer of Vim-Ti with `d_model` channels, alone on its residual stream.
    #[must_use]
    pub fn new(d_model: usize) -> Self {
        VimConfig { d_model, depth: 1, ..VimConfig::default() }.mixer()
    }

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

    pub(crate) fn check(&self) -> Result<(), ModelError> {
        check_sizes([
            ("depth", self.depth, 4096),
            ("d_model", self.d_model, MOST_CHANNELS),
            ("expand", self.expand, MOST_EXPANDED),
        ])?;
        if let LayerScale::Starts(value) = self.layer_scale
            && !value.is_finite()
        {
            return range("layer_scale", &value, "\"none\" or a finite number");
        }
        if self.divide_out == Some(true) && self.bimamba != Bimamba::V2 {
            let other = format!("model.bimamba = \"{}\"", self.bimamba);
            let reason = "only \"v2\" halves its sum; leave divide_out out";
            return conflict("model.divide_out", &true, other, reason);
        }
        self.ssm.check(self.discretization, self.bimamba)?;
        self.direction(false).check()
    }

    pub(crate) fn init_in(&self, scope: &Scope<'_>) -> Mixer {
        let (d_model, d_inner) = (self.d_model, self.d_inner());
        let (in_proj, out_proj) = (scope.child("in_proj"), scope.child("out_proj"));
        // One residual branch per block: the stream's variance does not grow with depth.
        let out_rule = Rule::fan_in(d_inner * self.depth);
        let at = scope.child("backward");
        Mixer {
            in_proj: in_proj.linear([d_model, 2 * d_inner], Rule::fan_in(d_model), None),
            forward: self.direction(false).init_in(&scope.child("forward")),
            backward: match self.bimamba {
                Bimamba::None => None,
                Bimamba::V1 => Some(self.direction(true).init_a_in(&at)),
                Bimamba::V2 => Some(self.direction(true).init_in(&at)),
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

    /// One direction of the mixer: the one from the last token to the first if `reverse` is set.
    #[must_use]
    pub fn direction(&self, reverse: bool) -> DirectionConfig {
        let [forward, backward] = self.methods();
        DirectionConfig {
            d_inner: self.d_inner(),
            d_state: self.d_state,
            d_conv: self.d_conv,
            dt_rank: self.dt_rank(),
            a: self.ssm.a,
            dt_b_init: if reverse { self.ssm.dt_b_init } else { DtBInit::InverseSoftplus },
            scan_options: ScanOptions {
                method: if reverse { backward } else { forward },
                series: self.ssm.series,
                delta_softplus: true,
                reverse,
                choice: self.ssm.scan,
            },
        }
    }

    /// Channels inside the mixer, `D`.
    #[must_use]
    pub fn d_inner(&self) -> usize {
        self.expand * self.d_model
    }

    /// Rank of the step's projection, `R`.
    #[must_use]
    pub fn dt_rank(&self) -> usize {
        match self.dt_rank {
            DtRank::Auto => self.d_model.div_ceil(16),
            DtRank::Rank(rank) => rank,
        }
    }

    /// Whether the sum of both ways is halved: in a [`Bimamba::V2`] only.
    #[must_use]
    pub fn divide_out(&self) -> bool {
        self.bimamba == Bimamba::V2 && self.divide_out.unwrap_or(true)
    }

    /// The methods of the forward and of the backward way.
    #[must_use]
    pub fn methods(&self) -> [Discretization; 2] {
        [self.ssm.method_fwd, self.ssm.method_bwd]
            .map(|method| method.unwrap_or(self.discretization))
    }
}

impl VimConfig {
    /// The mixer of every block.
    #[must_use]
    pub fn mixer(&self) -> MixerConfig {
        MixerConfig {
            d_model: self.d_model,
            expand: self.expand,
            d_state: self.d_state,
            d_conv: self.d_conv,
            dt_rank: self.dt_rank,
            bimamba: self.bimamba,
            divide_out: self.divide_out,
            layer_scale: self.layer_scale,
            depth: self.depth,
            discretization: self.discretization,
            ssm: self.ssm,
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

    use super::*;
    use crate::config::Preset;

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
