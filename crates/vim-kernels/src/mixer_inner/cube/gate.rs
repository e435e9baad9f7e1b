//! The gate of the sum of both directions, and its gradients.
//!
//! Both directions have the same gate, so that their sum is gated, once. The backward pass needs
//! that sum `s` before the gate, which it takes from `y = s·silu(z)`, a tensor that the projection
//! behind the mixer keeps: a float has the precision of `s` at any size of `silu(z)`. To that end
//! [`away_from_zero`] keeps z from 0, where y would say nothing of s.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use vim_kernels_core::cube::math::{away_from_zero, recip, sigmoid};
use vim_kernels_core::cube::{cubes, elem, empty, has_ptx, lanes};

/// Units of a cube.
const UNITS: u32 = 256;

/// `y [B, L, D] = (both[0] + both[1])·silu(z)`, `both [2, B, L, D]`, z with row stride `pitch`. One
/// unit per vector.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gate_kernel<F: Float, N: Size>(
    both: &[Vector<F, N>],
    z: &[Vector<F, N>],
    y: &mut [Vector<F, N>],
    half: usize,
    columns: usize,
    pitch: usize,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < half {
        let sum = Vector::<f32, N>::cast_from(both[at]) + Vector::cast_from(both[half + at]);
        let z = Vector::<f32, N>::cast_from(z[at / columns * pitch + at % columns]);
        let mut gated = Vector::<f32, N>::empty();
        #[unroll]
        for lane in 0..N::value() {
            let z = away_from_zero(z.extract(lane));
            gated.insert(lane, sum.extract(lane) * (z * sigmoid(z, ptx)));
        }
        y[at] = Vector::cast_from(gated);
    }
}

/// From the gradient of y, `into = grad_y·silu(z)`, that of the sum, and `grad_z`, that of z, which
/// is `grad_y·s·silu'(z) = grad_y·y·(1/z + 1 − σ(z))`. z and `grad_z` have the row stride `pitch`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "five tensors and their sizes")]
fn gate_backward_kernel<F: Float, N: Size>(
    grad_y: &[Vector<F, N>],
    y: &[Vector<F, N>],
    z: &[Vector<F, N>],
    into: &mut [Vector<F, N>],
    grad_z: &mut [Vector<F, N>],
    half: usize,
    columns: usize,
    pitch: usize,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < half {
        let grad = Vector::<f32, N>::cast_from(grad_y[at]);
        let y = Vector::<f32, N>::cast_from(y[at]);
        let row = at / columns * pitch + at % columns;
        let z = Vector::<f32, N>::cast_from(z[row]);
        let mut of_sum = Vector::<f32, N>::empty();
        let mut of_z = Vector::<f32, N>::empty();
        #[unroll]
        for lane in 0..N::value() {
            let z = away_from_zero(z.extract(lane));
            let logistic = sigmoid(z, ptx);
            let grad = grad.extract(lane);
            of_sum.insert(lane, grad * (z * logistic));
            let slope = recip(z, ptx) + (1.0f32 - logistic);
            of_z.insert(lane, grad * (y.extract(lane) * slope));
        }
        into[at] = Vector::cast_from(of_sum);
        grad_z[row] = Vector::cast_from(of_z);
    }
}

/// Elements of a vector of `columns` in `rows` with stride `pitch`.
fn lanes_of(columns: usize, rows: &CubeTensor, pitch: usize) -> usize {
    let begin = rows.handle.offset_start.unwrap_or(0) as usize / rows.dtype.size();
    let most = 16 / rows.dtype.size();
    [columns, pitch, begin].map(|n| lanes(n, most)).into_iter().fold(most, usize::min)
}

/// The sum of the halves of `both [2·B, L, D]`, gated by `z [B, L, D]`, whose row stride is
/// `pitch`.
pub(super) fn gate(both: &CubeTensor, z: &CubeTensor, pitch: usize) -> CubeTensor {
    let [batches, len, columns] = both.shape().dims();
    let y = empty(both, [batches / 2, len, columns], both.dtype);
    let lanes = lanes_of(columns, z, pitch);
    let half = batches / 2 * len * columns / lanes;
    let client = both.client.clone();
    let address = [both, z].map(CubeTensor::required_address_type).into_iter().max();
    // SAFETY: `both` is dense and y half of it; z has a row of `columns` for each row of y; `lanes`
    // divides rows, pitch and beginnings; units beyond do nothing.
    unsafe {
        gate_kernel::launch_unchecked(
            &client,
            cubes(&client, half.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            address.unwrap_or_default(),
            lanes,
            both.clone().into_buffer_arg(),
            z.clone().into_buffer_arg(),
            y.clone().into_buffer_arg(),
            half,
            columns / lanes,
            pitch / lanes,
            has_ptx(both),
            elem(both),
        );
    }
    y
}

/// The gradient of the sum of both directions, `[B, L, D]`, from that of `y [B, L, D]`; writes that
/// of z into `grad_z`, which has the row stride `pitch` as z has.
pub(super) fn gate_backward(
    grad_y: CubeTensor,
    y: CubeTensor,
    z: &CubeTensor,
    grad_z: &CubeTensor,
    pitch: usize,
) -> CubeTensor {
    let [batch, len, columns] = y.shape().dims();
    let into = empty(&y, [batch, len, columns], y.dtype);
    let dense = [&grad_y, &y].map(|of| lanes_of(columns, of, columns));
    let lanes = dense.into_iter().fold(lanes_of(columns, z, pitch), usize::min);
    let lanes = lanes.min(lanes_of(columns, grad_z, pitch));
    let half = batch * len * columns / lanes;
    let client = y.client.clone();
    let address = [&y, z].map(CubeTensor::required_address_type).into_iter().max();
    let (ptx, dtype) = (has_ptx(&y), elem(&y));
    // SAFETY: as above; `grad_y` and y are dense and of the same shape.
    unsafe {
        gate_backward_kernel::launch_unchecked(
            &client,
            cubes(&client, half.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            address.unwrap_or_default(),
            lanes,
            grad_y.into_buffer_arg(),
            y.into_buffer_arg(),
            z.clone().into_buffer_arg(),
            into.clone().into_buffer_arg(),
            grad_z.clone().into_buffer_arg(),
            half,
            columns / lanes,
            pitch / lanes,
            ptx,
            dtype,
        );
    }
    into
}

#[cfg(all(test, feature = "wgpu"))]
mod tests;
