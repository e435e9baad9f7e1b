//! Whether draws come from a distribution.

/// Of chances: a right program fails a test once in ten thousand seeds. The seeds are fixed.
const NORMAL_QUANTILE: f64 = 3.719;

/// Counts per bin of equal width; what lies outside is in the first or last bin.
///
/// As `bins` of `scripts/reference_draws.py`, operation by operation.
pub(crate) fn bins(
    values: impl IntoIterator<Item = f64>,
    [low, high]: [f64; 2],
    count: usize,
) -> Vec<u64> {
    let mut counts = vec![0; count];
    for value in values {
        let place =
            if value > low { ((value - low) / (high - low) * count as f64) as usize } else { 0 };
        counts[place.min(count - 1)] += 1;
    }
    counts
}

/// Asserts that counts are as the probabilities say: Pearson's test at 1e-4.
///
/// Bins of fewer than 5 expected are taken together.
pub(crate) fn assert_fits(what: &str, counts: &[u64], probabilities: &[f64]) {
    assert_eq!(counts.len(), probabilities.len(), "{what}");
    let draws = counts.iter().sum::<u64>() as f64;
    let (mut statistic, mut cells) = (0.0, 0);
    let (mut rest, mut rest_expected) = (0.0, 0.0);
    let mut add = |count: f64, expected: f64| {
        statistic += (count - expected).powi(2) / expected;
        cells += 1;
    };
    for (&count, probability) in counts.iter().zip(probabilities) {
        let expected = draws * probability;
        if expected < 5.0 {
            (rest, rest_expected) = (rest + count as f64, rest_expected + expected);
        } else {
            add(count as f64, expected);
        }
    }
    if rest_expected >= 5.0 {
        add(rest, rest_expected);
    } else {
        assert!(rest < 25.0, "{what}: {rest} draws where {rest_expected} are expected: {counts:?}");
    }
    let most = critical(cells - 1);
    assert!(statistic <= most, "{what}: chi² {statistic:.1} > {most:.1}: {counts:?}");
}

/// Asserts that two histograms are of one distribution: the two-sample test at 1e-4.
pub(crate) fn assert_same(what: &str, ours: &[u64], theirs: &[u64]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let (n, m) = (ours.iter().sum::<u64>() as f64, theirs.iter().sum::<u64>() as f64);
    assert!(n > 1000.0 && m > 1000.0, "{what}: too few draws to tell: {n} and {m}");
    let (mut statistic, mut cells) = (0.0, 0);
    for (&a, &b) in ours.iter().zip(theirs) {
        let (a, b) = (a as f64, b as f64);
        if a + b > 0.0 {
            statistic += ((m / n).sqrt() * a - (n / m).sqrt() * b).powi(2) / (a + b);
            cells += 1;
        }
    }
    let most = critical(cells - 1);
    assert!(statistic <= most, "{what}: chi² {statistic:.1} > {most:.1}:\n{ours:?}\n{theirs:?}");
}

/// What chi² exceeds with probability 1e-4 (Wilson and Hilferty 1931).
fn critical(freedom: i32) -> f64 {
    let k = f64::from(freedom.max(1));
    k * (1.0 - 2.0 / (9.0 * k) + NORMAL_QUANTILE * (2.0 / (9.0 * k)).sqrt()).powi(3)
}

/// Asserts that values have the distribution function `cdf`: Kolmogorov and Smirnov's test at 1e-4.
pub(crate) fn assert_distributed(what: &str, values: &mut [f64], cdf: impl Fn(f64) -> f64) {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len() as f64;
    let distance = values.iter().enumerate().fold(0.0_f64, |most, (at, &value)| {
        let p = cdf(value);
        most.max((p - at as f64 / n).abs()).max(((at + 1) as f64 / n - p).abs())
    });
    let most = 2.2253 / n.sqrt(); // √(ln(2/1e-4) / 2)
    assert!(distance <= most, "{what}: distance {distance:.5} > {most:.5}");
}

/// The distribution function of N(0, 1), to 1.5e-7 (Abramowitz and Stegun 7.1.26).
pub(crate) fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let upper = poly * (-z * z).exp() / 2.0;
    if x > 0.0 { 1.0 - upper } else { upper }
}

#[test]
fn the_tests_reject_what_is_wrong() {
    let rejects =
        |test: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_err();
    let even = [0.25; 4];
    assert_fits("even", &[2500, 2520, 2470, 2510], &even);
    assert!(rejects(&|| assert_fits("uneven", &[2500, 2720, 2270, 2510], &even)));
    assert_same("same", &[1000, 1020, 970], &[3010, 2980, 3010]);
    assert!(rejects(&|| assert_same("other", &[1000, 1120, 870], &[3010, 2980, 3010])));
    assert!(rejects(&|| assert_same("one draw where there are none", &[3000, 0], &[2900, 100])));
    let grid =
        |power: i32| (0..10_000).map(|i| (f64::from(i) / 1e4).powi(power)).collect::<Vec<_>>();
    assert_distributed("uniform", &mut grid(1), |x| x);
    assert!(rejects(&|| assert_distributed("squares", &mut grid(2), |x| x)));
    assert!((normal_cdf(1.0) - 0.841_344_75).abs() < 1e-6 && (normal_cdf(-8.0)).abs() < 1e-6);
    // Tabled quantiles of chi² at 1e-4: the approximation is a little above, the more so the fewer
    // bins.
    for (freedom, tabled) in [(1, 15.14), (4, 23.51), (19, 51.00)] {
        let above = critical(freedom) / tabled;
        assert!((1.0..1.08).contains(&above), "{freedom}: {above}");
    }
}
