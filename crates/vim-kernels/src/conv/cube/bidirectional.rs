//! Launches of the convolutions of both directions in one pass.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;
use cubecl::{CubeDim, calculate_cube_count_elemwise};

use super::bidirectional_kernel::{
    BidirectionalConfig, bidirectional_backward, bidirectional_forward,
};
use super::kernel::{COLUMNS, STRIPS};
use super::{BACKWARD_LANES, FORWARD_CUBE, FORWARD_LANES, StripLayout};
use crate::cube::sum::sum_rows;
use crate::cube::{cubes, elem, empty, has_ptx, lanes};

/// Weight `[D, 1, W]` and bias `[D]` of a direction, dense.
pub(crate) type Taps = [CubeTensor; 2];

fn config(weight: &CubeTensor) -> BidirectionalConfig {
    let [_, _, width] = weight.shape().dims();
    BidirectionalConfig { width, ptx: has_ptx(weight) }
}

/// Writes silu of the convolutions of `x [B, L, D]` into the halves of `y [2·B, L, D]`: the first
/// direction's in token order (reversed if `reverse`), the second's in the opposite order.
pub(crate) fn conv_bidirectional(x: &CubeTensor, taps: [Taps; 2], reverse: bool, y: &CubeTensor) {
    let [[weight_ahead, bias_ahead], [weight_back, bias_back]] = in_order(taps, reverse);
    let client = x.client.clone();
    let [batch, len, d_inner] = x.shape().dims();
    let lanes = lanes(d_inner, FORWARD_LANES);
    let layout = StripLayout::new(x, lanes, 0);
    let dim = CubeDim::new_1d(FORWARD_CUBE);
    let count = calculate_cube_count_elemwise(&client, layout.total * layout.groups, dim);
    let halves = in_order([0, batch * len * d_inner / lanes], reverse);
    let config = config(&weight_ahead);
    // SAFETY: x has dense rows, y is dense and holds twice as many elements; a thread stays within
    // a strip, and a strip within x.
    unsafe {
        bidirectional_forward::launch_unchecked(
            &client,
            count,
            dim,
            y.required_address_type(),
            lanes,
            x.clone().into_buffer_arg(),
            weight_ahead.into_buffer_arg(),
            bias_ahead.into_buffer_arg(),
            weight_back.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            y.clone().into_buffer_arg(),
            halves[0],
            halves[1],
            layout.launch(),
            config,
            elem(x),
        );
    }
}

/// Writes the gradient of `x` into `grad_x`, which has x's row stride, from both halves of
/// `grad_y [2·B, L, D]`; returns the gradients of each direction's taps and bias.
pub(crate) fn conv_bidirectional_backward(
    grad_y: &CubeTensor,
    x: &CubeTensor,
    taps: [Taps; 2],
    reverse: bool,
    grad_x: &CubeTensor,
) -> [Taps; 2] {
    let [[weight_ahead, bias_ahead], [weight_back, bias_back]] = in_order(taps, reverse);
    let client = x.client.clone();
    let [batch, len, d_inner] = x.shape().dims();
    let config = config(&weight_ahead);
    let lanes = lanes(d_inner, BACKWARD_LANES);
    let layout = StripLayout::new(x, lanes, config.width - 1);
    let rows = layout.total.div_ceil(STRIPS);
    let each = d_inner * (config.width + 1);
    let partials = empty(x, [rows, 2 * each], DType::F32);
    let sums = empty(x, [2 * each], DType::F32);
    let halves = in_order([0, batch * len * d_inner / lanes], reverse);
    // SAFETY: as above; a cube writes one row of the partial sums.
    unsafe {
        bidirectional_backward::launch_unchecked(
            &client,
            cubes(&client, rows * layout.groups.div_ceil(COLUMNS)),
            CubeDim::new_2d(COLUMNS as u32, STRIPS as u32),
            grad_y.required_address_type(),
            lanes,
            grad_y.clone().into_buffer_arg(),
            x.clone().into_buffer_arg(),
            weight_ahead.clone().into_buffer_arg(),
            bias_ahead.clone().into_buffer_arg(),
            weight_back.into_buffer_arg(),
            bias_back.into_buffer_arg(),
            grad_x.clone().into_buffer_arg(),
            partials.clone().into_buffer_arg(),
            halves[0],
            halves[1],
            layout.launch(),
            2 * each,
            config,
            elem(x),
        );
    }
    sum_rows(partials, rows, 2 * each, 2 * each, &sums, &sums);
    let part = |first: usize, like: &CubeTensor| {
        let mut part = sums.clone();
        part.handle = part.handle.offset_start((first * size_of::<f32>()) as u64);
        let shape: Shape = like.shape();
        part.meta = Box::new(Metadata::new(shape, like.meta.strides().clone()));
        part
    };
    let direction = |number: usize| {
        let first = number * each;
        [part(first, &weight_ahead), part(first + d_inner * config.width, &bias_ahead)]
    };
    in_order([direction(0), direction(1)], reverse)
}

/// The direction that goes with the tokens first.
fn in_order<T>([first, second]: [T; 2], reverse: bool) -> [T; 2] {
    if reverse { [second, first] } else { [first, second] }
}
