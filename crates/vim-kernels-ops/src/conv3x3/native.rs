//! The 3×3 convolution on a CPU, behind Burn's Flex backend: products of gathered rows, of which a
//! bounded number is in memory at once.

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use rayon::prelude::*;

use super::{Conv3x3Arguments, Conv3x3Spec, Images, TAPS, gathered_rows};
use vim_kernels_core::native::slices::{contiguous, slice, tensor, tensor_as};
use vim_kernels_core::op::{self, FusedOp};

impl FusedOp<Flex, 3, 0> for Conv3x3Spec {
    type Inputs = Conv3x3Arguments<Flex>;
    /// x and the weight.
    type Saved = [FloatTensor<Flex>; 2];

    fn forward(
        self,
        arguments: Conv3x3Arguments<Flex>,
        save: bool,
    ) -> op::Forward<Flex, Self::Saved, 0> {
        let [x, weight] = [&arguments.x, &arguments.weight].map(contiguous);
        let images = Images::new(x.shape().dims());
        let [_, outputs] = weight.shape().dims();
        let mut y = convolve(slice(&x), images, &weight);
        if self.has_bias {
            let bias = contiguous(&arguments.bias);
            y.par_chunks_mut(outputs).with_min_len(1 << 8).for_each(|pixel| {
                pixel.iter_mut().zip(slice(&bias)).for_each(|(y, bias)| *y += bias);
            });
        }
        let Images { batch, height, width, .. } = images;
        let y = tensor(y, &[batch, height, width, outputs]);
        (y, [], save.then_some([arguments.x, arguments.weight]))
    }

    fn backward(
        self,
        grad_y: FloatTensor<Flex>,
        [x, weight]: [FloatTensor<Flex>; 2],
        [wants_x, wants_weight, _]: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        let dtype = x.dtype();
        let [grad_y, x, weight] = [&grad_y, &x, &weight].map(contiguous);
        let images = Images::new(x.shape().dims());
        let [_, outputs] = weight.shape().dims();
        let grad = slice(&grad_y);
        let grad_x = wants_x.then(|| {
            let mirrored = mirrored(slice(&weight), images.channels, outputs);
            let rows = convolve(grad, Images { channels: outputs, ..images }, &mirrored);
            tensor_as(rows, &x.shape(), dtype)
        });
        let grad_weight = wants_weight.then(|| weight_gradient(slice(&x), images, grad, outputs));
        let grad_bias = self.has_bias.then(|| {
            let mut sums = vec![0.0; outputs];
            for pixel in grad.chunks(outputs) {
                sums.iter_mut().zip(pixel).for_each(|(sum, grad)| *sum += grad);
            }
            tensor(sums, &[outputs])
        });
        [grad_x, grad_weight, grad_bias]
    }
}

/// The nine pixels around each pixel from `first` on, `[rows, 9·C]`, zeros beyond the image.
fn gather(x: &[f32], images: Images, first: usize, rows: usize) -> Vec<f32> {
    let Images { height, width, channels, .. } = images;
    let mut gathered = vec![0.0; rows * TAPS * channels];
    gathered.par_chunks_mut(TAPS * channels).with_min_len(64).enumerate().for_each(|(row, to)| {
        let pixel = first + row;
        let (y, x_) = (pixel / width % height, pixel % width);
        for (tap, to) in to.chunks_mut(channels).enumerate() {
            let (down, right) = (tap / 3, tap % 3);
            let inside = (1..=height).contains(&(y + down)) && (1..=width).contains(&(x_ + right));
            if inside {
                let from = pixel + down * width + right - width - 1;
                to.copy_from_slice(&x[from * channels..][..channels]);
            }
        }
    });
    gathered
}

/// The convolution of `x` with `weight [9·C, O]`, `[B, H, W, O]`.
fn convolve(x: &[f32], images: Images, weight: &FloatTensor<Flex>) -> Vec<f32> {
    let [terms, outputs] = weight.shape().dims();
    let most = gathered_rows(images.channels);
    let mut y = Vec::with_capacity(images.pixels() * outputs);
    for first in (0..images.pixels()).step_by(most) {
        let rows = most.min(images.pixels() - first);
        let gathered = tensor(gather(x, images, first, rows), &[rows, terms]);
        let product = contiguous(&Flex::float_matmul(gathered, weight.clone()));
        y.extend_from_slice(slice(&product));
    }
    y
}

/// The weight of the gradient of x, `[9·O, C]`, of `weight [9·C, O]`: the taps in reverse, the
/// matrix of each transposed.
fn mirrored(weight: &[f32], channels: usize, outputs: usize) -> FloatTensor<Flex> {
    let mut mirrored = vec![0.0; weight.len()];
    let size = channels * outputs;
    for (tap, to) in mirrored.chunks_mut(size).enumerate() {
        let from = &weight[(TAPS - 1 - tap) * size..][..size];
        for (o, to) in to.chunks_mut(channels).enumerate() {
            to.iter_mut().enumerate().for_each(|(c, to)| *to = from[c * outputs + o]);
        }
    }
    tensor(mirrored, &[TAPS * outputs, channels])
}

/// The gradient of the weight, `[9·C, O]`: the parts of gathered rows are added in order.
fn weight_gradient(x: &[f32], images: Images, grad: &[f32], outputs: usize) -> FloatTensor<Flex> {
    let terms = TAPS * images.channels;
    let most = gathered_rows(images.channels);
    let mut sum: Option<FloatTensor<Flex>> = None;
    for first in (0..images.pixels()).step_by(most) {
        let rows = most.min(images.pixels() - first);
        let gathered = tensor(gather(x, images, first, rows), &[rows, terms]);
        let grad = tensor(grad[first * outputs..][..rows * outputs].to_vec(), &[rows, outputs]);
        let part = Flex::float_matmul(Flex::float_swap_dims(gathered, 0, 1), grad);
        sum = Some(match sum {
            Some(sum) => Flex::float_add(sum, part),
            None => part,
        });
    }
    let shape = [terms, outputs];
    sum.unwrap_or_else(|| tensor(vec![0.0; terms * outputs], &shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    // A pixel of value 1 + its number: the taps of a corner and of the middle of a 3×3 image.
    #[test]
    fn nine_pixels_are_gathered_with_zeros_around() {
        let x: Vec<f32> = (1..=18_u8).map(f32::from).collect();
        let images = Images::new([2, 3, 3, 1]);
        assert_eq!(gather(&x, images, 0, 1), [0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 4.0, 5.0]);
        let middle: Vec<f32> = (10..=18_u8).map(f32::from).collect();
        assert_eq!(gather(&x, images, 13, 1), middle);
        // The last row of the first image does not see the second.
        let last = gather(&x, images, 8, 1);
        assert_eq!(last, [5.0, 6.0, 0.0, 8.0, 9.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
