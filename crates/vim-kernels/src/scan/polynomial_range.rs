//! The largest |delta·a| seen by methods that are bare polynomials in it.
//!
//! Above about 2 the input gain of such a method is off by a quarter and more, and soon large and
//! of the wrong sign. Training monitors this and warns; nothing else depends on it.

use std::sync::atomic::{AtomicU32, Ordering};

/// |delta·a| above which a truncated series no longer approximates its function.
pub const POLYNOMIAL_LIMIT: f32 = 2.0;

/// The bits of the largest so far: non-negative floats order as their bits do.
static LARGEST: AtomicU32 = AtomicU32::new(0);

/// The largest |delta·a| that a scan of this process has seen under a method that is not
/// [bounded](crate::Discretization::bounded); 0 if there was none. The reference reports an upper
/// bound: the largest delta times the largest |a|.
#[must_use]
pub fn largest_polynomial_argument() -> f32 {
    f32::from_bits(LARGEST.load(Ordering::Relaxed))
}

/// Records an argument.
pub(crate) fn note(argument: f32) {
    if argument > 0.0 {
        LARGEST.fetch_max(argument.to_bits(), Ordering::Relaxed);
    }
}
