//! Both kernels against f64, without tensor cores: copies, masks and writes are the same with them.

use burn::backend::DispatchDevice;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{Device, DeviceKind, Tensor, TensorData};
use burn_cubecl::{CubeBackend, CubeDevice};

use super::plan::MatmulPlan;
use super::*;
use crate::matmul::{halved_linear, linear};

/// max |difference| / max |reference|: sums of up to 200 products of f32 below 1.
const TOLERANCE: f64 = 2e-6;

pub(crate) fn device() -> CubeDevice {
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    let DispatchDevice::Cube(device) = device.as_dispatch().clone() else {
        unreachable!("wgpu's devices are CubeCL's")
    };
    device
}

/// Numbers in [−1, 1) that a seed determines, as f32 has them.
pub(crate) fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

pub(crate) fn on_device(values: &[f32], device: &CubeDevice) -> CubeTensor {
    CubeBackend::float_from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

pub(crate) fn values(tensor: CubeTensor) -> Vec<f32> {
    burn::tensor::read_sync(CubeBackend::float_into_data(tensor))
        .expect("the device answers")
        .try_to_vec()
        .expect("the data are f32")
}

/// A product whose matrices have an offset and padded rows.
#[derive(Clone, Copy, Debug)]
struct Case {
    size: [usize; 3],
    lhs_by_columns: bool,
    rhs_by_columns: bool,
    has_bias: bool,
    accumulates: bool,
    /// Elements of padding after each row.
    gap: usize,
    parts: usize,
    /// Products per launch.
    count: usize,
}

/// Elements before the first of a padded matrix: the offset alignment of WebGPU.
fn before(gap: usize) -> usize {
    if gap == 0 { 0 } else { 8 }
}

/// `count` matrices in a buffer of their own, and the elements of each.
fn matrix(
    [rows, columns]: [usize; 2],
    by_columns: bool,
    Case { gap, count, .. }: Case,
    seed: u32,
    device: &CubeDevice,
) -> (Matrix, Vec<Vec<f64>>) {
    let (lines, length) = if by_columns { (columns, rows) } else { (rows, columns) };
    let row_stride = length + gap;
    let begin = before(gap);
    // There is padding between them, too.
    let batch_stride = lines * row_stride + gap;
    let stored = numbers(begin + count * batch_stride, seed);
    let of = |which: usize| {
        let begin = begin + which * batch_stride;
        let at = |line: usize, i: usize| f64::from(stored[begin + line * row_stride + i]);
        let places = (0..rows * columns).map(|i| (i / columns, i % columns));
        places
            .map(|(row, column)| if by_columns { at(column, row) } else { at(row, column) })
            .collect()
    };
    let elements = (0..count).map(of).collect();
    let buffer = on_device(&stored, device);
    let first = Matrix::within(&buffer, [lines, length], begin, row_stride);
    let matrix = if count == 2 { first.pair(batch_stride) } else { first };
    (if by_columns { matrix.transposed() } else { matrix }, elements)
}

fn check(case: Case, weight_stationary: bool) {
    let device = &device();
    let [m, n, k] = case.size;
    let (lhs, left) = matrix([m, k], case.lhs_by_columns, case, 1, device);
    let (rhs, right) = matrix([k, n], case.rhs_by_columns, case, 2, device);
    let bias = numbers(n, 3);
    let form = MatmulForm {
        lhs_by_columns: case.lhs_by_columns,
        rhs_by_columns: case.rhs_by_columns,
        arithmetic: Arithmetic::Units,
        has_bias: case.has_bias,
        accumulates: case.accumulates,
    };
    let tiling = if weight_stationary {
        let (plan, workers) =
            table::weight_stationary(form, case.size, case.count, 2, 64 << 10).expect("few terms");
        Tiling { plan, way: Way::Stationary(workers), part: k, parts: 1 }
    } else {
        // In f32 a stage as deep as on a GPU exceeds WebGPU's shared memory.
        let plan = MatmulPlan { depth: 16, ..table::forward(form, m, n, 2, 32 << 10) };
        let part = k.div_ceil(case.parts).next_multiple_of(plan.depth);
        Tiling { plan, way: Way::Pipelined, part, parts: k.div_ceil(part) }
    };
    // Parts are stored one after the other, without a gap.
    let gap = if tiling.parts > 1 { 0 } else { case.gap };
    let begin = before(gap);
    let batch_stride = tiling.parts * m * (n + gap);
    let stored = numbers(begin + case.count * batch_stride, 4);
    let out = on_device(&stored, device);
    let first = Matrix::within(&out, [m, n], begin, n + gap);
    let output = if case.count == 2 { first.pair(batch_stride) } else { first };
    let inputs = on_device(&bias, device);
    launch(&lhs, &rhs, case.has_bias.then_some(&inputs), &output, case.size, tiling);
    let got = values(out);

    let (mut worst, mut largest) = (0.0f64, 0.0f64);
    for (which, (left, right)) in left.iter().zip(&right).enumerate() {
        for (row, column) in (0..m * n).map(|i| (i / n, i % n)) {
            let begin = begin + which * batch_stride;
            let place = |part: usize| part * m * n + begin + row * (n + gap) + column;
            let mut want: f64 = (0..k).map(|t| left[row * k + t] * right[t * n + column]).sum();
            if case.has_bias {
                want += f64::from(bias[column]);
            }
            if case.accumulates {
                want += f64::from(stored[place(0)]);
            }
            let sum: f64 = (0..tiling.parts).map(|part| f64::from(got[place(part)])).sum();
            worst = worst.max((sum - want).abs());
            largest = largest.max(want.abs());
        }
    }
    assert!(worst <= TOLERANCE * largest, "{case:?}: {worst:e} of {largest:e}");
    // The padding is not written.
    for (i, (&was, &is)) in stored.iter().zip(&got).enumerate() {
        let within = i >= begin && (i - begin) % (n + gap) < n;
        assert!(within || was == is, "{case:?}: element {i} beside the result");
    }
}

const PLAIN: Case = Case {
    size: [1; 3],
    lhs_by_columns: false,
    rhs_by_columns: false,
    has_bias: false,
    accumulates: false,
    gap: 0,
    parts: 1,
    count: 1,
};

#[test]
fn tiles_are_f64s() {
    for (size, gap) in [([1, 1, 1], 0), ([70, 44, 100], 4), ([33, 130, 12], 0), ([130, 97, 17], 3)]
    {
        for rhs_by_columns in [false, true] {
            check(Case { size, gap, rhs_by_columns, ..PLAIN }, false);
            check(Case { size, gap, rhs_by_columns, lhs_by_columns: true, ..PLAIN }, false);
        }
        check(Case { size, gap, has_bias: true, accumulates: true, ..PLAIN }, false);
    }
    // A weight's gradient: a long sum in parts.
    let gradient = Case { size: [40, 24, 200], lhs_by_columns: true, parts: 3, ..PLAIN };
    check(gradient, false);
    // Two products at once, and the gradients of two weights.
    check(Case { size: [70, 44, 100], gap: 4, accumulates: true, count: 2, ..PLAIN }, false);
    check(Case { count: 2, ..gradient }, false);
}

#[test]
fn panels_are_f64s() {
    for (size, gap) in
        [([1100, 12, 44], 4), ([1025, 44, 16], 0), ([1037, 40, 12], 4), ([1088, 17, 33], 3)]
    {
        for rhs_by_columns in [false, true] {
            check(Case { size, gap, rhs_by_columns, ..PLAIN }, true);
        }
        check(Case { size, gap, has_bias: true, accumulates: true, ..PLAIN }, true);
        check(Case { size, gap, accumulates: true, count: 2, ..PLAIN }, true);
    }
}

#[test]
fn parts_are_added_for_each_sum() {
    let device = &device();
    for (sums, count, width) in [(1, 9, 5), (2, 3, 12), (2, 20, 33)] {
        let stored = numbers(sums * count * width, 5);
        let out = on_device(&vec![0.0; sums * width], device);
        sums::add_parts(&on_device(&stored, device), [sums, count, width], &out);
        for (i, got) in values(out).into_iter().enumerate() {
            let (sum, column) = (i / width, i % width);
            let part = |part: usize| f64::from(stored[(sum * count + part) * width + column]);
            let want: f64 = (0..count).map(part).sum();
            // Sums of at most 20 numbers below 1.
            let error = (f64::from(got) - want).abs();
            assert!(error < 1e-5, "{sums} {count} {width}, {i}: {got} for {want}");
        }
    }
}

#[test]
fn four_matrices_are_gathered_in_their_order() {
    let device = &device();
    for gap in [0, 3] {
        let case = Case { gap, ..PLAIN };
        let sizes = [[7, 12], [7, 12], [3, 8], [3, 8]];
        let inputs = sizes.map(|size| matrix(size, false, case, size[0] as u32 + 6, device));
        let all = inputs.each_ref().map(|(matrix, _)| matrix.clone());
        let got = values(gather_weights(&all, Precision::F32));
        let want: Vec<f64> =
            inputs.into_iter().flat_map(|(_, elements)| elements.into_iter().flatten()).collect();
        assert!(got.iter().map(|&x| f64::from(x)).eq(want), "gap {gap}");
    }
}

#[test]
fn half_a_product_is_that_with_half_the_weight() {
    let device = Device::wgpu(DeviceKind::DefaultDevice).autodiff();
    let input = |shape: [usize; 3], seed: u32| {
        let count = shape.iter().product();
        Tensor::<3>::from_data(TensorData::new(numbers(count, seed), shape), &device)
    };
    let run = |halved: bool| {
        let (x, weight) = (input([2, 150, 12], 1), input([1, 12, 20], 2).reshape([12, 20]));
        let (x, weight) = (x.require_grad(), weight.require_grad());
        let y = if halved {
            halved_linear(x.clone(), weight.clone(), Precision::F32)
        } else {
            linear(x.clone(), weight.clone() * 0.5, None, Precision::F32)
        };
        let y = y.expect("sizes that agree");
        let grads = (y.clone() * input([2, 150, 20], 3)).sum().backward();
        let of_x = x.grad(&grads).expect("a gradient").into_data();
        let of_weight = weight.grad(&grads).expect("a gradient").into_data();
        [y.into_data(), of_x, of_weight].map(|data| data.try_to_vec::<f32>().expect("f32"))
    };
    assert_eq!(run(true), run(false));
}
