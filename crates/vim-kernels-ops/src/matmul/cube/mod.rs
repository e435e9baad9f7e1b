//! Matrix products: which kernel runs, with which tiles.
//!
//! Not Burn's: without autotuning, which takes a minute for every new size, Burn uses one strategy
//! for all sizes, and computes a weight's gradient, a long sum with a small result, with a single
//! row of cubes.

#![expect(unsafe_code, reason = "launching a kernel without bounds checks")]

pub(crate) mod arithmetic;
mod bf16;
pub(crate) mod copies;
mod fallback;
mod matrix;
mod mma;
mod pipelined;
pub(crate) mod plan;
mod registers;
mod right_fragments;
mod round;
mod sums;
pub(crate) mod table;
#[cfg(all(test, feature = "wgpu"))]
pub(crate) mod tests;
mod tf32;
pub(crate) mod tile;
mod weight_stationary;

use burn::backend::TensorMetadata;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{LinearArguments, LinearSpec};
use arithmetic::Arithmetic;
use plan::{ExtentsLaunch, MatmulForm, Tiling, Way};
use vim_kernels_core::Precision;
use vim_kernels_core::cube::{dense, elem, empty};
use vim_kernels_core::op::{Forward, FusedOp};

pub use matrix::{Matrix, ROUNDED, halved};
pub(crate) use round::rounded;
pub use round::{gather_weights, scaled};
pub(crate) use sums::column_sums;
pub use sums::{PARTS_CUBE, add_parts, add_parts_in};

/// How the result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Overwrites the destination.
    Overwrite,
    /// Is added to the destination.
    Accumulate,
}

/// `out = lhs · rhs + bias`, or added to `out`; several products in one launch on tensor cores, one
/// after the other otherwise.
///
/// In bf16 each matrix may be f32 or bf16; otherwise all are f32.
pub fn multiply(
    lhs: &Matrix,
    rhs: &Matrix,
    bias: Option<&CubeTensor>,
    out: &Matrix,
    output: Output,
    precision: Precision,
) {
    let Some(arithmetic) = Arithmetic::on_tensor_cores(precision, &out.buffer) else {
        for ((lhs, rhs), out) in lhs.each().zip(rhs.each()).zip(out.each()) {
            fallback::multiply(&lhs, &rhs, bias, &out, output);
        }
        return;
    };
    let ([m, k], [_, n]) = (lhs.size, rhs.size);
    let form = MatmulForm {
        lhs_by_columns: lhs.by_columns,
        rhs_by_columns: rhs.by_columns,
        arithmetic,
        has_bias: bias.is_some(),
        accumulates: output == Output::Accumulate,
    };
    let properties = out.buffer.client.properties();
    let hardware = &properties.hardware;
    let processors = hardware.num_streaming_multiprocessors.map_or(1, |count| count as usize);
    let shared_memory = hardware.max_shared_memory_size;
    let [lhs, rhs] = [lhs, rhs].map(|matrix| factor(matrix, arithmetic));
    let size = [m, n, k];
    let in_registers = || {
        let (plan, workers) =
            table::weight_in_registers(form, size, lhs.count, processors, shared_memory)?;
        let copied = [&lhs, &rhs].iter().all(|matrix| plan.copies(matrix.load_lanes()));
        copied.then_some((plan, Way::InRegisters(workers)))
    };
    let stationary = || {
        table::weight_stationary(form, size, lhs.count, processors, shared_memory)
            .map(|(plan, workers)| (plan, Way::Stationary(workers)))
    };
    let (plan, way) = in_registers()
        .or_else(stationary)
        .unwrap_or_else(|| (table::forward(form, m, n, processors, shared_memory), Way::Pipelined));
    let tiling = Tiling { plan, way, part: k, parts: 1 };
    launch(&lhs, &rhs, bias, out, [m, n, k], tiling);
}

