//! The records of a run: `metrics.jsonl`, and the files derived from it.

mod csv;
mod events;
mod reader;
mod record;
mod scores;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use blake3::Hasher;
use serde::{Deserialize, Serialize};

use crate::temporary::is_at;
use crate::{Log, RunDir, RunError};
use csv::CsvTable;
use events::EventWriter;

pub use events::Picture;
pub use reader::{Curve, RecordReader};
pub use record::{OWN_WEIGHTS, Record};
pub use scores::{LARGEST_DELTA_A, ScoreKind, Scores};

/// The beginning of `metrics.jsonl` that a checkpoint knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prefix {
    /// Its length in bytes.
    #[serde(rename = "metrics_len")]
    pub len: u64,
    /// Its BLAKE3; `None` in checkpoints of earlier versions.
    #[serde(default, rename = "metrics_blake3", skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
}

/// A file of JSON records, one per line.
///
/// A record is written as a whole. Floats have the shortest digits that identify them, so equal
/// numbers make equal bytes; floats that are not finite are `null`.
#[derive(Debug)]
pub struct JsonlWriter {
    path: PathBuf,
    file: File,
    len: u64,
    /// Of the whole file, if [`Self::prefix`] is wanted.
    hasher: Option<Hasher>,
}

impl JsonlWriter {
    /// Opens `path` and truncates it to the part that the checkpoint knows.
    ///
    /// A resumed run writes the removed records again, with the same bytes.
    ///
    /// # Errors
    ///
    /// If that part is shorter or altered; the file then stays as it is.
    pub fn truncated(path: &Path, known: &Prefix) -> Result<Self, RunError> {
        let writer = Self::appending(path)?;
        let unfit = |what: String| {
            let what = format!(
                "{what} that the checkpoint knows; restore it, remove the checkpoints that are newer, or start anew by --fresh"
            );
            RunError::io("go on with", path)(io::Error::other(what))
        };
        if writer.len < known.len {
            return Err(unfit(format!("it has {} of the {} bytes", writer.len, known.len)));
        }
        let mut hasher = Hasher::new();
        let file = File::open(path).map_err(RunError::io("open", path))?;
        hasher.update_reader(file.take(known.len)).map_err(RunError::io("read", path))?;
        if known.blake3.as_ref().is_some_and(|recorded| *recorded != hex(&hasher)) {
            return Err(unfit(format!("its first {} bytes are no longer those", known.len)));
        }
        writer.file.set_len(known.len).map_err(RunError::io("shorten", path))?;
        Ok(Self { len: known.len, hasher: Some(hasher), ..writer })
    }

