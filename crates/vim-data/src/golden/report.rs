//! The results of a check.

use serde::Serialize;

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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
pub(super) struct Measured {
    pub(super) max_difference: f64,
    pub(super) tolerance: f64,
}

/// The result of an exact comparison that succeeded.
pub(super) const EQUAL: Measured = Measured { max_difference: 0.0, tolerance: 0.0 };

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
            let at = at.unwrap_or_else(|| {
                let kind = entry.kind.clone();
                let count =
                    GoldenCount { kind, passed: 0, failed: 0, skipped: 0, max_difference: 0.0 };
                counts.push(count);
                counts.len() - 1
            });
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

    pub(super) fn add(&mut self, kind: &str, name: String, result: Result<Measured, String>) {
        let outcome = match result {
            Ok(Measured { max_difference, tolerance }) => {
                let passed = max_difference <= tolerance;
                GoldenOutcome::Compared { max_difference, tolerance, passed }
            }
            Err(reason) => GoldenOutcome::Failed { reason },
        };
        self.entries.push(GoldenEntry { kind: kind.to_owned(), name, outcome });
    }

    pub(super) fn skip(&mut self, kind: &str, name: String, reason: &str) {
        let outcome = GoldenOutcome::Skipped { reason: reason.to_owned() };
        self.entries.push(GoldenEntry { kind: kind.to_owned(), name, outcome });
    }
}

/// The largest difference of two lists; infinite if their lengths differ or a number is NaN.
pub(super) fn largest_difference(
    ours: impl ExactSizeIterator<Item = f64>,
    theirs: impl ExactSizeIterator<Item = f64>,
) -> f64 {
    if ours.len() != theirs.len() {
        return f64::INFINITY;
    }
    ours.zip(theirs).fold(0.0, |most: f64, (a, b)| {
        let difference = (a - b).abs();
        if difference.is_nan() { f64::INFINITY } else { most.max(difference) }
    })
}
