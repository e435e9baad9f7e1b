//! Archives made by hand.

use std::io::{Cursor, Write};
use std::path::PathBuf;

use vim_torch::{Checkpoint, ReadError, Section, read_checkpoint};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

/// The bytes of a file in `tests/fixtures`.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", name].iter().collect();
    std::fs::read(path).unwrap()
}

pub(crate) fn read(bytes: &[u8]) -> Result<Checkpoint, ReadError> {
    read_checkpoint(Cursor::new(bytes), Section::Model)
}

/// The text of the error, which must be one line.
pub(crate) fn refusal(bytes: &[u8]) -> String {
    let text = read(bytes).unwrap_err().to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text}");
    text
}

/// An archive with these files, stored or deflated.
pub(crate) fn archive(files: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        let options = SimpleFileOptions::default().compression_method(method);
        zip.start_file(format!("archive/{name}"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A short text of a pickle.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// An integer of a pickle.
pub(crate) fn integer(number: i64) -> Vec<u8> {
    [&[0x8a, 8], &number.to_le_bytes()[..]].concat()
}

/// Integers of a pickle in a tuple.
pub(crate) fn tuple(numbers: &[i64]) -> Vec<u8> {
    let inner: Vec<u8> = numbers.iter().flat_map(|&number| integer(number)).collect();
    [b"(", &inner[..], b"t"].concat()
}

/// A tensor of a pickle on the storage `0` of `length` f32.
pub(crate) fn tensor(length: i64, offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n((".as_slice(),
        &text("storage"),
        b"ctorch\nFloatStorage\n",
        &text("0"),
        &text("cpu"),
        &integer(length),
        b"tQ",
        &integer(offset),
        &tuple(shape),
        &tuple(strides),
        b"\x89NtR",
    ]
    .concat()
}

/// A dictionary of a pickle.
pub(crate) fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let inner = pairs.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
    [b"}(", &inner.collect::<Vec<u8>>()[..], b"u"].concat()
}

/// An archive of `value` and a storage of 4 f32, 0 to 3.
pub(crate) fn whole(value: &[u8]) -> Vec<u8> {
    let storage = [0.0_f32, 1.0, 2.0, 3.0].map(f32::to_le_bytes).concat();
    let files = [("data.pkl", &[b"\x80\x02", value, b"."].concat()[..]), ("data/0", &storage)];
    archive(&files, CompressionMethod::Stored)
}

/// A pickle of `{"w": value}`.
pub(crate) fn state_dict(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02}", &text("w")[..], value, b"s."].concat()
}

/// An archive of `{"w": value}` and a storage of 4 f32, 0 to 3.
pub(crate) fn one(value: &[u8]) -> Vec<u8> {
    whole(&[b"}", &text("w")[..], value, b"s"].concat())
}
