//! Images of another size: bilinear resizing and adaptive average pooling, as products with
//! constant matrices.
//!
//! A row of such a matrix has the taps of one result. The products are exact, differentiable and
//! deterministic on every device, which the bilinear gathers of a backend are not.

use burn::tensor::{Device, Tensor, TensorData};
use vim_kernels::{KernelError, Precision, linear};

/// A constant matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) values: Vec<f32>,
}

impl Matrix {
    fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    /// From an axis of `from` pixels (rows) to one of `to` pixels (columns), bilinearly.
    ///
    /// # Source
    ///
    /// `torch.nn.functional.interpolate(…, mode="bilinear", align_corners=False)`: pixel centres at
    /// half numbers, the first and the last pixel repeated outside.
    pub(crate) fn bilinear(from: usize, to: usize) -> Self {
        let mut matrix = Self::zeros(from, to);
        let scale = from as f64 / to as f64;
        for place in 0..to {
            let centre = ((place as f64 + 0.5) * scale - 0.5).max(0.0);
            let first = (centre as usize).min(from - 1);
            let second = (first + 1).min(from - 1);
            let share = centre - first as f64;
            matrix.values[first * to + place] += (1.0 - share) as f32;
            matrix.values[second * to + place] += share as f32;
        }
        matrix
    }

    /// From the pixels of an image of `from` rows and columns to the means over a grid of
    /// `side · side` windows for each of `sides`, one grid after the other. Windows may overlap.
    ///
    /// # Source
    ///
    /// `torch.nn.functional.adaptive_avg_pool2d`: window `i` of `n` on an axis of `L` pixels is
    /// `⌊i·L/n⌋ .. ⌈(i + 1)·L/n⌉`.
    pub(crate) fn pooling(from: [usize; 2], sides: &[usize]) -> Self {
        let columns = sides.iter().map(|side| side * side).sum();
        let mut matrix = Self::zeros(from[0] * from[1], columns);
        let mut column = 0;
        for &side in sides {
            let window =
                |i: usize, length: usize| i * length / side..((i + 1) * length).div_ceil(side);
            for cell in 0..side * side {
                let (rows, across) = (window(cell / side, from[0]), window(cell % side, from[1]));
                let mean = 1.0 / (rows.len() * across.len()) as f64;
                for pixel in rows.flat_map(|y| across.clone().map(move |x| y * from[1] + x)) {
                    matrix.values[pixel * columns + column] = mean as f32;
                }
                column += 1;
            }
        }
        matrix
    }

    pub(crate) fn transposed(&self) -> Self {
        let (rows, columns) = (self.columns, self.rows);
        let at = |row: usize, column: usize| self.values[column * self.columns + row];
        let values = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Self { rows, columns, values: values.map(|(row, column)| at(row, column)).collect() }
    }

    /// The columns `first .. first + count`.
    pub(crate) fn narrow(&self, first: usize, count: usize) -> Self {
        let rows = self.values.chunks_exact(self.columns);
        let values = rows.flat_map(|row| row[first..first + count].iter().copied()).collect();
        Self { rows: self.rows, columns: count, values }
    }

    /// `x · self` over the last axis of `x`, `[.., rows]`, in f32.
    pub(crate) fn apply<const R: usize>(&self, x: Tensor<R>) -> Result<Tensor<R>, KernelError> {
        let mut dims = x.dims();
        let others: usize = dims[..R - 1].iter().product();
        let weight = self.on(&x.device());
        let x = x.reshape([1, others, self.rows]);
        dims[R - 1] = self.columns;
        Ok(linear(x, weight, None, Precision::F32)?.reshape(dims))
    }

    fn on(&self, device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(self.values.clone(), [self.rows, self.columns]), device)
    }
}

/// Resizes images bilinearly, without antialiasing, pixel centres at half numbers
/// (`align_corners=False`). Differentiable; in f32.
///
/// # Shapes
///
/// - `x`: `[B, h, w, C]`
/// - result: `[B, H, W, C]` of the size `to`
///
/// # Errors
///
/// [`KernelError::TooLarge`] on a GPU.
pub fn resize(x: Tensor<4>, to: [usize; 2]) -> Result<Tensor<4>, KernelError> {
    let [_, height, width, _] = x.dims();
    if [height, width] == to {
        return Ok(x);
    }
    let (rows, columns) = (Matrix::bilinear(height, to[0]), Matrix::bilinear(width, to[1]));
    let x = rows.apply(x.permute([0, 3, 2, 1]))?; // [B, C, w, H]
    let x = columns.apply(x.swap_dims(2, 3))?; // [B, C, H, W]
    Ok(x.permute([0, 2, 3, 1]))
}

/// The means of images over grids of windows, one grid for each of `sides`.
///
/// # Shapes
///
/// - `x`: `[B, h, w, C]`
/// - results: `[B, side, side, C]`
///
/// # Errors
///
/// [`KernelError::TooLarge`] on a GPU.
pub(crate) fn adaptive_pool<const N: usize>(
    x: Tensor<4>,
    sides: [usize; N],
) -> Result<[Tensor<4>; N], KernelError> {
    let [batch, height, width, channels] = x.dims();
    let matrix = Matrix::pooling([height, width], &sides);
    let pixels = x.reshape([batch, height * width, channels]).swap_dims(1, 2);
    let pooled = matrix.apply(pixels)?.swap_dims(1, 2); // [B, cells, C]
    let mut first = 0;
    Ok(sides.map(|side| {
        let cells = pooled.clone().narrow(1, first, side * side);
        first += side * side;
        cells.reshape([batch, side, side, channels])
    }))
}

/// The largest of every 2×2 pixels, for each channel; a last row or column without a pair is left
/// out.
///
/// # Shapes
///
/// - `x`: `[B, h, w, C]`
/// - result: `[B, ⌊h/2⌋, ⌊w/2⌋, C]`
pub(crate) fn max_pool(x: Tensor<4>) -> Tensor<4> {
    let [batch, height, width, channels] = x.dims();
    let (rows, columns) = (height / 2, width / 2);
    let x = x.slice([0..batch, 0..2 * rows, 0..2 * columns, 0..channels]);
    let x = x.reshape([batch * rows, 2, columns, 2, channels]);
    x.max_dim(1).max_dim(3).reshape([batch, rows, columns, channels])
}
