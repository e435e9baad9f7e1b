//! `metrics.csv`: the records of `metrics.jsonl` as one wide table.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Record;
use crate::storage::{Disk, replace};

/// The columns that every table has, in this order; others come after them as records bring them.
const COLUMNS: [&str; 11] = [
    "step",
    "epoch",
    "kind",
    "split",
    "checkpoint",
    "loss",
    "lr",
    "grad_norm",
    "top1",
    "top5",
    "images",
];

/// A table that follows a file of JSON records.
///
/// It says nothing that the records do not: it is made from them anew when a run starts or goes on,
/// and when a record has a key that is no column yet. What a record lacks is an empty field, and so is a number that is not finite.
#[derive(Debug)]
pub(super) struct CsvTable {
    records: PathBuf,
    path: PathBuf,
    columns: Vec<String>,
    file: File,
}

impl CsvTable {
    /// Writes `path` from the records in the file `records`, in place of what is there.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written, or a line of `records` is no record.
    pub(super) fn derive(records: &Path, path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(records)?;
        let parsed: Option<Vec<Record>> = text.lines().map(Record::parse).collect();
        let parsed = parsed.ok_or_else(no_record)?;
        let mut columns: Vec<String> = COLUMNS.map(String::from).to_vec();
        for (key, _) in parsed.iter().flat_map(Record::fields) {
            if !columns.iter().any(|column| column == key) {
                columns.push(key.to_owned());
            }
        }
        let mut bytes = line(columns.iter())?;
        for record in &parsed {
            bytes.extend(row(&columns, record)?);
        }
        replace(&Disk, path, &bytes)?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { records: records.to_owned(), path: path.to_owned(), columns, file })
    }

    /// Adds the newest record, which is in the file of records already.
    ///
    /// # Errors
    ///
    /// As [`CsvTable::derive`].
    pub(super) fn append(&mut self, record: &Record) -> io::Result<()> {
        if record.fields().any(|(key, _)| !self.columns.iter().any(|column| column == key)) {
            *self = Self::derive(&self.records, &self.path)?;
            return Ok(());
        }
        self.file.write_all(&row(&self.columns, record)?)
    }
}

fn row(columns: &[String], record: &Record) -> io::Result<Vec<u8>> {
    line(columns.iter().map(|column| record.get(column).map_or_else(String::new, text)))
}

/// A string's content, and the JSON of anything else: numbers with the digits of the record.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn line(fields: impl Iterator<Item = impl AsRef<[u8]>>) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields)?;
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}

fn no_record() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a line of the metrics is no record")
}
