//! Peak memory of a row.

use burn::tensor::Device;

use crate::device::memory::device_memory;
use crate::device::memory::{peak_resident, reset_peak, resident};

/// Watches the memory of one row.
#[derive(Debug)]
pub(super) struct Meter {
    device: Device,
    /// Memory of the process before the first row.
    before: u64,
    /// Peak of the device among the samples.
    peak: Option<u64>,
    /// Whether the system could reset the process's peak.
    host: bool,
}

impl Meter {
    /// Starts watching; `before` is the process's memory before the first row.
    pub(super) fn start(device: &Device, before: u64) -> Self {
        // Release the previous row's memory from the framework's pools.
        device.memory_cleanup();
        let mut meter = Self { device: device.clone(), before, peak: None, host: reset_peak() };
        meter.sample();
        meter
    }

    /// Samples the device; call it where usage is high.
    pub(super) fn sample(&mut self) {
        self.peak = self.peak.max(device_memory(&self.device));
    }

    /// Peak bytes and their owner; `None` if unknown.
    pub(super) fn peak(&self) -> Option<(u64, &'static str)> {
        match self.peak {
            Some(bytes) => Some((bytes, "device")),
            None if self.host => Some((peak_resident()?.saturating_sub(self.before), "host")),
            None => None,
        }
    }
}

/// Memory of this process, 0 if unknown.
pub(super) fn held() -> u64 {
    resident().unwrap_or(0)
}
