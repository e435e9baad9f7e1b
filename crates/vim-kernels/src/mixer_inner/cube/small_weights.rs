//! Small weights of both directions, combined for the scan, and their gradients.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::{cubes, empty};

/// Units of a cube.
const UNITS: u32 = 128;

/// `a [2·D, N] = −exp(a_log)`, `d [2·D]` and `bias [2·D]`, the second direction's after the
/// first's; one unit per element of `a_log`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "three weights of two directions")]
fn prepare_weights_kernel(
    a_log_ahead: &[f32],
    a_log_back: &[f32],
    d_ahead: &[f32],
    d_back: &[f32],
    bias_ahead: &[f32],
    bias_back: &[f32],
    a: &mut [f32],
    d: &mut [f32],
    bias: &mut [f32],
    states: usize,
    channels: usize,
) {
    let at = ABSOLUTE_POS;
    if at < states {
        a[at] = -f32::exp(a_log_ahead[at]);
        a[states + at] = -f32::exp(a_log_back[at]);
    }
    if at < channels {
        d[at] = d_ahead[at];
        d[channels + at] = d_back[at];
        bias[at] = bias_ahead[at];
        bias[channels + at] = bias_back[at];
    }
}

/// A, the gains and the step biases of both directions.
pub(crate) fn prepare_weights(
    a_log: [&CubeTensor; 2],
    d: [&CubeTensor; 2],
    bias: [&CubeTensor; 2],
) -> [CubeTensor; 3] {
    let [d_inner, d_state] = a_log[0].shape().dims();
    let like = a_log[0];
    let client = like.client.clone();
    let a = empty(like, [2 * d_inner, d_state], DType::F32);
    let both = || empty(like, [2 * d_inner], DType::F32);
    let (d_out, bias_out) = (both(), both());
    // SAFETY: the weights are dense and have the sizes passed, the results twice those; units
    // beyond do nothing.
    unsafe {
        prepare_weights_kernel::launch_unchecked(
            &client,
            cubes(&client, (d_inner * d_state).div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            a_log[0].clone().into_buffer_arg(),
            a_log[1].clone().into_buffer_arg(),
            d[0].clone().into_buffer_arg(),
            d[1].clone().into_buffer_arg(),
            bias[0].clone().into_buffer_arg(),
            bias[1].clone().into_buffer_arg(),
            a.clone().into_buffer_arg(),
            d_out.clone().into_buffer_arg(),
            bias_out.clone().into_buffer_arg(),
            d_inner * d_state,
            d_inner,
        );
    }
    [a, d_out, bias_out]
}

/// The gradient of `a_log` from that of `a = −exp(a_log)`, which is `grad·a`: of both directions,
/// in place.
#[cube(launch_unchecked)]
fn a_log_gradients_kernel(grad: &mut [f32], a: &[f32], count: usize) {
    let at = ABSOLUTE_POS;
    if at < count {
        grad[at] *= a[at];
    }
}

/// Turns the gradient of A into that of `a_log`, for both directions.
pub(crate) fn a_log_gradients(grad: &CubeTensor, a: &CubeTensor) {
    let client = grad.client.clone();
    let count = grad.shape().num_elements();
    // SAFETY: both have `count` elements; units beyond do nothing.
    unsafe {
        a_log_gradients_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            grad.clone().into_buffer_arg(),
            a.clone().into_buffer_arg(),
            count,
        );
    }
}
