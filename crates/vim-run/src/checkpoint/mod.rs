//! Checkpoints as folders of files; a crash at any moment leaves earlier checkpoints whole.
//!
//! A save writes a `.tmp-` folder, its manifest last, and renames it to `step-NNNNNNNN` once all
//! files are on the disk; only then are old checkpoints removed. So a folder of that name is
//! complete, and the manifest reveals later damage, which is passed over.
//!
//! Retention: the newest `keep_last`, `best`, and everything in `archive`, even on a full disk.

mod error;
mod manifest;
mod retention;
mod saver;
mod state;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use self::manifest::MANIFEST;
use crate::storage::{Disk, Storage, replace};

pub use error::CheckpointError;
pub use retention::{count_set_aside, list};
pub use saver::{Content, Saver, Snapshot, THREAD};
pub use state::{Best, State, Weights, Window};

/// Name of the state's file.
const STATE: &str = "state.json";
/// Name of the file that names the best checkpoint.
const BEST: &str = "best";

/// A checkpoint in memory, with every file as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Its folder.
    pub path: PathBuf,
    /// The state of training.
    pub state: State,
    files: BTreeMap<String, Vec<u8>>,
}

impl Checkpoint {
    /// Reads the checkpoint in the folder `path`.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Damaged`] if a file disagrees with the manifest.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let damaged = |why: String| CheckpointError::Damaged { path: path.to_owned(), why };
        let read = |name: &str| {
            fs::read(path.join(name)).map_err(|error| {
                // Only missing files are damage; other errors, such as missing rights, are not.
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
                    damaged(format!("{name} is missing"))
                } else {
                    CheckpointError::io("read", &path.join(name))(error)
                }
            })
        };
        let entries =
            String::from_utf8(read(MANIFEST)?).ok().and_then(|text| manifest::read(&text));
        let entries =
            entries.ok_or_else(|| damaged(format!("{MANIFEST} is cut short or altered")))?;
        let mut files = BTreeMap::new();
        for (name, entry) in entries {
            let bytes = read(&name)?;
            if let Some(why) = entry.mismatch(&bytes) {
                return Err(damaged(format!("{name} {why}")));
            }
            files.insert(name, bytes);
        }
        let state = files.remove(STATE).ok_or_else(|| damaged(format!("{STATE} is missing")))?;
        let state = serde_json::from_slice(&state).map_err(|error| {
            // The bytes are as written: passing over them would discard work.
            CheckpointError::Incompatible { path: path.to_owned(), why: error.to_string() }
        })?;
        Ok(Self { path: path.to_owned(), state, files })
    }

    /// Takes the bytes of a named file out of the checkpoint.
    ///
    /// # Errors
    ///
    /// If the checkpoint has no such file.
    pub fn take(&mut self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        self.files.remove(name).ok_or_else(|| CheckpointError::Damaged {
            path: self.path.clone(),
            why: format!("it has no file {name}"),
        })
    }
}

/// Which checkpoint of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The one with the best evaluation.
    Best,
    /// The newest.
    Last,
    /// The one in this folder.
    Path(PathBuf),
}

impl FromStr for Selection {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "best" => Self::Best,
            "last" => Self::Last,
            path => Self::Path(path.into()),
        })
    }
}

/// The checkpoint that a run resumes from.
#[derive(Debug, Default)]
pub struct Latest {
    /// The newest checkpoint that is whole.
    pub checkpoint: Option<Checkpoint>,
    /// Newer damaged checkpoints, and why.
    pub passed_over: Vec<CheckpointError>,
}

/// The folder of a run's checkpoints.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep_last: usize,
    storage: Box<dyn Storage>,
}

impl Checkpoints {
    /// Opens the folder for the run that owns it, and removes unfinished saves.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made or tidied.
    pub fn open(folder: &Path, keep_last: usize) -> Result<Self, CheckpointError> {
        Self::with_storage(folder, keep_last, Box::new(Disk))
    }

    /// [`Checkpoints::open`] on another storage.
    ///
    /// # Errors
    ///
    /// If the folder cannot be made or tidied.
    pub fn with_storage(
        folder: &Path,
        keep_last: usize,
        storage: Box<dyn Storage>,
    ) -> Result<Self, CheckpointError> {
        storage.create_dir(folder).map_err(CheckpointError::io("make", folder))?;
        let this = Self { folder: folder.to_owned(), keep_last, storage };
        retention::tidy(&this.folder, this.storage.as_ref())
            .map_err(CheckpointError::io("tidy", folder))?;
        Ok(this)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a checkpoint of `state` and the named `files`, then removes expired checkpoints.
    ///
    /// On a full disk, removes all but the newest, the best and the archived, and retries once.
    ///
    /// # Errors
    ///
    /// If the write fails; the newest earlier checkpoint remains.
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
        let name = retention::folder_name(state.step);
        let temporary = self.folder.join(format!(".tmp-{name}"));
        let written = self.write_into(&temporary, files, state).and_then(|()| {
            let path = self.folder.join(&name);
            retention::put_in_place(&temporary, &path, self.storage.as_ref())?;
            Ok(path)
        });
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
        let manifest = manifest::write(all);
        self.storage.write(&folder.join(MANIFEST), manifest.as_bytes())?;
        self.storage.sync_dir(folder)
    }

