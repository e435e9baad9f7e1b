//! Comparison of an array with its reference.

use serde::Serialize;

/// How far an array is from its reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// Its name in the file.
    pub(super) array: String,
    /// The largest magnitude in the reference.
    pub(super) max_reference: f64,
    /// The largest difference.
    pub(super) max_absolute_error: f64,
    /// The largest difference over the largest magnitude in the reference.
    pub(super) max_relative_error: f64,
    /// Tolerance of the relative error.
    pub(super) tolerance: f64,
    /// Whether the error is within the tolerance.
    pub(super) within: bool,
}

impl Comparison {
    /// The error in units of its tolerance; above 1 it is too large.
    pub(super) fn excess(&self) -> f64 {
        let excess = self.max_relative_error / self.tolerance;
        if excess.is_nan() { f64::INFINITY } else { excess }
    }

    /// Compares `got` with `expected` of the same length. NaN counts as infinitely far off.
    pub(super) fn new(array: &str, got: &[f32], expected: &[f32], tolerance: f64) -> Self {
        let largest = |numbers: &mut dyn Iterator<Item = f64>| {
            numbers.fold(0.0_f64, |max, x| if x.is_nan() { f64::INFINITY } else { max.max(x) })
        };
        let max_reference = largest(&mut expected.iter().map(|&x| f64::from(x).abs()));
        let pairs = got.iter().zip(expected);
        let max_absolute_error =
            largest(&mut pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs()));
        let max_relative_error = match (max_absolute_error, max_reference) {
            (0.0, _) => 0.0,
            (_, f64::INFINITY) => f64::INFINITY,
            (error, reference) => error / reference,
        };
        let within = max_relative_error <= tolerance;
        let array = array.to_owned();
        Self { array, max_reference, max_absolute_error, max_relative_error, tolerance, within }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(got: &[f32], expected: &[f32]) -> Comparison {
        Comparison::new("a", got, expected, 0.1)
    }

    #[test]
    fn errors_are_in_units_of_the_largest_reference() {
        let comparison = compare(&[1.0, -3.5], &[1.25, -4.0]);
        assert_eq!((comparison.max_absolute_error, comparison.max_reference), (0.5, 4.0));
        assert_eq!((comparison.max_relative_error, comparison.within), (0.125, false));
        assert!(compare(&[1.0, -3.75], &[1.25, -4.0]).within);
    }

    #[test]
    fn nothing_passes_by_not_being_a_number() {
        for (got, expected) in [
            (&[f32::NAN, 1.0], &[1.0, 1.0]),
            (&[1.0, 1.0], &[f32::NAN, 1.0]),
            (&[1.0, 1.0], &[f32::INFINITY, 1.0]),
            (&[f32::INFINITY, 1.0], &[f32::INFINITY, 1.0]),
            (&[1.0, 0.0], &[0.0, 0.0]),
        ] {
            assert!(!compare(got, expected).within, "{got:?} {expected:?}");
        }
        assert!(compare(&[0.0, 0.0], &[0.0, 0.0]).within);
    }
}
