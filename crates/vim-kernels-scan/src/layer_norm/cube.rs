//! Layer normalization on a GPU: rows are cut as those of the other norm.

#![expect(unsafe_code, reason = "launching kernels without bounds checks")]

use burn::backend::TensorMetadata;
use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{LayerNormArguments, LayerNormSpec};
use crate::norm::cube::kernel::{CUBE, NormConfig, add_lines, lane_sum, line_sum};
use crate::norm::cube::{CUBES, Cut};
use vim_kernels_core::cube::sum::sum_rows;
use vim_kernels_core::cube::{cubes, dense, elem, empty};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Loads the row of a line of threads, 0 beyond its end.
#[cube]
fn load<E: Float, N: Size>(
    from: &[Vector<E, N>],
    values: &mut Array<Vector<f32, N>>,
    row: usize,
    rows: usize,
    width: usize,
    #[comptime] config: NormConfig,
) {
    #[unroll]
    for k in 0..comptime!(config.owned) {
        let column = UNIT_POS_X as usize + k * comptime!(config.line);
        values[k] = Vector::new(0.0f32);
        if row < rows && column < width {
            values[k] = Vector::cast_from(from[row * width + column]);
        }
    }
}

/// Replaces the row that a line of threads holds by its difference to its mean, 0 beyond the row's
/// end; returns 1/sqrt(variance + epsilon).
#[cube]
fn center<N: Size>(
    values: &mut Array<Vector<f32, N>>,
    shared: &mut [f32],
    width: usize,
    epsilon: f32,
    #[comptime] config: NormConfig,
) -> f32 {
    let elements = f32::cast_from(width * N::value());
    let mut sum = 0.0f32;
    #[unroll]
    for k in 0..comptime!(config.owned) {
        sum += lane_sum::<N>(values[k]);
    }
    let mean = line_sum(sum, shared, config) / elements;
    let mut squares = 0.0f32;
    #[unroll]
    for k in 0..comptime!(config.owned) {
        let column = UNIT_POS_X as usize + k * comptime!(config.line);
        if column < width {
            values[k] -= Vector::new(mean);
            squares += lane_sum::<N>(values[k] * values[k]);
        }
    }
    let squares = line_sum(squares, shared, config);
    1.0f32 / f32::sqrt(squares / elements + epsilon)
}

/// Rows of `width` vectors, normalized.
#[cube(launch_unchecked, address_type = "dynamic")]
fn layer_norm_forward<F: Float, O: Float, N: Size>(
    x: &[Vector<F, N>],
    weight: &[Vector<f32, N>],
    bias: &[Vector<f32, N>],
    y: &mut [Vector<O, N>],
    rows: usize,
    width: usize,
    epsilon: f32,
    #[comptime] config: NormConfig,
    #[comptime] relu: bool,
    #[define(F)] _from: ElemType,
    #[define(O)] _to: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(if config.planes { 1 } else { CUBE }));
    let row = CUBE_POS * comptime!(config.rows()) + UNIT_POS_Y as usize;
    let base = row * width;
    let mut values = Array::<Vector<f32, N>>::new(comptime!(config.owned));
    load::<F, N>(x, &mut values, row, rows, width, config);
    let scale = center::<N>(&mut values, &mut shared, width, epsilon, config);
    #[unroll]
    for k in 0..comptime!(config.owned) {
        let column = UNIT_POS_X as usize + k * comptime!(config.line);
        if row < rows && column < width {
            let mut value = values[k] * Vector::new(scale) * weight[column] + bias[column];
            if comptime!(relu) {
                #[unroll]
                for lane in 0..N::value() {
                    let one = value.extract(lane);
                    // Not `max`, which would hide a NaN.
                    value.insert(lane, select(one < 0.0f32, 0.0f32, one));
                }
            }
            y[base + column] = Vector::cast_from(value);
        }
    }
}

