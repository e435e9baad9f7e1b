//! The CUDA driver's cache of compiled kernels.

use std::fs;
use std::path::{Path, PathBuf};

use crate::device::machine::Machine;

/// The driver's cache of machine code, keyed by GPU, driver and kernel; `None` if disabled.
///
/// # Source
///
/// CUDA Programming Guide, "CUDA Environment Variables": `CUDA_CACHE_DISABLE`, `CUDA_CACHE_PATH`.
pub fn folder(machine: &Machine) -> Option<PathBuf> {
    if machine.text("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
        return None;
    }
    let named = machine.folder("CUDA_CACHE_PATH");
    named.or_else(|| Some(machine.folder("HOME")?.join(".nv/ComputeCache")))
}

/// Bytes of all files below `folder`.
pub fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(variables: &[(&str, &str)]) -> Option<PathBuf> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        folder(&Machine { variables: variables.collect(), ..Machine::default() })
    }

    #[test]
    fn the_driver_is_told_by_variables() {
        let home = ("HOME", "/home/a");
        assert_eq!(folder_with(&[home]), Some("/home/a/.nv/ComputeCache".into()));
        let elsewhere = [home, ("CUDA_CACHE_PATH", "/scratch/c"), ("CUDA_CACHE_DISABLE", "0")];
        assert_eq!(folder_with(&elsewhere), Some("/scratch/c".into()));
        assert_eq!(folder_with(&[home, ("CUDA_CACHE_DISABLE", "1")]), None);
        assert_eq!(folder_with(&[]), None);
    }

    #[test]
    fn sizes_are_those_of_files_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/x"), [0; 100]).unwrap();
        fs::write(folder.path().join("y"), [0; 11]).unwrap();
        assert_eq!(size(folder.path()), 111);
        assert_eq!(size(&folder.path().join("none")), 0);
    }
}
