//! Optimizer operations on all tensors of a model, in a few launches on a GPU.
//!
//! A model has hundreds of parameters, most of them small: one operation or ten per parameter take
//! longer to launch than to run. Here a launch takes as many tensors as a device binds.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod cube;

use burn::tensor::{Device, Tensor};

use vim_kernels_core::runs_cubecl;

/// Elements of a block; in [`FlatParams`] every tensor begins at a multiple of it.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) const BLOCK: usize = 512;

/// Factors of an optimizer step for one parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParamStep {
    /// Step size including the first moment's bias correction: `lr / (1 − beta₁ᵗ)`.
    pub rate: f64,
    /// Factor of the parameter for weight decay: `1 − lr·weight_decay`.
    pub keep: f64,
}

/// Factors of an optimizer step for all parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWHyper {
    /// Decay rates of the two moments.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Global gradient norm above which gradients are scaled down to it.
    pub limit: Option<f64>,
    /// Factor of the second moment's root: `1 / sqrt(1 − beta₂ᵗ)`.
    pub root_scale: f64,
}

/// Whether `device` has multi-tensor kernels. Nothing else in this module may be called where it
/// has not.
#[must_use]
pub fn supports_multi_tensor(device: &Device) -> bool {
    runs_cubecl(device)
}

/// Layout of all parameters in one flat buffer; each starts at a multiple of `BLOCK`, with zeros
/// before the next.
///
/// Optimizer state has this layout, so a launch binds it once, however many tensors it belongs to.
#[derive(Clone, Debug)]
pub struct FlatParams(on_cubecl::Layout);

impl FlatParams {
    /// The layout of tensors like these, on their device.
    ///
    /// # Panics
    ///
    /// If there are none, or their device does not [support it](supports_multi_tensor).
    #[must_use]
    pub fn of(tensors: &[Tensor<1>]) -> Self {
        Self(on_cubecl::Layout::of(tensors))
    }

    /// The tensors in one flat buffer.
    ///
    /// # Panics
    ///
    /// If their sizes are not those of this layout.
    #[must_use]
    pub fn pack(&self, tensors: Vec<Tensor<1>>) -> Tensor<1> {
        self.0.pack(tensors)
    }

    /// The tensors in `packed`, as views: nothing is copied.
    #[must_use]
    pub fn parts(&self, packed: &Tensor<1>) -> Vec<Tensor<1>> {
        self.0.parts(packed)
    }

    /// [`sum_of_squares`] of tensors of these sizes.
    ///
    /// # Panics
    ///
    /// If their sizes are not those of this layout.
    #[must_use]
    pub fn sum_of_squares(&self, tensors: &[Tensor<1>]) -> Tensor<1> {
        self.0.sum_of_squares(tensors)
    }

    /// Updates the parameters and both moments, `[value, first, second]`, each packed, in place by
    /// an AdamW step.
    ///
    /// > `first ← β₁·first + (1 − β₁)·g`, `second ← β₂·second + (1 − β₂)·g²` with
    /// > `g = min(1, limit/(norm + 1e-6))·gradient`,
    /// > `value ← keep·value − rate·first / (root_scale·sqrt(second) + eps)`
    ///
    /// Every tensor in the buffers of these three sees the update, [`Self::parts`] of them too.
    ///
    /// `gradients` and `rates` have one element per parameter. `square_norm`, `[1]`, is the square
    /// of the global gradient norm. It stays on the device: the step is queued behind its
    /// computation. Where it is not finite nothing changes.
    ///
    /// # Panics
    ///
    /// If the numbers of tensors differ, or their sizes are not those of this layout.
    ///
    /// # Source
    ///
    /// Loshchilov and Hutter 2019, algorithm 2; `torch.optim.AdamW`.
    pub fn adamw(
        &self,
        updated: [&Tensor<1>; 3],
        gradients: Vec<Tensor<1>>,
        rates: &[ParamStep],
        square_norm: Tensor<1>,
        rule: AdamWHyper,
    ) {
        self.0.adamw(updated, gradients, rates, square_norm, rule);
    }
}

/// The sum of the squares of all elements of all tensors, `[1]`. The order of the sum depends on
/// the sizes alone.
///
/// # Panics
///
/// As [`FlatParams::of`].
#[must_use]
pub fn sum_of_squares(tensors: &[Tensor<1>]) -> Tensor<1> {
    FlatParams::of(tensors).sum_of_squares(tensors)
}

/// `average ← decay·average + (1 − decay)·value`, both packed, in place; nothing where
/// `square_norm`, `[1]`, is not finite, as [`FlatParams::adamw`] skips such a step.
///
/// # Panics
///
/// If their lengths differ, or their device does not [support it](supports_multi_tensor).
pub fn moving_average(average: &Tensor<1>, value: Tensor<1>, square_norm: Tensor<1>, decay: f64) {
    on_cubecl::moving_average(average, value, square_norm, decay);
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cube as on_cubecl;

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
mod on_cubecl {
    use super::{AdamWHyper, ParamStep, Tensor};

    const NONE: &str = "no device of this build takes many tensors at once";

    #[derive(Clone, Debug)]
    pub(super) struct Layout;

    impl Layout {
        pub(super) fn of(_: &[Tensor<1>]) -> Self {
            unreachable!("{NONE}")
        }

        pub(super) fn pack(&self, _: Vec<Tensor<1>>) -> Tensor<1> {
            unreachable!("{NONE}")
        }

        pub(super) fn parts(&self, _: &Tensor<1>) -> Vec<Tensor<1>> {
            unreachable!("{NONE}")
        }

        pub(super) fn sum_of_squares(&self, _: &[Tensor<1>]) -> Tensor<1> {
            unreachable!("{NONE}")
        }

        pub(super) fn adamw(
            &self,
            _: [&Tensor<1>; 3],
            _: Vec<Tensor<1>>,
            _: &[ParamStep],
            _: Tensor<1>,
            _: AdamWHyper,
        ) {
            unreachable!("{NONE}")
        }
    }

    pub(super) fn moving_average(_: &Tensor<1>, _: Tensor<1>, _: Tensor<1>, _: f64) {
        unreachable!("{NONE}")
    }
}
