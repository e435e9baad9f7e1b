//! TensorBoard's event files: scalars and images, as `tensorboard --logdir` reads them.
//!
//! A file is a sequence of records, each framed as TensorFlow's TFRecord: length, masked CRC-32C of
//! the length, the record, masked CRC-32C of the record. A record is a protobuf `Event`, encoded by
//! hand because few fields are needed.
//!
//! Source: tensorflow/core/util/event.proto, framework/summary.proto, lib/io/record_writer.h.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::host_name;

/// Prefix of the names of event files.
const PREFIX: &str = "events.out.tfevents.";

/// Field numbers of the messages `Event`, `Summary`, `Summary.Value`, `Summary.Image` and
/// `SessionLog`.
mod field {
    pub(super) const WALL_TIME: u64 = 1;
    pub(super) const STEP: u64 = 2;
    pub(super) const FILE_VERSION: u64 = 3;
    pub(super) const SUMMARY: u64 = 5;
    pub(super) const SESSION_LOG: u64 = 7;
    pub(super) const SUMMARY_VALUE: u64 = 1;
    pub(super) const VALUE_TAG: u64 = 1;
    pub(super) const VALUE_SIMPLE: u64 = 2;
    pub(super) const VALUE_IMAGE: u64 = 4;
    pub(super) const IMAGE_HEIGHT: u64 = 1;
    pub(super) const IMAGE_WIDTH: u64 = 2;
    pub(super) const IMAGE_COLOURS: u64 = 3;
    pub(super) const IMAGE_ENCODED: u64 = 4;
    pub(super) const SESSION_STATUS: u64 = 1;
}

/// Protobuf's wire types.
mod wire {
    pub(super) const VARINT: u64 = 0;
    pub(super) const FIXED64: u64 = 1;
    pub(super) const BYTES: u64 = 2;
    pub(super) const FIXED32: u64 = 5;
}

/// `Summary.Image.colorspace` of red, green and blue.
const RGB: u64 = 3;

/// `SessionLog.SessionStatus.START`.
const START: u64 = 1;

/// A picture of a run, as a PNG of red, green and blue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// What it is called.
    pub tag: String,
    /// In pixels.
    pub height: usize,
    /// In pixels.
    pub width: usize,
    /// The file.
    pub png: Vec<u8>,
}

/// An event file of a run, from one process.
#[derive(Debug)]
pub(super) struct EventWriter {
    file: File,
    len: u64,
}

impl EventWriter {
    /// Makes a new file in `folder` for events after `step` steps.
    ///
    /// Readers drop later steps of earlier files, because a resumed run repeats them.
    pub(super) fn create(folder: &Path, step: u64) -> io::Result<Self> {
        // Readers take files in name order.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seconds = now.max(newest(folder)?.map_or(0, |newest| newest + 1));
        let name = format!("{PREFIX}{seconds:010}.{}.{}", host_name(), std::process::id());
        let file = OpenOptions::new().append(true).create_new(true).open(folder.join(name))?;
        let mut writer = Self { file, len: 0 };
        let mut version = Vec::new();
        bytes_field(&mut version, field::FILE_VERSION, b"brain.Event:2");
        let mut status = Vec::new();
        varint_field(&mut status, field::SESSION_STATUS, START);
        let mut session = Vec::new();
        varint_field(&mut session, field::STEP, step + 1);
        bytes_field(&mut session, field::SESSION_LOG, &status);
        writer.write(&[event(&version), event(&session)].concat())?;
        Ok(writer)
    }

    /// Writes the scalars of a step, by tag; if that fails, the file is truncated to whole records.
    pub(super) fn scalars(&mut self, step: u64, scalars: &[(String, f64)]) -> io::Result<()> {
        let mut summary = Vec::new();
        for (tag, number) in scalars {
            let mut value = Vec::new();
            bytes_field(&mut value, field::VALUE_TAG, tag.as_bytes());
            key(&mut value, field::VALUE_SIMPLE, wire::FIXED32);
            value.extend((*number as f32).to_le_bytes());
            bytes_field(&mut summary, field::SUMMARY_VALUE, &value);
        }
        let mut body = Vec::new();
        varint_field(&mut body, field::STEP, step);
        bytes_field(&mut body, field::SUMMARY, &summary);
        self.write(&event(&body))
    }

