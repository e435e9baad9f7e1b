//! The φ functions of exponential integrators, and their derivatives.
//!
//! φ₁ = (eˣ − 1)/x, φ₂ = (eˣ − 1 − x)/x², φ₃ = (eˣ − 1 − x − x²/2)/x³; all are the series
//! `φₖ(x) = Σⱼ xʲ/(j+k)!`. The closed forms lose every digit near 0, the series is useless far
//! from it, so |x| < 2 takes the series and the rest a closed form whose terms are arranged not
//! to cancel: `1 + x + x²/2 = ½(x+1)² + ½` is positive, and so on. Relative error in f32 is below
//! 1e-6 for x in [-1e4, 20], of the functions and of their derivatives (tests).

use vim_kernels_core::Real;

/// |x| below which the series is used.
const NEAR: f64 = 2.0;

/// `1/n!`.
pub(crate) const fn inverse_factorial(n: usize) -> f64 {
    let mut product = 1.0;
    let mut i = 2;
    while i <= n {
        product *= i as f64;
        i += 1;
    }
    1.0 / product
}

/// `1/n!` for every n that a series here needs.
const INVERSE_FACTORIAL: [f64; 34] = {
    let mut table = [0.0; 34];
    let mut n = 0;
    while n < table.len() {
        table[n] = inverse_factorial(n);
        n += 1;
    }
    table
};

/// The first `terms` terms of the series of `φₖ`.
#[inline(always)]
pub(crate) fn phi_series<T: Real>(k: usize, terms: usize, x: T) -> T {
    let last = INVERSE_FACTORIAL[k + terms - 1];
    if terms == 1 {
        return x.constant(last);
    }
    let mut sum = x.clone().scale(last).offset(INVERSE_FACTORIAL[k + terms - 2]);
    for j in (0..terms - 2).rev() {
        sum = sum.mul_add(x.clone(), INVERSE_FACTORIAL[k + j]);
    }
    sum
}

/// The derivative of [`phi_series`]: `terms − 1` terms `(j+1)·xʲ/(j+1+k)!`.
#[inline(always)]
pub(crate) fn phi_series_derivative<T: Real>(k: usize, terms: usize, x: T) -> T {
    let coefficient = |j: usize| (j + 1) as f64 * INVERSE_FACTORIAL[k + j + 1];
    let terms = terms - 1;
    if terms == 0 {
        return x.constant(0.0);
    }
    if terms == 1 {
        return x.constant(coefficient(0));
    }
    let mut sum = x.clone().scale(coefficient(terms - 1)).offset(coefficient(terms - 2));
    for j in (0..terms - 2).rev() {
        sum = sum.mul_add(x.clone(), coefficient(j));
    }
    sum
}

/// `φₖ(x)` for k = 1, 2, 3; `exp` is eˣ.
///
/// # Panics
///
/// If k is none of these.
#[inline(always)]
pub(crate) fn phi<T: Real>(k: usize, x: T, exp: T) -> T {
    let far_x = x.clone().away_from_zero(NEAR);
    let r = far_x.clone().recip();
    let far = match k {
        1 => exp.offset(-1.0) * r,
        2 => (exp - far_x.offset(1.0)) * (r.clone() * r),
        3 => {
            let s = far_x.offset(1.0);
            (exp - (s.clone() * s).scale(0.5).offset(0.5)) * (r.clone() * r.clone() * r)
        }
        _ => unreachable!("φₖ is defined for k = 1, 2, 3"),
    };
    let near = phi_near(k, x.clone().near_zero(NEAR));
    x.choose_near(NEAR, near, far)
}

/// `φₖ′(x)` for k = 1, 2, 3; `exp` is eˣ.
///
/// # Panics
///
/// If k is none of these.
#[inline(always)]
pub(crate) fn phi_derivative<T: Real>(k: usize, x: T, exp: T) -> T {
    let y = x.clone().away_from_zero(NEAR);
    let r = y.clone().recip();
    let r2 = r.clone() * r.clone();
    let far = match k {
        1 => (exp * y.offset(-1.0)).offset(1.0) * r2,
        2 => (exp * y.clone().offset(-2.0) + y.offset(2.0)) * (r2 * r),
        3 => {
            let s = y.clone().offset(2.0);
            (exp * y.offset(-3.0) + (s.clone() * s).scale(0.5).offset(1.0)) * (r2.clone() * r2)
        }
        _ => unreachable!("φₖ′ is defined for k = 1, 2, 3"),
    };
    let near = phi_near_derivative(k, x.clone().near_zero(NEAR));
    x.choose_near(NEAR, near, far)
}

