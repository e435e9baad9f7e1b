//! One row per method: its TOML name and its coefficients in f64, written independently of the
//! crate.

use strum::VariantArray;
use vim_kernels::{Coefficients, Discretization, Series, discretize, linearize};

/// `(a_bar, b_bar)` at `(delta, a)`.
type Pair = fn(f64, f64) -> (f64, f64);

struct Row {
    method: Discretization,
    name: &'static str,
    exact: Pair,
    /// The same by the truncation that VisionMamba's README prints, in powers of delta and a.
    taylor: Option<Pair>,
    /// `b_prev`, where the method reads the token before.
    previous: Option<fn(f64, f64) -> f64>,
    two_way: bool,
}

/// The integral form φₖ(x) = ∫₀¹ e^{(1−s)x} s^{k−1}/(k−1)! ds.
fn phi(k: i32, x: f64) -> f64 {
    let factorial = if k == 3 { 2.0 } else { 1.0 };
    held(x, |s| s.powi(k - 1) / factorial)
}

/// ∫₀¹ e^{(1−s)x} w(s) ds, the gain of an input w(s), by Gauss–Legendre on 64 panels: no
/// cancellation anywhere, and nothing in common with the crate's evaluation.
fn held(x: f64, input: impl Fn(f64) -> f64) -> f64 {
    const NODES: [(f64, f64); 5] = [
        (0.0, 0.568_888_888_888_888_9),
        (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
        (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
        (0.906_179_845_938_664, 0.236_926_885_056_189_1),
        (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
    ];
    // The integrand is concentrated within 1/|x| of s = 1 for large negative x: panels are graded
    // towards it.
    let panels = 64;
    let edge = |i: i32| 1.0 - (1.0 - f64::from(i) / f64::from(panels)).powi(6);
    (0..panels)
        .flat_map(|i| {
            let (low, high) = (edge(i), edge(i + 1));
            NODES.map(|(node, weight)| {
                let s = (low + high) / 2.0 + (high - low) / 2.0 * node;
                weight * (high - low) / 2.0 * ((1.0 - s) * x).exp() * input(s)
            })
        })
        .sum()
}

const ROWS: &[Row] = &[
    Row {
        method: Discretization::Zoh,
        name: "zoh",
        exact: |d, a| ((d * a).exp(), d),
        taylor: Some(|d, a| ((d * a).exp(), d)),
        previous: None,
        two_way: false,
    },
    Row {
        method: Discretization::Foh,
        name: "foh",
        exact: |d, a| ((d * a).exp(), d * d * phi(2, d * a)),
        taylor: Some(|d, a| {
            let b = d.powi(2) / 2.0
                + a * d.powi(3) / 6.0
                + a.powi(2) * d.powi(4) / 24.0
                + a.powi(3) * d.powi(5) / 120.0;
            ((d * a).exp(), b)
        }),
        previous: None,
        two_way: false,
    },
    Row {
        method: Discretization::Bilinear,
        name: "bilinear",
        exact: |d, a| ((2.0 + d * a) / (2.0 - d * a), 2.0 * d / (2.0 - d * a)),
        taylor: Some(|d, a| ((2.0 + d * a) / (2.0 - d * a), 2.0 * d / (2.0 - d * a))),
        previous: None,
        two_way: false,
    },
    Row {
        method: Discretization::Poly,
        name: "poly",
        exact: |d, a| ((d * a).exp(), d * phi(1, d * a) + d * d * phi(2, d * a) / 2.0),
        taylor: Some(|d, a| {
            let b = d
                + (a / 2.0 + 1.0 / 4.0) * d.powi(2)
                + (a.powi(2) / 6.0 + a / 12.0) * d.powi(3)
                + (a.powi(3) / 24.0 + a.powi(2) / 48.0) * d.powi(4);
            ((d * a).exp(), b)
        }),
        previous: None,
        two_way: true,
    },
    Row {
        method: Discretization::HighOrder,
        name: "highorder",
        exact: |d, a| {
            let x = d * a;
            (x.exp(), d * phi(1, x) + d * d * phi(2, x) + d * d * d * phi(3, x) / 2.0)
        },
        taylor: Some(|d, a| {
            let b = d
                + (a / 2.0 + 1.0 / 2.0) * d.powi(2)
                + (a.powi(2) / 6.0 + a / 6.0 + 1.0 / 12.0) * d.powi(3)
                + (a.powi(3) / 24.0 + a.powi(2) / 24.0 + a / 48.0) * d.powi(4);
            ((d * a).exp(), b)
        }),
        previous: None,
        two_way: false,
    },
    Row {
        method: Discretization::Rk4,
        name: "rk4",
        exact: |d, a| ((d * a).exp(), rk4_gain(d, a)),
        taylor: Some(|d, a| ((d * a).exp(), rk4_gain(d, a))),
        previous: None,
        two_way: false,
    },
    Row {
        method: Discretization::ZohExact,
        name: "zoh_exact",
        exact: |d, a| ((d * a).exp(), d * phi(1, d * a)),
        taylor: None,
        previous: None,
        two_way: false,
    },
    Row {
        method: Discretization::ExpTrapezoidal,
        name: "exp_trapezoidal",
        exact: |d, a| ((d * a).exp(), d / 2.0),
        taylor: None,
        previous: Some(|d, a| d / 2.0 * (d * a).exp()),
        two_way: false,
    },
    Row {
        method: Discretization::FohLinear,
        name: "foh_linear",
        exact: |d, a| ((d * a).exp(), d * phi(2, d * a)),
        taylor: None,
        // A line falls from 1 to 0 while the other rises.
        previous: Some(|d, a| d * held(d * a, |s| 1.0 - s)),
        two_way: false,
    },
    Row {
        method: Discretization::Tustin,
        name: "tustin",
        exact: |d, a| ((2.0 + d * a) / (2.0 - d * a), d / (2.0 - d * a)),
        taylor: None,
        previous: Some(|d, a| d / (2.0 - d * a)),
        two_way: false,
    },
];

fn rk4_gain(d: f64, a: f64) -> f64 {
    d + a * d.powi(2) / 2.0 + a.powi(2) * d.powi(3) / 6.0 + a.powi(3) * d.powi(4) / 24.0
}

/// Steps and rates from nearly nothing to |delta·a| = 1000, growing systems included.
const POINTS: &[(f64, f64)] = &[
    (1e-6, -1.0),
    (0.001, -1.0),
    (0.01, -16.0),
    (0.1, -1.0),
    (0.1, -16.0),
    (0.3, 2.5),
    (0.693, -4.0),
    (0.693, -16.0),
    (1.0, -1.999),
    (1.0, -2.001),
    (2.0, -16.0),
    (1.0, -1000.0),
];

#[test]
fn every_method_has_one_row() {
    let rows: Vec<_> = ROWS.iter().map(|row| row.method).collect();
    assert_eq!(rows, Discretization::VARIANTS);
}

#[test]
fn toml_name_and_label_agree_and_typos_are_errors() {
    #[derive(serde::Deserialize)]
    struct Config {
        method: Discretization,
    }
    let parse = |name: &str| toml::from_str::<Config>(&format!("method = {name:?}"));
    for row in ROWS {
        assert_eq!(parse(row.name).unwrap().method, row.method);
        assert_eq!(row.method.to_string(), row.name);
        let form = row.method.form();
        assert_eq!(form.two_way, row.two_way);
        assert_eq!(form.published, row.taylor.is_some());
        assert_eq!(row.method.series().len(), if row.taylor.is_some() { 2 } else { 1 });
    }
    assert!(parse("zho").is_err());
}

#[test]
fn coefficients_match_the_row() {
    for row in ROWS {
        for &(delta, a) in POINTS {
            let formulas = [(Series::Exact, Some(row.exact)), (Series::Taylor, row.taylor)];
            for (series, formula) in formulas {
                let Some(formula) = formula else { continue };
                let got = discretize(row.method, series, delta, a);
                let (a_bar, b_bar) = formula(delta, a);
                // 1e-11: the quadrature's own error; the crate's is some 1e-15.
                let close = |g: f64, w: f64| (g - w).abs() <= 1e-11 * w.abs() + 1e-300;
                assert!(close(got.a_bar, a_bar), "{} a_bar at {delta}, {a}", row.name);
                let b = got.b_bar;
                assert!(
                    close(b, b_bar),
                    "{} {series} b_bar at {delta}, {a}: {b} {b_bar}",
                    row.name
                );
                let (got, want) = (got.b_prev, row.previous.map(|previous| previous(delta, a)));
                let same = got.is_some() == want.is_some();
                let near = got.zip(want).is_none_or(|(got, want)| close(got, want));
                assert!(same && near, "{} b_prev at {delta}, {a}: {got:?} {want:?}", row.name);
            }
        }
    }
}

#[test]
fn derivatives_match_finite_differences() {
    for &method in Discretization::VARIANTS {
        for &series in method.series() {
            for &(delta, a) in POINTS {
                let lin = linearize(method, series, delta, a);
                let at = |delta, a| discretize(method, series, delta, a);
                assert_eq!(lin.value, at(delta, a));
                // Central differences in f64 with a step of 1e-5 of the argument: 1e-10 of
                // truncation.
                let slope =
                    |minus: Coefficients<f64>, plus: Coefficients<f64>, h: f64| Coefficients {
                        a_bar: (plus.a_bar - minus.a_bar) / (2.0 * h),
                        b_bar: (plus.b_bar - minus.b_bar) / (2.0 * h),
                        b_prev: plus.b_prev.zip(minus.b_prev).map(|(p, m)| (p - m) / (2.0 * h)),
                    };
                let h = 1e-5 * delta;
                let d_delta = slope(at(delta - h, a), at(delta + h, a), h);
                let ha = 1e-5 * a.abs();
                let d_a = slope(at(delta, a - ha), at(delta, a + ha), ha);
                // Rounding error of a difference: 1e-16 of the value over 2e-5 of the argument.
                let near = |got: f64, want: f64, floor: f64| {
                    assert!(
                        (got - want).abs() <= 1e-6 * want.abs() + floor,
                        "{method} {series} at {delta}, {a}: {got} against {want}"
                    );
                };
                let noise = |value: f64, argument: f64| 1e-10 * value.abs() / argument.abs();
                near(lin.d_delta.a_bar, d_delta.a_bar, noise(lin.value.a_bar, delta));
                near(lin.d_delta.b_bar, d_delta.b_bar, noise(lin.value.b_bar, delta));
                near(lin.d_a.a_bar, d_a.a_bar, noise(lin.value.a_bar, a));
                near(lin.d_a.b_bar, d_a.b_bar, noise(lin.value.b_bar, a));
                if let Some(b_prev) = lin.value.b_prev {
                    let own = |of: Coefficients<f64>| of.b_prev.unwrap();
                    near(own(lin.d_delta), own(d_delta), noise(b_prev, delta));
                    near(own(lin.d_a), own(d_a), noise(b_prev, a));
                }
            }
        }
    }
}

#[test]
fn exact_gains_stay_bounded_and_the_verdict_says_so() {
    for &method in Discretization::VARIANTS {
        for &series in method.series() {
            let step = discretize(method, series, 1.0, -1e3);
            let gain = step.b_bar.abs().max(step.b_prev.unwrap_or_default().abs());
            assert_eq!(gain <= 1.0, method.bounded(series), "{method} {series}: {gain}");
        }
    }
}

#[test]
fn a_method_is_known_by_the_name_that_configurations_have() {
    for row in ROWS {
        assert_eq!(row.name.parse::<Discretization>(), Ok(row.method));
    }
    let error = "Zoh\n".parse::<Discretization>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`Zoh\\n` is no discretization: use one of zoh, foh, bilinear, poly, highorder, rk4, \
         zoh_exact, exp_trapezoidal, foh_linear, tustin"
    );
}