/// The gradient of x, and those of weight and bias as one row of `partials` per cube.
///
/// With n the normalized row, s = 1/sqrt(variance + epsilon) and g = grad_y·weight where y is not
/// cut off: `grad_x = s·(g − mean(g) − n·mean(g·n))`.
#[cube(launch_unchecked, address_type = "dynamic")]
#[expect(clippy::too_many_arguments, reason = "inputs, gradients and sizes")]
fn layer_norm_backward<F: Float, O: Float, N: Size>(
    grad_y: &[Vector<O, N>],
    x: &[Vector<F, N>],
    weight: &[Vector<f32, N>],
    bias: &[Vector<f32, N>],
    grad_x: &mut [Vector<F, N>],
    partials: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    cubes: usize,
    epsilon: f32,
    #[comptime] config: NormConfig,
    #[comptime] relu: bool,
    #[define(F)] _from: ElemType,
    #[define(O)] _to: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(if config.planes { 1 } else { CUBE }));
    let owned = comptime!(config.owned);
    let line = comptime!(config.line);
    let rows_of_cube = comptime!(config.rows());
    let (x_of, y_of) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let elements = f32::cast_from(width * N::value());

    let mut grad_weight = Array::<Vector<f32, N>>::new(owned);
    let mut grad_bias = Array::<Vector<f32, N>>::new(owned);
    #[unroll]
    for k in 0..owned {
        grad_weight[k] = Vector::new(0.0f32);
        grad_bias[k] = Vector::new(0.0f32);
    }
    let mut values = Array::<Vector<f32, N>>::new(owned);
    let mut grads = Array::<Vector<f32, N>>::new(owned);
    // Every thread of a cube iterates equally often: the sums need all of them.
    let mut first = CUBE_POS * rows_of_cube;
    while first < rows {
        let row = first + y_of;
        let base = row * width;
        load::<F, N>(x, &mut values, row, rows, width, config);
        load::<O, N>(grad_y, &mut grads, row, rows, width, config);
        let scale = center::<N>(&mut values, &mut shared, width, epsilon, config);
        let mut sum = 0.0f32;
        let mut along = 0.0f32;
        #[unroll]
        for k in 0..owned {
            let column = x_of + k * line;
            if column < width {
                let gain = weight[column];
                let normed = values[k] * Vector::new(scale);
                let mut grad = grads[k];
                if comptime!(relu) {
                    grad = passed::<N>(grad, normed * gain + bias[column]);
                }
                grad_weight[k] += grad * normed;
                grad_bias[k] += grad;
                values[k] = normed;
                grads[k] = grad * gain;
                sum += lane_sum::<N>(grads[k]);
                along += lane_sum::<N>(grads[k] * normed);
            }
        }
        let mean = line_sum(sum, &mut shared, config) / elements;
        let along = line_sum(along, &mut shared, config) / elements;
        #[unroll]
        for k in 0..owned {
            let column = x_of + k * line;
            if row < rows && column < width {
                let grad = grads[k] - Vector::new(mean) - values[k] * Vector::new(along);
                grad_x[base + column] = Vector::cast_from(grad * Vector::new(scale));
            }
        }
        first += cubes * rows_of_cube;
    }

    let mut lines = Shared::<[Vector<f32, N>]>::new_slice(CUBE);
    add_lines::<N>(&grad_weight, &mut lines, partials, CUBE_POS * 2, width, cubes, config);
    add_lines::<N>(&grad_bias, &mut lines, partials, CUBE_POS * 2 + 1, width, cubes, config);
}

/// `grad` where `linear`, which the ReLU was of, is positive, and 0 elsewhere.
#[cube]
fn passed<N: Size>(grad: Vector<f32, N>, linear: Vector<f32, N>) -> Vector<f32, N> {
    let mut passed = grad;
    #[unroll]
    for lane in 0..N::value() {
        let stopped = linear.extract(lane) <= 0.0f32;
        passed.insert(lane, select(stopped, 0.0f32, grad.extract(lane)));
    }
    passed
}

impl FusedOp<CubeBackend, 3, 0> for LayerNormSpec {
    type Inputs = LayerNormArguments<CubeBackend>;
    type Saved = [CubeTensor; 3];

    fn forward(
        self,
        arguments: LayerNormArguments<CubeBackend>,
        save: bool,
    ) -> Forward<CubeBackend, Self::Saved, 0> {
        let [x, weight, bias] = arguments.into_array().map(dense);
        let cut = Cut::new(&x);
        let y = empty(&x, x.shape(), self.to);
        // SAFETY: all tensors are contiguous with rows of `width` vectors; a thread stays within
        // its row and `rows`.
        unsafe {
            layer_norm_forward::launch_unchecked(
                &x.client,
                cubes(&x.client, cut.rows.div_ceil(cut.config.rows())),
                cut.dim(),
                x.required_address_type().max(y.required_address_type()),
                cut.lanes,
                x.clone().into_buffer_arg(),
                weight.clone().into_buffer_arg(),
                bias.clone().into_buffer_arg(),
                y.clone().into_buffer_arg(),
                cut.rows,
                cut.width,
                self.epsilon,
                cut.config,
                self.relu,
                elem(&x),
                dtype_to_storage_type(self.to),
            );
        }
        (y, [], save.then_some([x, weight, bias]))
    }

    fn backward(
        self,
        grad: CubeTensor,
        [x, weight, bias]: [CubeTensor; 3],
        [_, wants_weight, wants_bias]: [bool; 3],
    ) -> [Option<CubeTensor>; 3] {
        let grad = dense(grad);
        let cut = Cut::new(&x);
        let count = cut.rows.div_ceil(cut.config.rows()).min(CUBES);
        let grad_x = empty(&x, x.shape(), x.dtype);
        let partials = empty(&x, [count, 2 * cut.d_model], DType::F32);
        // SAFETY: as in the forward pass; a cube writes one row of the partial sums.
        unsafe {
            layer_norm_backward::launch_unchecked(
                &x.client,
                cubes(&x.client, count),
                cut.dim(),
                x.required_address_type().max(grad.required_address_type()),
                cut.lanes,
                grad.into_buffer_arg(),
                x.clone().into_buffer_arg(),
                weight.into_buffer_arg(),
                bias.into_buffer_arg(),
                grad_x.clone().into_buffer_arg(),
                partials.clone().into_buffer_arg(),
                cut.rows,
                cut.width,
                count,
                self.epsilon,
                cut.config,
                self.relu,
                elem(&x),
                dtype_to_storage_type(self.to),
            );
        }
        if !(wants_weight || wants_bias) {
            return [Some(grad_x), None, None];
        }
        let channels = cut.d_model;
        let [of_weight, of_bias] = [(); 2].map(|()| empty(&x, [channels], DType::F32));
        sum_rows(partials, count, 2 * channels, channels, &of_weight, &of_bias);
        [Some(grad_x), Some(of_weight), Some(of_bias)]
    }
}
