//! Products of f32 without tensor cores: cubek's kernel for units, selected by name.

use burn::backend::cubecl::dtype_to_storage_type;
use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;
use cubek::matmul::definition::{MatmulElems, MatmulGlobalElems};
use cubek::matmul::launch::launch_ref;
use cubek::matmul::multi_level;
use cubek::matmul::strategy::Strategy;
use cubek::std::InputBinding;

use super::sums::add_parts;
use super::{Matrix, Output};
use vim_kernels_core::cube::{dense, empty};

/// As [`super::multiply`].
pub(super) fn multiply(
    lhs: &Matrix,
    rhs: &Matrix,
    bias: Option<&CubeTensor>,
    out: &Matrix,
    output: Output,
) {
    let [rows, columns] = out.size;
    if output == Output::Overwrite && bias.is_none() {
        return run(view(lhs, 1), view(rhs, 1), view(out, 1));
    }
    let product = empty(&out.buffer, [rows, columns], DType::F32);
    run(view(lhs, 1), view(rhs, 1), view(&Matrix::dense(&product, [rows, columns]), 1));
    let mut sum = product;
    if let Some(bias) = bias {
        let mut bias = dense(bias.clone());
        bias.meta = Box::new(Metadata::new([1, columns], [columns, 1]));
        sum = CubeBackend::float_add(sum, bias);
    }
    if output == Output::Accumulate {
        sum = CubeBackend::float_add(sum, dense(matrix(out)));
    }
    super::sums::copy_rows(&Matrix::dense(&dense(sum), [rows, columns]), out);
}

/// As [`super::weight_gradient`].
pub(super) fn weight_gradient(x: &Matrix, grad: &Matrix, out: &CubeTensor) {
    let ([t, k], [_, n]) = (x.size, grad.size);
    // As many parts as divide the tokens.
    let parts = (1..=64).rev().find(|&parts| t.is_multiple_of(parts)).unwrap_or(1);
    let partial = empty(out, [parts, k, n], DType::F32);
    run(view(&x.transposed(), parts), view_rows(grad, parts), partial.clone());
    add_parts(&partial, [1, parts, k * n], out);
}

/// The matrix as a tensor of two dimensions.
fn matrix(of: &Matrix) -> CubeTensor {
    let strides = if of.by_columns { [1, of.row_stride] } else { [of.row_stride, 1] };
    with(&of.buffer, of.size.to_vec(), strides.to_vec())
}

/// The matrix as a batch of `parts`, its columns split.
fn view(of: &Matrix, parts: usize) -> CubeTensor {
    let [rows, columns] = of.size;
    let [row, column] = if of.by_columns { [1, of.row_stride] } else { [of.row_stride, 1] };
    let each = columns / parts;
    with(&of.buffer, vec![parts, rows, each], vec![each * column, row, column])
}

/// The same with its rows split.
fn view_rows(of: &Matrix, parts: usize) -> CubeTensor {
    let [rows, columns] = of.size;
    let each = rows / parts;
    with(&of.buffer, vec![parts, each, columns], vec![each * of.row_stride, of.row_stride, 1])
}

fn with(buffer: &CubeTensor, shape: Vec<usize>, strides: Vec<usize>) -> CubeTensor {
    let mut tensor = buffer.clone();
    tensor.meta = Box::new(Metadata::new(Shape::from(shape), strides));
    tensor
}

fn run(lhs: CubeTensor, rhs: CubeTensor, out: CubeTensor) {
    let elem = dtype_to_storage_type(DType::F32);
    let mut types =
        MatmulElems::from_globals(&MatmulGlobalElems { lhs: elem, rhs: elem, out: elem });
    let [lhs, rhs] = [lhs, rhs].map(|tensor| InputBinding::new(tensor.binding(), elem));
    // Units multiply with all bits of f32, and matrices of any size.
    let units = Strategy::MultiLevel(multi_level::Strategy::SimpleUnit(Default::default()));
    launch_ref(&units, &out.client.clone(), lhs, rhs, out.binding(), &mut types)
        .expect("invariant: the matrices' sizes agree");
}
