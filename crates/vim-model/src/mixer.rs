//! The mixer: outer projections around one direction, or around two; and a direction: short
//! convolution, projections of the input, and the scan.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use vim_kernels::{
    ConvOptions, DirectionWeights, FullScanOptions, KernelChoice, KernelError, Precision,
    Recompute, ScanOptions, causal_conv1d, full_scan, halved_linear, has_fused_mixer, linear,
    mixer_inner, selective_scan,
};

use crate::config::{
    Bimamba, DtBInit, GateGradient, LayerScale, MixerConfig, ModelError, StateMatrix,
};
use crate::init::{Rule, Scope};
use crate::record::{BlockRecorder, RecordedScan};

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
            recompute: Recompute::default(),
            recorder: None,
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
    /// What the backward pass computes again instead of keeping it.
    #[module(skip)]
    pub recompute: Recompute,
    /// What keeps the scans.
    #[module(skip)]
    pub(crate) recorder: Option<BlockRecorder>,
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
        let scan = |of: &Direction, drive: Drive, z: Tensor<3>| {
            let Some(BlockRecorder { recorder, block, flipped }) = &self.recorder else {
                return of.scan(drive, z);
            };
            let y = of.scan(drive.clone(), z.clone())?;
            let Drive { u, delta, b, c, d, delta_bias } = drive;
            recorder.keep(RecordedScan {
                block: *block,
                flipped: *flipped,
                options: of.scan_options,
                u,
                delta,
                a: of.a_log.val().exp().neg(),
                b,
                c,
                d,
                delta_bias,
                z,
                y: y.clone(),
            });
            Ok(y)
        };

        match (&self.backward, self.bimamba) {
            (Some(backward), Bimamba::V2) => {
                let drive = self.forward.drive(x.clone(), precision)?;
                let forward = scan(&self.forward, drive, z.clone())?;
                Ok(forward + scan(backward, backward.drive(x, precision)?, z)?)
            }
            (Some(backward), Bimamba::V1 | Bimamba::None) => {
                let drive = self.forward.drive(x, precision)?;
                let gate = if self.gate_gradient == GateGradient::Upstream {
                    z.clone().detach()
                } else {
                    z.clone()
                };
                Ok(scan(&self.forward, drive.clone(), z)? + scan(backward, drive, gate)?)
            }
            (None, _) => scan(&self.forward, self.forward.drive(x, precision)?, z),
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
            && self.recorder.is_none()
            && first.choice != KernelChoice::Reference
            && has_fused_mixer(device)
    }
}

/// The parameters of a depthwise convolution along the tokens.
#[derive(Module, Debug)]
pub struct CausalConv1d {
    /// `[D, 1, W]`; the last tap multiplies the current token.
    pub weight: Param<Tensor<3>>,
    /// `[D]`.
    pub bias: Param<Tensor<1>>,
}

/// The layers with which a mixer goes over the tokens in one direction.
///
/// Everything but A is absent from the backward direction of a mixer whose two share it
/// ([`Bimamba::V1`](crate::Bimamba::V1)).
#[derive(Module, Debug)]
pub struct Direction {
    /// `A = −exp(a_log)`, `[D, N]`: the diagonal of A.
    pub a_log: Param<Tensor<2>>,
    /// Parameters of the skew-symmetric part of a full A, `[D, N, N]`.
    pub a_off: Option<Param<Tensor<3>>>,
    /// Gain of the skip connection around the scan, `[D]`.
    pub d: Option<Param<Tensor<1>>>,
    /// The convolution before the scan.
    pub conv1d: Option<CausalConv1d>,
    /// `D` → `R + 2N` without bias: the low-rank step, B and C of a token, in this order.
    pub x_proj: Option<Linear>,
    /// `R` → `D`: the step. Its bias is added inside the scan, under the softplus.
    pub dt_proj: Option<Linear>,
    /// How it scans.
    #[module(skip)]
    pub scan_options: ScanOptions,
}

/// The inputs of a scan beside A and the gate.
#[derive(Clone, Debug)]
pub(crate) struct Drive {
    /// `[B, L, D]`.
    u: Tensor<3>,
    /// Before its bias and the softplus, `[B, L, D]`.
    delta: Tensor<3>,
    /// `[B, L, N]`.
    b: Tensor<3>,
    /// `[B, L, N]`.
    c: Tensor<3>,
    /// `[D]`.
    d: Tensor<1>,
    /// `[D]`.
    delta_bias: Tensor<1>,
}

impl Direction {
    /// Builds a direction of a mixer, the one from the last token to the first if `reverse` is set.
    /// Its values are a function of `seed`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] as [`MixerConfig::init`].
    pub fn init(
        config: &MixerConfig,
        reverse: bool,
        device: &Device,
        seed: u64,
    ) -> Result<Self, ModelError> {
        config.check()?;
        config.ssm.scan.resolve(device)?;
        Ok(Self::init_in(config, reverse, &Scope::root(device, seed)))
    }

    pub(crate) fn init_in(config: &MixerConfig, reverse: bool, scope: &Scope<'_>) -> Self {
        let (d_inner, d_state, dt_rank) = (config.d_inner(), config.d_state, config.dt_rank());
        let dt_bias = match config.ssm.dt_b_init {
            DtBInit::UpstreamZero if reverse => Rule::Constant(0.0),
            DtBInit::UpstreamZero | DtBInit::InverseSoftplus => Rule::InverseSoftplus,
        };
        let (conv1d, taps) = (scope.child("conv1d"), Rule::fan_in(config.d_conv));
        let (x_proj, x_shape) = (scope.child("x_proj"), [d_inner, dt_rank + 2 * d_state]);
        let dt_proj = scope.child("dt_proj");
        Self {
            d: Some(scope.param("d", [d_inner], Rule::Constant(1.0))),
            conv1d: Some(CausalConv1d {
                weight: conv1d.param("weight", [d_inner, 1, config.d_conv], taps),
                bias: conv1d.param("bias", [d_inner], taps),
            }),
            x_proj: Some(x_proj.linear(x_shape, Rule::fan_in(d_inner), None)),
            dt_proj: Some(dt_proj.linear([dt_rank, d_inner], Rule::fan_in(dt_rank), Some(dt_bias))),
            ..Self::init_a_in(config, reverse, scope)
        }
    }

