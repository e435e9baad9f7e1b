//! The binary version: records of label bytes followed by three planes.

use crate::error::{DataError, Location};

use super::layout::Layout;
use super::{IMAGE, Records};

/// Splits a `.bin` file into images and labels.
pub(super) fn decode(layout: &Layout, file: &Location, bytes: &[u8]) -> Result<Records, DataError> {
    let record = layout.label_bytes + IMAGE;
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        return Err(DataError::RecordSize { file: file.clone(), bytes: bytes.len(), record });
    }
    let count = bytes.len() / record;
    let mut records =
        Records { planes: Vec::with_capacity(count * IMAGE), labels: Vec::with_capacity(count) };
    for record in bytes.chunks_exact(record) {
        let (labels, planes) = record.split_at(layout.label_bytes);
        // CIFAR-100 has the coarse label first.
        records.labels.push(i64::from(labels[layout.label_bytes - 1]));
        records.planes.extend_from_slice(planes);
    }
    Ok(records)
}
