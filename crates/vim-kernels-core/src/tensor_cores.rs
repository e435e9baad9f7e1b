//! What a device's tensor cores multiply, and so in which precisions it does.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use burn::backend::DispatchDevice;
use burn::tensor::Device;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cubecl::client::Client;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cubecl::ir::features::MmaConfig;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use cubecl::ir::{ElemType, FloatKind};

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
    device.supports_dtype(burn::tensor::DType::BF16) && has_tensor_cores(device)
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn multiplies_bf16(_: &Device) -> bool {
    false
}

/// Whether the device's tensor cores multiply bf16 in the shape that the kernels use, in PTX.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn has_tensor_cores(device: &Device) -> bool {
    let runs_cuda = crate::dispatch::runs_cuda(device);
    let DispatchDevice::Cube(device) = device.clone().inner().as_dispatch().clone() else {
        return false;
    };
    runs_cuda && has_mma(&device.client(), FloatKind::BF16, 16)
}

/// Whether tensor cores multiply 16 rows by 8 columns, `k` terms at a time.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub fn has_mma(client: &Client, factor: FloatKind, k: u32) -> bool {
    client.properties().features.matmul.mma.contains(&MmaConfig {
        a_type: ElemType::Float(factor),
        b_type: ElemType::Float(factor),
        cd_type: ElemType::Float(FloatKind::F32),
        m: 16,
        n: 8,
        k,
    })
}
