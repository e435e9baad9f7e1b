//! The scan in tensor operations: any backend, differentiated by autodiff, written for readability.

use burn::tensor::Tensor;
use burn::tensor::activation::{log_sigmoid, silu};

use super::polynomial_range;
use super::{ScanOutput, ScanSpec};
use crate::discretization::discretize;

#[expect(clippy::too_many_arguments, reason = "the operation has these inputs")]
pub(super) fn scan(
    u: Tensor<3>,
    delta: Tensor<3>,
    a: Tensor<2>,
    b: Tensor<4>,
    c: Tensor<4>,
    d: Tensor<1>,
    z: Tensor<3>,
    delta_bias: Tensor<1>,
    spec: ScanSpec,
) -> ScanOutput {
    let [batch, len, d_inner] = u.dims();
    let delta = if spec.has_delta_bias { delta + delta_bias.unsqueeze() } else { delta };
    // softplus(x) = −ln sigmoid(−x), which overflows nowhere.
    let delta = if spec.options.delta_softplus { -log_sigmoid(-delta) } else { delta };
    let b = per_channel(b, d_inner, spec.b_constant);
    let c = per_channel(c, d_inner, spec.c_constant);
    let [_, d_state] = a.dims();
    // Transfers from the device on each call until the limit has been exceeded once.
    if !spec.options.method.bounded(spec.options.series)
        && polynomial_range::largest_polynomial_argument() <= polynomial_range::POLYNOMIAL_LIMIT
    {
        let largest = |delta: f32, a: f32| polynomial_range::note(delta * a);
        largest(
            delta.clone().detach().abs().max().into_scalar(),
            a.clone().detach().abs().max().into_scalar(),
        );
    }
    let a = a.unsqueeze::<3>(); // [1, D, N]

    // Token by token from the small arrays: the gradient of a slice of a `[B, L, D, N]` would cost
    // its whole size.
    let steps: Vec<_> = (0..len)
        .map(|t| {
            let step = discretize(
                spec.options.method,
                spec.options.series,
                at(&delta, t).reshape([batch, d_inner, 1]),
                a.clone(),
            );
            let drive = step.b_bar * row(&b, t) * at(&u, t).reshape([batch, d_inner, 1]);
            (step.a_bar, drive) // [B, D, N]
        })
        .collect();
    let mut y = vec![None; len];
    let mut last_state = None;
    for sweep in 0..spec.sweeps() {
        let mut h = Tensor::<3>::zeros([batch, d_inner, d_state], &u.device());
        for t in (0..len).map(|step| spec.token(len, step, sweep)) {
            let (a_bar, drive) = steps[t].clone();
            h = a_bar * h + drive;
            let out = (h.clone() * row(&c, t)).sum_dim(2).reshape([batch, 1, d_inner]);
            y[t] = Some(match y[t].take() {
                Some(sum) => sum + out,
                None => out,
            });
        }
        last_state.get_or_insert(h);
    }
    let y = Tensor::cat(y.into_iter().flatten().collect(), 1) / spec.sweeps() as f64; // [B, L, D]
    let last_state = last_state.expect("invariant: a method scans at least once").detach();

    let y = if spec.has_d { y + d.unsqueeze::<3>() * u } else { y };
    let y = if spec.has_z { y * silu(z) } else { y };
    ScanOutput { y, last_state, last_state_im: None }
}

/// `[B, L, D]` at a token, `[B, 1, D]`.
pub(crate) fn at(x: &Tensor<3>, t: usize) -> Tensor<3> {
    x.clone().narrow(1, t, 1)
}

/// B or C at a token, `[B, D, N]` or broadcastable to it.
pub(crate) fn row(x: &Tensor<4>, t: usize) -> Tensor<3> {
    let [batch, len, channels, d_state] = x.dims();
    let t = if len == 1 { 0 } else { t };
    x.clone().narrow(1, t, 1).reshape([batch, channels, d_state])
}

/// `[B, L, G, N]` → `[B, L, D, N]`, or broadcastable to it.
pub(crate) fn per_channel(x: Tensor<4>, d_inner: usize, constant: bool) -> Tensor<4> {
    let [batch, len, groups, d_state] = x.dims();
    if constant || groups == 1 {
        return x;
    }
    let per_group = d_inner / groups;
    x.unsqueeze_dim::<5>(3)
        .expand([batch, len, groups, per_group, d_state])
        .reshape([batch, len, d_inner, d_state])
}
