//! Which polynomials stand for the φ functions near 0, and how near.

use super::Form;

/// Bounds and degrees.
#[derive(Clone, Copy)]
pub(super) struct Fit {
    /// |x| below which `b_bar` is one.
    pub(super) near: f64,
    pub(super) degree: usize,
    /// |x| below which the derivatives are; their closed forms lose more bits.
    pub(super) slopes: f64,
    /// Degree of that which the backward recurrence starts from, for the φ after the highest one
    /// used: each step down multiplies its error by x/k.
    pub(super) top: usize,
}

/// For results in f32: `b_bar` to 4.5e-6 of φ₁, better for the others; the closed form of φ₂ loses
/// 5 bits at the bound. φ₂ below φ₃ is accurate to 6e-7.
const FINE: Fit = Fit { near: 0.25, degree: 3, slopes: 0.5, top: 4 };

/// For a mixer in 16 bits: `b_bar` to 2e-4, the derivatives to 3e-4; beyond |x| = 1000 that by a
/// cancels, and is good to 2e-7 of delta·b_bar.
const COARSE: Fit = Fit { near: 0.15, degree: 2, slopes: 0.36, top: 2 };

/// The same for φₖ alone.
const COARSE_ALONE: Fit = Fit { near: 0.05, degree: 1, ..COARSE };

impl Form {
    pub(super) fn fit(self) -> Fit {
        match (self.coarse, self.phi_k()) {
            (false, _) => FINE,
            (true, None) => COARSE,
            (true, Some(_)) => COARSE_ALONE,
        }
    }
}
