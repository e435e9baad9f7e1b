//! Residual addition and root-mean-square normalization: a line of threads owns a row and holds it
//! in registers, so that every tensor is read and written once.

use cubecl::prelude::*;

/// Threads of a cube; it has as many rows as lines fit.
pub(crate) const CUBE: usize = 256;

/// Compile-time configuration of a norm kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NormConfig {
    /// Threads of a row: a plane, or a whole cube for rows that exceed a plane's registers.
    pub(crate) line: usize,
    /// Vectors of a row that a thread owns.
    pub(crate) owned: usize,
    /// Whether a line is a plane whose threads can exchange values.
    pub(crate) planes: bool,
}

impl NormConfig {
    /// Rows of a cube.
    pub(crate) fn rows(&self) -> usize {
        CUBE / self.line
    }
}

/// The sum of `value` over the threads of a line, returned to all of them. All threads of a cube
/// take part.
#[cube]
pub(crate) fn line_sum(value: f32, shared: &mut [f32], #[comptime] config: NormConfig) -> f32 {
    if comptime!(config.planes) {
        plane_sum(value)
    } else {
        let line = comptime!(config.line);
        let x = UNIT_POS_X as usize;
        let start = UNIT_POS_Y as usize * line;
        shared[start + x] = value;
        sync_cube();
        // Halving; the number of steps is a compile-time constant.
        #[unroll]
        for step in 0..comptime!(line.ilog2() as usize) {
            let half = comptime!(line >> (step + 1));
            if x < half {
                shared[start + x] += shared[start + x + half];
            }
            sync_cube();
        }
        let total = shared[start];
        sync_cube();
        total
    }
}

/// The sum of a vector's lanes.
#[cube]
pub(crate) fn lane_sum<N: Size>(value: Vector<f32, N>) -> f32 {
    let mut sum = 0.0f32;
    #[unroll]
    for lane in 0..N::value() {
        sum += value.extract(lane);
    }
    sum
}

/// What images are multiplied by: from `first` on a factor for each `rows` rows.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Images {
    first: usize,
    rows: usize,
}

/// `value` in the type of x, times the factor of its row's image in that type, rounded to it.
#[cube]
fn scaled<F: Float, N: Size>(
    value: Vector<f32, N>,
    row: usize,
    factors: &[f32],
    images: Images,
    #[comptime] ptx: bool,
) -> Vector<f32, N> {
    let factor = f32::cast_from(F::cast_from(factors[images.first + row / images.rows]));
    let mut product = Vector::<f32, N>::empty();
    #[unroll]
    for lane in 0..N::value() {
        let value = f32::cast_from(F::cast_from(value.extract(lane)));
        product.insert(lane, f32::cast_from(F::cast_from(alone(value, factor, ptx))));
    }
    product
}

/// `a·b`, which PTX never makes one operation with a sum.
#[cube]
fn alone(a: f32, b: f32, #[comptime] ptx: bool) -> f32 {
    if comptime!(ptx) {
        let y: f32;
        gpu_asm!("mul.rn.f32 {y}, {a}, {b};", a = in(_) a, b = in(_) b, y = out(_) y, options(pure, nomem));
        y
    } else {
        a * b
    }
}

/// `sum = x + residual` and `normed = sum / sqrt(mean(sum²) + epsilon) · weight`, rows of `width`
/// vectors; without `has_residual` the sum is x, and with `write_sum` it is written. With
/// `has_factors` x is what its images are multiplied to.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn norm_forward<F: Float, N: Size>(
    x: &[Vector<F, N>],
    residual: &[Vector<f32, N>],
    weight: &[Vector<f32, N>],
    factors: &[f32],
    normed: &mut [Vector<F, N>],
    sum: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    epsilon: f32,
    images: Images,
    #[comptime] config: NormConfig,
    #[comptime] has_residual: bool,
    #[comptime] has_factors: bool,
    #[comptime] write_sum: bool,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(if config.planes { 1 } else { CUBE }));
    let row = CUBE_POS * comptime!(config.rows()) + UNIT_POS_Y as usize;
    let base = row * width;

    let mut values = Array::<Vector<f32, N>>::new(comptime!(config.owned));
    let mut squares = 0.0f32;
    #[unroll]
    for k in 0..comptime!(config.owned) {
        let column = UNIT_POS_X as usize + k * comptime!(config.line);
        values[k] = Vector::new(0.0f32);
        if row < rows && column < width {
            let mut value = Vector::<f32, N>::cast_from(x[base + column]);
            if comptime!(has_factors) {
                value = scaled::<F, N>(value, row, factors, images, ptx);
            }
            if comptime!(has_residual) {
                value += residual[base + column];
            }
            if comptime!(write_sum) {
                sum[base + column] = value;
            }
            values[k] = value;
            squares += lane_sum::<N>(value * value);
        }
    }
    let squares = line_sum(squares, &mut shared, config);
    let scale = 1.0f32 / f32::sqrt(squares / f32::cast_from(width * N::value()) + epsilon);
    #[unroll]
    for k in 0..comptime!(config.owned) {
        let column = UNIT_POS_X as usize + k * comptime!(config.line);
        if row < rows && column < width {
            let value = values[k] * Vector::new(scale) * weight[column];
            normed[base + column] = Vector::cast_from(value);
        }
    }
}

