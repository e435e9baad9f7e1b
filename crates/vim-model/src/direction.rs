//! One direction of the mixer: a short convolution, projections that depend on the input, and the scan.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::module::linear;
use vim_kernels::{
    ConvOptions, FullScanOptions, ScanOptions, causal_conv1d, full_scan, selective_scan,
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
#[derive(Module, Debug)]
pub struct Direction {
    /// `A = −exp(a_log)`, `[D, N]`: of a full A, its diagonal.
    pub a_log: Param<Tensor<2>>,
    /// Of a full A, what turns the states into each other: its skew-symmetric part, `[D, N, N]`.
    pub a_off: Option<Param<Tensor<3>>>,
    /// Gain of the skip connection around the scan, `[D]`.
    pub d: Param<Tensor<1>>,
    /// The convolution before the scan.
    pub conv1d: CausalConv1d,
    /// `D` → `R + 2N` without bias: the low-rank step, B and C of a token, in this order.
    pub x_proj: Linear,
    /// `R` → `D`: the step. Its bias is added inside the scan, under the softplus.
    pub dt_proj: Linear,
}

impl Direction {
    /// Convolves, projects and scans; `scan.reverse` turns all of it round, by index.
    ///
    /// # Shapes
    ///
    /// - `x`, the gate `z`, and the result: `[B, L, D]`
    ///
    /// # Panics
    ///
    /// If `scan` forces a kernel that the device does not have.
    pub fn forward(&self, x: Tensor<3>, z: Tensor<3>, scan: ScanOptions) -> Tensor<3> {
        let conv = ConvOptions { silu: true, reverse: scan.reverse, choice: scan.choice };
        let u = causal_conv1d(x, self.conv1d.weight.val(), Some(self.conv1d.bias.val()), conv)
            .expect("invariant: init checked the shapes and the choice of kernel");

        let [dt_rank, _] = self.dt_proj.weight.dims();
        let [_, d_state] = self.a_log.dims();
        let [dt, b, c] = self
            .x_proj
            .forward(u.clone()) // [B, L, R + 2N]
            .split_with_sizes(vec![dt_rank, d_state, d_state], 2)
            .try_into()
            .expect("invariant: as many parts as sizes");
        let delta = linear(dt, self.dt_proj.weight.val(), None); // [B, L, D]

        let (d, delta_bias) = (Some(self.d.val()), self.dt_proj.bias.as_ref().map(Param::val));
        match self.full_a() {
            None => {
                let a = self.a_log.val().exp().neg();
                selective_scan(u, delta, a, b, c, d, Some(z), delta_bias, scan)
            }
            Some(a) => {
                let ScanOptions { delta_softplus, reverse, choice, .. } = scan;
                let options = FullScanOptions { delta_softplus, reverse, choice };
                full_scan(u, delta, a, b, c, d, Some(z), delta_bias, options)
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