    /// Opens `path` to append to it.
    pub fn appending(path: &Path) -> Result<Self, RunError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(RunError::io("open", path))?;
        let len = file.metadata().map_err(RunError::io("open", path))?.len();
        Ok(Self { path: path.to_owned(), file, len, hasher: None })
    }

    /// Writes a record; if that fails, the file is truncated to whole records.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        let line = serde_json::to_string(record)
            .map_err(|error| RunError::Internal(format!("{}: {error}", self.path.display())))?;
        self.append_line(line)
    }

    fn append_line(&mut self, mut line: String) -> Result<(), RunError> {
        line.push('\n');
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            // On a full disk a partial line may have been written.
            let _ = self.file.set_len(self.len);
            return Err(RunError::io("write", &self.path)(error));
        }
        self.len += line.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(line.as_bytes());
        }
        Ok(())
    }

    /// Returns when all records are on the disk; call before a checkpoint records [`Self::prefix`].
    /// A file that is no longer at its path is an error: a resumed run would not find its records.
    pub fn sync(&self) -> Result<(), RunError> {
        self.file.sync_data().map_err(RunError::io("write", &self.path))?;
        self.check()
    }

    fn check(&self) -> Result<(), RunError> {
        // If the path cannot be examined, the records still go to the open file.
        if is_at(&self.file, &self.path).unwrap_or(true) {
            return Ok(());
        }
        let why = "it was removed or replaced while the run was at work; put it back to go on with \
                   --resume auto, or start anew by --fresh";
        Err(RunError::io("go on with", &self.path)(io::Error::other(why)))
    }

    /// A second handle of the file, for [`Self::sync`] on another thread.
    pub fn handle(&self) -> Result<Self, RunError> {
        let file = self.file.try_clone().map_err(RunError::io("open", &self.path))?;
        Ok(Self { path: self.path.clone(), file, len: self.len, hasher: None })
    }

    /// The whole file, for a checkpoint; hashed if it was opened by [`Self::truncated`].
    pub fn prefix(&self) -> Prefix {
        Prefix { len: self.len, blake3: self.hasher.as_ref().map(hex) }
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file holds no record.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn hex(hasher: &Hasher) -> String {
    hasher.finalize().to_hex().to_string()
}

/// The files that metrics are written to.
///
/// `metrics.jsonl` is authoritative. If the table or TensorBoard's events cannot be written,
/// training logs a warning and continues without them, since nothing is lost.
#[derive(Debug)]
pub struct Sinks {
    run: RunDir,
    records: JsonlWriter,
    table: Option<CsvTable>,
    events: Option<EventWriter>,
    log: Log,
}

impl Sinks {
    /// Opens the files of `run` at `step` steps; truncates its records to the `known` ones.
    pub fn open(run: &RunDir, known: &Prefix, step: u64, log: &Log) -> Result<Self, RunError> {
        let (records, table) = (run.metrics(), run.path().join("metrics.csv"));
        let writer = JsonlWriter::truncated(&records, known)?;
        let table = or_warn(CsvTable::derive(&records, &table), &table, log);
        let events = or_warn(EventWriter::create(run.path(), step), run.path(), log);
        Ok(Self { run: run.clone(), records: writer, table, events, log: log.clone() })
    }

    /// Writes a record of `metrics.jsonl`; an error if that or its folder is not in its place.
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
        self.run.check()?;
        self.records.check()?;
        let of_json = |error| RunError::Internal(format!("metrics: {error}"));
        let line = serde_json::to_string(record).map_err(of_json)?;
        let record: Record = serde_json::from_str(&line).map_err(of_json)?;
        self.records.append_line(line)?;
        if let Some(table) = &mut self.table
            && or_warn(table.append(&record), Path::new("metrics.csv"), &self.log).is_none()
        {
            self.table = None;
        }
        self.scalars(record.number("step").unwrap_or(0), &scalars(&record));
        Ok(())
    }

    /// Writes scalars that depend on the clock to TensorBoard alone.
    pub fn scalars(&mut self, step: u64, scalars: &[(String, f64)]) {
        if let Some(events) = &mut self.events
            && or_warn(events.scalars(step, scalars), Path::new("TensorBoard's events"), &self.log)
                .is_none()
        {
            self.events = None;
        }
    }

    /// Writes pictures to TensorBoard alone.
    pub fn pictures(&mut self, step: u64, pictures: &[Picture]) {
        if let Some(events) = &mut self.events
            && or_warn(
                events.pictures(step, pictures),
                Path::new("TensorBoard's events"),
                &self.log,
            )
            .is_none()
        {
            self.events = None;
        }
    }

    /// `metrics.jsonl` itself.
    pub fn records(&self) -> &JsonlWriter {
        &self.records
    }
}

/// The numbers of a record under the tags that TensorBoard groups by: `train/loss`, `val/top1`.
///
/// For weights other than the model's, such as averaged ones, the tag names them: `val/ema/top1`.
fn scalars(record: &Record) -> Vec<(String, f64)> {
    let mut group = record.text("split").or(record.text("kind")).unwrap_or("metrics").to_owned();
    if let Some(weights) = record.text("weights").filter(|name| *name != OWN_WEIGHTS) {
        group = format!("{group}/{weights}");
    }
    record.measured().map(|(key, number)| (format!("{group}/{key}"), number)).collect()
}

/// The value of `result`; logs a warning on an error.
fn or_warn<T>(result: io::Result<T>, path: &Path, log: &Log) -> Option<T> {
    if let Err(error) = &result {
        let path = path.display();
        log.line(format!(
            "warning: {path}: {error}; training goes on without it, metrics.jsonl has it all"
        ));
    }
    result.ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tags(record: Value) -> Vec<(String, f64)> {
        scalars(&Record::parse(&record.to_string()).unwrap())
    }

    #[test]
    fn tags_of_records() {
        let train = json!({ "kind": "train", "step": 2, "epoch": 0, "loss": 2.5, "lr": 0.125 });
        assert_eq!(tags(train), [("train/loss".into(), 2.5), ("train/lr".into(), 0.125)]);
        let mut eval = json!({ "kind": "eval", "split": "val", "images": 64, "top1": 0.5 });
        assert_eq!(tags(eval.clone()), [("val/top1".into(), 0.5)]);
        for (weights, tag) in [("model", "val/top1"), ("ema", "val/ema/top1")] {
            eval["weights"] = weights.into();
            assert_eq!(tags(eval.clone()), [(tag.into(), 0.5)]);
        }
        let broken = tags(json!({ "kind": "train", "step": 1, "loss": null }));
        assert!(broken[0].0 == "train/loss" && broken[0].1.is_nan());
    }
}
