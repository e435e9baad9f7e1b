//! Means over seeds, and paired tests of runs and of images.

use serde::Serialize;
use statrs::distribution::{
    Binomial, ChiSquared, Continuous, ContinuousCDF, DiscreteCDF, Normal, StudentsT,
};

/// The confidence of the intervals.
pub const CONFIDENCE: f64 = 0.95;

/// A difference is shown by a corrected p below this.
pub const LEVEL: f64 = 0.05;

/// With which probability the differences are found that [`detectable`] gives.
pub const POWER: f64 = 0.8;

/// Differences of metrics (of magnitude 1 or less) within this tolerance are equal.
pub(crate) const ROUNDING: f64 = 1e-12;

/// Values of the same experiment under several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Number of values.
    pub n: usize,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation (n − 1); `None` for a single value.
    pub sd: Option<f64>,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Student's t-test of the mean of paired differences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// Number of pairs.
    pub n: usize,
    /// Mean difference.
    pub mean: f64,
    /// Their sample standard deviation (n − 1); `None` for a single pair or equal differences.
    pub sd: Option<f64>,
    /// Half the width of its confidence interval; `None` for a single pair or equal differences.
    pub half_width: Option<f64>,
    /// Two-sided p value; `None` for a single pair or equal differences.
    pub p: Option<f64>,
}

/// Statistics of `values`; `None` without values.
pub fn sample(values: &[f64]) -> Option<Sample> {
    if values.is_empty() {
        return None;
    }
    let n = values.len();
    let mean = values.iter().sum::<f64>() / n as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let sd = (n > 1).then(|| (squares / (n - 1) as f64).sqrt());
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Sample { n, mean, sd, min, max })
}

/// The paired t-test of `differences`; `None` without differences.
///
/// # Panics
///
/// Never: the distribution has at least one degree of freedom.
pub fn paired(differences: &[f64]) -> Option<Paired> {
    let Sample { n, mean, sd, min, max } = sample(differences)?;
    // The deviation of equal differences is rounding only and allows no test.
    let are_equal = max - min <= ROUNDING * mean.abs().max(1.0);
    let Some(sd) = sd.filter(|_| !are_equal) else {
        return Some(Paired { n, mean, sd: None, half_width: None, p: None });
    };
    let degrees = (n - 1) as f64;
    let t = StudentsT::new(0.0, 1.0, degrees).expect("invariant: n > 1");
    let error = sd / (n as f64).sqrt();
    let half_width = Some(t.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error);
    let p = Some(2.0 * t.cdf(-(mean / error).abs()));
    Some(Paired { n, mean, sd: Some(sd), half_width, p })
}

/// The smallest true mean that the two-sided paired t-test of `n` differences finds at [`LEVEL`]
/// with a probability of [`POWER`], in standard deviations of these differences: the δ with
/// `P(|T| > t) = POWER`, where T has the noncentral t distribution of n − 1 degrees of freedom and
/// noncentrality `δ·√n`, and t is the critical value of the central one. About
/// `(t₀.₉₇₅ + t₀.₈)/√n` from ten differences on. `None` for fewer than two.
///
/// # Panics
///
/// Never: the distributions have at least one degree of freedom.
///
/// # Source
/// Cohen 1988, "Statistical Power Analysis for the Behavioral Sciences", §2.
pub fn detectable(n: usize) -> Option<f64> {
    if n < 2 {
        return None;
    }
    let test = PairedTest::new(n);
    let mut range = (0.0, 1.0);
    while test.power(range.1) < POWER {
        range = (range.1, 2.0 * range.1);
    }
    for _ in 0..50 {
        let middle = f64::midpoint(range.0, range.1);
        if test.power(middle) < POWER { range.0 = middle } else { range.1 = middle }
    }
    Some(range.1)
}

/// The two-sided paired t-test of n differences: what their deviation may come out as.
struct PairedTest {
    /// √n.
    root: f64,
    /// Weights, and the critical value in true standard errors that a deviation leads to.
    critical: Vec<(f64, f64)>,
}

