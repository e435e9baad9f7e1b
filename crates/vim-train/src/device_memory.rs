//! How much of a device's memory this process has taken.

use burn::tensor::Device;

/// Bytes that the device's memory pools have taken from it, `None` on a CPU.
///
/// Pools keep what they have taken, so this is the most that was needed at any one time, and what is lost between
/// their pages.
#[must_use]
pub fn device_memory(device: &Device) -> Option<u64> {
    device.clone().inner().memory_pool_usage().map(|usage| usage.bytes_reserved)
}
