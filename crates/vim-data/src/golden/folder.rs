//! A folder of golden arrays.

use std::path::{Component, Path, PathBuf};
use std::{collections::BTreeMap, fs};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::input::{InputKind, read_input};
use crate::{error::DataError, pixels::Pixels};

/// A manifest's description of a file, at any depth.
#[derive(Clone, Debug, Deserialize)]
struct Listed {
    file: String,
    shape: Vec<usize>,
    dtype: String,
    sha256: String,
}

/// A manifest and the files beside it.
pub(super) struct Folder {
    dir: PathBuf,
    manifest: Value,
    listed: BTreeMap<String, Listed>,
}

impl Folder {
    pub(super) fn open(dir: &Path) -> Result<Self, DataError> {
        let path = dir.join("manifest.json");
        let unreadable = |source| DataError::Io { path: path.clone(), source };
        let text = read_input(&path, InputKind::Record).map_err(unreadable)?;
        let manifest: Value =
            serde_json::from_slice(&text).map_err(|error| unreadable(error.into()))?;
        let mut listed = BTreeMap::new();
        collect(&manifest, &mut listed);
        Ok(Self { dir: dir.to_owned(), manifest, listed })
    }

    pub(super) fn manifest(&self) -> &Value {
        &self.manifest
    }

    /// Names of the files whose shape and hash the manifest gives.
    pub(super) fn listed(&self) -> impl Iterator<Item = &str> {
        self.listed.keys().map(String::as_str)
    }

    /// Names of the image files beside the manifest, in order.
    pub(super) fn images(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_image = |name: &String| [".jpg", ".png"].iter().any(|end| name.ends_with(end));
        let mut names: Vec<String> = names.filter(is_image).collect();
        names.sort();
        names
    }

    /// A file's bytes, checked against the manifest.
    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>, String> {
        let inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if !inside {
            return Err(format!("`{name}` is not a file of the folder"));
        }
        let bytes = read_input(&self.dir.join(name), InputKind::Record)
            .map_err(|error| format!("`{name}`: {error}"))?;
        let Some(listed) = self.listed.get(name) else { return Ok(bytes) };
        let sha256 = format!("{:x}", Sha256::digest(&bytes));
        if sha256 != listed.sha256 {
            return Err(format!("`{name}` has SHA-256 {sha256}, the manifest {}", listed.sha256));
        }
        let width = match listed.dtype.as_str() {
            "uint8" => 1,
            "float32" | "int32" => 4,
            "float64" | "int64" => 8,
            other => return Err(format!("`{name}` is of `{other}`, which is not known")),
        };
        let expected = listed.shape.iter().try_fold(width, |n: usize, &side| n.checked_mul(side));
        if expected != Some(bytes.len()) {
            let (shape, dtype) = (&listed.shape, &listed.dtype);
            return Err(format!("`{name}` has {} bytes, not {shape:?} of {dtype}", bytes.len()));
        }
        Ok(bytes)
    }

    /// An image `[H, W, 3]`.
    pub(super) fn image(&self, name: &str) -> Result<Pixels, String> {
        let bytes = self.bytes(name)?;
        match self.listed.get(name).map(|listed| (&listed.shape[..], &listed.dtype[..])) {
            Some((&[height, width, 3], "uint8")) => Ok(Pixels { height, width, data: bytes }),
            Some((shape, dtype)) => {
                Err(format!("`{name}` is {shape:?} of {dtype}, not [H, W, 3] of uint8"))
            }
            None => Err(format!("the manifest gives no shape of `{name}`")),
        }
    }

    /// Numbers in f32, with their shape.
    pub(super) fn floats(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), String> {
        let bytes = self.bytes(name)?;
        match self.listed.get(name) {
            Some(listed) if listed.dtype == "float32" => {
                let (numbers, _) = bytes.as_chunks();
                let numbers = numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
                Ok((listed.shape.clone(), numbers))
            }
            Some(listed) => Err(format!("`{name}` is of {}, not float32", listed.dtype)),
            None => Err(format!("the manifest gives no shape of `{name}`")),
        }
    }

    /// The file name that `reference` stands for: a position in the list `kind`, or a name.
    pub(super) fn named(&self, kind: &str, reference: &Value) -> Result<String, String> {
        if let Some(name) = reference.as_str() {
            return Ok(name.to_owned());
        }
        let files = &self.manifest[kind];
        let entry = match reference.as_u64() {
            Some(at) if files.is_array() => &files[at as usize],
            Some(0) => files,
            Some(_) | None => &Value::Null,
        };
        let name = entry["file"].as_str();
        name.map(str::to_owned).ok_or_else(|| format!("`{kind}` has no file {reference}"))
    }
}

/// Every file that the manifest gives shape and hash of, at any depth.
fn collect(value: &Value, into: &mut BTreeMap<String, Listed>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
        Value::Object(fields) => {
            if let Ok(listed) = Listed::deserialize(value) {
                into.insert(listed.file.clone(), listed);
            }
            fields.values().for_each(|value| collect(value, into));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
