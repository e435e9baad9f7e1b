//! The gate of a mixer: the sum of both directions times silu(z), and its gradients.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::cube::math::{silu, silu_slope};
use crate::cube::{cubes, elem, has_ptx};

/// Units of a cube.
const UNITS: u32 = 256;

/// `sum = ways[0] + ways[1]`, kept if `keep`, and `gated = sum·silu(z)`, for `ways [2, T, D]`; rows
/// of z have stride `pitch`. One unit per vector.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "four tensors and their sizes")]
fn gate_kernel<F: Float, N: Size>(
    ways: &[Vector<F, N>],
    z: &[Vector<F, N>],
    sum: &mut [Vector<F, N>],
    gated: &mut [Vector<F, N>],
    count: usize,
    columns: usize,
    pitch: usize,
    #[comptime] keep: bool,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let z = Vector::<f32, N>::cast_from(z[at / columns * pitch + at % columns]);
        let both = Vector::<f32, N>::cast_from(ways[at]) + Vector::cast_from(ways[count + at]);
        if comptime!(keep) {
            sum[at] = Vector::cast_from(both);
        }
        gated[at] = Vector::cast_from(both * silu::<N>(z, ptx));
    }
}

/// The gradients of the sum, in place of that of what it is when gated, and of z; and the gated sum
/// once more. Rows of z and of its gradient have stride `pitch`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "five tensors and their sizes")]
fn ungate_kernel<F: Float, N: Size>(
    grad: &mut [Vector<F, N>],
    sum: &[Vector<F, N>],
    z: &[Vector<F, N>],
    gated: &mut [Vector<F, N>],
    grad_z: &mut [Vector<F, N>],
    count: usize,
    columns: usize,
    pitch: usize,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < count {
        let place = at / columns * pitch + at % columns;
        let z = Vector::<f32, N>::cast_from(z[place]);
        let both = Vector::<f32, N>::cast_from(sum[at]);
        let upstream = Vector::<f32, N>::cast_from(grad[at]);
        let gate = silu::<N>(z, ptx);
        gated[at] = Vector::cast_from(both * gate);
        grad_z[place] = Vector::cast_from(upstream * both * silu_slope::<N>(z, ptx));
        grad[at] = Vector::cast_from(upstream * gate);
    }
}

/// The widest vectors of at most sixteen bytes that divide rows, their strides and beginnings.
fn lanes_of(columns: usize, halves: &[&CubeTensor]) -> usize {
    let size = halves[0].dtype.size();
    let fits = |n: usize| {
        n * size <= 16
            && columns.is_multiple_of(n)
            && halves.iter().all(|half| {
                let begin = half.handle.offset_start.unwrap_or(0) as usize / size;
                begin.is_multiple_of(n) && half.meta.strides()[1].is_multiple_of(n)
            })
    };
    [8, 4, 2].into_iter().find(|&n| fits(n)).unwrap_or(1)
}

/// The sum of `ways [2·B, L, D]` times silu(z) into `gated [B, L, D]`, and the sum into `sum`, if
/// it is wanted. Rows of `z [B, L, D]` may have any stride.
pub(super) fn gate(
    ways: &CubeTensor,
    z: &CubeTensor,
    sum: Option<&CubeTensor>,
    gated: &CubeTensor,
) {
    let [batch, len, columns] = gated.shape().dims();
    let lanes = lanes_of(columns, &[z]);
    let count = batch * len * columns / lanes;
    let client = ways.client.clone();
    // SAFETY: `ways`, `sum` and `gated` are dense, z has a row of `columns` for each of theirs;
    // units beyond do nothing. An unwanted sum is a buffer that nothing is written to.
    unsafe {
        gate_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            ways.required_address_type().max(z.required_address_type()),
            lanes,
            ways.clone().into_buffer_arg(),
            z.clone().into_buffer_arg(),
            sum.unwrap_or(gated).clone().into_buffer_arg(),
            gated.clone().into_buffer_arg(),
            count,
            columns / lanes,
            z.meta.strides()[1] / lanes,
            sum.is_some(),
            has_ptx(ways),
            elem(ways),
        );
    }
}

/// Turns the gradient of the gated sum, `grad [B, L, D]`, into that of the sum; writes that of z
/// into `grad_z`, whose rows have the stride of z, and the gated sum into `gated`.
pub(super) fn ungate(
    grad: &CubeTensor,
    sum: &CubeTensor,
    z: &CubeTensor,
    grad_z: &CubeTensor,
    gated: &CubeTensor,
) {
    let [batch, len, columns] = grad.shape().dims();
    let lanes = lanes_of(columns, &[z, grad_z]);
    let count = batch * len * columns / lanes;
    let client = grad.client.clone();
    // SAFETY: `grad`, `sum` and `gated` are dense, z and its gradient have a row of `columns` for
    // each of theirs; units beyond do nothing.
    unsafe {
        ungate_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            sum.required_address_type().max(z.required_address_type()),
            lanes,
            grad.clone().into_buffer_arg(),
            sum.clone().into_buffer_arg(),
            z.clone().into_buffer_arg(),
            gated.clone().into_buffer_arg(),
            grad_z.clone().into_buffer_arg(),
            count,
            columns / lanes,
            z.meta.strides()[1] / lanes,
            has_ptx(grad),
            elem(grad),
        );
    }
}
