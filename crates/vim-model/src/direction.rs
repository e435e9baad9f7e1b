//! One direction of the mixer: short convolution, projections of the input, and the scan.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use vim_kernels::{
    ConvOptions, DirectionWeights, FullScanOptions, KernelError, Precision, ScanOptions,
    causal_conv1d, full_scan, linear, selective_scan,
};

use crate::config::{DtBInit, MixerConfig, ModelError, StateMatrix};
use crate::init::{Rule, Scope};

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
