//! The weights of a mixer in the form of its kernels, and the gradient of A in the form of the
//! optimizer's.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::conv::Taps;
use crate::cube::{cubes, dense, empty};
use crate::matmul::cube::{Matrix, gather_weights};
use crate::precision::Precision;

/// Weights of a direction.
const WEIGHTS: usize = 7;
/// Inputs: `xz`, `out_proj`, then conv weight, conv bias, x_proj, dt_proj, delta bias, a_log and d
/// of each direction.
pub(super) const INPUTS: usize = 2 + 2 * WEIGHTS;
/// Index of a direction's first weight.
const DIRECTIONS: [usize; 2] = [2, 2 + WEIGHTS];

/// Units of a cube.
const UNITS: u32 = 128;

pub(super) type Inputs = [CubeTensor; INPUTS];

/// The weights of both directions in the form of the kernels, the second direction's after the
/// first's.
pub(super) struct Weights {
    pub(super) taps: [Taps; 2],
    /// `[D, R + 2N]` of each.
    pub(super) x_proj: Matrix,
    /// `[R, D]` of each.
    pub(super) dt_proj: Matrix,
    /// `[2·D, N]`.
    pub(super) a: CubeTensor,
    /// `[2·D]`.
    pub(super) d: CubeTensor,
    /// `[2·D]`.
    pub(super) delta_bias: CubeTensor,
}

/// `a [2·D, N] = −exp(a_log)`, `d [2·D]` and `bias [2·D]`, the second direction's after the
/// first's; one unit per element of `a_log`.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "three weights of two directions")]
fn prepare_weights(
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

/// Computed from the weights for both passes: the projections in the type of the products, A, the
/// gains and the step biases.
pub(super) fn prepared(inputs: &Inputs, precision: Precision) -> [CubeTensor; 4] {
    let [fwd, rev] = DIRECTIONS;
    let matrix = |i: usize| Matrix::weight(&inputs[i]);
    let projections = [matrix(fwd + 2), matrix(rev + 2), matrix(fwd + 3), matrix(rev + 3)];
    let own = |i: usize| dense(inputs[i].clone());
    let a_log = [own(fwd + 5), own(rev + 5)];
    let [d_inner, d_state] = a_log[0].shape().dims();
    let client = a_log[0].client.clone();
    let a = empty(&a_log[0], [2 * d_inner, d_state], DType::F32);
    let [d, bias] = [(); 2].map(|()| empty(&a, [2 * d_inner], DType::F32));
    let [a_log_ahead, a_log_back] = a_log;
    // SAFETY: the weights are dense and have the sizes passed, the results twice those; units
    // beyond do nothing.
    unsafe {
        prepare_weights::launch_unchecked(
            &client,
            cubes(&client, (d_inner * d_state).div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            a_log_ahead.into_buffer_arg(),
            a_log_back.into_buffer_arg(),
            own(fwd + 6).into_buffer_arg(),
            own(rev + 6).into_buffer_arg(),
            own(fwd + 4).into_buffer_arg(),
            own(rev + 4).into_buffer_arg(),
            a.clone().into_buffer_arg(),
            d.clone().into_buffer_arg(),
            bias.clone().into_buffer_arg(),
            d_inner * d_state,
            d_inner,
        );
    }
    [gather_weights(&projections, precision), a, d, bias]
}

impl Weights {
    pub(super) fn new(inputs: &Inputs, [projections, a, d, delta_bias]: [CubeTensor; 4]) -> Self {
        let [fwd, _] = DIRECTIONS;
        let [x_proj, dt_proj] = [fwd + 2, fwd + 3].map(|i| inputs[i].shape().dims::<2>());
        let pair = |size: [usize; 2], begin: usize| {
            Matrix::within(&projections, size, begin, size[1]).pair(size[0] * size[1])
        };
        Self {
            taps: DIRECTIONS
                .map(|direction| [direction, direction + 1].map(|i| dense(inputs[i].clone()))),
            x_proj: pair(x_proj, 0),
            dt_proj: pair(dt_proj, 2 * x_proj[0] * x_proj[1]),
            a,
            d,
            delta_bias,
        }
    }
}

#[cube(launch_unchecked)]
fn multiply_by(grad: &mut [f32], a: &[f32], count: usize) {
    let at = ABSOLUTE_POS;
    if at < count {
        grad[at] *= a[at];
    }
}

/// Turns the gradient of `a = −exp(a_log)` into that of `a_log`, which is `grad·a`: of both
/// directions, in place.
pub(super) fn a_log_gradients(grad: &CubeTensor, a: &CubeTensor) {
    let client = grad.client.clone();
    let count = grad.shape().num_elements();
    // SAFETY: both have `count` elements; units beyond do nothing.
    unsafe {
        multiply_by::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            grad.clone().into_buffer_arg(),
            a.clone().into_buffer_arg(),
            count,
        );
    }
}