/// `φ₁″(x)`, the slope of φ₁′ = φ₁ − φ₂; `exp` is eˣ. Near 0 its series, `Σⱼ xʲ/((j+3)·j!)`; far
/// from it `(eˣ·((x − 1)² + 1) − 2)/x³`, which loses a bit at −2 and nothing beyond.
#[inline(always)]
pub(crate) fn phi_curvature<T: Real>(x: T, exp: T) -> T {
    let y = x.clone().away_from_zero(NEAR);
    let (r, s) = (y.clone().recip(), y.offset(-1.0));
    let far = (exp * (s.clone() * s).offset(1.0)).offset(-2.0) * (r.clone() * r.clone() * r);
    let small = x.clone().near_zero(NEAR);
    let coefficient = |j: usize| INVERSE_FACTORIAL[j] / (j + 3) as f64;
    let last = T::SERIES_TERMS - 1;
    let mut near = small.clone().scale(coefficient(last)).offset(coefficient(last - 1));
    for j in (0..last - 1).rev() {
        near = near.mul_add(small.clone(), coefficient(j));
    }
    x.choose_near(NEAR, near, far)
}

/// `φₖ` near 0, down from φ₃: `φₖ₋₁ = 1/(k−1)! + x·φₖ`. Calls for several k share the series.
#[inline(always)]
fn phi_near<T: Real>(k: usize, x: T) -> T {
    let mut value = phi_series(3, T::SERIES_TERMS, x.clone());
    for j in (k..3).rev() {
        value = value.mul_add(x.clone(), INVERSE_FACTORIAL[j]);
    }
    value
}

/// `φₖ′` near 0: `φₖ₋₁′ = φₖ + x·φₖ′`.
#[inline(always)]
fn phi_near_derivative<T: Real>(k: usize, x: T) -> T {
    let mut value = phi_series_derivative(3, T::SERIES_TERMS, x.clone());
    for j in (k..3).rev() {
        value = phi_near(j + 1, x.clone()) + x.clone() * value;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use vim_kernels_core::native::lanes::Lanes;

    /// Points of [-1e4, 20], dense near 0 and around the change of form.
    fn points() -> Vec<f32> {
        let mut points = vec![0.0, f32::MIN_POSITIVE, -1e-30, 1e-8, -1e-8, 20.0, -1e4];
        for i in 0..4000 {
            let t = f64::from(i) / 4000.0;
            points.extend([
                (-(10f64.powf(-6.0 + 10.0 * t))) as f32, // -1e-6 … -1e4
                (10f64.powf(-6.0 + 7.3 * t)) as f32,     // 1e-6 … 20
                (-4.0 + 8.0 * t) as f32,
            ]);
        }
        points.retain(|&x| (-1e4..=20.0).contains(&x));
        points
    }

    // The accuracy that the module states, for the functions and their derivatives.
    #[test]
    fn f32_is_within_1e6_of_f64_everywhere() {
        fn function<T: Real>(k: usize, slopes: usize, x: T) -> T {
            let exp = x.clone().exp();
            match slopes {
                0 => phi(k, x, exp),
                1 => phi_derivative(k, x, exp),
                _ => phi_curvature(x, exp),
            }
        }
        fn worst<const FMA: bool>(k: usize, slopes: usize) -> (f64, f32) {
            let eval =
                |x: f32| f64::from(function(k, slopes, Lanes::<FMA>::splat(x)).to_array()[0]);
            let exact = |x: f64| function(k, slopes, x);
            points()
                .into_iter()
                .map(|x| {
                    let want = exact(f64::from(x));
                    (((eval(x) - want) / want).abs(), x)
                })
                .fold((0.0, 0.0), |worst, this| if this.0 > worst.0 { this } else { worst })
        }
        for (k, slopes) in [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1), (1, 2)] {
            for (error, x) in [worst::<false>(k, slopes), worst::<true>(k, slopes)] {
                assert!(error <= 1e-6, "phi{k}, {slopes} times derived: {error:.2e} at {x}");
            }
        }
    }

    // Checks the f64 values that the test above relies on: both forms agree at the switch, and the
    // derivative is the derivative.
    #[test]
    fn f64_forms_meet_and_differentiate() {
        for k in 1..=3 {
            for x in [-2.0, 2.0] {
                let far = phi(k, x, f64::exp(x));
                let near = phi_near(k, x);
                assert!((far - near).abs() <= 1e-14 * far, "phi{k} at {x}: {far} {near}");
            }
            for x in [-1e4, -50.0, -3.0, -1.0, 1e-3, 0.0, 1.5, 3.0, 20.0] {
                let at = |x: f64| phi(k, x, x.exp());
                let h = 1e-4 * f64::max(1.0, f64::abs(x));
                let want = (8.0 * (at(x + h) - at(x - h)) - at(x + 2.0 * h) + at(x - 2.0 * h))
                    / (12.0 * h);
                let got = phi_derivative(k, x, x.exp());
                assert!((got - want).abs() <= 1e-8 * got.abs(), "phi{k}' at {x}: {got} {want}");
            }
        }
        for x in [-1e4, -50.0, -3.0, -2.0, -1.999, -1.0, 1e-3, 0.0, 1.5, 2.0, 3.0, 20.0] {
            let at = |k: usize| phi(k, x, f64::exp(x));
            let (want, got) = (at(1) - 2.0 * at(2) + 2.0 * at(3), phi_curvature(x, x.exp()));
            // The terms cancel to a power of 1/|x|.
            assert!((got - want).abs() <= 1e-14 * at(1) + 1e-13 * got.abs(), "phi1'' at {x}");
        }
    }
}
