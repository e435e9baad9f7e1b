//! The sum of both directions' results.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::TensorMetadata;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{cubes, elem, empty, lanes};

/// Units of a cube.
const UNITS: u32 = 256;

/// `to = from[..half] + from[half..]`. One unit per vector.
#[cube(launch_unchecked, address_type = "dynamic")]
fn add_halves_kernel<F: Float, N: Size>(
    from: &[Vector<F, N>],
    to: &mut [Vector<F, N>],
    half: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < half {
        let sum = Vector::<f32, N>::cast_from(from[at]) + Vector::cast_from(from[half + at]);
        to[at] = Vector::cast_from(sum);
    }
}

/// The sum of the two halves of `whole [2·B, L, D]`, which is dense.
pub fn add_halves(whole: &CubeTensor) -> CubeTensor {
    let [batches, len, columns] = whole.shape().dims();
    let sum = empty(whole, [batches / 2, len, columns], whole.dtype);
    let lanes = lanes(columns, 16 / whole.dtype.size());
    let half = batches / 2 * len * columns / lanes;
    let client = whole.client.clone();
    // SAFETY: both are dense, and `sum` is as long as a half of `whole`; units beyond do nothing.
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
            elem(whole),
        );
    }
    sum
}
