//! What multiplies: units, or tensor cores in one of their types.

use burn::backend::DispatchDevice;
use burn::tensor::Device;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::ir::features::MmaConfig;
use cubecl::ir::{ElemType, FloatKind};

use crate::cube::has_ptx;
use crate::dispatch::runs_cuda;
use crate::precision::Precision;

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

/// Whether the device's tensor cores multiply bf16 in the shape that the kernels use, in PTX.
pub(crate) fn has_tensor_cores(device: &Device) -> bool {
    let runs_cuda = runs_cuda(device);
    let DispatchDevice::Cube(device) = device.clone().inner().as_dispatch().clone() else {
        return false;
    };
    runs_cuda && has_mma(&device.client(), FloatKind::BF16, 16)
}

/// Whether tensor cores multiply 16 rows by 8 columns, `k` terms at a time.
fn has_mma(client: &Client, factor: FloatKind, k: u32) -> bool {
    client.properties().features.matmul.mma.contains(&MmaConfig {
        a_type: ElemType::Float(factor),
        b_type: ElemType::Float(factor),
        cd_type: ElemType::Float(FloatKind::F32),
        m: 16,
        n: 8,
        k,
    })
}
