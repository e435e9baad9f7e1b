//! The noise of erased boxes: normally distributed numbers by their place, in 32-bit operations alone, so
//! that a GPU computes any of them where it is needed.

use std::f32::consts::TAU;

/// A number from N(0, 1): a pure function of a seed and a place.
///
/// `u₁`, `u₂` are the highest 24 bits of two hashes, of `2 · element` and `2 · element + 1`, and the number is
/// `√(−2 ln u₁) · cos(2π u₂)` with `u₁` in (0, 1] and `u₂` in [0, 1): at most 5.77. Integers wrap around.
///
/// # Source
/// Box and Muller 1958; the hash is [`hash`].
#[must_use]
pub fn noise(seed: u32, element: u32) -> f32 {
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    let place = element.wrapping_mul(2);
    let first = ((hash(seed ^ hash(place)) >> 8) + 1) as f32 * UNIT;
    let second = (hash(seed ^ hash(place.wrapping_add(1))) >> 8) as f32 * UNIT;
    (-2.0 * first.ln()).sqrt() * (TAU * second).cos()
}

/// A bijection of 32 bits without visible structure.
///
/// # Source
/// O'Neill 2014, "PCG": one step of the generator and the permutation RXS-M-XS, as Jarzynski and Olano 2020,
/// "Hash functions for GPU rendering", recommend it.
fn hash(input: u32) -> u32 {
    let state = input.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}
