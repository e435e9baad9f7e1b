//! The noise of erased boxes is normal and without structure.

use vim_data::noise;

use crate::chi2::{assert_distributed, normal_cdf};

/// Elements of a 224 px image.
const ELEMENTS: u32 = 3 * 224 * 224;

fn image(seed: u32) -> Vec<f64> {
    (0..ELEMENTS).map(|element| f64::from(noise(seed, element))).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

/// A hash that others compute too may not change; these were computed with exact integers and in f64, in Python.
#[test]
fn values_are_pinned() {
    for (seed, element, expected) in PINNED {
        let got = noise(seed, element);
        // The logarithm and the cosine of f32, of numbers up to 17 and 6.3.
        assert!((f64::from(got) - expected).abs() < 2e-6, "{seed} {element}: {got} {expected}");
    }
}

const PINNED: [(u32, u32, f64); 6] = [
    (0, 0, 1.542702221),
    (0, 1, 0.547363674),
    (1, 0, -0.489890675),
    (12345, 150527, -0.489647147),
    (4294967295, 7, -0.121559101),
    (7, 2147483649, 0.822469664),
];

#[test]
fn moments_and_distribution_are_normal() {
    // Consecutive seeds, one far off, and the extremes.
    for seed in [0, 1, 2, 0x8000_0000, 0xdead_beef, u32::MAX] {
        let values = image(seed);
        let n = values.len() as f64;
        let moment = |power| mean(values.iter().map(|x: &f64| x.powi(power)));
        // Five standard errors; those of the moments of N(0, 1) are √(1, 2, 15, 96) / √n.
        let error = 5.0 / n.sqrt();
        assert!(moment(1).abs() < error, "mean {}", moment(1));
        assert!((moment(2) - 1.0).abs() < 1.42 * error, "variance {}", moment(2));
        assert!(moment(3).abs() < 3.88 * error, "skewness {}", moment(3));
        assert!((moment(4) - 3.0).abs() < 9.8 * error, "kurtosis {}", moment(4));
        assert_distributed("noise", &mut values.clone(), normal_cdf);
        assert!(values.iter().all(|x| x.is_finite() && x.abs() < 5.78));
    }
}

#[test]
fn neighbours_and_seeds_are_uncorrelated() {
    let error = 5.0 / f64::from(ELEMENTS).sqrt();
    let product = |a: &[f64], b: &[f64]| mean(a.iter().zip(b).map(|(a, b)| a * b));
    for seed in [0, 1, 77] {
        let values = image(seed);
        // Channels, pixels, rows, and the largest power of two inside.
        for lag in [1, 2, 3, 6, 3 * 224, 65_536] {
            let correlation = product(&values[lag..], &values[..values.len() - lag]);
            assert!(correlation.abs() < 1.4 * error, "lag {lag}: {correlation}");
            let squares: Vec<f64> = values.iter().map(|x| x * x - 1.0).collect();
            let correlation = product(&squares[lag..], &squares[..values.len() - lag]);
            assert!(correlation.abs() < 2.8 * error, "squares at lag {lag}: {correlation}");
        }
        for other in [seed + 1, seed + 2, seed ^ 0x8000_0000, seed.wrapping_mul(2) + 5] {
            let correlation = product(&values, &image(other));
            assert!(correlation.abs() < error, "seeds {seed}, {other}: {correlation}");
        }
    }
}
