//! Comparison of this crate's results with arrays that the original's programs computed.
//!
//! A folder of golden arrays has a `manifest.json` of lists of entries by kind. [`check_golden`]
//! runs every entry through the functions that training uses; no entry is special-cased.

mod folder;
mod numbers;
mod pixels;

use std::path::Path;

use folder::Folder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::DataError;

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
        report.add("files", name.to_owned(), folder.bytes(name).map(|_| EQUAL));
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

/// Deserialises an entry.
fn read<T: for<'a> Deserialize<'a>>(entry: &Value) -> Result<T, String> {
    T::deserialize(entry).map_err(|error| format!("the entry is not understood: {error}"))
}

/// Every entry, in the order of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GoldenReport {
    /// One per file and per entry.
    pub entries: Vec<GoldenEntry>,
}

/// One entry of a manifest.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoldenEntry {
    /// Key of the manifest; `files` for the files themselves.
    pub kind: String,
    /// Which entry.
    pub name: String,
    /// The result.
    #[serde(flatten)]
    pub outcome: GoldenOutcome,
}

/// The result of an entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum GoldenOutcome {
    /// Both were computed and compared.
    Compared {
        /// The largest difference of two numbers, in the entry's units.
        max_difference: f64,
        /// The largest that passes.
        tolerance: f64,
        /// Whether the difference is within the tolerance.
        passed: bool,
    },
    /// It could not be compared: it counts as failed.
    Failed {
        /// Why not.
        reason: String,
    },
    /// The entry's kind is not known: it counts as neither.
    Skipped {
        /// Why not.
        reason: String,
    },
}

/// Counts of the outcomes of a kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GoldenCount {
    /// The kind.
    pub kind: String,
    /// Entries within their tolerance.
    pub passed: usize,
    /// Entries that failed.
    pub failed: usize,
    /// Entries that were not checked.
    pub skipped: usize,
    /// The largest difference among those compared.
    pub max_difference: f64,
}

/// The difference of an entry from its reference, and its tolerance.
#[derive(Clone, Copy, Debug)]
struct Measured {
    max_difference: f64,
    tolerance: f64,
}

/// The result of an exact comparison that succeeded.
const EQUAL: Measured = Measured { max_difference: 0.0, tolerance: 0.0 };

impl GoldenEntry {
    /// Whether it failed.
    pub fn has_failed(&self) -> bool {
        matches!(
            self.outcome,
            GoldenOutcome::Failed { .. } | GoldenOutcome::Compared { passed: false, .. }
        )
    }
}

impl GoldenReport {
    /// Entries that failed.
    pub fn failures(&self) -> impl Iterator<Item = &GoldenEntry> {
        self.entries.iter().filter(|entry| entry.has_failed())
    }

    /// Entries that were not checked.
    pub fn skipped(&self) -> impl Iterator<Item = &GoldenEntry> {
        self.entries.iter().filter(|entry| matches!(entry.outcome, GoldenOutcome::Skipped { .. }))
    }

    /// Counts per kind, in the order of the manifest.
    pub fn counts(&self) -> Vec<GoldenCount> {
        let mut counts: Vec<GoldenCount> = Vec::new();
        for entry in &self.entries {
            let at = counts.iter().position(|count| count.kind == entry.kind);
            let at = at.unwrap_or(counts.len());
            if at == counts.len() {
                counts.push(GoldenCount { kind: entry.kind.clone(), ..GoldenCount::default() });
            }
            let count = &mut counts[at];
            match entry.outcome {
                GoldenOutcome::Compared { max_difference, passed, .. } => {
                    count.passed += usize::from(passed);
                    count.failed += usize::from(!passed);
                    count.max_difference = count.max_difference.max(max_difference);
                }
                GoldenOutcome::Failed { .. } => count.failed += 1,
                GoldenOutcome::Skipped { .. } => count.skipped += 1,
            }
        }
        counts
    }

    fn add(&mut self, kind: &str, name: String, result: Result<Measured, String>) {
        let outcome = match result {
            Ok(Measured { max_difference, tolerance }) => {
                let passed = max_difference <= tolerance;
                GoldenOutcome::Compared { max_difference, tolerance, passed }
            }
            Err(reason) => GoldenOutcome::Failed { reason },
        };
        self.entries.push(GoldenEntry { kind: kind.to_owned(), name, outcome });
    }

    fn skip(&mut self, kind: &str, name: String, reason: &str) {
        let outcome = GoldenOutcome::Skipped { reason: reason.to_owned() };
        self.entries.push(GoldenEntry { kind: kind.to_owned(), name, outcome });
    }
}

/// The largest difference of two lists; infinite if their lengths differ or a number is NaN.
fn largest_difference<T: Copy + Into<f64>>(ours: &[T], theirs: &[T]) -> f64 {
    if ours.len() != theirs.len() {
        return f64::INFINITY;
    }
    ours.iter().zip(theirs).fold(0.0, |most: f64, (&a, &b)| {
        let difference = (a.into() - b.into()).abs();
        if difference.is_nan() { f64::INFINITY } else { most.max(difference) }
    })
}
