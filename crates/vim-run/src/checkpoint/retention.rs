//! The folder of a run's checkpoints: which there are, which is chosen, and which are kept.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};

use super::{BEST, Checkpoint, CheckpointError, MANIFEST, STATE, State, write_manifest};
use crate::storage::{Disk, Storage, replace};
use crate::temporary::remove_abandoned;

/// The folder of a run's checkpoints.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep_last: usize,
    storage: Box<dyn Storage>,
}

impl Checkpoints {
    /// Opens the folder for the run that owns it, and removes unfinished saves.
    pub fn open(folder: &Path, keep_last: usize) -> Result<Self, CheckpointError> {
        Self::with_storage(folder, keep_last, Box::new(Disk))
    }

    /// [`Checkpoints::open`] on another storage.
    pub fn with_storage(
        folder: &Path,
        keep_last: usize,
        storage: Box<dyn Storage>,
    ) -> Result<Self, CheckpointError> {
        storage.create_dir(folder).map_err(CheckpointError::io("make", folder))?;
        let this = Self { folder: folder.to_owned(), keep_last, storage };
        this.tidy().map_err(CheckpointError::io("tidy", folder))?;
        Ok(this)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a checkpoint of `state` and the named `files`, then removes expired checkpoints.
    ///
    /// On a full disk, removes all but the newest, the best and the archived, and retries once. If
    /// the write fails, the newest earlier checkpoint remains.
    pub fn save(&self, files: &[(&str, &[u8])], state: &State) -> Result<PathBuf, CheckpointError> {
        let written = self.write(files, state).or_else(|error| {
            if !is_full(&error) {
                return Err(error);
            }
            self.prune(1);
            self.write(files, state)
        });
        match written {
            Ok(path) => {
                self.prune(self.keep_last);
                Ok(path)
            }
            Err(source) if is_full(&source) => {
                Err(CheckpointError::Full { path: self.folder.clone(), source })
            }
            Err(source) => Err(CheckpointError::io("write a checkpoint in", &self.folder)(source)),
        }
    }

    fn write(&self, files: &[(&str, &[u8])], state: &State) -> io::Result<PathBuf> {
        let name = folder_name(state.step);
        let temporary = self.folder.join(format!(".tmp-{name}"));
        let written = self.write_into(&temporary, files, state);
        let written = written.and_then(|()| self.put_in_place(&temporary, &name));
        if written.is_err() {
            // Frees the space; if that fails as well, the next start does it.
            let _ = self.storage.remove(&temporary);
        }
        written
    }

    fn write_into(&self, folder: &Path, files: &[(&str, &[u8])], state: &State) -> io::Result<()> {
        if folder.exists() {
            self.storage.remove(folder)?;
        }
        self.storage.create_dir(folder)?;
        let state = serde_json::to_vec(state)?;
        let all: Vec<(&str, &[u8])> =
            files.iter().copied().chain([(STATE, state.as_slice())]).collect();
        for (name, bytes) in &all {
            self.storage.write(&folder.join(name), bytes)?;
        }
        let manifest = write_manifest(all);
        self.storage.write(&folder.join(MANIFEST), manifest.as_bytes())?;
        self.storage.sync_dir(folder)
    }

    /// Removes unfinished saves, and completes unfinished replacements.
    fn tidy(&self) -> io::Result<()> {
        for name in names(&self.folder) {
            let path = self.folder.join(&name);
            if is_unfinished(&name) {
                self.storage.remove(&path)?;
            } else if let Some(original) =
                name.strip_prefix(REPLACED).filter(|name| step_of(name).is_some())
            {
                let original = self.folder.join(original);
                if original.exists() {
                    self.storage.remove(&path)?;
                } else {
                    self.storage.rename(&path, &original)?;
                }
            }
        }
        remove_abandoned(&self.folder);
        Ok(())
    }

    /// Renames the finished folder `temporary` to `name`.
    fn put_in_place(&self, temporary: &Path, name: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        // A folder cannot replace a folder; `tidy` completes an interrupted replacement.
        let replaced = self.folder.join(format!("{REPLACED}{name}"));
        let is_replacing = path.exists();
        if is_replacing {
            self.storage.rename(&path, &replaced)?;
        }
        if let Err(error) = self.storage.rename(temporary, &path) {
            if is_replacing {
                self.storage.rename(&replaced, &path)?;
            }
            return Err(error);
        }
        self.storage.sync_dir(&self.folder)?;
        if is_replacing {
            self.storage.remove(&replaced)?;
        }
        Ok(path)
    }

    /// Renames a damaged checkpoint to the first free one of `.bad-NAME`, `.bad-NAME-2`, …
    fn set_aside(&self, step: u64) -> io::Result<()> {
        let name = format!(".bad-{}", folder_name(step));
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let mut candidates = iter::once(name.clone()).chain(numbered).map(|n| self.folder.join(n));
        let free = candidates.find(|path| !path.exists());
        let free = free.expect("invariant: the numbers do not end");
        self.storage.rename(&self.path_of(step), &free)?;
        self.storage.sync_dir(&self.folder)
    }

    /// Removes all but the `keep` newest checkpoints, the best and the archived; ignores failures.
    fn prune(&self, keep: usize) {
        // If the archive list is unreadable, nothing is removed.
        let Ok(archived) = archived(&self.folder) else { return };
        let best = self.best_step();
        for (step, path) in list(&self.folder).iter().rev().skip(keep) {
            if Some(*step) != best && !archived.contains(step) {
                let _ = self.storage.remove(path);
            }
        }
    }

    /// Archives the checkpoint of `step`, which may not exist yet: it is never removed.
    pub fn archive(&self, step: u64) -> Result<(), CheckpointError> {
        let path = self.folder.join(ARCHIVE);
        let mut archived = archived(&self.folder).map_err(CheckpointError::io("read", &path))?;
        if !archived.insert(step) {
            return Ok(());
        }
        let names: Vec<_> = archived.into_iter().map(folder_name).collect();
        let text = names.join("\n") + "\n";
        replace(self.storage.as_ref(), &path, text.as_bytes())
            .map_err(CheckpointError::io("write", &path))
    }

    /// Makes the checkpoint of `step` the best, which is never removed.
    pub fn mark_best(&self, step: u64) -> Result<(), CheckpointError> {
        let name = folder_name(step);
        if !self.folder.join(&name).is_dir() {
            return Err(CheckpointError::Missing { which: name, folder: self.folder.clone() });
        }
        let path = self.folder.join(BEST);
        replace(self.storage.as_ref(), &path, format!("{name}\n").as_bytes())
            .map_err(CheckpointError::io("write", &path))
    }

    /// The step of the best checkpoint, if any.
    pub fn best_step(&self) -> Option<u64> {
        best_step(&self.folder)
    }

    /// The folder of the checkpoint of `step`, which need not exist.
    pub fn path_of(&self, step: u64) -> PathBuf {
        self.folder.join(folder_name(step))
    }

    /// The steps of all checkpoints, ascending.
    pub fn steps(&self) -> Vec<u64> {
        list(&self.folder).into_iter().map(|(step, _)| step).collect()
    }

    /// The newest whole checkpoint. Damaged ones are renamed to `.bad-…`, never removed.
    ///
    /// If `best` names a damaged or missing checkpoint, it is reset to the one that the found
    /// checkpoint records. A file that cannot be read for a reason other than damage is an error.
    pub fn latest_valid(&self) -> Result<Latest, CheckpointError> {
        let mut latest = Latest::default();
        for (step, path) in list(&self.folder).iter().rev() {
            match Checkpoint::read(path) {
                Ok(checkpoint) => {
                    latest.checkpoint = Some(checkpoint);
                    break;
                }
                Err(damaged @ CheckpointError::Damaged { .. }) => {
                    self.set_aside(*step).map_err(CheckpointError::io("rename", path))?;
                    latest.passed_over.push(damaged);
                }
                Err(other) => return Err(other),
            }
        }
        self.restore_best(latest.checkpoint.as_ref())?;
        // Also an error on later attempts, after renaming: only the user may start over.
        let count = count_set_aside(&self.folder);
        if latest.checkpoint.is_none() && count > 0 {
            return Err(CheckpointError::NoneWhole { count, folder: self.folder.clone() });
        }
        Ok(latest)
    }

    fn restore_best(&self, checkpoint: Option<&Checkpoint>) -> Result<(), CheckpointError> {
        let path = self.folder.join(BEST);
        let remembered = checkpoint.and_then(|checkpoint| checkpoint.state.best);
        let named = self.best_step().filter(|step| self.steps().contains(step));
        match remembered {
            Some(best) if named == Some(best.step) => Ok(()),
            Some(best) if self.steps().contains(&best.step) => self.mark_best(best.step),
            Some(_) | None if path.exists() => {
                self.storage.remove(&path).map_err(CheckpointError::io("remove", &path))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Which checkpoint of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The one with the best evaluation.
    Best,
    /// The newest.
    Last,
}

/// The checkpoint that a run resumes from.
#[derive(Debug, Default)]
pub struct Latest {
    /// The newest checkpoint that is whole.
    pub checkpoint: Option<Checkpoint>,
    /// Newer damaged checkpoints, and why.
    pub passed_over: Vec<CheckpointError>,
}

/// Reads one checkpoint of `folder` without changing the folder, which a run may be using.
///
/// # Errors
///
/// If the checkpoint is missing or damaged; for [`Selection::Last`], only if all are.
pub fn select(folder: &Path, selection: Selection) -> Result<Checkpoint, CheckpointError> {
    let missing = |which: &str| CheckpointError::Missing {
        which: which.to_owned(),
        folder: folder.to_owned(),
    };
    match selection {
        Selection::Best => {
            let step = best_step(folder).ok_or_else(|| missing("best checkpoint"))?;
            Checkpoint::read(&folder.join(folder_name(step)))
        }
        Selection::Last => {
            let mut failure = None;
            for (_, path) in list(folder).iter().rev() {
                match Checkpoint::read(path) {
                    Ok(checkpoint) => return Ok(checkpoint),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            Err(failure.unwrap_or_else(|| missing("checkpoint")))
        }
    }
}

/// The step of the checkpoint in `folder` that `best` names.
pub fn best_step(folder: &Path) -> Option<u64> {
    let name = fs::read_to_string(folder.join(BEST)).ok()?;
    step_of(name.trim_end())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Prefix of a checkpoint while a newer one of the same step replaces it.
const REPLACED: &str = ".replaced-";

/// Name of the file that lists archived checkpoints, one folder name per line.
const ARCHIVE: &str = "archive";

/// The folder of the checkpoint after `step` steps.
fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step in a folder's name.
pub(super) fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok().filter(|&step| folder_name(step) == name)
}

/// Whether an interrupted save leaves a file or folder of this `name`. The folder may be a link to
/// one that others use: their files stay.
fn is_unfinished(name: &str) -> bool {
    let name = name.strip_prefix(".tmp-");
    name.is_some_and(|name| step_of(name).is_some() || [BEST, ARCHIVE].contains(&name))
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

/// Whether `path` is a checkpoint's folder, by its name or by what is in it.
pub fn is_checkpoint(path: &Path) -> bool {
    let is_named = path.file_name().and_then(|name| step_of(name.to_str()?)).is_some();
    path.is_dir() && (is_named || path.join(MANIFEST).is_file())
}

/// The steps of the archived checkpoints, which are never removed.
fn archived(folder: &Path) -> io::Result<BTreeSet<u64>> {
    match fs::read_to_string(folder.join(ARCHIVE)) {
        Ok(text) => Ok(text.lines().filter_map(step_of).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// Number of checkpoints set aside as damaged.
pub fn count_set_aside(folder: &Path) -> usize {
    names(folder).iter().filter(|name| name.starts_with(".bad-")).count()
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
