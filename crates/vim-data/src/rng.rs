//! Random numbers from a key.
//!
//! ChaCha8 is specified bit for bit and the functions below are our own: no release of a
//! random-number crate changes what a seed means. `libm` is compiled in because the C libraries of
//! two machines differ in the last bit of a logarithm.

use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A generator that is a pure function of `purpose` and `key`.
///
/// `purpose` separates uses that share a key, such as the order of an epoch and its augmentation.
pub(crate) fn keyed(purpose: &str, key: &[u64]) -> ChaCha8Rng {
    let mut material = Vec::with_capacity(8 * key.len());
    for word in key {
        material.extend_from_slice(&word.to_le_bytes());
    }
    ChaCha8Rng::from_seed(blake3::derive_key(purpose, &material))
}

/// An integer, uniform in `0..bound`.
///
/// # Panics
/// If `bound` is 0.
///
/// # Source
/// Lemire 2019, "Fast random integer generation in an interval", algorithm 5.
pub(crate) fn below(rng: &mut ChaCha8Rng, bound: u32) -> u32 {
    assert!(bound > 0, "no integer is below 0");
    let reject_under = bound.wrapping_neg() % bound;
    loop {
        let product = u64::from(rng.next_u32()) * u64::from(bound);
        if product as u32 >= reject_under {
            return (product >> 32) as u32;
        }
    }
}

/// A number, uniform in `low..high`, from the 24 bits that an `f32` holds exactly.
pub(crate) fn uniform(rng: &mut ChaCha8Rng, low: f32, high: f32) -> f32 {
    let unit = (rng.next_u32() >> 8) as f32 * (1.0 / (1 << 24) as f32);
    low + (high - low) * unit
}

/// A number, uniform in `0..1`: one of 2⁵³ equally spaced ones.
pub(crate) fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// A number, uniform between `low` and `high`.
pub(crate) fn between(rng: &mut ChaCha8Rng, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * unit(rng)
}

/// A number whose logarithm is uniform between those of `low` and `high`, both above 0.
pub(crate) fn log_between(rng: &mut ChaCha8Rng, [low, high]: [f64; 2]) -> f64 {
    libm::exp(between(rng, [libm::log(low), libm::log(high)]))
}

/// `true` with this probability.
pub(crate) fn chance(rng: &mut ChaCha8Rng, probability: f64) -> bool {
    unit(rng) < probability
}

/// A normally distributed number.
///
/// # Source
/// Box and Muller 1958, "A note on the generation of random normal deviates"; its cosine alone, so
/// that every draw takes two uniform numbers.
pub(crate) fn normal(rng: &mut ChaCha8Rng, mean: f64, deviation: f64) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - unit(rng))).sqrt();
    mean + deviation * radius * libm::cos(TAU * unit(rng))
}

/// A number from the symmetric Beta distribution with both parameters `alpha`, above 0.
///
/// X/(X + Y) of two Gamma numbers. Computed from their logarithms, since for a small `alpha` both
/// may underflow.
pub(crate) fn beta(rng: &mut ChaCha8Rng, alpha: f64) -> f64 {
    let difference = log_gamma(rng, alpha) - log_gamma(rng, alpha);
    1.0 / (1.0 + libm::exp(-difference))
}

/// The logarithm of a number from the Gamma distribution of this shape, above 0, and scale 1.
///
/// # Source
/// Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; below 1 by their §6,
/// from the distribution of shape + 1.
fn log_gamma(rng: &mut ChaCha8Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        let boost = libm::log(1.0 - unit(rng)) / shape;
        return log_gamma(rng, shape + 1.0) + boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng, 0.0, 1.0);
        let cube_root = 1.0 + c * x;
        let u = 1.0 - unit(rng); // never 0
        if cube_root <= 0.0 {
            continue;
        }
        let v = cube_root * cube_root * cube_root;
        if libm::log(u) < 0.5 * x * x + d * (1.0 - v + libm::log(v)) {
            return libm::log(d * v);
        }
    }
}

/// Shuffles in place, every order equally likely (Fisher–Yates, from the end).
///
/// # Panics
/// If there are 2³² items or more.
pub(crate) fn shuffle<T>(rng: &mut ChaCha8Rng, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let bound =
            u32::try_from(last + 1).expect("invariant: a dataset has fewer than 2^32 images");
        items.swap(last, below(rng, bound) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_purpose_both_matter() {
        let first = |purpose: &str, key: &[u64]| keyed(purpose, key).next_u64();
        assert_eq!(first("a", &[1, 2]), first("a", &[1, 2]));
        assert_ne!(first("a", &[1, 2]), first("b", &[1, 2]));
        assert_ne!(first("a", &[1, 2]), first("a", &[2, 1]));
    }

    #[test]
    fn integers_below_a_bound_are_uniform() {
        let mut rng = keyed("test below", &[]);
        let mut counts = [0_u32; 9];
        for _ in 0..90_000 {
            counts[below(&mut rng, 9) as usize] += 1;
        }
        // Six standard deviations of a binomial with n = 90 000, p = 1/9 are 566.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 566), "{counts:?}");
    }

    #[test]
    fn uniform_numbers_stay_in_their_interval() {
        let mut rng = keyed("test uniform", &[]);
        let numbers: Vec<f32> = (0..10_000).map(|_| uniform(&mut rng, -2.0, 3.0)).collect();
        assert!(numbers.iter().all(|x| (-2.0..3.0).contains(x)));
        let mean = numbers.iter().sum::<f32>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.1, "{mean}");
    }

    #[test]
    fn every_order_of_three_is_as_likely() {
        let mut rng = keyed("test shuffle", &[]);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [0, 1, 2];
            shuffle(&mut rng, &mut items);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| count.abs_diff(1_000) < 180), "{counts:?}");
    }

    /// What a seed means may not change. The numbers are those of ChaCha8, BLAKE3 and the functions
    /// above written once more in Python.
    #[test]
    fn numbers_of_a_key_are_pinned() {
        let fresh = || keyed("test pins", &[1, 2]);
        let mut rng = fresh();
        let words =
            [1_722_840_859_773_719_767, 7_691_746_865_094_620_294, 12_003_299_385_685_008_399];
        assert_eq!([(); 3].map(|()| rng.next_u64()), words);
        let mut rng = fresh();
        assert_eq!([unit(&mut rng), unit(&mut rng)], [0.093395390150673, 0.4169704330672077]);

        // Python's logarithms are the C library's: equal to a few units in the last place.
        let close = |ours: f64, theirs: f64| {
            assert!((ours - theirs).abs() <= 1e-13 * theirs.abs(), "{ours} {theirs}");
        };
        let mut rng = fresh();
        for theirs in [-0.38392324526635857, 0.980439524178246, 0.018357775190893464] {
            close(normal(&mut rng, 0.0, 1.0), theirs);
        }
        for (alpha, all) in [
            (0.05, [0.9999779527084696, 2.3925868126082167e-21, 0.07711835130587907]),
            (0.8, [0.6012185805828222, 0.04585064215583888, 0.6102597981263285]),
            (1.0, [0.5540363159316226, 0.6416841027112686, 0.8287228565522824]),
            (3.0, [0.5243126612138702, 0.5729311557590054, 0.651409160311217]),
        ] {
            let mut rng = fresh();
            all.into_iter().for_each(|theirs| close(beta(&mut rng, alpha), theirs));
        }
    }
}
