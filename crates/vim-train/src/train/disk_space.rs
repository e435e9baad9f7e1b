//! Disk space of a run, and free space.

use std::path::Path;

use rustix::fs::statvfs;

use crate::config::Config;

/// Bytes of the kept checkpoints and the one being written: weights, the optimizer's two moments,
/// and the moving average if set.
pub fn checkpoints_of(config: &Config, parameters: u64) -> u64 {
    // The newest, the best, and the one being written.
    let kept = config.checkpoint.keep_last as u64 + 2;
    let arrays = 3 + u64::from(config.train.ema.is_some());
    parameters * arrays * 4 * kept
}

/// Free bytes on the file system of `folder`, which need not exist; `None` if unknown.
pub fn free_for(folder: &Path) -> Option<u64> {
    let found = folder.ancestors().find(|one| one.is_dir());
    let existing = found.filter(|one| !one.as_os_str().is_empty()).unwrap_or(Path::new("."));
    statvfs(existing).ok().map(|disk| disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_and_kept_checkpoints_count() {
        let mut config = Config::default();
        assert_eq!(checkpoints_of(&config, 10), 10 * 3 * 4 * 4);
        config.train.ema = Some(0.99);
        config.checkpoint.keep_last = 3;
        assert_eq!(checkpoints_of(&config, 10), 10 * 4 * 4 * 5);
    }

    #[test]
    fn a_folder_to_be_made_is_on_its_parents_disk() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free_for(&folder.path().join("a/b")).unwrap() > 0);
        assert!(free_for(Path::new("not/there")).unwrap() > 0);
    }
}
