//! Layer normalization on a CPU, behind Burn's Flex backend: rayon over blocks of rows.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use rayon::prelude::*;

use super::{LayerNormArguments, LayerNormSpec};
use vim_kernels_core::native::slices::{contiguous, slice, tensor, tensor_as};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Rows of a block, the unit of parallel work. Constant, so that sums do not depend on the number
/// of threads.
const BLOCK: usize = 64;

/// What a row is normalized by.
#[derive(Clone, Copy)]
struct Row {
    mean: f32,
    scale: f32,
}

impl Row {
    fn of(row: &[f32], epsilon: f32) -> Self {
        let count = row.len() as f32;
        let mean = row.iter().sum::<f32>() / count;
        let squares: f32 = row.iter().map(|x| (x - mean) * (x - mean)).sum();
        Self { mean, scale: 1.0 / (squares / count + epsilon).sqrt() }
    }

    fn normed(self, x: f32) -> f32 {
        (x - self.mean) * self.scale
    }
}

impl FusedOp<Flex, 3, 0> for LayerNormSpec {
    type Inputs = LayerNormArguments<Flex>;
    type Saved = [FloatTensor<Flex>; 3];

    fn forward(
        self,
        arguments: LayerNormArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let saved = save.then(|| arguments.clone().into_array());
        let shape = arguments.x.shape();
        let [x, weight, bias] = arguments.into_array().map(|t| contiguous(&t));
        let (x, weight, bias) = (slice(&x), slice(&weight), slice(&bias));
        let channels = weight.len();
        let mut y = vec![0.0; x.len()];
        let rows = y.par_chunks_mut(channels).zip(x.par_chunks(channels)).with_min_len(BLOCK);
        rows.for_each(|(y, x)| {
            let row = Row::of(x, self.epsilon);
            for (((y, &x), weight), bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                let value = row.normed(x) * weight + bias;
                // Not `max`, which would hide a NaN.
                *y = if self.relu && value < 0.0 { 0.0 } else { value };
            }
        });
        (tensor_as(y, &shape, self.to), [], saved)
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        [x, weight, bias]: [FloatTensor<Flex>; 3],
        _wanted: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        let (shape, dtype): (_, DType) = (x.shape(), x.dtype());
        let [grad, x, weight, bias] = [&grad, &x, &weight, &bias].map(contiguous);
        let (grad, x, weight, bias) = (slice(&grad), slice(&x), slice(&weight), slice(&bias));
        let channels = weight.len();
        let mut grad_x = vec![0.0; x.len()];
        let block = BLOCK * channels;
        let parts: Vec<[Vec<f32>; 2]> = grad_x
            .par_chunks_mut(block)
            .zip(x.par_chunks(block))
            .zip(grad.par_chunks(block))
            .map(|((to, x), grad)| self.block(to, x, grad, weight, bias))
            .collect();
        // In block order, whatever the number of threads.
        let mut sums = [vec![0.0; channels], vec![0.0; channels]];
        for part in &parts {
            for (total, part) in sums.iter_mut().zip(part) {
                total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
            }
        }
        let [grad_weight, grad_bias] = sums.map(|sum| tensor(sum, &[channels]));
        [Some(tensor_as(grad_x, &shape, dtype)), Some(grad_weight), Some(grad_bias)]
    }
}

impl LayerNormSpec {
    /// Writes the gradients of a block's rows; returns those of weight and bias.
    fn block(
        self,
        to: &mut [f32],
        x: &[f32],
        grad: &[f32],
        weight: &[f32],
        bias: &[f32],
    ) -> [Vec<f32>; 2] {
        let channels = weight.len();
        let [mut by_weight, mut by_bias] = [(); 2].map(|()| vec![0.0; channels]);
        let rows = to.chunks_mut(channels).zip(x.chunks(channels)).zip(grad.chunks(channels));
        for ((to, x), grad) in rows {
            let row = Row::of(x, self.epsilon);
            let (mut sum, mut along) = (0.0, 0.0);
            for at in 0..channels {
                let normed = row.normed(x[at]);
                let stopped = self.relu && normed * weight[at] + bias[at] <= 0.0;
                let grad = if stopped { 0.0 } else { grad[at] };
                by_weight[at] += grad * normed;
                by_bias[at] += grad;
                to[at] = grad * weight[at];
                sum += to[at];
                along += to[at] * normed;
            }
            let (mean, along) = (sum / channels as f32, along / channels as f32);
            for (to, &x) in to.iter_mut().zip(x) {
                *to = (*to - mean - row.normed(x) * along) * row.scale;
            }
        }
        [by_weight, by_bias]
    }
}
