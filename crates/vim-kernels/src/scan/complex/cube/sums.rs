//! The last sums of gradients, each in a fixed order.

use cubecl::prelude::*;

/// `out[i] = Σ_p from[offset + p·stride + i]` for `i` below `stride`, over `parts` parts.
#[cube(launch_unchecked)]
pub(super) fn sum_parts<F: Float>(
    from: &[f32],
    out: &mut [F],
    offset: u32,
    stride: u32,
    parts: u32,
    #[define(F)] _f: ElemType,
) {
    let i = ABSOLUTE_POS;
    if i < stride as usize {
        let mut sum = 0.0f32;
        for p in 0..parts as usize {
            sum += from[offset as usize + p * stride as usize + i];
        }
        out[i] = F::cast_from(sum);
    }
}

/// `out[d, n] = Σ_b from[offset + (b, n, d)]`: `[B, N, D]` to `[D, N]`.
#[cube(launch_unchecked)]
pub(super) fn sum_states(
    from: &[f32],
    out: &mut [f32],
    offset: u32,
    batch: u32,
    d_state: u32,
    d_inner: u32,
) {
    let i = ABSOLUTE_POS;
    let d_state = d_state as usize;
    let d_inner = d_inner as usize;
    if i < d_state * d_inner {
        let channel = i / d_state;
        let n = i % d_state;
        let mut sum = 0.0f32;
        for b in 0..batch as usize {
            sum += from[offset as usize + (b * d_state + n) * d_inner + channel];
        }
        out[i] = sum;
    }
}