impl PairedTest {
    /// Of `n` ≥ 2 differences.
    fn new(n: usize) -> Self {
        /// Their sum is that of the integral to more than ten digits.
        const NODES: u32 = 2000;
        let degrees = (n - 1) as f64;
        let t = StudentsT::new(0.0, 1.0, degrees).expect("invariant: n > 1");
        let t = t.inverse_cdf(1.0 - LEVEL / 2.0);
        let chi_squared = ChiSquared::new(degrees).expect("invariant: n > 1");
        // In the logarithm of χ², whose density falls off exponentially on both sides.
        let low = degrees.ln() - 10.0 * (2.0 / degrees).sqrt() - 70.0 / degrees;
        let high = (degrees + 12.0 * (2.0 * degrees).sqrt() + 80.0).ln();
        let step = (high - low) / f64::from(NODES);
        let node = |number: u32| {
            let value = (low + step * f64::from(number)).exp();
            (chi_squared.pdf(value) * value * step, t * (value / degrees).sqrt())
        };
        Self { root: (n as f64).sqrt(), critical: (0..=NODES).map(node).collect() }
    }

    /// The probability that a true mean of `effect` standard deviations is found.
    fn power(&self, effect: f64) -> f64 {
        let (normal, shift) = (Normal::standard(), effect * self.root);
        let found = |critical: f64| normal.cdf(shift - critical) + normal.cdf(-shift - critical);
        self.critical.iter().map(|&(weight, critical)| weight * found(critical)).sum()
    }
}

/// The p values of tests out of a family of `planned`, corrected by Holm's method, in the order of
/// `p`. A test that was planned and has no p, as its runs are missing or equal, stands behind all
/// that have one: what is missing makes no p smaller.
pub fn holm(p: &[f64], planned: usize) -> Vec<f64> {
    let planned = planned.max(p.len());
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut corrected = vec![0.0; p.len()];
    let mut largest = 0.0_f64;
    for (rank, &at) in order.iter().enumerate() {
        largest = largest.max(p[at] * (planned - rank) as f64).min(1.0);
        corrected[at] = largest;
    }
    corrected
}

/// McNemar's exact test of two methods on the same images, two-sided: how often as uneven a split
/// of the images that one of them alone gets right would come about if both were equally good.
///
/// # Panics
///
/// Never: ½ is a probability.
///
/// # Source
/// McNemar 1947, "Note on the sampling error of the difference between correlated proportions"; the
/// binomial in place of χ².
pub fn mcnemar(only_first: u64, only_second: u64) -> f64 {
    let images = only_first + only_second;
    let fair = Binomial::new(0.5, images).expect("invariant: ½ is a probability");
    (2.0 * fair.cdf(only_first.min(only_second))).min(1.0)
}

#[cfg(test)]
mod tests {
    //! Expected numbers: SciPy 1.17.1 and statsmodels 0.15.0, by:
    //!
    //! ```text
    //! python -m venv v && v/bin/pip install scipy==1.17.1 statsmodels==0.15.0 && v/bin/python -c "
    //! import numpy as np; from scipy import stats
    //! from statsmodels.stats.multitest import multipletests
    //! a = [.7312, .7288, .7345, .7301, .7296]; print(np.mean(a), np.std(a, ddof=1))
    //! for b in ([.7401, .7322, .7398, .7377, .7350], [.7311, .7290, .7343, .7305, .7292],
    //!           [.61, .58, .63, .60, .5]):
    //!     for n in (2, 5):
    //!         r = stats.ttest_rel(b[:n], a[:n]); print(n, r.pvalue, r.confidence_interval(.95))
    //! print(multipletests([.01, .04, .03, .005, .9], method='holm')[1])
    //! print(multipletests([.01, .04, .03, .005, .9, 1, 1], method='holm')[1])"
    //! ```

    use super::*;

    const BASE: [f64; 5] = [0.7312, 0.7288, 0.7345, 0.7301, 0.7296];

    fn close(value: f64, expected: f64) {
        let tolerance = 1e-9 * expected.abs().max(1e-6);
        assert!((value - expected).abs() <= tolerance, "{value} is not {expected}");
    }

    fn test(other: &[f64]) -> Paired {
        let differences: Vec<f64> = other.iter().zip(BASE).map(|(b, a)| b - a).collect();
        paired(&differences).unwrap()
    }

    /// `scipy.stats.binomtest(a, a + b).pvalue`, and powers of two by hand.
    #[test]
    fn mcnemars_test_is_the_binomial() {
        for (a, b, p) in [
            (0, 0, 1.0),
            (5, 5, 1.0),
            (0, 5, 2.0 / 32.0),
            (9, 1, 22.0 / 1024.0),
            (6, 4, 772.0 / 1024.0),
        ] {
            close(mcnemar(a, b), p);
            close(mcnemar(b, a), p);
        }
    }

