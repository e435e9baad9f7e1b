//! Residual addition and root-mean-square normalization on a CPU, behind Burn's Flex backend: rayon
//! over blocks of rows.

use burn::backend::{Flex, TensorMetadata, tensor::FloatTensor};
use burn::tensor::DType;
use rayon::prelude::*;

use super::{NormAdjoint, NormArguments, NormBackend, NormResults, NormSpec, Saved, scaled};
use vim_kernels_core::Real;
use vim_kernels_core::native::lanes::{LANES, Lanes};
use vim_kernels_core::native::slices::{contiguous, slice, tensor, tensor_as};
use vim_kernels_core::native::{Kernel, widest};
use vim_kernels_core::op::Tensors;

impl NormBackend for Flex {
    fn add_rms_norm(inputs: NormArguments<Self>, spec: NormSpec) -> NormResults<Self> {
        let dtype = inputs.x.dtype();
        let x = scaled::<Self>(inputs.x, inputs.factors.clone(), spec);
        let NormArguments { x, residual, weight, .. } =
            NormArguments { x, ..inputs }.map(|t| contiguous(&t));
        let shape = x.shape();
        let sum =
            if spec.has_residual { tensor(add(slice(&x), slice(&residual)), &shape) } else { x };
        let norm = Norm { weight: slice(&weight), epsilon: spec.epsilon };
        let normed = forward(norm, slice(&sum));
        NormResults { normed: tensor_as(normed, &shape, dtype), sum }
    }
}

impl NormAdjoint for Flex {
    fn adjoint(
        saved: Saved<Self>,
        grad_normed: FloatTensor<Self>,
        grad_sum: Option<FloatTensor<Self>>,
        wants_weight: bool,
    ) -> [Option<FloatTensor<Self>>; 3] {
        let (spec, dtype) = (saved.spec, saved.dtype);
        let [grad_normed, sum, weight] = [&grad_normed, &saved.sum, &saved.weight].map(contiguous);
        let grad_sum = grad_sum.map(|t| contiguous(&t));
        let norm = Norm { weight: slice(&weight), epsilon: spec.epsilon };
        let (grad, grad_weight) =
            backward(norm, slice(&sum), slice(&grad_normed), grad_sum.as_ref().map(slice));
        let shape = sum.shape();
        let x = (dtype != DType::F32).then(|| tensor_as(grad.clone(), &shape, dtype));
        let sum = tensor(grad, &shape);
        let of_weight = || tensor(grad_weight, &weight.shape().dims::<1>());
        let of_x = saved.of_x(x.unwrap_or_else(|| sum.clone()));
        [Some(of_x), Some(sum), wants_weight.then(of_weight)]
    }
}

/// Rows of a block, the unit of parallel work. Constant, so that the weight's gradient does not
/// depend on the number of threads.
const BLOCK: usize = 64;

/// Weight and epsilon of the norm.
#[derive(Clone, Copy)]
struct Norm<'a> {
    /// `[D]`.
    weight: &'a [f32],
    epsilon: f32,
}

impl Norm<'_> {
    fn block(&self) -> usize {
        BLOCK * self.weight.len()
    }
}

/// `x + residual`, both `[rows, D]`.
fn add(x: &[f32], residual: &[f32]) -> Vec<f32> {
    let mut sum = vec![0.0; x.len()];
    sum.par_iter_mut()
        .zip(x)
        .zip(residual)
        .with_min_len(1 << 14)
        .for_each(|((sum, x), residual)| *sum = x + residual);
    sum
}

/// The rows of `sum [rows, D]`, normalized.
fn forward(norm: Norm<'_>, sum: &[f32]) -> Vec<f32> {
    let mut normed = vec![0.0; sum.len()];
    normed
        .par_chunks_mut(norm.block())
        .zip(sum.par_chunks(norm.block()))
        .for_each(|(normed, sum)| widest(Forward { norm, sum, normed }));
    normed
}