/// The gradient of a weight `[K, N]` in f32: `xᵀ·grad·factor`, for `x [T, K]` and `grad [T, N]`.
/// Several gradients are stored one after the other, `[count·K, N]`.
///
/// The sum over T is split into parts, whose number depends on the sizes alone, and the parts are
/// added in order.
pub(crate) fn weight_gradient(
    x: &Matrix,
    grad: &Matrix,
    factor: f32,
    precision: Precision,
) -> CubeTensor {
    let GradientParts { parts, sizes } = weight_gradient_parts(x, grad, precision);
    if sizes[1] == 1 && factor == 1.0 {
        return parts;
    }
    let out = empty(&x.buffer, [x.count * x.size[1], grad.size[1]], DType::F32);
    sums::add_scaled_parts(&parts, sizes, factor, &out);
    out
}

/// The parts of `weight_gradient`, `[count, parts, K·N]` dense, and these sizes.
pub struct GradientParts {
    pub parts: CubeTensor,
    pub sizes: [usize; 3],
}

/// See `weight_gradient`: what is left to do is to add the parts.
pub fn weight_gradient_parts(x: &Matrix, grad: &Matrix, precision: Precision) -> GradientParts {
    let ([t, k], [_, n]) = (x.size, grad.size);
    let count = x.count;
    let rows = |parts: usize| empty(&x.buffer, [count * parts * k, n], DType::F32);
    let Some(arithmetic) = Arithmetic::on_tensor_cores(precision, &x.buffer) else {
        let out = rows(1);
        let whole = Matrix { count, batch_stride: k * n, ..Matrix::dense(&out, [k, n]) };
        for ((x, grad), own) in x.each().zip(grad.each()).zip(whole.each()) {
            fallback::weight_gradient(&x, &grad, &own.buffer);
        }
        return GradientParts { parts: out, sizes: [count, 1, k * n] };
    };
    let form = MatmulForm {
        lhs_by_columns: true,
        rhs_by_columns: grad.by_columns,
        arithmetic,
        has_bias: false,
        accumulates: false,
    };
    let shared_memory = x.buffer.client.properties().hardware.max_shared_memory_size;
    let (plan, parts) = table::gradient(form, [k, n, t], count, shared_memory);
    let part = t.div_ceil(parts).next_multiple_of(plan::DEPTH);
    let parts = t.div_ceil(part);
    let tiling = Tiling { plan, way: Way::Pipelined, part, parts };
    let partial = rows(parts);
    let output = Matrix { count, batch_stride: parts * k * n, ..Matrix::dense(&partial, [k, n]) };
    let [x, grad] = [&x.transposed(), grad].map(|matrix| factor(matrix, arithmetic));
    launch(&x, &grad, None, &output, [k, n, t], tiling);
    GradientParts { parts: partial, sizes: [count, parts, k * n] }
}

/// The matrix in the type that is multiplied.
fn factor(matrix: &Matrix, arithmetic: Arithmetic) -> Matrix {
    if arithmetic == Arithmetic::Bf16 { rounded(matrix) } else { matrix.clone() }
}

