//! How far |delta·a| has gone where a method is a bare polynomial in it.
//!
//! Beyond about 2 such a method's input gain is off by a quarter and more, and soon large and of the
//! wrong sign. Training watches this and says so; nothing is changed by it.

use std::sync::atomic::{AtomicU32, Ordering};

/// |delta·a| above which a truncated series has left the function it stands for.
pub const POLYNOMIAL_LIMIT: f32 = 2.0;

/// The bits of the largest so far: non-negative floats order as their bits do.
static LARGEST: AtomicU32 = AtomicU32::new(0);

/// The largest |delta·a| that a scan of this process has met under a method that is not
/// [bounded](crate::Discretization::bounded); 0 if there was none. The reference's figure is an upper
/// bound: the largest delta times the largest |a|.
#[must_use]
pub fn largest_polynomial_argument() -> f32 {
    f32::from_bits(LARGEST.load(Ordering::Relaxed))
}

/// Notes an argument that occurred.
pub(crate) fn note(argument: f32) {
    if argument > 0.0 {
        LARGEST.fetch_max(argument.to_bits(), Ordering::Relaxed);
    }
}
