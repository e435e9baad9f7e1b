//! The names in a folder of checkpoints: listing, replacing, renaming, removing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::storage::Storage;

/// Prefix of a checkpoint while a newer one of the same step replaces it.
const REPLACED: &str = ".replaced-";

/// Name of the file that lists archived checkpoints, one folder name per line.
pub(crate) const ARCHIVE: &str = "archive";

/// The folder of the checkpoint after `step` steps.
pub(crate) fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step in a folder's name.
pub(crate) fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok().filter(|&step| folder_name(step) == name)
}

/// The checkpoints in `folder`, by ascending step.
pub fn list(folder: &Path) -> Vec<(u64, PathBuf)> {
    let mut found: Vec<_> = names(folder)
        .iter()
        .filter_map(|name| step_of(name).map(|step| (step, folder.join(name))))
        .collect();
    found.sort();
    found
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The steps of the archived checkpoints, which are never removed.
pub(crate) fn archived(folder: &Path) -> io::Result<BTreeSet<u64>> {
    match fs::read_to_string(folder.join(ARCHIVE)) {
        Ok(text) => Ok(text.lines().filter_map(step_of).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// Removes unfinished saves, and completes unfinished replacements.
pub(crate) fn tidy(folder: &Path, storage: &dyn Storage) -> io::Result<()> {
    for name in names(folder) {
        if name.starts_with(".tmp-") {
            storage.remove(&folder.join(&name))?;
        } else if let Some(original) = name.strip_prefix(REPLACED) {
            if folder.join(original).exists() {
                storage.remove(&folder.join(&name))?;
            } else {
                storage.rename(&folder.join(&name), &folder.join(original))?;
            }
        }
    }
    Ok(())
}

/// Renames the finished folder `temporary` to `path`.
pub(crate) fn put_in_place(temporary: &Path, path: &Path, storage: &dyn Storage) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // A folder cannot replace a folder; `tidy` completes an interrupted replacement.
    let replaced = folder.join(format!("{REPLACED}{}", file_name(path)));
    let is_replacing = path.exists();
    if is_replacing {
        storage.rename(path, &replaced)?;
    }
    if let Err(error) = storage.rename(temporary, path) {
        if is_replacing {
            storage.rename(&replaced, path)?;
        }
        return Err(error);
    }
    storage.sync_dir(folder)?;
    if is_replacing { storage.remove(&replaced) } else { Ok(()) }
}

/// Renames a damaged checkpoint to an ignored name.
pub(crate) fn set_aside(path: &Path, storage: &dyn Storage) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = format!(".bad-{}", file_name(path));
    storage.rename(path, &free_name(folder, &name))?;
    storage.sync_dir(folder)
}

/// Number of checkpoints set aside as damaged.
pub fn count_set_aside(folder: &Path) -> usize {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    names.filter(|entry| entry.file_name().to_string_lossy().starts_with(".bad-")).count()
}

/// The first free path of `folder/name`, `folder/name-2`, `folder/name-3`, …
fn free_name(folder: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|number| folder.join(format!("{name}-{number}")));
    let mut candidates = std::iter::once(folder.join(name)).chain(numbered);
    candidates.find(|path| !path.exists()).expect("invariant: the numbers do not end")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_step_beyond_eight_digits() {
        assert_eq!(folder_name(42), "step-00000042");
        for step in [0, 42, 99_999_999, 123_456_789] {
            assert_eq!(step_of(&folder_name(step)), Some(step));
        }
        for other in ["step-42", "step-", "step-+0000042", ".bad-step-00000042", "best"] {
            assert_eq!(step_of(other), None);
        }
    }
}
