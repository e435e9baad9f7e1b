//! How much memory this process holds, on the host and on a device, and could still take.

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::Device;

/// Memory of this process that is in RAM, in bytes; `None` where the system does not say.
#[must_use]
pub fn resident() -> Option<u64> {
    field("/proc/self/status", "VmRSS:")
}

/// The most of it so far, or since [`reset_peak`], in bytes.
#[must_use]
pub fn peak_resident() -> Option<u64> {
    field("/proc/self/status", "VmHWM:")
}

/// Lets [`peak_resident`] start anew; says whether the system could.
#[must_use]
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Bytes that this process can still take: what the machine has, or its control groups (a job's) allow.
#[must_use]
pub fn available() -> Option<u64> {
    let machine = field("/proc/meminfo", "MemAvailable:");
    machine.into_iter().chain(left_in_groups()).min()
}

/// Bytes that the device's memory pools have taken from it, `None` on a CPU.
///
/// Pools keep what they have taken, so this is the most that was needed at any one time, and what is lost between
/// their pages.
#[must_use]
pub fn device_memory(device: &Device) -> Option<u64> {
    device.clone().inner().memory_pool_usage().map(|usage| usage.bytes_reserved)
}

/// What the control groups of this process (version 2) leave it, files that can be dropped not counted.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_is_taken_is_counted() {
        let taken = vec![1_u8; 64 << 20];
        let (resident, peak) = (resident().unwrap(), peak_resident().unwrap());
        assert!(taken.iter().all(|&byte| byte == 1));
        assert!(resident >= 64 << 20 && peak >= 64 << 20, "{resident} {peak}");
        assert!(available().unwrap() > 0);
        drop(taken);
        // What was freed stays in the peak, which the system updates by and by, until that is reset.
        assert!(peak_resident().unwrap() > peak - (32 << 20));
        if reset_peak() {
            assert!(peak_resident().unwrap() < peak - (16 << 20));
        }
    }
}
