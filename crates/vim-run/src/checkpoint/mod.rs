//! Checkpoints as folders of files; a crash at any moment leaves earlier checkpoints whole.
//!
//! A save writes a `.tmp-` folder, its manifest last, and renames it to `step-NNNNNNNN` once all
//! files are on the disk; only then are old checkpoints removed. So a folder of that name is
//! complete, and the manifest reveals later damage, which is passed over.
//!
//! Retention: the newest `keep_last`, `best`, and everything in `archive`, even on a full disk.

mod retention;

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use serde::{Deserialize, Serialize};

use crate::RunError;
pub use crate::error::CheckpointError;
use crate::metrics::{JsonlWriter, Prefix};

pub use retention::{
    Checkpoints, Latest, Selection, best_step, count_set_aside, is_checkpoint, list, select,
};

/// Name of the state's file.
const STATE: &str = "state.json";
/// Name of the file that says what the weights are of.
pub const PROVENANCE: &str = "provenance.toml";
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
    /// Reads the checkpoint in the folder `path`; [`CheckpointError::Damaged`] if a file disagrees
    /// with the manifest, or the state with the folder's number.
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
        let entries = String::from_utf8(read(MANIFEST)?).ok().and_then(|text| read_manifest(&text));
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
        let state: State = serde_json::from_slice(&state).map_err(|error| {
            // The bytes are as written: passing over them would discard work.
            CheckpointError::Incompatible { path: path.to_owned(), why: error.to_string() }
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if retention::step_of(&name).is_some_and(|step| step != state.step) {
            // As the newest, a copy under a higher number would undo all progress at each resume.
            return Err(damaged(format!(
                "{STATE} is of step {}: the folder was copied or renamed",
                state.step
            )));
        }
        Ok(Self { path: path.to_owned(), state, files })
    }

    /// A checkpoint that another process has read or made; `path` names it in errors.
    pub fn received(path: PathBuf, state: State, files: Vec<(String, Vec<u8>)>) -> Self {
        Self { path, state, files: files.into_iter().collect() }
    }

    /// Takes the bytes of a named file out of the checkpoint.
    pub fn take(&mut self, name: &str) -> Result<Vec<u8>, CheckpointError> {
        self.files.remove(name).ok_or_else(|| CheckpointError::Damaged {
            path: self.path.clone(),
            why: format!("it has no file {name}"),
        })
    }
}

/// The position of training: all that a resumed run needs besides the named files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch of the next step, from 0.
    pub epoch: u64,
    /// Next batch within that epoch, from 0.
    pub batch: u64,
    /// The best evaluation so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<Best>,
    /// Losses since the last record.
    #[serde(default)]
    pub window: Window,
    /// Parts of these losses, in the task's order; none of most tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Window>,
    /// Steps skipped because loss or gradient were not finite.
    #[serde(default)]
    pub skipped: u64,
    /// Skipped steps since the last step that was not skipped.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Whether the evaluation due at this step is still pending.
    #[serde(default)]
    pub eval_pending: bool,
    /// The records in `metrics.jsonl`.
    #[serde(flatten)]
    pub metrics: Prefix,
    /// Steps of an epoch, from the data's size.
    #[serde(default)]
    pub steps_per_epoch: u64,
    /// The device, such as `cpu`.
    #[serde(default)]
    pub device: String,
}

/// A running mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    #[serde(with = "text")]
    sum: f64,
    count: u64,
}

impl Window {
    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.sum += number;
        self.count += 1;
    }

    /// The mean of the added numbers, if any.
    pub fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// The best evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The primary score.
    #[serde(with = "text")]
    pub metric: f64,
    /// Steps done at the evaluation.
    pub step: u64,
    /// The evaluated weights.
    #[serde(default)]
    pub weights: Weights,
}

/// Weights of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// The trained weights.
    #[default]
    Model,
    /// Their moving average.
    Ema,
}

impl Weights {
    /// Their name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Ema => "ema",
        }
    }

    /// Their file in a checkpoint.
    pub fn file(self) -> &'static str {
        match self {
            Self::Model => "model.safetensors",
            Self::Ema => "ema.safetensors",
        }
    }
}

/// The manifest lists a checkpoint's files, to reveal damage: a line `<BLAKE3> <bytes> <name>` for
/// each, then `<BLAKE3 of the lines above> end`; without the last line a manifest cut at a line's
/// end would look whole.
const MANIFEST: &str = "MANIFEST";

/// Checksum and length of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    hash: String,
    bytes: usize,
}

impl Entry {
    fn of(bytes: &[u8]) -> Self {
        Self { hash: blake3::hash(bytes).to_hex().to_string(), bytes: bytes.len() }
    }

    /// How `bytes` differ from the file's, if they do.
    fn mismatch(&self, bytes: &[u8]) -> Option<String> {
        if bytes.len() != self.bytes {
            return Some(format!("has {} bytes instead of {}", bytes.len(), self.bytes));
        }
        (Self::of(bytes) != *self).then(|| "does not match its checksum".to_owned())
    }
}

