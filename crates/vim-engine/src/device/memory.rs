//! Memory of this process, on the host and on a device, and memory still available.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use vim_kernels::cuda_number;

use super::cuda_libraries::gpu_memory;

/// Resident memory of this process in bytes; `None` if unknown.
pub fn resident() -> Option<u64> {
    field("/proc/self/status", "VmRSS:")
}

/// Peak resident memory since the start or [`reset_peak`], in bytes.
pub fn peak_resident() -> Option<u64> {
    field("/proc/self/status", "VmHWM:")
}

/// Resets [`peak_resident`]; `false` if the system cannot.
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Bytes still available to this process, on the machine and within its control groups.
pub fn available() -> Option<u64> {
    let machine = field("/proc/meminfo", "MemAvailable:");
    machine.into_iter().chain(left_in_groups()).min()
}

/// Bytes reserved by the device's memory pools, `None` on a CPU.
///
/// Pools shrink when asked alone, so this is the peak usage plus fragmentation; what they have
/// outgrown is not counted.
pub fn device_memory(device: &Device) -> Option<u64> {
    device.clone().inner().memory_pool_usage().map(|usage| usage.bytes_reserved)
}

/// Least memory that a driver and a process take of a GPU beside what the process asks for; half
/// of that, where it is more, may be what the driver is about to get back.
const BESIDE: u64 = 2 << 30;

/// Whether no other process uses the memory of the CUDA device, and this one has reserved a third
/// of it or less: what a step saves may then grow by half, and an evaluation's memory lie beside
/// it.
pub(crate) fn has_room(device: &Device) -> bool {
    let numbers = || {
        let reserved = device_memory(device)?;
        let (free, all) = gpu_memory(cuda_number(device)?)?;
        Some((reserved, free, all))
    };
    numbers().is_some_and(|(reserved, free, all)| is_roomy(reserved, free, all))
}

fn is_roomy(reserved: u64, free: u64, all: u64) -> bool {
    free + reserved + BESIDE.max(reserved / 2) >= all && reserved <= all / 3
}

/// The pages that a device's pools have, of which CubeCL makes larger ones whenever an allocation
/// fits none: a detector's tensors are as long as it finds boxes.
///
/// The smaller ones, once empty, are in no pool and with no other process: CubeCL 0.11.3 keeps them
/// until it is asked to clean up, or has no memory left (`MemoryManagement::cleanup`).
#[derive(Debug, Default)]
pub(crate) struct Pages {
    largest: u64,
}

impl Pages {
    /// Gives back what the pools have outgrown since the last call. What is in use there may move.
    pub(crate) fn give_back_outgrown(&mut self, device: &Device) {
        let device = device.clone().inner();
        let sizes = device.memory_pool_report().into_iter().flatten().map(|pool| pool.page_size);
        let largest = sizes.max().unwrap_or(0);
        if largest > self.largest {
            device.memory_cleanup();
            self.largest = largest;
        }
    }
}

/// Bytes left within the control groups (v2) of this process, not counting reclaimable file cache.
fn left_in_groups() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = PathBuf::from("/sys/fs/cgroup").join(own);
    folder.ancestors().take_while(|at| at.starts_with("/sys/fs/cgroup")).filter_map(left_in).min()
}