    #[test]
    fn deviations_are_of_samples() {
        let all = sample(&BASE).unwrap();
        close(all.mean, 0.730_839_999_999_999_9);
        close(all.sd.unwrap(), 0.002_223_285_856_564_571);
        assert_eq!((all.n, all.min, all.max), (5, 0.7288, 0.7345));
        assert_eq!(sample(&BASE[..1]).unwrap().sd, None);
        assert_eq!(sample(&[]), None);
    }

    #[test]
    fn paired_tests_are_scipys() {
        for (other, p, low, high) in [
            (
                &[0.7401, 0.7322, 0.7398, 0.7377, 0.7350][..],
                0.003_129_340_894_175_920_4,
                0.003_449_123_304_141_004,
                0.008_790_876_695_858_98,
            ),
            (
                &[0.7401, 0.7322][..],
                0.267_689_105_877_673_47,
                -0.028_792_063_024_480_806,
                0.041_092_063_024_480_784,
            ),
            (
                &[0.7311, 0.7290, 0.7343, 0.7305, 0.7292][..],
                0.895_405_804_487_102_5,
                -0.000_416_555_680_091_045_37,
                0.000_376_555_680_091_005_36,
            ),
            (
                &[0.61, 0.58, 0.63, 0.60, 0.5][..],
                0.002_570_394_356_275_257,
                -0.207_616_161_388_969_5,
                -0.086_063_838_611_030_58,
            ),
        ] {
            let found = test(other);
            close(found.p.unwrap(), p);
            close(found.mean - found.half_width.unwrap(), low);
            close(found.mean + found.half_width.unwrap(), high);
        }
    }

    #[test]
    fn what_has_no_p_says_so() {
        let one = test(&[0.74]);
        assert_eq!((one.n, one.sd, one.half_width, one.p), (1, None, None, None));
        // In f64 these three differ in their last digits.
        for equal in [[0.5, 0.5, 0.5], [0.8 - 0.7, 0.4 - 0.3, 0.3 - 0.2]] {
            let equal = paired(&equal).unwrap();
            assert_eq!((equal.sd, equal.half_width, equal.p), (None, None, None));
        }
        assert_eq!(paired(&[]), None);
    }

    #[test]
    fn holm_is_statsmodels() {
        let p = [0.01, 0.04, 0.03, 0.005, 0.9];
        for (planned, expected) in [
            (5, [0.04, 0.09, 0.09, 0.025, 0.9]),
            // Two that were planned have no p: as if it were 1.
            (7, [0.06, 0.16, 0.15, 0.035, 1.0]),
            (0, [0.04, 0.09, 0.09, 0.025, 0.9]),
        ] {
            holm(&p, planned).into_iter().zip(expected).for_each(|(p, q)| close(p, q));
        }
    }

    /// The numbers of pairs that tables of sample sizes have for Cohen's small, medium and large
    /// effects at 5 % two-sided and 80 % power: 199, 34 and 15 (R's `pwr.t.test(d = c(.2, .5, .8),
    /// power = .8, type = "paired")` gives n = 198.15, 33.37 and 14.30, G*Power 3.1 the same).
    #[test]
    fn as_many_pairs_find_an_effect_as_published_tables_say() {
        for (effect, pairs) in [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)] {
            assert!(detectable(pairs).unwrap() <= effect, "{effect}");
            assert!(detectable(pairs - 1).unwrap() > effect, "{effect}");
        }
    }

    /// `scipy.optimize.brentq` of `nct.sf(t, n - 1, d * n**.5) + nct.cdf(-t, n - 1, d * n**.5)`
    /// less 0.8, with `t = scipy.stats.t.ppf(.975, n - 1)`.
    #[test]
    fn what_few_seeds_find_is_scipys() {
        assert_eq!((detectable(0), detectable(1)), (None, None));
        for (pairs, expected) in [
            (2, 11.549_888_435_882),
            (3, 3.264_043_549_699),
            (5, 1.681_996_965_956),
            (10, 0.996_001_371_455),
            (1000, 0.088_679_075_594),
        ] {
            close(detectable(pairs).unwrap(), expected);
        }
    }
}
