//! One direction of the mixer: a short convolution, projections that depend on the input, and the scan.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;
use vim_kernels::{
    ConvOptions, FullScanOptions, DirectionWeights, Precision, ScanOptions, causal_conv1d, full_scan,
    linear, selective_scan,
};

/// The parameters of a depthwise convolution along the tokens.
#[derive(Module, Debug)]
pub struct CausalConv1d {
    /// `[D, 1, W]`; the last tap multiplies the current token.
    pub weight: Param<Tensor<3>>,
    /// `[D]`.
    pub bias: Param<Tensor<1>>,
}

/// The parameters with which a mixer goes over the tokens in one direction.
///
/// Everything but A is absent from the backward direction of a mixer whose two share it
/// ([`Bimamba::V1`](crate::Bimamba::V1)).
#[derive(Module, Debug)]
pub struct Direction {
    /// `A = −exp(a_log)`, `[D, N]`: of a full A, its diagonal.
    pub a_log: Param<Tensor<2>>,
    /// Of a full A, what turns the states into each other: its skew-symmetric part, `[D, N, N]`.
    pub a_off: Option<Param<Tensor<3>>>,
    /// Gain of the skip connection around the scan, `[D]`.
    pub d: Option<Param<Tensor<1>>>,
    /// The convolution before the scan.
    pub conv1d: Option<CausalConv1d>,
    /// `D` → `R + 2N` without bias: the low-rank step, B and C of a token, in this order.
    pub x_proj: Option<Linear>,
    /// `R` → `D`: the step. Its bias is added inside the scan, under the softplus.
    pub dt_proj: Option<Linear>,
}

/// What a direction has beside A, unless it takes the other one's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) d: &'a Param<Tensor<1>>,
    pub(crate) conv1d: &'a CausalConv1d,
    pub(crate) x_proj: &'a Linear,
    pub(crate) dt_proj: &'a Linear,
}

/// All that a scan takes beside A and the gate.
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
    delta_bias: Option<Tensor<1>>,
}

impl Direction {
    /// Convolves, projects and scans; `way.reverse` turns all of it round, by index.
    ///
    /// # Shapes
    ///
    /// - `x`, the gate `z`, and the result: `[B, L, D]`
    ///
    /// # Panics
    ///
    /// If `way` forces a kernel that the device does not have, or if this is the direction of a mixer
    /// that takes the other one's projections.
    #[must_use]
    pub fn forward(
        &self,
        x: Tensor<3>,
        z: Tensor<3>,
        way: ScanOptions,
        precision: Precision,
    ) -> Tensor<3> {
        self.scan(self.drive(x, way, precision), z, way)
    }

    /// The weights of both directions' common operation.
    pub(crate) fn inner(&self) -> DirectionWeights {
        let Parts { d, conv1d, x_proj, dt_proj } = self.parts();
        DirectionWeights {
            conv_weight: conv1d.weight.val(),
            conv_bias: conv1d.bias.val(),
            x_proj: x_proj.weight.val(),
            dt_proj: dt_proj.weight.val(),
            delta_bias: dt_proj.bias.as_ref().expect("invariant: the step has a bias").val(),
            a_log: self.a_log.val(),
            d: d.val(),
        }
    }

    /// Its own convolution, projections and gain.
    pub(crate) fn parts(&self) -> Parts<'_> {
        const OWN: &str = "invariant: a direction that is asked for its parts has its own";
        Parts {
            d: self.d.as_ref().expect(OWN),
            conv1d: self.conv1d.as_ref().expect(OWN),
            x_proj: self.x_proj.as_ref().expect(OWN),
            dt_proj: self.dt_proj.as_ref().expect(OWN),
        }
    }

    /// The convolution and the projections: what `x`, `[B, L, D]`, drives the states with.
    pub(crate) fn drive(&self, x: Tensor<3>, way: ScanOptions, precision: Precision) -> Drive {
        let Parts { d, conv1d, x_proj, dt_proj } = self.parts();
        let conv = ConvOptions { silu: true, reverse: way.reverse, choice: way.choice };
        let u = causal_conv1d(x, conv1d.weight.val(), Some(conv1d.bias.val()), conv)
            .expect("invariant: init checked the shapes and the choice of kernel");

        let [dt_rank, _] = dt_proj.weight.dims();
        let [_, d_state] = self.a_log.dims();
        let [dt, b, c] = multiply(u.clone(), x_proj.weight.val(), precision) // [B, L, R + 2N]
            .split_with_sizes(vec![dt_rank, d_state, d_state], 2)
            .try_into()
            .expect("invariant: as many parts as sizes");
        let delta = multiply(dt, dt_proj.weight.val(), precision); // [B, L, D]
        Drive { u, delta, b, c, d: d.val(), delta_bias: dt_proj.bias.as_ref().map(Param::val) }
    }

    /// The scan under this direction's A: `[B, L, D]`.
    pub(crate) fn scan(&self, drive: Drive, z: Tensor<3>, way: ScanOptions) -> Tensor<3> {
        let Drive { u, delta, b, c, d, delta_bias } = drive;
        let (d, z) = (Some(d), Some(z));
        match self.full_a() {
            None => {
                let a = self.a_log.val().exp().neg();
                selective_scan(u, delta, a, b, c, d, z, delta_bias, way)
            }
            Some(a) => {
                let ScanOptions { delta_softplus, reverse, choice, .. } = way;
                let options = FullScanOptions { delta_softplus, reverse, choice };
                full_scan(u, delta, a, b, c, d, z, delta_bias, options)
            }
        }
        .expect("invariant: init checked the shapes and the choice of kernel")
        .y
    }

    /// `A = −diag(exp(a_log)) + (a_off − a_offᵀ)/2`, `[D, N, N]`, where it is full.
    ///
    /// Its symmetric part is the diagonal, negative whatever the parameters are: the model is stable,
    /// and the bilinear step exists for every delta. Up to a rotation of the states every A with a
    /// negative definite symmetric part has this form, and up to a change of basis every stable A.
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

/// `x · weight`, of sizes that a model's fields have.
pub(crate) fn multiply(x: Tensor<3>, weight: Tensor<2>, precision: Precision) -> Tensor<3> {
    linear(x, weight, None, precision)
        .expect("invariant: the model's sizes agree, and its device multiplies in its precision")
}
