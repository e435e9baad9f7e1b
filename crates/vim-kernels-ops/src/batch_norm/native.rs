//! The two parts of batch norm on a CPU, behind Burn's Flex backend: rayon over blocks of rows.

use std::ops::Range;

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::{DType, Shape};
use rayon::prelude::*;

use super::{ChannelSumsArguments, ChannelSumsSpec, ScaleShiftArguments, ScaleShiftSpec};
use vim_kernels_core::native::slices::{contiguous, slice, tensor, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Rows of a block, the unit of parallel work. Constant, so that sums do not depend on the number
/// of threads.
const BLOCK: usize = 256;

/// An array of `count` elements, and the sums over rows of two numbers of each, `[2, C]`: of every
/// block in f32, and of the blocks in their order in f64. `fill` is given where the elements of a
/// row are, the row, and the sums of the channels, to which it adds.
fn elements_and_sums(
    count: usize,
    channels: usize,
    fill: impl Fn(Range<usize>, &mut [f32], &mut [f32], &mut [f32]) + Sync,
) -> (Vec<f32>, FloatTensor<Flex>) {
    let mut all = vec![0.0; count];
    let parts = all.par_chunks_mut(BLOCK * channels).enumerate();
    let blocks: Vec<Vec<f32>> = parts
        .map(|(block, part)| {
            let mut sums = vec![0.0; 2 * channels];
            let (one, two) = sums.split_at_mut(channels);
            for (row, part) in part.chunks_mut(channels).enumerate() {
                let first = (block * BLOCK + row) * channels;
                fill(first..first + channels, part, one, two);
            }
            sums
        })
        .collect();
    (all, total(blocks, channels))
}

/// The sums of blocks in their order, `[2, C]`.
fn total(blocks: Vec<Vec<f32>>, channels: usize) -> FloatTensor<Flex> {
    let mut total = vec![0.0; 2 * channels];
    for block in blocks {
        total.iter_mut().zip(block).for_each(|(total, sum)| *total += f64::from(sum));
    }
    tensor(total.into_iter().map(|sum| sum as f32).collect(), &[2, channels])
}

/// An array of `count` elements; `fill` is given where those of a row are, and the row.
fn elements(
    count: usize,
    channels: usize,
    fill: impl Fn(Range<usize>, &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut all = vec![0.0; count];
    all.par_chunks_mut(BLOCK * channels).enumerate().for_each(|(block, part)| {
        for (row, part) in part.chunks_mut(channels).enumerate() {
            let first = (block * BLOCK + row) * channels;
            fill(first..first + channels, part);
        }
    });
    all
}

/// Channels of `[.., C]`.
fn last_of(shape: &Shape) -> usize {
    shape.last().copied().unwrap_or_default()
}

impl FusedOp<Flex, 1, 0> for ChannelSumsSpec {
    type Inputs = ChannelSumsArguments<Flex>;
    type Saved = FloatTensor<Flex>;

    fn forward(
        self,
        ChannelSumsArguments { x }: ChannelSumsArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let channels = last_of(&x.shape());
        let values = contiguous(&x);
        let values = slice(&values);
        let blocks: Vec<Vec<f32>> = values
            .par_chunks(BLOCK * channels)
            .map(|block| {
                let mut sums = vec![0.0; 2 * channels];
                let (first, second) = sums.split_at_mut(channels);
                for row in block.chunks(channels) {
                    for ((first, second), x) in first.iter_mut().zip(&mut *second).zip(row) {
                        *first += x;
                        *second += x * x;
                    }
                }
                sums
            })
            .collect();
        let sums = total(blocks, channels);
        (sums, [], save.then_some(x))
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        x: FloatTensor<Flex>,
        _wanted: [bool; 1],
    ) -> [Option<FloatTensor<Flex>>; 1] {
        let dtype: DType = x.dtype();
        let shape = x.shape();
        let channels = last_of(&shape);
        let [grad, x] = [&grad, &x].map(contiguous);
        let (first, second) = slice(&grad).split_at(channels);
        let x = slice(&x);
        let grad = elements(x.len(), channels, |at, row| {
            for (((grad, x), first), second) in row.iter_mut().zip(&x[at]).zip(first).zip(second) {
                *grad = first + 2.0 * x * second;
            }
        });
        [Some(tensor_as(grad, &shape, dtype))]
    }
}

impl FusedOp<Flex, 3, 0> for ScaleShiftSpec {
    type Inputs = ScaleShiftArguments<Flex>;
    type Saved = [FloatTensor<Flex>; 3];

    fn forward(
        self,
        arguments: ScaleShiftArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let saved = save.then(|| arguments.clone().into_array());
        let (shape, dtype) = (arguments.x.shape(), arguments.x.dtype());
        let [x, scale, shift] = arguments.into_array().map(|t| contiguous(&t));
        let (x, scale, shift) = (slice(&x), slice(&scale), slice(&shift));
        let y = elements(x.len(), scale.len(), |at, row| {
            for (((y, x), scale), shift) in row.iter_mut().zip(&x[at]).zip(scale).zip(shift) {
                let value = x * scale + shift;
                // Not `max`, which would hide a NaN.
                *y = if self.relu && value < 0.0 { 0.0 } else { value };
            }
        });
        (tensor_as(y, &shape, dtype), [], saved)
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        [x, scale, shift]: [FloatTensor<Flex>; 3],
        _wanted: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        let (shape, dtype): (_, DType) = (x.shape(), x.dtype());
        let [grad, x, scale, shift] = [&grad, &x, &scale, &shift].map(contiguous);
        let (grad, x, scale, shift) = (slice(&grad), slice(&x), slice(&scale), slice(&shift));
        let channels = scale.len();
        // The gradient before the ReLU.
        let passed = |grad: f32, x: f32, scale: f32, shift: f32| {
            if self.relu && x * scale + shift <= 0.0 { 0.0 } else { grad }
        };
        let (grad_x, both) = elements_and_sums(x.len(), channels, |at, row, first, second| {
            let inputs = grad[at.clone()].iter().zip(&x[at]).zip(scale).zip(shift);
            let to = row.iter_mut().zip(first).zip(second);
            for (((to, first), second), (((grad, x), scale), shift)) in to.zip(inputs) {
                let grad = passed(*grad, *x, *scale, *shift);
                *to = grad * scale;
                *first += grad * x;
                *second += grad;
            }
        });
        let grad_x = tensor_as(grad_x, &shape, dtype);
        let (grad_scale, grad_shift) = slice(&both).split_at(channels);
        let channels = [grad_scale, grad_shift].map(|sum| tensor(sum.to_vec(), &[channels]));
        let [grad_scale, grad_shift] = channels;
        [Some(grad_x), Some(grad_scale), Some(grad_shift)]
    }
}
