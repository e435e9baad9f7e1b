//! What an optimizer does to all tensors of a model, in a few launches on a GPU.
//!
//! A model has hundreds of parameters, most of them small: an operation, or ten, for each of them takes longer to launch
//! than to run. Here a launch takes as many tensors as a device binds.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;

use burn::tensor::{Device, Tensor};

use crate::choice::runs_cubes;

/// A parameter of an optimizer step, all flat, f32 and of one length.
#[derive(Clone, Debug)]
pub struct AdamWTensor {
    /// The parameter.
    pub value: Tensor<1>,
    /// Its gradient.
    pub gradient: Tensor<1>,
    /// Running mean of the gradient.
    pub first: Tensor<1>,
    /// Running mean of its square.
    pub second: Tensor<1>,
    /// The step's length, the first mean's correction in it: `lr / (1 − beta₁ᵗ)`.
    pub rate: f64,
    /// What the parameter is multiplied by first: `1 − lr·weight_decay`.
    pub keep: f64,
}

/// What all parameters of a step share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWRule {
    /// Decay rates of the two means.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Norm of all gradients together beyond which they are scaled down to it.
    pub limit: Option<f64>,
    /// What the root of the second mean is multiplied by: `1 / sqrt(1 − beta₂ᵗ)`.
    pub root_scale: f64,
}

/// Whether `device` takes all tensors of a model in a few launches. Where it does not, these functions must not be called.
#[must_use]
pub fn takes_many(device: &Device) -> bool {
    runs_cubes(device)
}

/// The sum of the squares of all numbers of all tensors, `[1]`, the order of the sum a function of the sizes alone.
///
/// # Panics
///
/// If there are no tensors, or they are not where [`takes_many`].
#[must_use]
pub fn sum_of_squares(tensors: &[Tensor<1>]) -> Tensor<1> {
    on_cubes::sum_of_squares(tensors)
}

/// The parameters and both moments after an AdamW step: `(value, first, second)` of each.
///
/// > `first ← β₁·first + (1 − β₁)·g`, `second ← β₂·second + (1 − β₂)·g²` with `g = min(1, limit/(norm + 1e-6))·gradient`,
/// > `value ← keep·value − rate·first / (root_scale·sqrt(second) + eps)`
///
/// `square_norm`, `[1]`, is the square of the norm, which need not be known on the host: the step is queued behind
/// what computes it. Where it is not finite nothing changes.
///
/// # Panics
///
/// As [`sum_of_squares`].
///
/// # Source
///
/// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
#[must_use]
pub fn adamw(
    tensors: Vec<AdamWTensor>,
    square_norm: Tensor<1>,
    rule: AdamWRule,
) -> Vec<[Tensor<1>; 3]> {
    on_cubes::adamw(tensors, square_norm, rule)
}

/// `decay·average + (1 − decay)·value` of each pair; the averages themselves where `square_norm`, `[1]`, is not finite: an
/// optimizer step that [`adamw`] did not take counts for nothing.
///
/// # Panics
///
/// As [`sum_of_squares`].
#[must_use]
pub fn moving_average(
    pairs: Vec<[Tensor<1>; 2]>,
    square_norm: Tensor<1>,
    decay: f64,
) -> Vec<Tensor<1>> {
    on_cubes::moving_average(pairs, square_norm, decay)
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cube as on_cubes;

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
mod on_cubes {
    use super::{AdamWRule, AdamWTensor, Tensor};

    const NONE: &str = "no device of this build takes many tensors at once";

    pub(super) fn sum_of_squares(_: &[Tensor<1>]) -> Tensor<1> {
        unreachable!("{NONE}")
    }

    pub(super) fn adamw(_: Vec<AdamWTensor>, _: Tensor<1>, _: AdamWRule) -> Vec<[Tensor<1>; 3]> {
        unreachable!("{NONE}")
    }

    pub(super) fn moving_average(_: Vec<[Tensor<1>; 2]>, _: Tensor<1>, _: f64) -> Vec<Tensor<1>> {
        unreachable!("{NONE}")
    }
}