    /// Writes the pictures of a step; if that fails, the file is truncated to whole records.
    pub(super) fn pictures(&mut self, step: u64, pictures: &[Picture]) -> io::Result<()> {
        let mut summary = Vec::new();
        for Picture { tag, height, width, png } in pictures {
            let mut image = Vec::new();
            varint_field(&mut image, field::IMAGE_HEIGHT, *height as u64);
            varint_field(&mut image, field::IMAGE_WIDTH, *width as u64);
            varint_field(&mut image, field::IMAGE_COLOURS, RGB);
            bytes_field(&mut image, field::IMAGE_ENCODED, png);
            let mut value = Vec::new();
            bytes_field(&mut value, field::VALUE_TAG, tag.as_bytes());
            bytes_field(&mut value, field::VALUE_IMAGE, &image);
            bytes_field(&mut summary, field::SUMMARY_VALUE, &value);
        }
        let mut body = Vec::new();
        varint_field(&mut body, field::STEP, step);
        bytes_field(&mut body, field::SUMMARY, &summary);
        self.write(&event(&body))
    }

    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(records) {
            // Readers lose everything after a partial record.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += records.len() as u64;
        Ok(())
    }
}

/// The time in the name of the newest event file in `folder`.
fn newest(folder: &Path) -> io::Result<Option<u64>> {
    let mut newest = None;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let seconds = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next());
        newest = newest.max(seconds.and_then(|seconds| seconds.parse().ok()));
    }
    Ok(newest)
}

/// A framed event with the current time; `body` holds all other fields.
fn event(body: &[u8]) -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let mut event = Vec::new();
    key(&mut event, field::WALL_TIME, wire::FIXED64);
    event.extend(now.to_le_bytes());
    event.extend(body);
    let len = (event.len() as u64).to_le_bytes();
    let mut record = len.to_vec();
    record.extend(masked(&len).to_le_bytes());
    record.extend(&event);
    record.extend(masked(&event).to_le_bytes());
    record
}

/// TFRecord's masked CRC-32C of `bytes`: a CRC over data that embed plain CRCs would be weak.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn key(into: &mut Vec<u8>, field: u64, wire: u64) {
    varint(into, field << 3 | wire);
}

fn varint_field(into: &mut Vec<u8>, field: u64, number: u64) {
    key(into, field, wire::VARINT);
    varint(into, number);
}

fn bytes_field(into: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    key(into, field, wire::BYTES);
    varint(into, bytes.len() as u64);
    into.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_bytes_of_the_definition() {
        let mut body = Vec::new();
        varint_field(&mut body, field::STEP, 300);
        let record = event(&body);
        // Length 12: the time's key and 8 bytes, the step's key and 2 bytes.
        assert_eq!(record[..8], 12_u64.to_le_bytes());
        assert_eq!(record[12], 0x09);
        assert_eq!(record[21..24], [0x10, 0xac, 0x02]);
        assert_eq!(record.len(), 8 + 4 + 12 + 4);
    }

    #[test]
    fn a_picture_has_its_size_and_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path(), 0).unwrap();
        let before = writer.len as usize;
        let png = b"\x89PNG and so on".to_vec();
        let picture = Picture { tag: "val/a".into(), height: 3, width: 130, png: png.clone() };
        writer.pictures(7, &[picture]).unwrap();
        let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let record = fs::read(file).unwrap().split_off(before);
        // Behind the frame's 12 bytes and the time's 9: step 7, then the summary.
        assert_eq!(record[21..23], [0x10, 7]);
        let image =
            [&[0x08, 3, 0x10, 0x82, 0x01, 0x18, 3, 0x22, png.len() as u8][..], &png].concat();
        let value = [&b"\x0a\x05val/a\x22"[..], &[image.len() as u8], &image].concat();
        let summary = [&[0x0a, value.len() as u8][..], &value].concat();
        assert_eq!(record[23..25], [0x2a, summary.len() as u8]);
        assert_eq!(record[25..25 + summary.len()], summary);
    }

    #[test]
    fn checksums_are_masked_castagnoli() {
        // 0xe3069283 is the polynomial's published check value.
        assert_eq!(
            masked(b"123456789"),
            0xe306_9283_u32.rotate_right(15).wrapping_add(0xa282_ead8)
        );
    }
}
