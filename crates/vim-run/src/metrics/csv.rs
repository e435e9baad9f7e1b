//! `metrics.csv`: the records of `metrics.jsonl` as one wide table.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Record, RecordReader};
use crate::storage::{Disk, replace_with};

/// The columns of every table, in this order; further ones follow in order of appearance.
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
/// The table is rebuilt from the records when a run starts or resumes, and when a record has a new
/// key. Missing values and numbers that are not finite are empty fields.
#[derive(Debug)]
pub(super) struct CsvTable {
    records: PathBuf,
    path: PathBuf,
    columns: Vec<String>,
    file: File,
}

impl CsvTable {
    /// Replaces `path` by a table of the records in the file `records`.
    pub(super) fn derive(records: &Path, path: &Path) -> io::Result<Self> {
        let mut columns: Vec<String> = COLUMNS.map(String::from).to_vec();
        for record in all(records)? {
            for (key, _) in record?.fields() {
                if !columns.iter().any(|column| column == key) {
                    columns.push(key.to_owned());
                }
            }
        }
        replace_with(&Disk, path, |at| {
            let mut table = BufWriter::new(File::create(at)?);
            table.write_all(&line(columns.iter())?)?;
            for record in all(records)? {
                table.write_all(&row(&columns, &record?)?)?;
            }
            table.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
        })?;
        let file = OpenOptions::new().append(true).open(path)?;
        Ok(Self { records: records.to_owned(), path: path.to_owned(), columns, file })
    }

    /// Adds the newest record, which the file of records already holds.
    pub(super) fn append(&mut self, record: &Record) -> io::Result<()> {
        if record.fields().any(|(key, _)| !self.columns.iter().any(|column| column == key)) {
            *self = Self::derive(&self.records, &self.path)?;
            return Ok(());
        }
        self.file.write_all(&row(&self.columns, record)?)
    }
}

/// The records in a file, all of whose lines must be some.
fn all(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Record>> + use<>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a line of the metrics is no record");
    Ok(RecordReader::open(path)?.map(move |line| line?.1.ok_or_else(wrong)))
}

fn row(columns: &[String], record: &Record) -> io::Result<Vec<u8>> {
    line(columns.iter().map(|column| record.get(column).map_or_else(String::new, text)))
}

/// A string's content, or the JSON of another value, with the record's digits.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn line(fields: impl Iterator<Item = impl AsRef<[u8]>>) -> io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(fields)?;
    writer.into_inner().map_err(|error| io::Error::other(error.to_string()))
}
