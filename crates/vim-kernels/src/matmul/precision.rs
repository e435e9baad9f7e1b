//! Which devices multiply in which [`Precision`].

use burn::tensor::Device;

use crate::dispatch::{device_name, runs_cubecl};
use crate::error::KernelError;
use crate::precision::Precision;

impl Precision {
    /// Checks that `device` multiplies in this precision. Every device multiplies in f32; without
    /// tensor cores, TF32 is f32.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoPrecision`] if it does not.
    pub fn check(self, device: &Device) -> Result<(), KernelError> {
        match self {
            Self::F32 | Self::Tf32 => Ok(()),
            Self::Bf16 if runs_cubecl(device) && multiplies_bf16(device) => Ok(()),
            Self::Bf16 => {
                Err(KernelError::NoPrecision { device: device_name(device), precision: self })
            }
        }
    }
}

/// Whether the device has bf16 and tensor cores that multiply it.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn multiplies_bf16(device: &Device) -> bool {
    device.supports_dtype(burn::tensor::DType::BF16) && super::cube::has_tensor_cores(device)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn multiplies_bf16(_: &Device) -> bool {
    false
}
