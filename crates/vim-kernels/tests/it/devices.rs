//! The devices that the tests run on.

use burn::tensor::{DType, Device};

/// Names the only device to test, if set.
const VARIABLE: &str = "VIM_TEST_DEVICE";

/// Flex, and the device of every GPU feature of the build, or the one that `VIM_TEST_DEVICE` names.
/// A device that the build supports and the machine lacks fails the test that uses it.
pub(crate) fn devices() -> Vec<Device> {
    let all = [
        ("flex", Device::flex()),
        #[cfg(feature = "wgpu")]
        ("wgpu", Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "cuda")]
        ("cuda", Device::cuda(0)),
    ];
    let wanted = std::env::var(VARIABLE).ok();
    let devices: Vec<Device> = all
        .into_iter()
        .filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name))
        .map(|(_, device)| device)
        .collect();
    assert!(!devices.is_empty(), "{VARIABLE}={wanted:?}: this build has no such device");
    devices
}

/// Those of them that have bf16.
pub(crate) fn bf16_devices() -> Vec<Device> {
    devices().into_iter().filter(|device| device.supports_dtype(DType::BF16)).collect()
}
