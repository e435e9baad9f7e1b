//! Bilinear interpolation on a CPU, behind Burn's Flex backend: rayon over the rows of images.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use rayon::prelude::*;

use super::axis::{end_of_readers, first_reader, lower_and_share, share_in};
use super::{ResizeArguments, ResizeSpec};
use vim_kernels_core::native::slices::{contiguous, slice, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp};

impl FusedOp<Flex, 1, 0> for ResizeSpec {
    type Inputs = ResizeArguments<Flex>;
    /// The shape and the type of x.
    type Saved = ([usize; 4], DType);

    fn forward(
        self,
        ResizeArguments { x }: ResizeArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let (from, dtype) = (x.shape().dims::<4>(), x.dtype());
        let x = contiguous(&x);
        let [batch, .., channels] = from;
        let y = forward(slice(&x), from, self.to);
        let y = tensor_as(y, &[batch, self.to[0], self.to[1], channels], dtype);
        (y, [], save.then_some((from, dtype)))
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        (from, dtype): Self::Saved,
        _wanted: [bool; 1],
    ) -> [Option<FloatTensor<Flex>>; 1] {
        let grad_y = contiguous(&grad_y);
        [Some(tensor_as(backward(slice(&grad_y), from, self.to), &from, dtype))]
    }
}

/// `to += from·share`.
fn add(to: &mut [f32], from: &[f32], share: f32) {
    if share != 0.0 {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from * share);
    }
}

fn forward(x: &[f32], from: [usize; 4], [rows, columns]: [usize; 2]) -> Vec<f32> {
    let [batch, height, width, channels] = from;
    let mut y = vec![0.0; batch * rows * columns * channels];
    y.par_chunks_mut(columns * channels).enumerate().for_each(|(at, y)| {
        let (image, row) = (at / rows, at % rows);
        let (upper, down) = lower_and_share(row as u32, height as u32, rows as u32);
        let upper = upper as usize;
        let line = |row: usize| &x[(image * height + row) * width * channels..][..width * channels];
        let lines = [(line(upper), 1.0 - down), (line((upper + 1).min(height - 1)), down)];
        for (column, y) in y.chunks_mut(channels).enumerate() {
            let (left, share) = lower_and_share(column as u32, width as u32, columns as u32);
            let left = left as usize;
            let right = (left + 1).min(width - 1);
            for (line, of_line) in lines {
                add(y, &line[left * channels..][..channels], of_line * (1.0 - share));
                add(y, &line[right * channels..][..channels], of_line * share);
            }
        }
    });
    y
}

fn backward(grad_y: &[f32], from: [usize; 4], [rows, columns]: [usize; 2]) -> Vec<f32> {
    let [batch, height, width, channels] = from;
    let mut grad = vec![0.0; batch * height * width * channels];
    grad.par_chunks_mut(width * channels).enumerate().for_each(|(at, grad)| {
        let (image, i) = (at / height, at % height);
        let down = readers(i, height, rows);
        for (j, grad) in grad.chunks_mut(channels).enumerate() {
            let across = readers(j, width, columns);
            for (row, of_row) in down.clone() {
                for (column, of_column) in across.clone() {
                    let reader = ((image * rows + row) * columns + column) * channels;
                    add(grad, &grad_y[reader..][..channels], of_row * of_column);
                }
            }
        }
    });
    grad
}

/// The pixels of `to` that read pixel `at` of `from`, and its share in each.
pub(crate) fn readers(
    at: usize,
    from: usize,
    to: usize,
) -> impl Iterator<Item = (usize, f32)> + Clone {
    let [at, from, to] = [at, from, to].map(|n| n as u32);
    (first_reader(at, from, to)..end_of_readers(at, from, to)).map(move |reader| {
        let (lower, upper_share) = lower_and_share(reader, from, to);
        (reader as usize, share_in(at, from, lower, upper_share))
    })
}