fn left_in(group: &Path) -> Option<u64> {
    let number = |file: &str| {
        fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok() // `max` is no limit
    };
    let (limit, used) = (number("memory.max")?, number("memory.current")?);
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let files = files.and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

/// A line such as `VmRSS:   1234 kB`, in bytes.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Watches the memory of a row.
#[derive(Debug)]
pub(crate) struct Meter {
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
    pub(crate) fn start(device: &Device, before: u64) -> Self {
        // Release the previous row's memory from the framework's pools.
        device.memory_cleanup();
        let mut meter = Self { device: device.clone(), before, peak: None, host: reset_peak() };
        meter.sample();
        meter
    }

    /// Samples the device; call it where usage is high.
    pub(crate) fn sample(&mut self) {
        self.peak = self.peak.max(device_memory(&self.device));
    }

    /// Peak bytes and their owner; `None` if unknown.
    pub(crate) fn peak(&self) -> Option<(u64, &'static str)> {
        match self.peak {
            Some(bytes) => Some((bytes, "device")),
            None if self.host => Some((peak_resident()?.saturating_sub(self.before), "host")),
            None => None,
        }
    }
}

/// Memory of this process, 0 if unknown.
pub(crate) fn held() -> u64 {
    resident().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_others_use_has_no_room() {
        let gib = |count: u64| count << 30;
        for (reserved, free, expected) in [
            (gib(5), gib(74), true),
            // Another process has 3 GiB.
            (gib(5), gib(72), false),
            (gib(20), gib(51), true),
            (gib(20), gib(49), false),
            (gib(26), gib(53), true),
            (gib(27), gib(52), false),
        ] {
            assert_eq!(is_roomy(reserved, free, gib(80)), expected, "{reserved} {free}");
        }
    }

    /// In a process of its own: a cleanup is of all threads' pools, and refused while one of them
    /// records a graph, as other tests here do.
    #[test]
    #[cfg(feature = "wgpu")]
    fn outgrown_pages_go_back() {
        let own = "device::memory::tests::outgrown_pages_go_back_and_what_is_in_use_stays_right";
        let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
        let output = tests.args(["--exact", own, "--ignored", "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "outgrown_pages_go_back runs it, alone"]
    #[cfg(feature = "wgpu")]
    fn outgrown_pages_go_back_and_what_is_in_use_stays_right() {
        use burn::tensor::{DeviceKind, Tensor};

        let device = Device::wgpu(DeviceKind::DefaultDevice);
        // Pages of `size` or more.
        let held = |size: u64| -> u64 {
            let report = device.memory_pool_report().unwrap().into_iter();
            report.filter(|pool| pool.page_size >= size).map(|pool| pool.pages).sum()
        };
        let numbers = |len: usize| (0..len).map(|i| i as f32).collect::<Vec<_>>();
        let tensor = |len: usize| Tensor::<1>::from_floats(&numbers(len)[..], &device) * 2.0;
        let (small, large) = (1 << 20, 1 << 22);
        let mut pages = Pages::default();
        pages.give_back_outgrown(&device);
        let mut all = [small; 8].map(tensor).to_vec();
        let kept = all.pop().unwrap();
        drop(all);
        let grown = tensor(large);
        let before = held(small as u64 * 4);
        pages.give_back_outgrown(&device);
        let after = held(small as u64 * 4);
        // One for each that is left, at most.
        assert!(before > 2 && after <= 2, "{before} {after}");
        for (x, len) in [(kept, small), (grown, large)] {
            let doubled: Vec<f32> = numbers(len).iter().map(|x| x * 2.0).collect();
            assert_eq!(x.into_data().try_into_vec::<f32>().unwrap(), doubled);
        }
        // Nothing grew: what is free stays for the next step.
        pages.give_back_outgrown(&device);
        assert_eq!(held(small as u64 * 4), after);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_taken_is_counted() {
        // So much that what other tests of this process take beside it does not matter.
        let taken = vec![1_u8; 512 << 20];
        let (resident, peak) = (resident().unwrap(), peak_resident().unwrap());
        assert!(taken.iter().all(|&byte| byte == 1));
        assert!(resident >= 512 << 20 && peak >= 512 << 20, "{resident} {peak}");
        assert!(available().unwrap() > 0);
        drop(taken);
        // The peak, which the system updates lazily, keeps freed memory until the reset.
        assert!(peak_resident().unwrap() > peak - (256 << 20));
        if reset_peak() {
            assert!(peak_resident().unwrap() < peak - (128 << 20));
        }
    }
}