    /// Removes all but the `keep` newest checkpoints, the best and the archived; ignores failures.
    fn prune(&self, keep: usize) {
        // If the archive list is unreadable, nothing is removed.
        let Ok(archived) = retention::archived(&self.folder) else { return };
        let best = self.best_step();
        for (step, path) in retention::list(&self.folder).iter().rev().skip(keep) {
            if Some(*step) != best && !archived.contains(step) {
                let _ = self.storage.remove(path);
            }
        }
    }

    /// Archives the checkpoint of `step`, which may not exist yet: it is never removed.
    ///
    /// # Errors
    ///
    /// If the list of archived checkpoints cannot be read or written.
    pub fn archive(&self, step: u64) -> Result<(), CheckpointError> {
        let path = self.folder.join(retention::ARCHIVE);
        let mut archived =
            retention::archived(&self.folder).map_err(CheckpointError::io("read", &path))?;
        if !archived.insert(step) {
            return Ok(());
        }
        let names: Vec<_> = archived.into_iter().map(retention::folder_name).collect();
        let text = names.join("\n") + "\n";
        replace(self.storage.as_ref(), &path, text.as_bytes())
            .map_err(CheckpointError::io("write", &path))
    }

    /// Makes the checkpoint of `step` the best, which is never removed.
    ///
    /// # Errors
    ///
    /// If there is no such checkpoint, or its name cannot be written.
    pub fn mark_best(&self, step: u64) -> Result<(), CheckpointError> {
        let name = retention::folder_name(step);
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
        self.folder.join(retention::folder_name(step))
    }

    /// The steps of all checkpoints, ascending.
    pub fn steps(&self) -> Vec<u64> {
        retention::list(&self.folder).into_iter().map(|(step, _)| step).collect()
    }

    /// The newest whole checkpoint. Damaged ones are renamed to `.bad-…`, never removed.
    ///
    /// If `best` names a damaged or missing checkpoint, it is reset to the one that the found
    /// checkpoint records.
    ///
    /// # Errors
    ///
    /// If a file cannot be read for a reason other than damage.
    pub fn latest_valid(&self) -> Result<Latest, CheckpointError> {
        let mut latest = Latest::default();
        for (_, path) in retention::list(&self.folder).iter().rev() {
            match Checkpoint::read(path) {
                Ok(checkpoint) => {
                    latest.checkpoint = Some(checkpoint);
                    break;
                }
                Err(damaged @ CheckpointError::Damaged { .. }) => {
                    retention::set_aside(path, self.storage.as_ref())
                        .map_err(CheckpointError::io("rename", path))?;
                    latest.passed_over.push(damaged);
                }
                Err(other) => return Err(other),
            }
        }
        self.restore_best(latest.checkpoint.as_ref())?;
        // Also an error on later attempts, after renaming: only the user may start over.
        let count = retention::count_set_aside(&self.folder);
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

/// Reads one checkpoint of `folder` without changing the folder, which a run may be using.
///
/// # Errors
///
/// If the checkpoint is missing or damaged; for [`Selection::Last`], only if all are.
pub fn select(folder: &Path, selection: &Selection) -> Result<Checkpoint, CheckpointError> {
    let missing = |which: &str| CheckpointError::Missing {
        which: which.to_owned(),
        folder: folder.to_owned(),
    };
    match selection {
        Selection::Path(path) => Checkpoint::read(path),
        Selection::Best => {
            let step = best_step(folder).ok_or_else(|| missing(BEST))?;
            Checkpoint::read(&folder.join(retention::folder_name(step)))
        }
        Selection::Last => {
            let mut failure = None;
            for (_, path) in retention::list(folder).iter().rev() {
                match Checkpoint::read(path) {
                    Ok(checkpoint) => return Ok(checkpoint),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            Err(failure.unwrap_or_else(|| missing("last")))
        }
    }
}

/// The step of the checkpoint in `folder` that `best` names.
pub fn best_step(folder: &Path) -> Option<u64> {
    let name = fs::read_to_string(folder.join(BEST)).ok()?;
    retention::step_of(name.trim_end())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
