//! Images of another size: bilinear resizing, and pooling of averages and of largest numbers.

use burn::tensor::{Tensor, TensorData};
use vim_kernels::{KernelChoice, KernelError, Precision, linear};

/// Images of the size `to`, by [`vim_kernels::resize`]; those that have it as they are.
///
/// # Shapes
///
/// - `x`: `[B, h, w, C]`
/// - result: `[B, H, W, C]`
///
/// # Errors
///
/// As [`vim_kernels::resize`].
pub fn resize(x: Tensor<4>, to: [usize; 2]) -> Result<Tensor<4>, KernelError> {
    let [_, height, width, _] = x.dims();
    if [height, width] == to { Ok(x) } else { vim_kernels::resize(x, to, KernelChoice::Auto) }
}

/// The means of images over grids of windows, one grid for each of `sides`, in f32. It is a product
/// with a constant matrix: differentiable, and summed in the same order every time.
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
    let cells: usize = sides.iter().map(|side| side * side).sum();
    let means = pooling_means([height, width], &sides);
    let means = TensorData::new(means, [height * width, cells]);
    let means = Tensor::<2>::from_data(means, &x.device());
    let pixels = x.reshape([batch, height * width, channels]).swap_dims(1, 2);
    let pixels = pixels.reshape([1, batch * channels, height * width]);
    let pooled = linear(pixels, means, None, Precision::F32)?;
    let pooled = pooled.reshape([batch, channels, cells]).swap_dims(1, 2);
    let mut first = 0;
    Ok(sides.map(|side| {
        let grid = pooled.clone().narrow(1, first, side * side);
        first += side * side;
        grid.reshape([batch, side, side, channels])
    }))
}

/// The matrix from the pixels of an image of `from` rows and columns to the means over a grid of
/// `side · side` windows for each of `sides`, one grid after the other, row by row: `[h·w, cells]`.
/// Windows may overlap.
///
/// # Source
///
/// `torch.nn.functional.adaptive_avg_pool2d`: window `i` of `n` on an axis of `L` pixels is
/// `⌊i·L/n⌋ .. ⌈(i + 1)·L/n⌉`.
#[must_use]
pub fn pooling_means(from: [usize; 2], sides: &[usize]) -> Vec<f32> {
    let pixels = from[0] * from[1];
    let cells: usize = sides.iter().map(|side| side * side).sum();
    let mut values = vec![0.0_f32; pixels * cells];
    let mut column = 0;
    for &side in sides {
        let window = |i: usize, length: usize| i * length / side..((i + 1) * length).div_ceil(side);
        for cell in 0..side * side {
            let (rows, across) = (window(cell / side, from[0]), window(cell % side, from[1]));
            let mean = 1.0 / (rows.len() * across.len()) as f64;
            for pixel in rows.flat_map(|y| across.clone().map(move |x| y * from[1] + x)) {
                values[pixel * cells + column] = mean as f32;
            }
            column += 1;
        }
    }
    values
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
