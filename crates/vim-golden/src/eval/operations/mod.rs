//! `eval-golden --operations`: parts of a task, such as its data and its metrics, against what the
//! original's libraries computed.

mod augment;
mod coco;
mod data;
mod detection;
mod metrics;
mod optim;

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::Serialize;
use serde_json::Value;
use vim_engine::Error;
use vim_engine::output::{print, print_json};

/// One comparison.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Numbers compared.
    numbers: usize,
    /// The largest difference between two of them; infinite if they are not as many.
    max_difference: f64,
    tolerance: f64,
    within: bool,
}

impl Row {
    /// Compares numbers; two NaN are equal.
    fn new(name: impl Into<String>, ours: &[f64], theirs: &[f64], tolerance: f64) -> Self {
        let difference = |(&a, &b): (&f64, &f64)| match (a.is_nan(), b.is_nan()) {
            (true, true) => 0.0,
            (false, false) => (a - b).abs(),
            (true, false) | (false, true) => f64::INFINITY,
        };
        let max_difference = if ours.len() == theirs.len() && !theirs.is_empty() {
            ours.iter().zip(theirs).map(difference).fold(0.0, f64::max)
        } else {
            f64::INFINITY
        };
        let (name, numbers, within) = (name.into(), theirs.len(), max_difference <= tolerance);
        Self { name, numbers, max_difference, tolerance, within }
    }

    /// The same with differences over the reference's magnitude where that is above 1.
    fn relative(name: impl Into<String>, ours: &[f64], theirs: &[f64], tolerance: f64) -> Self {
        let sizes = theirs.iter().map(|number| number.abs().max(1.0));
        let scaled = |numbers: &[f64]| -> Vec<f64> {
            numbers.iter().zip(sizes.clone()).map(|(number, size)| number / size).collect()
        };
        let one = if ours.len() == theirs.len() { scaled(ours) } else { Vec::new() };
        Self::new(name, &one, &scaled(theirs), tolerance)
    }

    /// Compares bytes for equality.
    fn exact(name: impl Into<String>, ours: &[u8], theirs: &[u8]) -> Self {
        let wide = |bytes: &[u8]| bytes.iter().map(|&byte| f64::from(byte)).collect::<Vec<_>>();
        Self::new(name, &wide(ours), &wide(theirs), 0.0)
    }
}

/// A file by its name, and what compares with it; the device is for operations that run on one.
type Known = (&'static str, fn(&Path, &Device) -> Result<Vec<Row>, Error>);

/// The known files of each subject.
const SUBJECTS: [&[Known]; 3] = [&SEGMENTATION, &detection::FILES, &COCO];

const SEGMENTATION: [Known; 3] = [
    ("data.json", |path, _| data::check(path)),
    ("metrics.json", |path, _| metrics::check(path)),
    ("optim.json", |path, _| optim::check(path)),
];

const COCO: [Known; 3] = [
    ("augment.json", |path, _| augment::check(path)),
    ("coco_eval.json", |path, _| coco::evaluation(path)),
    ("rle.json", |path, _| coco::masks(path)),
];

/// Checks all that is in `dir`; fails if something is off, or nothing is there.
pub(super) fn run(dir: &Path, device: &Device, as_json: bool) -> Result<(), Error> {
    let mut rows = Vec::new();
    for (name, check) in SUBJECTS.into_iter().flatten() {
        let path = dir.join(name);
        if path.is_file() {
            rows.extend(check(&path, device)?);
        }
    }
    if rows.is_empty() {
        let names: Vec<&str> = SUBJECTS.into_iter().flatten().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        return Err(Error::data(format!("{} has none of {names}", dir.display())));
    }
    if as_json {
        print_json(&rows)?;
    } else {
        print(&text(&rows))?;
    }
    let missed: Vec<&str> =
        rows.iter().filter(|row| !row.within).map(|row| row.name.as_str()).collect();
    if missed.is_empty() {
        return Ok(());
    }
    let (count, all) = (missed.len(), rows.len());
    Err(Error::failed(format!("{count} of {all} comparisons are off: {}", missed.join(", "))))
}

fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let mut text = format!(
        "{:<width$}  {:>8}  {:>14}  {:>9}\n",
        "operation", "numbers", "max difference", "tolerance"
    );
    for Row { name, numbers, max_difference, tolerance, within } in rows {
        let verdict = if *within { "" } else { "  exceeded" };
        text.push_str(&format!(
            "{name:<width$}  {numbers:>8}  {max_difference:>14.3e}  {tolerance:>9.0e}{verdict}\n"
        ));
    }
    let good = rows.iter().filter(|row| row.within).count();
    text.push_str(&format!("{good} of {} comparisons within tolerance\n", rows.len()));
    text
}

/// The JSON of a file.
fn json(path: &Path) -> Result<Value, Error> {
    let text = std::fs::read(path).map_err(Error::io("read", path))?;
    serde_json::from_slice(&text).map_err(|error| unlike(path, &error.to_string()))
}

/// The arrays beside a file.
fn arrays_of(path: &Path) -> PathBuf {
    path.with_extension("npz")
}

/// The file does not have what is expected.
fn unlike(path: &Path, what: &str) -> Error {
    Error::data(format!("{}: {what}", path.display()))
}

/// The entry `key` of `value`, read as `T`.
fn field<T: serde::de::DeserializeOwned>(
    path: &Path,
    value: &Value,
    key: &str,
) -> Result<T, Error> {
    let entry = value.get(key).cloned().unwrap_or_default();
    serde_json::from_value(entry).map_err(|error| unlike(path, &format!("`{key}`: {error}")))
}
