//! What a check measured: rows, which of two is worse, and the worst of several cases.

use std::cmp::Ordering;

use serde::Serialize;
use vim_kernels::KernelError;

use crate::compare::{Figures, figures};

/// What was found for an array, a pair of methods or a magnitude.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub array: String,
    /// The largest error.
    pub max: f64,
    /// The mean error.
    pub mean: f64,
    /// What the largest may be.
    pub tolerance: f64,
    /// What it comes to.
    pub verdict: Verdict,
    /// Where the largest error was, or what the figures say.
    pub note: String,
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within the tolerance.
    Pass,
    /// Beyond the tolerance, or not a number.
    Fail,
    /// For information: nothing is asked of it.
    Reported,
}

impl Row {
    /// A row that passes if `figures.max` is within `tolerance`.
    pub(crate) fn judged(
        array: impl Into<String>,
        figures: Figures,
        tolerance: f64,
        note: impl Into<String>,
    ) -> Self {
        // Not `>`: what is not a number must fail.
        let verdict = if figures.max <= tolerance { Verdict::Pass } else { Verdict::Fail };
        let Figures { max, mean } = figures;
        Self { array: array.into(), max, mean, tolerance, verdict, note: note.into() }
    }

    /// The error over what it may be: 0 where there is none and none is allowed, infinite where it
    /// is not a number.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.max == 0.0 {
            return 0.0;
        }
        let ratio = self.max / self.tolerance;
        if ratio.is_nan() { f64::INFINITY } else { ratio }
    }

    /// Greater where this row is worse than `other`: one that failed is worse than any that did
    /// not, then the larger ratio.
    #[must_use]
    pub fn compared(&self, other: &Self) -> Ordering {
        let failed = |row: &Self| row.verdict == Verdict::Fail;
        let ratios = self.ratio().total_cmp(&other.ratio());
        failed(self).cmp(&failed(other)).then(ratios)
    }
}

/// The worst of each array over the rows of several cases, in the order in which arrays first come.
/// A case without rows has shown nothing, which is a row that fails.
pub(crate) fn worst(
    cases: impl IntoIterator<Item = Result<Vec<Row>, KernelError>>,
) -> Result<Vec<Row>, KernelError> {
    let mut worst: Vec<Row> = Vec::new();
    for rows in cases {
        let mut rows = rows?;
        if rows.is_empty() {
            let nothing = Figures { max: f64::INFINITY, mean: f64::INFINITY };
            rows.push(Row::judged("nothing", nothing, 0.0, "a case compared no array"));
        }
        for row in rows {
            match worst.iter_mut().find(|known| known.array == row.array) {
                Some(known) => {
                    let mean = known.mean.max(row.mean);
                    if row.compared(known).is_gt() {
                        *known = row;
                    }
                    known.mean = mean;
                }
                None => worst.push(row),
            }
        }
    }
    Ok(worst)
}

/// The name of an array, what it is, what it must be, and how far it may be off.
pub type Array = (&'static str, Vec<f64>, Vec<f64>, f64);

/// A row for each array; `floor` is that of [`figures`].
#[must_use]
pub fn rows_of(arrays: Vec<Array>, floor: f64, factor: f64, case: &str) -> Vec<Row> {
    let row = |(array, got, want, tolerance): Array| {
        Row::judged(array, figures(&got, &want, floor), tolerance * factor, case)
    };
    arrays.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(max: f64, tolerance: f64) -> Row {
        Row::judged("y", Figures { max, mean: 0.0 }, tolerance, format!("{max} of {tolerance}"))
    }

    #[test]
    fn what_is_not_a_number_fails() {
        let row = row(f64::NAN, 1.0);
        assert_eq!(row.verdict, Verdict::Fail);
        assert_eq!(row.ratio(), f64::INFINITY);
    }

    #[test]
    fn no_error_where_none_is_allowed_is_no_ratio() {
        assert_eq!((row(0.0, 0.0).ratio(), row(0.0, 0.0).verdict), (0.0, Verdict::Pass));
        assert_eq!((row(0.5, 0.0).ratio(), row(0.5, 0.0).verdict), (f64::INFINITY, Verdict::Fail));
        assert_eq!(row(1.0, 4.0).ratio(), 0.25);
    }

    /// A case that is off after one that is exact, and the reverse: either must fail.
    #[test]
    fn one_failing_case_fails_its_array() {
        let of = |rows: &[[f64; 2]]| {
            let cases = rows.iter().map(|&[max, tolerance]| Ok(vec![row(max, tolerance)]));
            let worst = worst(cases).unwrap_or_default();
            assert_eq!(worst.len(), 1);
            (worst[0].verdict, worst[0].max)
        };
        assert_eq!(of(&[[0.0, 0.0], [0.37, 0.0]]), (Verdict::Fail, 0.37));
        assert_eq!(of(&[[0.37, 0.0], [0.0, 0.0]]), (Verdict::Fail, 0.37));
        assert_eq!(of(&[[0.9, 1.0], [f64::NAN, 1.0], [0.1, 1.0]]).0, Verdict::Fail);
        assert_eq!(of(&[[0.2, 1.0], [0.9, 1.0], [0.0, 0.0]]), (Verdict::Pass, 0.9));
        // Where more is better, a row fails with a small ratio.
        let near = Row { verdict: Verdict::Fail, ..row(0.1, 1.0) };
        let far = row(50.0, 1.0);
        let far = Row { verdict: Verdict::Pass, ..far };
        let both = worst([Ok(vec![near.clone()]), Ok(vec![far.clone()])]).unwrap_or_default();
        assert_eq!(both[0].verdict, Verdict::Fail);
        assert!(near.compared(&far).is_gt() && far.compared(&near).is_lt());
    }

    #[test]
    fn a_case_without_rows_fails() {
        let rows = worst([Ok(vec![row(0.1, 1.0)]), Ok(vec![])]).unwrap_or_default();
        assert!(rows.iter().any(|row| row.verdict == Verdict::Fail), "{rows:?}");
    }

    #[test]
    fn arrays_of_no_numbers_show_nothing() {
        let rows = rows_of(vec![("y", vec![], vec![], 1.0)], 1e-30, 1.0, "");
        assert_eq!(rows[0].verdict, Verdict::Fail);
    }
}
