//! What an optimizer step does to all tensors of a model at once.
//!
//! These three functions are everything that a step computes behind the gradients; the tensors are flat, and
//! in the order of [`Vim::parameters`](vim_model::Vim::parameters). Each is one pass over its arguments, so that an
//! implementation with few launches for all tensors has one place to go.

use burn::tensor::Tensor;
use vim_kernels::{AdamWRule, AdamWTensor, takes_many};

/// A parameter and its moments.
#[derive(Debug)]
pub struct Parameter {
    /// Its numbers.
    pub value: Tensor<1>,
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
}

/// What a step is to do to one parameter.
#[derive(Debug)]
pub struct Update {
    /// As it is before the step.
    pub before: Parameter,
    /// Its gradient.
    pub gradient: Tensor<1>,
    /// Its learning rate.
    pub lr: f64,
    /// Its weight decay, to be multiplied by the learning rate.
    pub weight_decay: f64,
}

/// How gradients are clipped.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one lives at a time, for the length of a call")]
pub enum Clip {
    /// Multiplied by a factor that the host knows.
    By(f64),
    /// Scaled down to a norm of `limit` by the norm whose square, `[1]`, is still on the device. Where that is not finite,
    /// the step changes nothing. Where the device [takes many](vim_kernels::takes_many) tensors at once.
    To {
        /// The square of the norm.
        square_norm: Tensor<1>,
        /// The largest norm.
        limit: Option<f64>,
    },
}

/// What all parameters of a step share.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Decay rates of the two means.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// `1 − betaᵗ` of the two means at the t-th step.
    pub corrections: [f64; 2],
}

/// The sum of the squares of all numbers, `[1]`; `None` of no tensors.
#[must_use]
pub fn sum_of_squares(tensors: &[Tensor<1>]) -> Option<Tensor<1>> {
    if takes_many(&tensors.first()?.device()) {
        return Some(vim_kernels::sum_of_squares(tensors));
    }
    let squares = tensors.iter().map(|tensor| (tensor.clone() * tensor.clone()).sum());
    squares.reduce(|sum, square| sum + square)
}

/// An AdamW step of every parameter.
///
/// # Source
///
/// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
#[must_use]
pub fn adamw(updates: Vec<Update>, rule: Rule, clip: Clip) -> Vec<Parameter> {
    match clip {
        Clip::By(scale) => {
            updates.into_iter().map(|update| adamw_one(update, rule, scale)).collect()
        }
        Clip::To { square_norm, limit } => adamw_at_once(updates, rule, square_norm, limit),
    }
}

/// The same in a few launches.
fn adamw_at_once(
    updates: Vec<Update>,
    rule: Rule,
    square_norm: Tensor<1>,
    limit: Option<f64>,
) -> Vec<Parameter> {
    let Rule { betas, eps, corrections: [first, second] } = rule;
    let tensors = updates.into_iter().map(|Update { before, gradient, lr, weight_decay }| {
        let Parameter { value, first: mean, second: square } = before;
        let (rate, keep) = (lr / first, 1.0 - lr * weight_decay);
        AdamWTensor { value, gradient, first: mean, second: square, rate, keep }
    });
    let rule = AdamWRule { betas, eps, limit, root_scale: second.sqrt().recip() };
    let after = vim_kernels::adamw(tensors.collect(), square_norm, rule).into_iter();
    after.map(|[value, first, second]| Parameter { value, first, second }).collect()
}

fn adamw_one(update: Update, rule: Rule, scale: f64) -> Parameter {
    let Update { before: Parameter { value, first, second }, gradient, lr, weight_decay } = update;
    let Rule { betas: [beta1, beta2], eps, corrections } = rule;
    let gradient = if scale == 1.0 { gradient } else { gradient.mul_scalar(scale) };
    let first = first.mul_scalar(beta1) + gradient.clone().mul_scalar(1.0 - beta1);
    let second = second.mul_scalar(beta2) + (gradient.clone() * gradient).mul_scalar(1.0 - beta2);
    let denominator =
        second.clone().sqrt().mul_scalar(corrections[1].sqrt().recip()).add_scalar(eps);
    let change = (first.clone() / denominator).mul_scalar(lr / corrections[0]);
    let decay = 1.0 - lr * weight_decay;
    let value = if decay == 1.0 { value } else { value.mul_scalar(decay) };
    Parameter { value: value - change, first, second }
}

/// The moving average one step on: `decay · average + (1 − decay) · value`. With the square of the gradient's norm, `[1]`, on a
/// device that [takes many](vim_kernels::takes_many) tensors at once: nothing changes where that is not finite.
///
/// # Source
///
/// timm's `ModelEma`.
#[must_use]
pub fn ema(
    averages: Vec<Tensor<1>>,
    values: Vec<Tensor<1>>,
    square_norm: Option<Tensor<1>>,
    decay: f64,
) -> Vec<Tensor<1>> {
    let pairs = averages.into_iter().zip(values);
    if let Some(square_norm) = square_norm {
        let pairs = pairs.map(<[_; 2]>::from).collect();
        return vim_kernels::moving_average(pairs, square_norm, decay);
    }
    pairs
        .map(|(average, value)| average.mul_scalar(decay) + value.mul_scalar(1.0 - decay))
        .collect()
}
