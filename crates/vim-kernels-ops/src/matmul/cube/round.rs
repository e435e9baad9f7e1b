//! Matrices rounded to the type that tensor cores multiply.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::DType;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::Matrix;
use vim_kernels_core::Precision;
use vim_kernels_core::cube::{cubes, elem, empty};

/// Units of a cube.
const UNITS: u32 = 256;

/// `out` = dense rows of `width` vectors, from rows with stride `row_stride`, times `factor`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn round_kernel<F: Float, S: Float, N: Size>(
    from: &[Vector<F, N>],
    out: &mut [Vector<S, N>],
    count: usize,
    width: usize,
    row_stride: usize,
    factor: f32,
    #[define(F)] _from_type: ElemType,
    #[define(S)] _to_type: ElemType,
) {
    let at = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if at < count {
        let number = Vector::<f32, N>::cast_from(from[at / width * row_stride + at % width]);
        out[at] = Vector::cast_from(number * Vector::new(factor));
    }
}

/// Rows or columns of a matrix as stored, and their length.
fn lines(matrix: &Matrix) -> [usize; 2] {
    let [rows, columns] = matrix.size;
    if matrix.by_columns { [columns, rows] } else { [rows, columns] }
}

/// The matrix in bf16: itself, or, for a single matrix, a dense copy.
pub(crate) fn rounded(matrix: &Matrix) -> Matrix {
    if matrix.buffer.dtype == DType::BF16 {
        return matrix.clone();
    }
    scaled(matrix, 1.0, DType::BF16)
}

/// The matrix times a power of two, dense, in another type or its own.
pub fn scaled(matrix: &Matrix, factor: f32, dtype: DType) -> Matrix {
    debug_assert_eq!(matrix.count, 1, "several are rounded beforehand");
    let [lines, length] = lines(matrix);
    let out = empty(&matrix.buffer, [lines, length], dtype);
    let lanes = matrix.load_lanes();
    let count = lines * length / lanes;
    let client = out.client.clone();
    // SAFETY: a `Matrix` lies within its buffer, and `out` holds `lines` dense rows; the width of a
    // load divides the length, the stride and the offset.
    unsafe {
        round_kernel::launch_unchecked(
            &client,
            cubes(&client, count.div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            matrix.buffer.required_address_type().max(out.required_address_type()),
            lanes,
            matrix.buffer.clone().into_buffer_arg(),
            out.clone().into_buffer_arg(),
            count,
            length / lanes,
            matrix.row_stride / lanes,
            factor,
            elem(&matrix.buffer),
            dtype_to_storage_type(dtype),
        );
    }
    Matrix { buffer: out, row_stride: length, ..matrix.clone() }
}

/// Location of one of several matrices, in vectors.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Source {
    count: u32,
    /// Vectors of a row.
    width: u32,
    /// From a row to the next.
    row_stride: u32,
}

/// [`round_kernel`] for four matrices, their results one after the other.
#[cube(launch_unchecked)]
#[expect(clippy::too_many_arguments, reason = "four matrices")]
fn gather_weights_kernel<S: Float, N: Size>(
    first: &[Vector<f32, N>],
    second: &[Vector<f32, N>],
    third: &[Vector<f32, N>],
    fourth: &[Vector<f32, N>],
    out: &mut [Vector<S, N>],
    of_first: Source,
    of_second: Source,
    of_third: Source,
    of_fourth: Source,
    #[define(S)] _to_type: ElemType,
) {
    let to = ABSOLUTE_POS;
    let mut at = to;
    let mut value = Vector::<f32, N>::new(0.0f32);
    let mut in_bounds = true;
    if at < of_first.count as usize {
        value = first[source_of(at, &of_first)];
    } else {
        at -= of_first.count as usize;
        if at < of_second.count as usize {
            value = second[source_of(at, &of_second)];
        } else {
            at -= of_second.count as usize;
            if at < of_third.count as usize {
                value = third[source_of(at, &of_third)];
            } else {
                at -= of_third.count as usize;
                in_bounds = at < of_fourth.count as usize;
                if in_bounds {
                    value = fourth[source_of(at, &of_fourth)];
                }
            }
        }
    }
    if in_bounds {
        out[to] = Vector::cast_from(value);
    }
}

/// The index of the `at`-th vector of its rows.
#[cube]
fn source_of(at: usize, source: &Source) -> usize {
    at / source.width as usize * source.row_stride as usize + at % source.width as usize
}

/// Four f32 weights in the type of `precision`, one after the other in a buffer: one launch takes
/// as long for all as for one.
pub fn gather_weights(matrices: &[Matrix; 4], precision: Precision) -> CubeTensor {
    debug_assert!(matrices.iter().all(|m| m.buffer.dtype == DType::F32), "weights are of f32");
    let lanes = matrices.iter().map(Matrix::load_lanes).min().unwrap_or(1);
    let whole: usize = matrices.iter().map(|matrix| lines(matrix).iter().product::<usize>()).sum();
    let dtype = precision.activations();
    let out = empty(&matrices[0].buffer, [whole], dtype);
    let client = out.client.clone();
    let source = |matrix: &Matrix| {
        let [lines, length] = lines(matrix);
        let [count, width, row_stride] =
            [lines * length, length, matrix.row_stride].map(|n| (n / lanes) as u32);
        SourceLaunch::new(count, width, row_stride)
    };
    let [first, second, third, fourth] =
        matrices.each_ref().map(|matrix| (matrix.buffer.clone().into_buffer_arg(), source(matrix)));
    // SAFETY: every matrix lies within its buffer, and `out` holds the dense rows of all; the width
    // of a load divides the length, the stride and the offset.
    unsafe {
        gather_weights_kernel::launch_unchecked(
            &client,
            cubes(&client, (whole / lanes).div_ceil(UNITS as usize)),
            CubeDim::new_1d(UNITS),
            lanes,
            first.0,
            second.0,
            third.0,
            fourth.0,
            out.clone().into_buffer_arg(),
            first.1,
            second.1,
            third.1,
            fourth.1,
            dtype_to_storage_type(dtype),
        );
    }
    out
}
