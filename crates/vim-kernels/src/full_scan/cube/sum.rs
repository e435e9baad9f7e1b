//! Sums of partial results, in a fixed order: the same bits every time.

use cubecl::prelude::*;

/// `out [outer, inner]` is the sum over the second dimension of `parts [outer, n_parts, inner]`.
#[cube(launch_unchecked)]
pub(super) fn sum_parts<F: Float>(
    parts: &[f32],
    out: &mut [F],
    count: usize,
    n_parts: usize,
    inner: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let first = (at / inner) * n_parts * inner + at % inner;
        let mut sum = 0.0f32;
        for part in 0..n_parts {
            sum += parts[first + part * inner];
        }
        out[at] = F::cast_from(sum);
    }
}
