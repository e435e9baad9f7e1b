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

#[cfg(all(test, feature = "wgpu"))]
mod tests {
    use burn::backend::DispatchDevice;
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::{Device, DeviceKind, TensorData};
    use burn_cubecl::CubeBackend;

    use super::super::cube::view;
    use super::*;

    fn on_device(values: &[f64], shape: [usize; 3]) -> CubeTensor {
        let device = Device::wgpu(DeviceKind::DefaultDevice);
        let DispatchDevice::Cube(device) = device.as_dispatch().clone() else {
            unreachable!("wgpu's devices are CubeCL's")
        };
        let values: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        CubeBackend::float_from_data(TensorData::new(values, shape), &device)
    }

    fn check(name: &str, got: CubeTensor, want: impl Iterator<Item = f64>) {
        let data = burn::tensor::read_sync(CubeBackend::float_into_data(got));
        let got: Vec<f32> = data.expect("the device answers").try_to_vec().expect("f32");
        for (i, (got, want)) in got.into_iter().zip(want).enumerate() {
            assert!((f64::from(got) - want).abs() < 1e-5, "{name} {i}: {got} for {want}");
        }
    }

    // The gate is the first half of wider rows, in vectors and alone.
    #[test]
    fn a_gated_sum_and_its_gradients_are_f64s() {
        for columns in [12, 5] {
            let (batch, len) = (2, 3);
            let count = batch * len * columns;
            let wave = |count: usize, step: f64| -> Vec<f64> {
                (0..count).map(|i| 2.0 * (step * (i + 1) as f64).sin()).collect()
            };
            let (ways, wide, upstream) =
                (wave(2 * count, 0.7), wave(2 * count, 1.3), wave(count, 0.4));
            let both = on_device(&ways, [2 * batch, len, columns]);
            let rows = on_device(&wide, [batch, len, 2 * columns]);
            let zeros = vec![0.0; 2 * count];
            let half = |of: &CubeTensor| {
                let strides = [2 * len * columns, 2 * columns, 1];
                view(of, 0, &[batch, len, columns], &strides)
            };
            let inner = || on_device(&zeros[..count], [batch, len, columns]);
            let (sum, gated, again) = (inner(), inner(), inner());
            let grad_rows = on_device(&zeros, [batch, len, 2 * columns]);
            gate(&both, &half(&rows), Some(&sum), &gated);
            let grad = on_device(&upstream, [batch, len, columns]);
            ungate(&grad, &sum, &half(&rows), &half(&grad_rows), &again);

            let z = |i: usize| wide[i / columns * 2 * columns + i % columns];
            let s = |i: usize| 1.0 / (1.0 + (-z(i)).exp());
            let total = |i: usize| ways[i] + ways[count + i];
            check("sum", sum, (0..count).map(total));
            check("gated", gated, (0..count).map(|i| total(i) * z(i) * s(i)));
            check("again", again, (0..count).map(|i| total(i) * z(i) * s(i)));
            check("of the sum", grad, (0..count).map(|i| upstream[i] * z(i) * s(i)));
            let slope = |i: usize| s(i) * (1.0 + z(i) * (1.0 - s(i)));
            let of_rows = (0..2 * count).map(|at| {
                let (row, column) = (at / (2 * columns), at % (2 * columns));
                let i = row * columns + column;
                if column < columns { upstream[i] * total(i) * slope(i) } else { 0.0 }
            });
            check("of the gate", grad_rows, of_rows);
        }
    }
}
