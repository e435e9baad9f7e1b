//! What multiplies: units, or tensor cores in one of their types.

use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::FloatKind;

use vim_kernels_core::cube::has_ptx;
use vim_kernels_core::{Precision, has_mma};

/// What multiplies, and in which type the factors are in shared memory. Sums are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Arithmetic {
    /// Units multiply factors of f32.
    Units,
    /// Tensor cores multiply factors of bf16.
    Bf16,
    /// Tensor cores multiply factors of f32, rounded to TF32.
    Tf32,
    /// Tensor cores multiply factors of f32, each the sum of two numbers of TF32.
    SplitF32,
}

impl Arithmetic {
    /// How a product of `precision` is computed on the device of `like`; `None` if it has no tensor
    /// cores for it. [`Precision::check`] has refused bf16 where there are none.
    pub(super) fn on_tensor_cores(precision: Precision, like: &CubeTensor) -> Option<Self> {
        let multiplies_tf32 = || has_ptx(like) && has_mma(&like.client, FloatKind::TF32, 8);
        match precision {
            Precision::Bf16 => Some(Self::Bf16),
            Precision::Tf32 => multiplies_tf32().then_some(Self::Tf32),
            Precision::F32 => multiplies_tf32().then_some(Self::SplitF32),
        }
    }

    pub(crate) fn uses_tensor_cores(self) -> bool {
        self != Self::Units
    }

    /// Bytes of a factor in shared memory.
    pub(crate) fn bytes(self) -> usize {
        if self == Self::Bf16 { 2 } else { 4 }
    }
}
