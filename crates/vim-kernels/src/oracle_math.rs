//! Functions and numbers in f64 for the oracles, which are plain loops over plain vectors.

use crate::complex::Complex;
use crate::real::Real;

/// A state of the scan in f64. A gradient by `p + iq` is `∂L/∂p + i·∂L/∂q`.
pub trait Number: Real + Copy + Default {
    /// `y = OUTPUT·Re(c·h)`: 1 for real states; 2 for complex ones, each of which stands for a
    /// conjugate pair.
    const OUTPUT: f64;

    /// A real number as one of these.
    #[must_use]
    fn real(value: f64) -> Self;

    /// The real part.
    #[must_use]
    fn re(self) -> f64;

    /// The complex conjugate.
    #[must_use]
    fn conj(self) -> Self;
}

impl Number for f64 {
    const OUTPUT: f64 = 1.0;

    fn real(value: f64) -> Self {
        value
    }
    fn re(self) -> f64 {
        self
    }
    fn conj(self) -> Self {
        self
    }
}

impl Number for Complex<f64> {
    const OUTPUT: f64 = 2.0;

    fn real(value: f64) -> Self {
        Self::real(value)
    }
    fn re(self) -> f64 {
        self.re
    }
    fn conj(self) -> Self {
        Self::conj(self)
    }
}

/// ln(1 + eˣ), without overflow.
pub(crate) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// 1/(1 + e⁻ˣ).
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x·sigmoid(x).
pub(crate) fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The derivative of [`silu`].
pub(crate) fn silu_slope(x: f64) -> f64 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}
