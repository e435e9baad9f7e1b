//! The fixtures of tests/golden: what the original's programs and Pillow made of the same inputs.

use std::{fmt::Write, fs, path::PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// Measured by the original's own programs: `manifest.json`.
#[derive(Deserialize)]
pub(crate) struct Manifest {
    pub(crate) ops: Vec<OpCase>,
    pub(crate) resize: Vec<ResizeCase>,
    pub(crate) decode: Vec<FileCase>,
}

/// Made by `make.py` with Pillow: `more.json`.
#[derive(Deserialize)]
pub(crate) struct More {
    pub(crate) ops: Vec<OpCase>,
    pub(crate) resize: Vec<ResizeCase>,
    pub(crate) odd: Vec<FileCase>,
}

/// An operation on a square image.
#[derive(Debug, Deserialize)]
pub(crate) struct OpCase {
    pub(crate) input: String,
    pub(crate) op: String,
    pub(crate) args: Vec<f64>,
    pub(crate) sha256: String,
}

/// A crop `[top, left, height, width]` of `src0_png.JPEG`, resized to `[height, width]`.
#[derive(Debug, Deserialize)]
pub(crate) struct ResizeCase {
    pub(crate) crop: [usize; 4],
    pub(crate) size: [usize; 2],
    pub(crate) sha256: String,
}

/// A file, and its pixels' hash unless it is to be refused.
#[derive(Debug, Deserialize)]
pub(crate) struct FileCase {
    pub(crate) file: String,
    pub(crate) sha256: Option<String>,
}

/// Path of a fixture.
pub(crate) fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect()
}

/// Contents of a fixture.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap()
}

/// A fixture of JSON.
pub(crate) fn json<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&bytes(name)).unwrap()
}

/// In hexadecimal digits.
pub(crate) fn sha256(data: &[u8]) -> String {
    Sha256::digest(data).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
