//! The two parts of batch norm on a CPU, behind Burn's Flex backend: rayon over blocks of rows.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use rayon::prelude::*;

use super::{ChannelSumsArguments, ChannelSumsSpec, ScaleShiftArguments, ScaleShiftSpec};
use crate::native::slices::{contiguous, slice, tensor, tensor_as};
use crate::op::{Forward, FusedOp, Tensors};

/// Rows of a block, the unit of parallel work. Constant, so that sums do not depend on the number
/// of threads.
const BLOCK: usize = 256;

/// The sums over rows of two numbers of each element, `[2, C]`: of every block in f32, and of the
/// blocks in their order in f64. `of` is given the element's index and its channel.
fn sums(
    count: usize,
    channels: usize,
    of: impl Fn(usize, usize) -> [f32; 2] + Sync,
) -> FloatTensor<Flex> {
    let rows = count / channels;
    let blocks: Vec<Vec<f32>> = (0..rows.div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let mut sums = vec![0.0; 2 * channels];
            let (first, second) = sums.split_at_mut(channels);
            for row in block * BLOCK..((block + 1) * BLOCK).min(rows) {
                let pairs = first.iter_mut().zip(second.iter_mut());
                for (channel, (first, second)) in pairs.enumerate() {
                    let [one, two] = of(row * channels + channel, channel);
                    *first += one;
                    *second += two;
                }
            }
            sums
        })
        .collect();
    let mut total = vec![0.0; 2 * channels];
    for block in blocks {
        total.iter_mut().zip(block).for_each(|(total, sum)| *total += f64::from(sum));
    }
    tensor(total.into_iter().map(|sum| sum as f32).collect(), &[2, channels])
}

/// An array of `count` elements, of each of which `of` is given the index and the channel.
fn elements(count: usize, channels: usize, of: impl Fn(usize, usize) -> f32 + Sync) -> Vec<f32> {
    let mut all = vec![0.0; count];
    all.par_chunks_mut(BLOCK * channels).enumerate().for_each(|(block, part)| {
        for (row, part) in part.chunks_mut(channels).enumerate() {
            let first = (block * BLOCK + row) * channels;
            for (channel, value) in part.iter_mut().enumerate() {
                *value = of(first + channel, channel);
            }
        }
    });
    all
}

impl FusedOp<Flex, 1, 0> for ChannelSumsSpec {
    type Inputs = ChannelSumsArguments<Flex>;
    type Saved = FloatTensor<Flex>;

    fn forward(
        self,
        ChannelSumsArguments { x }: ChannelSumsArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let [_, channels] = x.shape().dims();
        let values = contiguous(&x);
        let values = slice(&values);
        let sums = sums(values.len(), channels, |at, _| [values[at], values[at] * values[at]]);
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
        let [_, channels] = shape.dims();
        let [grad, x] = [&grad, &x].map(contiguous);
        let (first, second) = slice(&grad).split_at(channels);
        let x = slice(&x);
        let of = |at: usize, channel: usize| first[channel] + 2.0 * x[at] * second[channel];
        [Some(tensor_as(elements(x.len(), channels, of), &shape, dtype))]
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
        let of = |at: usize, channel: usize| {
            let y = x[at] * scale[channel] + shift[channel];
            // Not `max`, which would hide a NaN.
            if self.relu && y < 0.0 { 0.0 } else { y }
        };
        (tensor_as(elements(x.len(), scale.len(), of), &shape, dtype), [], saved)
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
        let passed = |at: usize, channel: usize| {
            let stopped = self.relu && x[at] * scale[channel] + shift[channel] <= 0.0;
            if stopped { 0.0 } else { grad[at] }
        };
        let of = |at: usize, channel: usize| passed(at, channel) * scale[channel];
        let grad_x = tensor_as(elements(x.len(), channels, of), &shape, dtype);
        let both = sums(x.len(), channels, |at, channel| {
            let grad = passed(at, channel);
            [grad * x[at], grad]
        });
        let (grad_scale, grad_shift) = slice(&both).split_at(channels);
        let channels = [grad_scale, grad_shift].map(|sum| tensor(sum.to_vec(), &[channels]));
        let [grad_scale, grad_shift] = channels;
        [Some(grad_x), Some(grad_scale), Some(grad_shift)]
    }
}
