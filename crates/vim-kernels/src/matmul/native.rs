//! The linear map on a CPU, behind Burn's Flex backend: rayon over blocks of tokens.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use rayon::prelude::*;

use super::{LinearArguments, LinearSpec};
use crate::native::product::{Matrix, multiply};
use crate::native::slices::{add, contiguous, slice, tensor};
use crate::op::{Forward, FusedOp, Tensors};

/// Tokens of a block, the unit of parallel work of `x · weight` and of its adjoint.
const BLOCK: usize = 256;
/// Most parts of a weight's gradient, each as large as the weight.
const MOST_PARTS: usize = 16;

impl FusedOp<Flex, 3, 0> for LinearSpec {
    type Inputs = LinearArguments<Flex>;
    /// x and the weight.
    type Saved = [FloatTensor<Flex>; 2];

    fn forward(
        self,
        arguments: LinearArguments<Flex>,
        save: bool,
    ) -> Forward<Flex, Self::Saved, 0> {
        let LinearArguments { x, weight, bias } = arguments.map(|t| contiguous(&t));
        let [batch, len, width] = x.shape().dims();
        let [_, columns] = weight.shape().dims();
        let mut y = vec![0.0; batch * len * columns];
        let blocks = y.par_chunks_mut(BLOCK * columns).zip(slice(&x).par_chunks(BLOCK * width));
        blocks.for_each(|(y, x)| {
            if self.has_bias {
                y.chunks_exact_mut(columns).for_each(|row| row.copy_from_slice(slice(&bias)));
            }
            let x = Matrix::dense(x, [x.len() / width, width]);
            let weight = Matrix::dense(slice(&weight), [width, columns]);
            multiply(x, weight, y, columns, self.has_bias);
        });
        (tensor(y, &[batch, len, columns]), [], save.then_some([x, weight]))
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        [x, weight]: Self::Saved,
        [wants_x, ..]: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        let grad = contiguous(&grad);
        let ([batch, len, width], [_, columns]) = (x.shape().dims(), weight.shape().dims());
        let grad_x = wants_x.then(|| {
            let mut grad_x = vec![0.0; batch * len * width];
            let grads = slice(&grad).par_chunks(BLOCK * columns);
            grad_x.par_chunks_mut(BLOCK * width).zip(grads).for_each(|(grad_x, grad)| {
                let grad = Matrix::dense(grad, [grad.len() / columns, columns]);
                let weight = Matrix::dense(slice(&weight), [width, columns]);
                multiply(grad, weight.transposed(), grad_x, width, false);
            });
            tensor(grad_x, &[batch, len, width])
        });
        // Parts by the sizes alone, added in their order, whatever the number of threads.
        let part = (batch * len).div_ceil(MOST_PARTS).max(BLOCK);
        let parts: Vec<[Vec<f32>; 2]> = slice(&x)
            .par_chunks(part * width)
            .zip(slice(&grad).par_chunks(part * columns))
            .map(|(x, grad)| {
                let mut of_weight = vec![0.0; width * columns];
                let rows = grad.len() / columns;
                let x = Matrix::dense(x, [rows, width]);
                let grads = Matrix::dense(grad, [rows, columns]);
                multiply(x.transposed(), grads, &mut of_weight, columns, false);
                let mut of_bias = vec![0.0; if self.has_bias { columns } else { 0 }];
                if self.has_bias {
                    grad.chunks_exact(columns).for_each(|row| add(&mut of_bias, row));
                }
                [of_weight, of_bias]
            })
            .collect();
        let mut of_weight = vec![0.0; width * columns];
        let mut of_bias = vec![0.0; columns];
        for [weight, bias] in &parts {
            add(&mut of_weight, weight);
            add(&mut of_bias, bias);
        }
        let of_bias = self.has_bias.then(|| tensor(of_bias, &[columns]));
        [grad_x, Some(tensor(of_weight, &[width, columns])), of_bias]
    }
}
