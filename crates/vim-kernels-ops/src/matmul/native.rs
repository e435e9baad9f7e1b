//! The linear map on a CPU, behind Burn's Flex backend: rayon over blocks of tokens, or over the
//! columns of a large weight.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use rayon::prelude::*;

use super::{LinearArguments, LinearSpec};
use vim_kernels_core::native::product::{Matrix, multiply, multiply_in_blocks, multiply_large};
use vim_kernels_core::native::slices::{add, contiguous, slice, tensor};
use vim_kernels_core::op::{Forward, FusedOp, Tensors};

/// Most tokens of a block, the unit of parallel work of `x · weight` and of its adjoint, and the
/// fewest, below which a block would spend its time on the weight.
const BLOCK: [usize; 2] = [32, 256];
/// Blocks that few tokens are divided into.
const BLOCKS: usize = 16;
/// Most parts of a weight's gradient, each as large as the weight.
const MOST_PARTS: usize = 16;
/// Elements from which on a weight is large: all threads share its product.
const LARGE: usize = 1 << 18;

/// `lhs · rhs` for each token, added to `out` where `accumulate`.
fn of_tokens(lhs: Matrix<'_>, rhs: Matrix<'_>, out: &mut [f32], accumulate: bool) {
    let ([tokens, _], [_, columns]) = (lhs.size(), rhs.size());
    if rhs.elements() >= LARGE {
        multiply_large(lhs, rhs, out, columns, accumulate);
    } else {
        let [least, most] = BLOCK;
        let block = tokens.div_ceil(BLOCKS).clamp(least, most);
        multiply_in_blocks(block, lhs, rhs, out, columns, accumulate);
    }
}

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
        let tokens = batch * len;
        let mut y = vec![0.0; tokens * columns];
        if self.has_bias {
            y.par_chunks_exact_mut(columns).for_each(|row| row.copy_from_slice(slice(&bias)));
        }
        let rows = Matrix::dense(slice(&x), [tokens, width]);
        let matrix = Matrix::dense(slice(&weight), [width, columns]);
        of_tokens(rows, matrix, &mut y, self.has_bias);
        (tensor(y, &[batch, len, columns]), [], save.then_some([x, weight]))
    }

    fn backward(
        self,
        grad: FloatTensor<Flex>,
        [x, weight]: Self::Saved,
        [wants_x, wants_weight, wants_bias]: [bool; 3],
    ) -> [Option<FloatTensor<Flex>>; 3] {
        let grad = contiguous(&grad);
        let ([batch, len, width], [_, columns]) = (x.shape().dims(), weight.shape().dims());
        let tokens = batch * len;
        let grads = Matrix::dense(slice(&grad), [tokens, columns]);
        let grad_x = wants_x.then(|| {
            let mut grad_x = vec![0.0; tokens * width];
            let weight = Matrix::dense(slice(&weight), [width, columns]);
            of_tokens(grads, weight.transposed(), &mut grad_x, false);
            tensor(grad_x, &[batch, len, width])
        });
        let of_weight = wants_weight.then(|| {
            let of_weight = if width * columns >= LARGE {
                let x = Matrix::dense(slice(&x), [tokens, width]);
                let mut of_weight = vec![0.0; width * columns];
                multiply_large(x.transposed(), grads, &mut of_weight, columns, false);
                of_weight
            } else {
                in_parts(
                    slice(&x),
                    slice(&grad),
                    [width, columns],
                    width * columns,
                    |x, grad, out| {
                        let rows = grad.len() / columns;
                        let x = Matrix::dense(x, [rows, width]);
                        let grad = Matrix::dense(grad, [rows, columns]);
                        multiply(x.transposed(), grad, out, columns, false);
                    },
                )
            };
            tensor(of_weight, &[width, columns])
        });
        let of_bias = (self.has_bias && wants_bias).then(|| {
            let of_bias =
                in_parts(slice(&x), slice(&grad), [width, columns], columns, |_, grad, out| {
                    grad.chunks_exact(columns).for_each(|row| add(out, row));
                });
            tensor(of_bias, &[columns])
        });
        [grad_x, of_weight, of_bias]
    }
}

/// A sum over the tokens of `size` numbers, which `run` makes of a part's x and gradients: in parts
/// by the sizes alone, added in their order, whatever the number of threads.
fn in_parts(
    x: &[f32],
    grad: &[f32],
    [width, columns]: [usize; 2],
    size: usize,
    run: impl Fn(&[f32], &[f32], &mut [f32]) + Sync,
) -> Vec<f32> {
    let part = (x.len() / width).div_ceil(MOST_PARTS).max(BLOCK[1]);
    let parts: Vec<Vec<f32>> = x
        .par_chunks(part * width)
        .zip(grad.par_chunks(part * columns))
        .map(|(x, grad)| {
            let mut out = vec![0.0; size];
            run(x, grad, &mut out);
            out
        })
        .collect();
    let mut sum = vec![0.0; size];
    parts.iter().for_each(|part| add(&mut sum, part));
    sum
}