/// Launches the kernel; both matrices have the type that is multiplied.
fn launch(
    lhs: &Matrix,
    rhs: &Matrix,
    bias: Option<&CubeTensor>,
    out: &Matrix,
    [m, n, k]: [usize; 3],
    tiling: Tiling,
) {
    let plan = tiling.plan;
    let count = out.count;
    debug_assert_eq!(
        [lhs.count, rhs.count],
        [count; 2],
        "a left and a right matrix for each product"
    );
    let client = out.buffer.client.clone();
    let (lhs_lanes, rhs_lanes) = (lhs.load_lanes(), rhs.load_lanes());
    let out_lanes = match tiling.way {
        Way::InRegisters(_) => out.load_lanes().min(plan.adjacent()),
        Way::Pipelined | Way::Stationary(_) => out.load_lanes(),
    };
    // Copies into shared memory have 32-bit addresses; the checks of a product's size allow no
    // others. An absent bias is passed as a buffer that the kernel does not read.
    let none = || out.buffer.clone();
    let address = [lhs, rhs, out]
        .iter()
        .map(|matrix| matrix.buffer.required_address_type())
        .max()
        .unwrap_or_default();
    let rows = match tiling.way {
        Way::Pipelined => m.div_ceil(plan.tile[0]),
        Way::Stationary(workers) | Way::InRegisters(workers) => workers,
    };
    let columns = n.div_ceil(plan.tile[1]);
    let extents = ExtentsLaunch::new(
        m as u32,
        n as u32,
        k as u32,
        tiling.part as u32,
        tiling.parts as u32,
        (lhs.row_stride / lhs_lanes) as u32,
        (rhs.row_stride / rhs_lanes) as u32,
        (out.row_stride / out_lanes) as u32,
        (m * n / out_lanes) as u32,
        (lhs.batch_stride / lhs_lanes) as u32,
        (rhs.batch_stride / rhs_lanes) as u32,
        (out.batch_stride / out_lanes) as u32,
    );
    let run = match tiling.way {
        Way::Pipelined => pipelined::pipelined::launch_unchecked,
        Way::Stationary(_) => weight_stationary::weight_stationary::launch_unchecked,
        Way::InRegisters(_) => registers::weight_in_registers::launch_unchecked,
    };
    // SAFETY: a `Matrix` lies within its buffer; the kernels check every row and column against the
    // sizes, and the width of a load divides the sizes, the strides and the offset.
    unsafe {
        run(
            &client,
            CubeCount::Static(columns as u32, rows as u32, (count * tiling.parts) as u32),
            CubeDim::new_1d(plan.threads() as u32),
            address,
            lhs_lanes,
            rhs_lanes,
            out_lanes,
            lhs.buffer.clone().into_buffer_arg(),
            rhs.buffer.clone().into_buffer_arg(),
            bias.cloned().unwrap_or_else(none).into_buffer_arg(),
            out.buffer.clone().into_buffer_arg(),
            extents,
            plan,
            elem(&lhs.buffer),
            elem(&out.buffer),
        );
    }
}

impl FusedOp<CubeBackend, 3, 0> for LinearSpec {
    type Inputs = LinearArguments<CubeBackend>;
    /// x, and the weight in the precision of the product.
    type Saved = [CubeTensor; 2];

    fn forward(
        self,
        arguments: LinearArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let form = if self.halved { Matrix::halved_weight } else { Matrix::rounded_weight };
        let weight = form(&arguments.weight, self.precision);
        let saved = save.then(|| [arguments.x.clone(), weight.clone()]);
        let [x, bias] = [arguments.x, arguments.bias].map(dense);
        let [batch, len, width] = x.shape().dims();
        let [_, columns] = weight.shape().dims();
        let out = activations(&x, [batch, len, columns], self.precision);
        multiply(
            &Matrix::dense(&x, [batch * len, width]),
            &Matrix::weight(&weight),
            self.has_bias.then_some(&bias),
            &Matrix::dense(&out, [batch * len, columns]),
            Output::Overwrite,
            self.precision,
        );
        (out, [], saved)
    }

    fn backward(
        self,
        grad: CubeTensor,
        [x, weight]: [CubeTensor; 2],
        [wants_x, wants_weight, wants_bias]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let dtype = x.dtype;
        let [grad, x] = [grad, x].map(dense);
        let [batch, len, columns] = grad.shape().dims();
        let [_, _, width] = x.shape().dims();
        let rows = Matrix::dense(&grad, [batch * len, columns]);
        let grad_x = wants_x.then(|| {
            let grad_x = empty(&grad, [batch, len, width], dtype);
            multiply(
                &rows,
                &Matrix::weight(&weight).transposed(),
                None,
                &Matrix::dense(&grad_x, [batch * len, width]),
                Output::Overwrite,
                self.precision,
            );
            grad_x
        });
        let grad_weight = wants_weight.then(|| {
            let x = Matrix::dense(&x, [batch * len, width]);
            let factor = if self.halved { 0.5 } else { 1.0 };
            weight_gradient(&x, &rows, factor, self.precision)
        });
        let grad_bias = (self.has_bias && wants_bias).then(|| column_sums(&rows));
        [grad_x, grad_weight, grad_bias]
    }
}

/// A dense tensor of `shape` on the device of `like`, in the type of the activations.
pub fn activations(like: &CubeTensor, shape: impl Into<Shape>, precision: Precision) -> CubeTensor {
    empty(like, shape, precision.activations())
}
