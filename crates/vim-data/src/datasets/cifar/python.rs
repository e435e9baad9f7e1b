//! The python version: a pickled dictionary holding a numpy array.
//!
//! `serde-pickle` executes nothing: an object of an unknown class, such as numpy's array and data
//! type, is replaced by its state. The published files are protocol 2 of Python 2, whose strings
//! are bytes; files rewritten by Python 3 (protocols 2 to 4) encode bytes differently and read the
//! same.

use std::collections::BTreeMap;

use serde_pickle::{DeOptions, HashableValue, Value};

use super::{IMAGE, Layout, RawImages};
use crate::error::{DataError, Location};

/// Reads images and labels from the pickle in `bytes`.
pub(super) fn decode(
    layout: &Layout,
    file: &Location,
    bytes: &[u8],
) -> Result<RawImages, DataError> {
    let wrong =
        |key, expected: String| DataError::PickleContent { file: file.clone(), key, expected };
    let options = DeOptions::new().replace_unresolved_globals();
    let value = serde_pickle::value_from_slice(bytes, options)
        .map_err(|source| DataError::Pickle { file: file.clone(), source })?;
    let Value::Dict(mut dict) = value else {
        return Err(wrong("data", "a dictionary".into()));
    };

    let labels = take(&mut dict, layout.label_key)
        .and_then(integers)
        .ok_or_else(|| wrong(layout.label_key, "a list of integers".into()))?;
    let rows = labels.len();
    let planes =
        take(&mut dict, "data").and_then(|array| bytes_of_array(array, rows)).ok_or_else(|| {
            let shape = format!("({rows}, {IMAGE})");
            wrong("data", format!("a uint8 array of shape {shape}, of protocol 2, 3 or 4"))
        })?;
    if labels.is_empty() {
        return Err(wrong(layout.label_key, "one label or more".into()));
    }
    Ok(RawImages { planes, labels })
}

/// Python 2 writes a key as bytes, Python 3 as bytes or text.
fn take(dict: &mut BTreeMap<HashableValue, Value>, key: &str) -> Option<Value> {
    dict.remove(&HashableValue::Bytes(key.as_bytes().to_vec()))
        .or_else(|| dict.remove(&HashableValue::String(key.to_owned())))
}

fn integers(value: Value) -> Option<Vec<i64>> {
    let Value::List(items) = value else { return None };
    let integer = |item| if let Value::I64(integer) = item { Some(integer) } else { None };
    items.into_iter().map(integer).collect()
}

/// The content of a numpy array of bytes of shape `[rows, IMAGE]`, row-major.
///
/// An array's state is `(version, shape, dtype, is_fortran, content)`. The length of the content
/// distinguishes bytes from wider elements.
fn bytes_of_array(value: Value, rows: usize) -> Option<Vec<u8>> {
    let Value::Tuple(state) = value else { return None };
    let [_version, Value::Tuple(shape), _dtype, Value::Bool(is_fortran), Value::Bytes(content)] =
        <[Value; 5]>::try_from(state).ok()?
    else {
        return None;
    };
    let wanted = [rows, IMAGE].map(|length| Value::I64(length as i64));
    if shape != wanted || content.len() != rows * IMAGE {
        return None;
    }
    if is_fortran {
        let row_major = |at: usize| content[at % IMAGE * rows + at / IMAGE];
        return Some((0..content.len()).map(row_major).collect());
    }
    Some(content)
}
