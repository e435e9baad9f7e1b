//! The outputs of metrics: `metrics.jsonl`, and the files derived from it.

use std::io;
use std::path::Path;

use serde::Serialize;

use super::JsonlWriter;
use super::csv::CsvTable;
use super::events::EventWriter;
use super::record::{OWN_WEIGHTS, Record};
use crate::{Log, RunDir, RunError};

/// The files that metrics are written to.
///
/// `metrics.jsonl` is authoritative. If the table or TensorBoard's events cannot be written,
/// training logs a warning and continues without them, since nothing is lost.
#[derive(Debug)]
pub struct Sinks {
    records: JsonlWriter,
    table: Option<CsvTable>,
    events: Option<EventWriter>,
    log: Log,
}

impl Sinks {
    /// Opens the files of `run` at `step` steps; truncates its records to `len` bytes.
    ///
    /// # Errors
    ///
    /// As [`JsonlWriter::truncated`].
    pub fn open(run: &RunDir, len: u64, step: u64, log: &Log) -> Result<Self, RunError> {
        let (records, table) = (run.metrics(), run.table());
        let writer = JsonlWriter::truncated(&records, len)?;
        let table = or_warn(CsvTable::derive(&records, &table), &table, log);
        let events = or_warn(EventWriter::create(run.path(), step), run.path(), log);
        Ok(Self { records: writer, table, events, log: log.clone() })
    }

    /// Writes a record of `metrics.jsonl`.
    ///
    /// # Errors
    ///
    /// As [`JsonlWriter::append`].
    pub fn append(&mut self, record: &impl Serialize) -> Result<(), RunError> {
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

    /// Returns when all records are on the disk: see [`JsonlWriter::sync`].
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn sync(&self) -> Result<(), RunError> {
        self.records.sync()
    }

    /// Another handle of `metrics.jsonl`, for a thread that syncs it.
    ///
    /// # Errors
    ///
    /// If the operating system has no handle left.
    pub fn handle(&self) -> Result<JsonlWriter, RunError> {
        self.records.handle()
    }

    /// Length of `metrics.jsonl` in bytes.
    pub fn len(&self) -> u64 {
        self.records.len()
    }

    /// Whether there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
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
