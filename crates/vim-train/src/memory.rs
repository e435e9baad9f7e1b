//! How much memory this process holds.

use std::fs;

/// Memory of this process that is in RAM, in bytes; `None` where the system does not say.
#[must_use]
pub fn resident() -> Option<u64> {
    from_status("VmRSS:")
}

/// The most of it so far, in bytes.
#[must_use]
pub fn peak_resident() -> Option<u64> {
    from_status("VmHWM:")
}

fn from_status(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
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
    }
}