/// The gradients of the sum `[rows, D]`, including the gradient that reaches it directly, and of
/// the weight `[D]`.
fn backward(
    norm: Norm<'_>,
    sum: &[f32],
    grad_normed: &[f32],
    grad_sum: Option<&[f32]>,
) -> (Vec<f32>, Vec<f32>) {
    let mut grad = vec![0.0; sum.len()];
    let block = norm.block();
    let parts: Vec<Vec<f32>> = grad
        .par_chunks_mut(block)
        .enumerate()
        .map(|(i, grad)| {
            let here = i * block..i * block + grad.len();
            widest(Backward {
                norm,
                sum: &sum[here.clone()],
                grad_normed: &grad_normed[here.clone()],
                grad_sum: grad_sum.map(|grad_sum| &grad_sum[here]),
                grad,
            })
        })
        .collect();
    // In block order, whatever the number of threads.
    let mut weight = vec![0.0; norm.weight.len()];
    for part in parts {
        for (total, part) in weight.iter_mut().zip(part) {
            *total += part;
        }
    }
    (grad, weight)
}

/// Σ a·b.
#[inline(always)]
fn dot<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut sum = Lanes::<FMA>::ZERO;
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sum = Lanes::load(a).fma(Lanes::load(b), sum);
    }
    sum.sum()
}

/// 1/sqrt(mean(row²) + epsilon).
#[inline(always)]
fn scale<const FMA: bool>(row: &[f32], epsilon: f32) -> f32 {
    1.0 / (dot::<FMA>(row, row) / row.len() as f32 + epsilon).sqrt()
}

struct Forward<'a> {
    norm: Norm<'a>,
    sum: &'a [f32],
    normed: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Norm { weight, epsilon } = self.norm;
        let d_model = weight.len();
        for (row, normed) in self.sum.chunks(d_model).zip(self.normed.chunks_mut(d_model)) {
            let scale = f64::from(scale::<FMA>(row, epsilon));
            let lanes = row.chunks(LANES).zip(weight.chunks(LANES));
            for ((row, weight), normed) in lanes.zip(normed.chunks_mut(LANES)) {
                let row = Lanes::<FMA>::load(row).scale(scale);
                (row * Lanes::load(weight)).store(normed);
            }
        }
    }
}

struct Backward<'a> {
    norm: Norm<'a>,
    sum: &'a [f32],
    grad_normed: &'a [f32],
    grad_sum: Option<&'a [f32]>,
    grad: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    /// The gradient of the weight `[D]`.
    type Output = Vec<f32>;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Vec<f32> {
        let Norm { weight, epsilon } = self.norm;
        let d_model = weight.len();
        let mut grad_weight = vec![0.0; d_model];
        for row in 0..self.sum.len() / d_model {
            let here = row * d_model..(row + 1) * d_model;
            let sum = &self.sum[here.clone()];
            let grad_normed = &self.grad_normed[here.clone()];
            let scale = scale::<FMA>(sum, epsilon);
            let mut products = Lanes::<FMA>::ZERO;
            for at in (0..d_model).step_by(LANES) {
                let to = (at + LANES).min(d_model);
                let grad = Lanes::load(&grad_normed[at..to]);
                let value = Lanes::load(&sum[at..to]);
                products = (grad * Lanes::load(&weight[at..to])).fma(value, products);
                let by_weight =
                    Lanes::load(&grad_weight[at..to]) + grad * value * Lanes::splat(scale);
                by_weight.store(&mut grad_weight[at..to]);
            }
            let pull = -products.sum() * scale * scale * scale / d_model as f32;
            let out = &mut self.grad[here.clone()];
            for at in (0..d_model).step_by(LANES) {
                let to = (at + LANES).min(d_model);
                let direct = Lanes::load(&grad_normed[at..to]) * Lanes::load(&weight[at..to]);
                let mut grad = direct * Lanes::splat(scale);
                grad = Lanes::load(&sum[at..to]).fma(Lanes::splat(pull), grad);
                if let Some(grad_sum) = self.grad_sum {
                    grad += Lanes::<FMA>::load(&grad_sum[here.start + at..here.start + to]);
                }
                grad.store(&mut out[at..to]);
            }
        }
        grad_weight
    }
}
