//! The sum of rows in the tree's order, in one launch on a GPU.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Units of a cube.
const UNITS: u32 = 256;
/// Rows and the result begin at multiples of this, in numbers.
pub(crate) const ALIGNMENT: usize = 64;
/// Bytes that a unit loads at once.
const LOAD: usize = 16;

/// The sum of rows `first` to `first + count` at `at`, in the order of [`TreeSum`].
///
/// [`TreeSum`]: crate::TreeSum
#[cube]
fn subtree<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    at: usize,
    stride: usize,
    #[comptime] first: usize,
    #[comptime] count: usize,
) -> Vector<F, N> {
    if comptime!(count == 1) {
        rows[first * stride + at]
    } else {
        let left = comptime!(count.next_power_of_two() / 2);
        let sum = subtree::<F, N>(rows, at, stride, first, left);
        let next = comptime!(first + left);
        sum + subtree::<F, N>(rows, at, stride, next, comptime!(count - left))
    }
}

/// `out[i] = Σ rows[r · stride + i]` for `i < stride`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn sum_rows_kernel<F: Float, N: Size>(
    rows: &[Vector<F, N>],
    out: &mut [Vector<F, N>],
    stride: usize,
    #[comptime] count: usize,
    #[define(F)] _dtype: ElemType,
) {
    let at = ABSOLUTE_POS;
    if at < stride {
        out[at] = subtree::<F, N>(rows, at, stride, 0usize, count);
    }
}

/// Writes the sum of `count` rows, each as long as `out`, into `out`, which is a multiple of
/// [`ALIGNMENT`] long and begins at one.
pub(crate) fn sum_rows(rows: &CubeTensor, count: usize, out: &CubeTensor) {
    let length = out.shape().num_elements();
    assert!(length.is_multiple_of(ALIGNMENT), "rows are padded");
    assert_eq!(rows.shape().num_elements(), count * length, "rows as long as their sum");
    let lanes = LOAD / out.dtype.size();
    let units = length / lanes;
    let client = out.client.clone();
    let cubes = units.div_ceil(UNITS as usize);
    // SAFETY: units from `units` on do nothing; there are `count` rows of `units` vectors.
    unsafe {
        sum_rows_kernel::launch_unchecked(
            &client,
            cubecl::calculate_cube_count_elemwise(&client, cubes, CubeDim::new_1d(1)),
            CubeDim::new_1d(UNITS),
            rows.required_address_type(),
            lanes,
            rows.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            units,
            count,
            dtype_to_storage_type(out.dtype),
        );
    }
}

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::tensor::{DType, Device, DeviceKind, Shape, Tensor};
    use burn_cubecl::CubeBackend;

    use super::*;
    use crate::tree::TreeSum;

    #[test]
    fn rows_are_summed_in_the_order_of_the_tree() {
        let device = Device::wgpu(DeviceKind::DefaultDevice);
        let length = 5 * ALIGNMENT;
        for count in 1..=9 {
            let number = |row: usize, i: usize| {
                ((i * 31 + row * 17) as f32).sin() * 10_f32.powi((row * 3 % 5) as i32)
            };
            let row = |row: usize| (0..length).map(|i| number(row, i)).collect::<Vec<_>>();
            let all: Vec<f32> = (0..count).flat_map(row).collect();
            let rows = Tensor::<1>::from_floats(&all[..], &device);
            let rows = rows.try_into_primitive::<CubeBackend>().unwrap();
            // In the middle of something larger, as a rank's part is.
            let whole = rows.client.empty(3 * length * 4);
            let part = whole.clone().offset_start((length * 4) as u64);
            let (client, device) = (rows.client.clone(), rows.device.clone());
            let shape = Shape::from([length]);
            let out = CubeTensor::new_contiguous(client, device, shape, part, DType::F32);
            sum_rows(&rows, count, &out);
            let got = Tensor::<1>::from_primitive::<CubeBackend>(out).into_data();
            let mut tree = TreeSum::new();
            let add = |a: Vec<f32>, b: Vec<f32>| a.iter().zip(b).map(|(a, b)| a + b).collect();
            (0..count).for_each(|i| tree.push(row(i), add));
            let want = tree.finish(add).unwrap();
            let same = got.iter::<f32>().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{count} rows");
        }
    }
}
