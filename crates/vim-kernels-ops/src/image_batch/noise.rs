//! Normal numbers from a seed and a position: a function, so that GPUs and CPUs draw the same ones.

/// A 32-bit number whose bits all depend on all bits of `x`; one to one.
///
/// # Source
///
/// O'Neill 2014, "PCG", §6.3.4: the output function RXS-M-XS over one step of the generator;
/// Jarzynski and Olano 2020, "Hash functions for GPU rendering", which rank it first for its
/// quality at its cost.
pub(crate) fn hash(x: u32) -> u32 {
    let state = x.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(PERMUTATION);
    (word >> 22) ^ word
}

pub(crate) const MULTIPLIER: u32 = 747_796_405;
pub(crate) const INCREMENT: u32 = 2_891_336_453;
pub(crate) const PERMUTATION: u32 = 277_803_737;
/// Applied between the two hashes of a normal number.
pub(crate) const STEP: u32 = 0x9e37_79b9;
/// Scale of a hash's upper 24 bits, as many as an f32 holds.
pub(crate) const UNIT: f32 = 1.0 / (1 << 24) as f32;

/// The normal number (mean 0, variance 1) of `element` under `seed`.
///
/// # Source
///
/// Box and Muller 1958, its cosine half.
pub(crate) fn normal(seed: u32, element: u32) -> f32 {
    let first = hash(hash(seed).wrapping_add(element));
    let second = hash(first ^ STEP);
    // In (0, 1], where the logarithm is finite, and in [-½, ½), where WGSL promises a cosine.
    let radius = ((first >> 8) + 1) as f32 * UNIT;
    let angle = (second >> 8) as f32 * UNIT - 0.5;
    (-2.0 * radius.ln()).sqrt() * (std::f32::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(numbers: impl Iterator<Item = f32>) -> [f64; 4] {
        let numbers: Vec<f64> = numbers.map(f64::from).collect();
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let central = |power| numbers.iter().map(|x| (x - mean).powi(power)).sum::<f64>() / count;
        let variance = central(2);
        [mean, variance, central(3) / variance.powf(1.5), central(4) / variance.powi(2)]
    }

    // Six standard errors of each moment of n normal numbers: √(1/n), √(2/n), √(6/n), √(24/n).
    #[test]
    fn the_numbers_of_a_seed_and_of_an_element_are_normal() {
        const COUNT: u32 = 400_000;
        let error = |of: f64| 6.0 * (of / f64::from(COUNT)).sqrt();
        let along = [
            moments((0..COUNT).map(|element| normal(7, element))),
            moments((0..COUNT).map(|seed| normal(seed, 12))),
            moments((0..COUNT).map(|i| normal(i / 600, i % 600))),
        ];
        for [mean, variance, skewness, kurtosis] in along {
            assert!(mean.abs() < error(1.0), "{mean}");
            assert!((variance - 1.0).abs() < error(2.0), "{variance}");
            assert!(skewness.abs() < error(6.0), "{skewness}");
            assert!((kurtosis - 3.0).abs() < error(24.0), "{kurtosis}");
        }
    }

    // Kolmogorov's distance at a significance of 1e-6 is 2.69/√n; the normal distribution function
    // by Simpson's rule over its density.
    #[test]
    fn the_distribution_is_the_normal_one() {
        const COUNT: usize = 100_000;
        let mut numbers: Vec<f32> = (0..COUNT).map(|i| normal(3, i as u32)).collect();
        numbers.sort_by(f32::total_cmp);
        let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
        let below = |x: f64| {
            let steps = 400;
            let width = x / f64::from(steps);
            let weight = |i: i32| [2.0, 4.0][(i % 2) as usize];
            let middle: f64 = (1..steps).map(|i| weight(i) * density(f64::from(i) * width)).sum();
            0.5 + width / 3.0 * (density(0.0) + middle + density(x))
        };
        let distance = numbers
            .iter()
            .enumerate()
            .step_by(37)
            .map(|(i, &x)| (below(f64::from(x)) - i as f64 / COUNT as f64).abs())
            .fold(0.0, f64::max);
        assert!(distance < 2.69 / (COUNT as f64).sqrt(), "{distance}");
    }

    #[test]
    fn neighbours_are_not_correlated() {
        const COUNT: u32 = 200_000;
        let correlation = |pair: fn(u32) -> (f32, f32)| {
            let sum: f64 = (0..COUNT).map(pair).map(|(a, b)| f64::from(a) * f64::from(b)).sum();
            sum / f64::from(COUNT)
        };
        let limit = 6.0 / f64::from(COUNT).sqrt();
        for (lag, found) in [
            ("next element", correlation(|i| (normal(1, i), normal(1, i + 1)))),
            ("next row", correlation(|i| (normal(1, i), normal(1, i + 672)))),
            ("next seed", correlation(|i| (normal(1, i), normal(2, i)))),
            ("seed and element", correlation(|i| (normal(i, 0), normal(0, i)))),
        ] {
            assert!(found.abs() < limit, "{lag}: {found}");
        }
    }
}
