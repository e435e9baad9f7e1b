//! The sum of both directions' results.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{cubes, elem, lanes};

/// Units of a cube.
const UNITS: u32 = 256;

/// `to [T, columns] = from[0] + from[1]`, `from [2, T, columns]`, with row stride `pitch` in `to`.
/// One unit per vector.
#[cube(launch_unchecked, address_type = "dynamic")]
fn add_halves_kernel<F: Float, N: Size>(
    from: &[Vector<F, N>],
    to: &mut [Vector<F, N>],
    half: usize,
    columns: usize,
    pitch: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < half {
        let sum = Vector::<f32, N>::cast_from(from[at]) + Vector::cast_from(from[half + at]);
        to[at / columns * pitch + at % columns] = Vector::cast_from(sum);
    }
}

/// Elements of a vector of `columns` in `rows` with stride `pitch`.
pub(crate) fn lanes_of(columns: usize, rows: &CubeTensor, pitch: usize) -> usize {
    let begin = rows.handle.offset_start.unwrap_or(0) as usize / rows.dtype.size();
    [8, 4]
        .into_iter()
        .find(|&n| {
            [columns, pitch, begin].iter().all(|x| x.is_multiple_of(n))
                && n * rows.dtype.size() <= 16
        })
        .unwrap_or_else(|| {
            if begin.is_multiple_of(2) && pitch.is_multiple_of(2) { lanes(columns, 2) } else { 1 }
        })
}

/// Writes the sum of the two halves of `whole [2·B, L, D]` into `sum`, whose row stride is `pitch`.
pub(crate) fn add_halves(whole: &CubeTensor, sum: &CubeTensor, pitch: usize) {
    let [batches, len, columns] = whole.shape().dims();
    let lanes = lanes_of(columns, sum, pitch);
    let half = batches / 2 * len * columns / lanes;
    let client = whole.client.clone();
    // SAFETY: `whole` is dense, and `sum` has a row of `columns` for each row of `whole`'s first
    // half; units beyond do nothing.
    unsafe {
        add_halves_kernel::launch_unchecked(
            &client,
            cubes(&client, half.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            whole.required_address_type(),
            lanes,
            whole.clone().into_buffer_arg(),
            sum.clone().into_buffer_arg(),
            half,
            columns / lanes,
            pitch / lanes,
            elem(whole),
        );
    }
}