/// The gradient of the sum in f32, of x in its own type (with `write_x`), and of the weight as one
/// row of `partials` per cube.
///
/// With r the sum, s = 1/sqrt(mean(r²) + epsilon) and g = grad_normed·weight:
/// `grad_sum_out = grad_sum + s·g − r·s³·mean(g·r)` and `grad_weight = Σ grad_normed·r·s`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn norm_backward<F: Float, N: Size>(
    grad_normed: &[Vector<F, N>],
    grad_sum: &[Vector<f32, N>],
    sum: &[Vector<f32, N>],
    weight: &[Vector<f32, N>],
    factors: &[f32],
    grad_out: &mut [Vector<f32, N>],
    grad_x: &mut [Vector<F, N>],
    partials: &mut [Vector<f32, N>],
    rows: usize,
    width: usize,
    cubes: usize,
    epsilon: f32,
    images: Images,
    #[comptime] config: NormConfig,
    #[comptime] has_grad_sum: bool,
    #[comptime] has_factors: bool,
    #[comptime] write_x: bool,
    #[comptime] ptx: bool,
    #[define(F)] _dtype: ElemType,
) {
    let mut shared = Shared::<[f32]>::new_slice(comptime!(if config.planes { 1 } else { CUBE }));
    let owned = comptime!(config.owned);
    let line = comptime!(config.line);
    let rows_of_cube = comptime!(config.rows());
    let x = UNIT_POS_X as usize;
    let y = UNIT_POS_Y as usize;

    let mut gains = Array::<Vector<f32, N>>::new(owned);
    let mut grad_weight = Array::<Vector<f32, N>>::new(owned);
    #[unroll]
    for k in 0..owned {
        let column = x + k * line;
        gains[k] = Vector::new(0.0f32);
        grad_weight[k] = Vector::new(0.0f32);
        if column < width {
            gains[k] = weight[column];
        }
    }

    let mut values = Array::<Vector<f32, N>>::new(owned);
    let mut grads = Array::<Vector<f32, N>>::new(owned);
    let elements = f32::cast_from(width * N::value());
    // Every thread of a cube iterates equally often: the sums need all of them.
    let mut first = CUBE_POS * rows_of_cube;
    while first < rows {
        let row = first + y;
        let base = row * width;
        let mut squares = 0.0f32;
        let mut products = 0.0f32;
        #[unroll]
        for k in 0..owned {
            let column = x + k * line;
            values[k] = Vector::new(0.0f32);
            grads[k] = Vector::new(0.0f32);
            if row < rows && column < width {
                let value = sum[base + column];
                let grad = Vector::<f32, N>::cast_from(grad_normed[base + column]);
                values[k] = value;
                grads[k] = grad;
                squares += lane_sum::<N>(value * value);
                products += lane_sum::<N>(grad * gains[k] * value);
            }
        }
        let squares = line_sum(squares, &mut shared, config);
        let products = line_sum(products, &mut shared, config);
        let scale = 1.0f32 / f32::sqrt(squares / elements + epsilon);
        let pull = products * scale * scale * scale / elements;
        #[unroll]
        for k in 0..owned {
            let column = x + k * line;
            grad_weight[k] += grads[k] * values[k] * Vector::new(scale);
            if row < rows && column < width {
                let mut grad =
                    grads[k] * gains[k] * Vector::new(scale) - values[k] * Vector::new(pull);
                if comptime!(has_grad_sum) {
                    grad += grad_sum[base + column];
                }
                grad_out[base + column] = grad;
                if comptime!(write_x) {
                    if comptime!(has_factors) {
                        grad = scaled::<F, N>(grad, row, factors, images, ptx);
                    }
                    grad_x[base + column] = Vector::cast_from(grad);
                }
            }
        }
        first += cubes * rows_of_cube;
    }

    let mut lines = Shared::<[Vector<f32, N>]>::new_slice(CUBE);
    add_lines::<N>(&grad_weight, &mut lines, partials, CUBE_POS, width, cubes, config);
}

/// Writes the sum of a cube's lines, in their order, into `row` of `partials`.
#[cube]
pub(crate) fn add_lines<N: Size>(
    values: &Array<Vector<f32, N>>,
    lines: &mut [Vector<f32, N>],
    partials: &mut [Vector<f32, N>],
    row: usize,
    width: usize,
    cubes: usize,
    #[comptime] config: NormConfig,
) {
    let line = comptime!(config.line);
    let (x, y) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    #[unroll]
    for k in 0..comptime!(config.owned) {
        lines[y * line + x] = values[k];
        sync_cube();
        let column = x + k * line;
        if y == 0 && column < width && CUBE_POS < cubes {
            let mut total = Vector::<f32, N>::new(0.0f32);
            #[unroll]
            for of in 0..comptime!(config.rows()) {
                total += lines[of * line + x];
            }
            partials[row * width + column] = total;
        }
        sync_cube();
    }
}