/// The manifest's text.
fn write_manifest<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut text = String::new();
    for (name, bytes) in files {
        let entry = Entry::of(bytes);
        text.push_str(&format!("{} {} {name}\n", entry.hash, entry.bytes));
    }
    let end = blake3::hash(text.as_bytes()).to_hex();
    text.push_str(&format!("{end} end\n"));
    text
}

/// The entries of a manifest, by name; `None` if it is damaged.
fn read_manifest(text: &str) -> Option<BTreeMap<String, Entry>> {
    let (end_at, _) = text.strip_suffix('\n')?.rmatch_indices('\n').next()?;
    let (lines, end) = text.split_at(end_at + 1);
    if end.trim_end().strip_suffix(" end")? != blake3::hash(lines.as_bytes()).to_hex().as_str() {
        return None;
    }
    lines
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let (hash, bytes, name) = (words.next()?, words.next()?, words.next()?);
            let entry = Entry { hash: hash.to_owned(), bytes: bytes.parse().ok()? };
            Some((name.to_owned(), entry))
        })
        .collect()
}

/// Name of the thread; its panics become errors.
pub const THREAD: &str = "checkpoint";

/// Serializes a file on the writing thread.
pub type Content = Box<dyn FnOnce() -> Result<Vec<u8>, String> + Send>;

/// A checkpoint in host memory, not yet written.
pub struct Snapshot {
    /// The files, by name.
    pub files: Vec<(&'static str, Content)>,
    /// The state of training.
    pub state: State,
    /// Whether the checkpoint is the best so far.
    pub is_best: bool,
    /// Whether the checkpoint is archived.
    pub is_archived: bool,
}

impl Snapshot {
    /// Syncs `metrics`, whose extent the state records, then writes the checkpoint.
    fn write(self, checkpoints: &Checkpoints, metrics: &JsonlWriter) -> Result<(), RunError> {
        metrics.sync()?;
        let files = self.files.into_iter().map(|(name, content)| Ok((name, content()?)));
        let files = files.collect::<Result<Vec<_>, String>>().map_err(RunError::Internal)?;
        let files: Vec<(&str, &[u8])> =
            files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
        if self.is_archived {
            // Before the save, so that no crash leaves an archived checkpoint unlisted.
            checkpoints.archive(self.state.step)?;
        }
        checkpoints.save(&files, &self.state)?;
        if self.is_best {
            checkpoints.mark_best(self.state.step)?;
        }
        Ok(())
    }
}

/// Writes checkpoints one at a time on a thread, while the loop continues. Dropping waits for the
/// save in flight.
///
/// The next save waits for it, too: checkpoints appear in order, and the best one exists before any
/// checkpoint that refers to it. The loop waits only to read arrays from the device, and for a disk
/// that is slower than the time between two checkpoints.
#[derive(Debug)]
pub struct Saver {
    checkpoints: Arc<Checkpoints>,
    /// The save in flight, or a finished one whose result was not read.
    running: Option<JoinHandle<Result<(), RunError>>>,
}

impl Saver {
    /// A saver into the folder of `checkpoints`.
    pub fn new(checkpoints: Checkpoints) -> Self {
        Self { checkpoints: Arc::new(checkpoints), running: None }
    }

    /// The folder of the checkpoints.
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Starts to write `snapshot` after the previous save, whose error it returns; the state
    /// records the extent of `metrics`.
    pub fn start(&mut self, snapshot: Snapshot, metrics: JsonlWriter) -> Result<(), RunError> {
        self.wait()?;
        let checkpoints = Arc::clone(&self.checkpoints);
        let write = move || snapshot.write(&checkpoints, &metrics);
        let thread = thread::Builder::new().name(THREAD.into()).spawn(write);
        let started = RunError::io("start a thread to save into", self.checkpoints.folder());
        self.running = Some(thread.map_err(started)?);
        Ok(())
    }

    /// The result of the previous save, once, if it has ended; returns at once.
    pub fn check(&mut self) -> Result<(), RunError> {
        let has_ended = self.running.as_ref().is_some_and(JoinHandle::is_finished);
        if has_ended { self.wait() } else { Ok(()) }
    }

    /// Returns when nothing is being written, with the result of the save in flight.
    pub fn wait(&mut self) -> Result<(), RunError> {
        match self.running.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| Err(panicked(&*panic))),
            None => Ok(()),
        }
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        // Callers that need the result call `wait` first.
        let _ = self.wait();
    }
}

fn panicked(panic: &(dyn Any + Send)) -> RunError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let line = text.unwrap_or("a panic without a message").split_whitespace();
    RunError::Internal(line.collect::<Vec<_>>().join(" "))
}

/// A float as a string, which can also say that it is not finite. All checkpoints have these floats
/// so.
mod text {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_less() {
        let text = write_manifest([("model", b"abc".as_slice()), ("optim", b"")]);
        let entries = read_manifest(&text).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries["model"].mismatch(b"abc"), None);
        assert!(entries["model"].mismatch(b"abd").unwrap().contains("checksum"));
        assert!(entries["optim"].mismatch(b"x").unwrap().contains("1 bytes instead of 0"));
        for cut in 0..text.len() {
            assert_eq!(read_manifest(&text[..cut]), None, "cut after {cut} bytes");
        }
        assert_eq!(read_manifest(&text.replacen("abc", "", 1).replacen("model", "modal", 1)), None);
    }
}
