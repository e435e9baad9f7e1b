//! The arithmetic of an optimizer step, tensor by tensor.
//!
//! The tensors are flat, in the order of [`super::flat`]. Where a device
//! [updates many](vim_kernels::supports_multi_tensor) at once, [`FlatParams`](vim_kernels::FlatParams) does the same.

use burn::tensor::Tensor;
use vim_kernels::supports_multi_tensor;

/// A parameter and its moments.
#[derive(Debug)]
pub struct Parameter {
    /// Its value.
    pub value: Tensor<1>,
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
}

/// A parameter before a step, and how the step updates it.
#[derive(Debug)]
pub struct Update {
    /// Value and moments before the step.
    pub before: Parameter,
    /// Its gradient.
    pub gradient: Tensor<1>,
    /// Its learning rate.
    pub lr: f64,
    /// Its weight decay; the step multiplies it by the learning rate.
    pub weight_decay: f64,
}

/// The numbers that all parameters of a step share.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Decay rates of the two means.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// `1 − betaᵗ` of the two means at the t-th step.
    pub corrections: [f64; 2],
}

/// The sum of the squares of all elements, `[1]`; `None` without tensors.
#[must_use]
pub fn sum_of_squares(tensors: &[Tensor<1>]) -> Option<Tensor<1>> {
    if supports_multi_tensor(&tensors.first()?.device()) {
        return Some(vim_kernels::sum_of_squares(tensors));
    }
    let squares = tensors.iter().map(|tensor| (tensor.clone() * tensor.clone()).sum());
    squares.reduce(|sum, square| sum + square)
}

/// An AdamW step of every parameter by its gradient times `scale`.
///
/// # Source
///
/// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
#[must_use]
pub fn adamw(updates: Vec<Update>, rule: Rule, scale: f64) -> Vec<Parameter> {
    updates.into_iter().map(|update| adamw_one(update, rule, scale)).collect()
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

/// The moving average one step on: `decay · average + (1 − decay) · value`.
///
/// # Source
///
/// timm's `ModelEma`.
#[must_use]
pub fn ema(averages: Vec<Tensor<1>>, values: Vec<Tensor<1>>, decay: f64) -> Vec<Tensor<1>> {
    let pairs = averages.into_iter().zip(values);
    pairs
        .map(|(average, value)| average.mul_scalar(decay) + value.mul_scalar(1.0 - decay))
        .collect()
}
