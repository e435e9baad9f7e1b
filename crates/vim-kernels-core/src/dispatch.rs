//! Which implementation of an operation runs, and who decides.

use std::collections::BTreeSet;
use std::sync::Mutex;

use burn::backend::DispatchDevice;
use burn::tensor::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

use crate::error::KernelError;

/// The environment variable of the original's scripts: true selects the kernel, any other value the
/// reference.
pub const KERNEL_VARIABLE: &str = "VIM_USE_CUDA_KERNEL";

/// The implementation that is requested.
#[derive(Display, Serialize, Deserialize, JsonSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KernelChoice {
    /// The kernel where the device has one, else the reference; the log reports which.
    #[default]
    Auto,
    /// The fused kernel; an error where the device has none.
    Kernel,
    /// Tensor operations, on any device.
    Reference,
}

/// The implementation that runs.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[strum(serialize_all = "lowercase")]
pub enum Implementation {
    /// A fused kernel: native code on the CPU, CubeCL on a GPU.
    Kernel,
    /// Tensor operations, differentiated by autodiff.
    Reference,
}

impl KernelChoice {
    /// What runs on `device`.
    ///
    /// # Errors
    ///
    /// [`KernelError::NoKernel`] if a kernel is forced where there is none: never a silent
    /// fallback.
    pub fn resolve(self, device: &Device) -> Result<Implementation, KernelError> {
        self.resolve_with(has_kernel(device), || device_name(device))
    }

    /// The implementation that runs, from whether there is a kernel; `described` names the device
    /// in the error.
    pub fn resolve_with(
        self,
        has_kernel: bool,
        described: impl FnOnce() -> String,
    ) -> Result<Implementation, KernelError> {
        match (self, has_kernel) {
            (Self::Auto | Self::Kernel, true) => Ok(Implementation::Kernel),
            (Self::Kernel, false) => Err(KernelError::NoKernel { device: described() }),
            (Self::Auto, false) | (Self::Reference, _) => Ok(Implementation::Reference),
        }
    }

    /// What [`KERNEL_VARIABLE`] selects, if it is set: `1`, `true`, `yes` and `on` are true, as in
    /// the original.
    ///
    /// It overrides a config file, and `--set` overrides it; a choice that a library caller passes
    /// is never overridden.
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let value = std::env::var(KERNEL_VARIABLE).ok()?;
        Some(Self::from_flag(&value))
    }

    /// The meaning of a value of [`KERNEL_VARIABLE`].
    #[must_use]
    pub fn from_flag(value: &str) -> Self {
        let on = ["1", "true", "yes", "on"];
        if on.contains(&value.trim().to_ascii_lowercase().as_str()) {
            Self::Kernel
        } else {
            Self::Reference
        }
    }
}

/// The number of a CUDA device; none of another.
#[must_use]
pub fn cuda_number(device: &Device) -> Option<usize> {
    match device.clone().inner().as_dispatch() {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        DispatchDevice::Cube(burn_cubecl::CubeDevice::Cuda(device)) => Some(device.index),
        _ => None,
    }
}

/// The name of `device` in an error.
pub fn device_name(device: &Device) -> String {
    if runs_native(device) {
        "the CPU".into()
    } else if runs_cuda(device) {
        "a GPU through CUDA".into()
    } else if runs_cubecl(device) {
        "a GPU through wgpu".into()
    } else {
        match device.clone().inner().as_dispatch() {
            #[cfg(feature = "tch")]
            DispatchDevice::LibTorch(_) => "LibTorch (tch)".into(),
            other => format!("{other:?}"),
        }
    }
}

/// Whether this build has fused kernels for `device`.
#[must_use]
pub fn has_kernel(device: &Device) -> bool {
    runs_native(device) || runs_cubecl(device)
}

/// Whether `device` is the CPU, which runs the native kernels.
pub fn runs_native(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// Whether `device` runs the CubeCL kernels.
pub fn runs_cubecl(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        DispatchDevice::Cube(_) => true,
        _ => false,
    }
}

/// Whether `device` is a CUDA device.
pub fn runs_cuda(device: &Device) -> bool {
    match device.clone().inner().as_dispatch() {
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        DispatchDevice::Cube(device) => matches!(device, burn_cubecl::CubeDevice::Cuda(_)),
        _ => false,
    }
}

static RAN: Mutex<BTreeSet<(&'static str, Implementation)>> = Mutex::new(BTreeSet::new());

/// Records that `implementation` of `operation` ran.
pub fn record_run(operation: &'static str, implementation: Implementation) {
    if let Ok(mut ran) = RAN.lock() {
        ran.insert((operation, implementation));
    }
}

/// Every (operation, implementation) that has run in this process, for the log.
#[must_use]
pub fn implementations_run() -> Vec<(&'static str, Implementation)> {
    RAN.lock().map(|ran| ran.iter().copied().collect()).unwrap_or_default()
}