    /// A direction with A alone, which takes everything else from another direction.
    pub(crate) fn init_a_in(config: &MixerConfig, reverse: bool, scope: &Scope<'_>) -> Self {
        let (d_inner, d_state) = (config.d_inner(), config.d_state);
        let full = [d_inner, d_state, d_state];
        Self {
            a_log: scope.param("a_log", [d_inner, d_state], Rule::LogStates),
            a_off: (config.ssm.a == StateMatrix::Full)
                .then(|| scope.param("a_off", full, Rule::Constant(0.0))),
            d: None,
            conv1d: None,
            x_proj: None,
            dt_proj: None,
            scan_options: config.scan_options(reverse),
        }
    }

    /// Convolves, projects and scans; where [`ScanOptions::reverse`] is set, from the last token
    /// on.
    ///
    /// # Shapes
    ///
    /// - `x`, the gate `z`, and the result: `[B, L, D]`
    ///
    /// # Errors
    ///
    /// [`KernelError`] if the device lacks a kernel that is forced, if it does not multiply in
    /// `precision`, if a shape disagrees, or if the batch is too large for a kernel.
    ///
    /// # Panics
    ///
    /// If this is the direction of a mixer that takes the other one's projections.
    pub fn forward(
        &self,
        x: Tensor<3>,
        z: Tensor<3>,
        precision: Precision,
    ) -> Result<Tensor<3>, KernelError> {
        self.scan(self.drive(x, precision)?, z)
    }

    /// The weights of a direction that has its own.
    pub(crate) fn weights(&self) -> DirectionWeights {
        const OWN: &str = "invariant: a mixer asks a direction which has all parameters";
        let conv1d = self.conv1d.as_ref().expect(OWN);
        let dt_proj = self.dt_proj.as_ref().expect(OWN);
        DirectionWeights {
            conv_weight: conv1d.weight.val(),
            conv_bias: conv1d.bias.val(),
            x_proj: self.x_proj.as_ref().expect(OWN).weight.val(),
            dt_proj: dt_proj.weight.val(),
            delta_bias: dt_proj.bias.as_ref().expect("invariant: the step has a bias").val(),
            a_log: self.a_log.val(),
            d: self.d.as_ref().expect(OWN).val(),
        }
    }

    /// The convolution and the projections of `x`, `[B, L, D]`.
    pub(crate) fn drive(&self, x: Tensor<3>, precision: Precision) -> Result<Drive, KernelError> {
        let DirectionWeights { conv_weight, conv_bias, x_proj, dt_proj, delta_bias, a_log, d } =
            self.weights();
        let ScanOptions { reverse, choice, .. } = self.scan_options;
        let conv = ConvOptions { silu: true, reverse, choice };
        let u = causal_conv1d(x, conv_weight, Some(conv_bias), conv)?;

        let ([dt_rank, _], [_, d_state]) = (dt_proj.dims(), a_log.dims());
        let [dt, b, c] = linear(u.clone(), x_proj, None, precision)? // [B, L, R + 2N]
            .split_with_sizes(vec![dt_rank, d_state, d_state], 2)
            .try_into()
            .expect("invariant: as many parts as sizes");
        let delta = linear(dt, dt_proj, None, precision)?; // [B, L, D]
        Ok(Drive { u, delta, b, c, d, delta_bias })
    }

    /// The scan under this direction's A: `[B, L, D]`.
    pub(crate) fn scan(&self, drive: Drive, z: Tensor<3>) -> Result<Tensor<3>, KernelError> {
        let Drive { u, delta, b, c, d, delta_bias } = drive;
        let (d, z, delta_bias) = (Some(d), Some(z), Some(delta_bias));
        let output = match self.full_a() {
            None => {
                let a = self.a_log.val().exp().neg();
                selective_scan(u, delta, a, b, c, d, z, delta_bias, self.scan_options)
            }
            Some(a) => {
                let ScanOptions { delta_softplus, reverse, choice, .. } = self.scan_options;
                let options = FullScanOptions { delta_softplus, reverse, choice };
                full_scan(u, delta, a, b, c, d, z, delta_bias, options)
            }
        };
        Ok(output?.y)
    }

    /// `A = −diag(exp(a_log)) + (a_off − a_offᵀ)/2`, `[D, N, N]`, where it is full.
    ///
    /// Its symmetric part is the negative diagonal: the model is stable for any parameters, and the
    /// bilinear step exists for every delta. Up to a rotation of the states every A with a negative
    /// definite symmetric part has this form, and up to a change of basis every stable A.
    #[must_use]
    pub fn full_a(&self) -> Option<Tensor<3>> {
        let a_off = self.a_off.as_ref()?.val();
        let decay = self.a_log.val().exp();
        let [_, d_state] = decay.dims();
        let identity = Tensor::<2>::eye(d_state, &decay.device()).unsqueeze::<3>();
        let skew = (a_off.clone() - a_off.swap_dims(1, 2)) * 0.5;
        Some(skew - decay.unsqueeze_dim::<3>(2) * identity)
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
