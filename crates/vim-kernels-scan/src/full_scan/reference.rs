//! The scan with a full A in tensor operations: any backend, differentiated by autodiff, written
//! for readability.

use burn::tensor::{Int, Tensor};

use crate::scan::reference::{at, per_channel, row, skip_and_gate, step_size};
use crate::scan::{ScanCall, ScanOutput, ScanSpec};

pub(super) fn scan(inputs: ScanCall<3>, spec: ScanSpec) -> ScanOutput {
    let ScanCall { u, delta, a, b, c, d, z, delta_bias } = inputs;
    let [batch, len, d_inner] = u.dims();
    let [_, d_state, _] = a.dims();
    let delta = step_size(delta, delta_bias, spec.options.delta_softplus);
    let b = per_channel(b, d_inner, spec.b_constant);
    let c = per_channel(c, d_inner, spec.c_constant);
    let a = a.unsqueeze::<4>(); // [1, D, N, N]
    let identity = Tensor::<2>::eye(d_state, &u.device()).unsqueeze::<4>();

    let mut h = Tensor::<3>::zeros([batch, d_inner, d_state], &u.device());
    let mut y = vec![None; len];
    for t in (0..len).map(|step| spec.token(len, step, 0)) {
        let half_delta = at(&delta, t).reshape([batch, d_inner, 1]) * 0.5;
        let drive = half_delta.clone() * row(&b, t) * at(&u, t).reshape([batch, d_inner, 1]);
        let system = identity.clone() - half_delta.unsqueeze_dim::<4>(3) * a.clone();
        let midpoint = solve(system, h.clone() + drive);
        h = midpoint * 2.0 - h;
        y[t] = Some((h.clone() * row(&c, t)).sum_dim(2).reshape([batch, 1, d_inner]));
    }
    let y = Tensor::cat(y.into_iter().flatten().collect(), 1); // [B, L, D]
    let y = skip_and_gate(y, u, d, z);
    ScanOutput { y, last_state: h.detach(), last_state_im: None }
}

/// `x` of `system·x = right`, `[B, D, N]`, by Gauss-Jordan elimination with partial pivoting.
///
/// Rows are not exchanged: a mask selects the pivot row of column k, and the mask of step k tells
/// which row holds unknown k of the solution.
fn solve(system: Tensor<4>, right: Tensor<3>) -> Tensor<3> {
    let [batch, d_inner, n_states] = right.dims();
    let mut work = Tensor::cat(vec![system, right.unsqueeze_dim::<4>(3)], 3); // [B, D, N, N + 1]
    let rows = Tensor::<1, Int>::arange(0..n_states as i64, &work.device())
        .reshape([1, 1, n_states, 1])
        .expand([batch, d_inner, n_states, 1]);
    let mut free = Tensor::<4>::ones([batch, d_inner, n_states, 1], &work.device());
    let mut pivots = Vec::with_capacity(n_states);
    for k in 0..n_states {
        let column = work.clone().narrow(3, k, 1); // [B, D, N, 1]
        // A row that has been a pivot ranks below a free row of zeros.
        let size = column.clone().detach().abs() * free.clone() + (free.clone() - 1.0);
        let pivot =
            rows.clone().equal(size.argmax(2).expand([batch, d_inner, n_states, 1])).float();
        free = free - pivot.clone();
        let top = (work.clone() * pivot.clone()).sum_dim(2); // [B, D, 1, N + 1]
        let others = column * (pivot.clone() * -1.0 + 1.0);
        let factor = others / top.clone().narrow(3, k, 1);
        work = work - factor * top;
        pivots.push(pivot);
    }
    let x = pivots.into_iter().enumerate().map(|(k, pivot)| {
        let row = (work.clone() * pivot).sum_dim(2); // [B, D, 1, N + 1]
        let value = row.clone().narrow(3, n_states, 1) / row.narrow(3, k, 1);
        value.reshape([batch, d_inner, 1])
    });
    Tensor::cat(x.collect(), 2)
}
