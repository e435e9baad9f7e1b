//! Comparison of this crate's results with arrays that the original's programs computed.
//!
//! A folder of golden arrays has a `manifest.json` of lists of entries by kind. [`check_golden`]
//! runs every entry through the functions that training uses; no entry is special-cased.

mod arguments;
mod folder;
mod numbers;
mod pixels;
mod report;

use std::path::Path;

use folder::Folder;
use serde_json::Value;

use crate::error::DataError;

pub use report::{GoldenCount, GoldenEntry, GoldenOutcome, GoldenReport};

/// Checks every file and entry of the golden arrays in `dir`.
///
/// The kinds `inputs`, `ops`, `affine`, `resize`, `resize_src`, `eval`, `decode`, `sampler`, `mix`
/// and `loss` are known; entries of others are reported as not checked. An entry that is not
/// understood, or whose file is missing or not as its SHA-256 says, has failed.
///
/// # Errors
/// If `manifest.json` cannot be read as JSON.
pub fn check_golden(dir: &Path) -> Result<GoldenReport, DataError> {
    let folder = Folder::open(dir)?;
    let mut report = GoldenReport::default();
    for name in folder.listed() {
        report.add("files", name.to_owned(), folder.bytes(name).map(|_| report::EQUAL));
    }
    let entries = folder.manifest().as_object().into_iter().flatten();
    for (kind, value) in entries {
        for (name, entry) in listed(value) {
            let name = if name.is_empty() { kind.clone() } else { format!("{kind}[{name}]") };
            check_entry(&mut report, &folder, kind, name, entry);
        }
    }
    Ok(report)
}

/// The entries of a kind: an array's, or an object by itself.
fn listed(value: &Value) -> Vec<(String, &Value)> {
    match value.as_array() {
        Some(entries) => entries.iter().enumerate().map(|(at, e)| (at.to_string(), e)).collect(),
        None => vec![(String::new(), value)],
    }
}

fn check_entry(
    report: &mut GoldenReport,
    folder: &Folder,
    kind: &str,
    name: String,
    entry: &Value,
) {
    match kind {
        "inputs" | "resize_src" => {} // checked as files, used by other entries
        "ops" => report.add(kind, name, pixels::op(folder, entry)),
        "affine" => report.add(kind, name, pixels::affine(folder, entry)),
        "resize" => report.add(kind, name, pixels::resize(folder, entry)),
        "decode" => report.add(kind, name, pixels::decode(folder, entry)),
        "eval" => match pixels::evaluation(folder, entry) {
            Ok(Some(measured)) => report.add(kind, name, Ok(measured)),
            Ok(None) => report.skip(kind, name, "its source is not in the folder"),
            Err(reason) => report.add(kind, name, Err(reason)),
        },
        "sampler" => report.add(kind, name, numbers::sampler(entry)),
        "loss" => numbers::losses(report, folder, name, entry),
        "mix" => numbers::mixing(report, name, entry),
        _ => report.skip(kind, name, "its kind is not known"),
    }
}
