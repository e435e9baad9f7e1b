//! Functions in f64 for the oracles, which are plain loops over plain vectors.

/// ln(1 + eˣ), without overflow.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// 1/(1 + e⁻ˣ).
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x·sigmoid(x).
pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The derivative of [`silu`].
pub fn silu_slope(x: f64) -> f64 {
    let s = sigmoid(x);
    s * (1.0 + x * (1.0 - s))
}
