//! The most memory that a row has in use.

use burn::tensor::Device;

use crate::device::memory::device_memory;
use crate::device::memory::{peak_resident, reset_peak, resident};

/// Watches the memory of one row.
#[derive(Debug)]
pub(super) struct Meter {
    device: Device,
    /// What the process held before the first row.
    before: u64,
    /// Of the device, among the samples.
    peak: Option<u64>,
    /// Whether the system counts the process's peak anew.
    host: bool,
}

impl Meter {
    /// Starts to watch; `before` is what the process held before the first row.
    pub(super) fn start(device: &Device, before: u64) -> Self {
        // What the row before has left in the framework's pools is not this one's.
        device.memory_cleanup();
        let mut meter = Self { device: device.clone(), before, peak: None, host: reset_peak() };
        meter.sample();
        meter
    }

    /// Looks at the device; to be called where much is in use.
    pub(super) fn sample(&mut self) {
        self.peak = self.peak.max(device_memory(&self.device));
    }

    /// The most bytes, and whose they are. `None` where nothing can tell.
    pub(super) fn peak(&self) -> Option<(u64, &'static str)> {
        match self.peak {
            Some(bytes) => Some((bytes, "device")),
            None if self.host => Some((peak_resident()?.saturating_sub(self.before), "host")),
            None => None,
        }
    }
}

/// What this process holds, 0 where the system does not tell.
pub(super) fn held() -> u64 {
    resident().unwrap_or(0)
}
