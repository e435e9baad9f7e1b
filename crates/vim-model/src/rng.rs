//! Random numbers from a key.
//!
//! ChaCha8 is specified bit for bit and the functions below are our own, so that no release of a
//! random-number crate, and no device, changes what a seed means.

use std::f64::consts::TAU;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The key of a training pass's random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// Seed of the pass.
    pub seed: u64,
    /// Position in the whole batch of the first image: a batch may come in parts.
    pub first: usize,
}

/// A generator that is a pure function of `purpose`, `seed` and `key`.
///
/// `purpose` separates uses that share a seed.
pub fn keyed(purpose: &[u8; 16], seed: u64, key: u64) -> ChaCha8Rng {
    let mut material = [0; 32];
    material[..16].copy_from_slice(purpose);
    material[16..24].copy_from_slice(&seed.to_le_bytes());
    material[24..].copy_from_slice(&key.to_le_bytes());
    ChaCha8Rng::from_seed(material)
}

/// A key for a name: FNV-1a in 64 bits.
pub(crate) fn key_of(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A number, uniform in `0..1`, in steps of 2⁻⁵³.
pub fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// A standard normal number, from two uniform ones (Box and Muller 1958).
pub(crate) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - unit(rng)).ln()).sqrt();
    radius * (TAU * unit(rng)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purpose_seed_and_key_all_matter() {
        let first = |purpose, seed, key| keyed(purpose, seed, key).next_u64();
        let (a, b) = (b"sixteen bytes: a", b"sixteen bytes: b");
        assert_eq!(first(a, 1, 2), first(a, 1, 2));
        assert_ne!(first(a, 1, 2), first(b, 1, 2));
        assert_ne!(first(a, 1, 2), first(a, 2, 1));
        assert_ne!(key_of("layers.1.mixer"), key_of("layers.2.mixer"));
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let mut rng = keyed(b"a test of normal", 0, 0);
        let numbers: Vec<f64> = (0..100_000).map(|_| normal(&mut rng)).collect();
        let moment = |power| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / 100_000.0;
        // Five standard errors of each moment.
        assert!(moment(1).abs() < 0.016, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 0.023, "variance {}", moment(2));
        assert!((moment(4) - 3.0).abs() < 0.16, "fourth moment {}", moment(4));
    }
}
