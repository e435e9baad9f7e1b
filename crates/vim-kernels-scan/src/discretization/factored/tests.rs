use strum::VariantArray;

use super::taps::TapGain;
use super::*;
use crate::discretization::{Coefficients, Discretization, linearize};
use vim_kernels_core::native::lanes::Lanes;

#[test]
fn parts_are_the_plain_formulas() {
    compare_parts(false, 2e-5);
}

#[test]
fn coarse_parts_are_the_plain_formulas() {
    compare_parts(true, 4e-4);
}

/// The factored form in f32, as the kernels compute it, against the plain formulas in f64.
fn compare_parts(coarse: bool, tolerance: f64) {
    let mut worst: (f64, String) = (0.0, String::new());
    for &method in Discretization::VARIANTS {
        for &series in method.series() {
            for delta in [0.0, 1e-4, 0.003, 0.05, 0.3, 0.9, 2.5f64] {
                let stable = (0..400).map(|i| -(10f64.powf(-4.0 + 7.0 * f64::from(i) / 400.0)));
                for a in stable.chain([0.0, 1e-3, 0.1, 0.3, 0.7]) {
                    let (a, delta) = (f64::from(a as f32), f64::from(delta as f32));
                    // Beyond, bare polynomials pass through 0, where no digit is left.
                    if !method.bounded(series) && delta * -a > 1.0 {
                        continue;
                    }
                    let factored = Form { coarse, ..method.form().under(series) };
                    let lanes = |x: f64| Lanes::<false>::splat(x as f32);
                    let out = |x: Lanes<false>| f64::from(x.to_array()[0]);
                    let exact = linearize(method, series, delta, a);
                    let (t, a_lanes) = (lanes(delta), lanes(a));
                    let forward = factored.forward(&factored.token(t), &factored.state(a_lanes));
                    let (token, state) =
                        (factored.backward_token(t), factored.backward_state(a_lanes));
                    let again = factored.recompute_forward(&factored.token(t), &state);
                    // By delta and by a, through x and besides it.
                    let token_factor = factored.token_factor(&token);
                    // Of b_prev: the value, once more, and its slopes.
                    let mut previous = Vec::new();
                    let (back_a_bar, slope, b_bar, d_delta, d_a) = if factored.two_taps() {
                        let back = factored.backward_taps(&token, &state);
                        let values = |gain: TapGain<Lanes<false>>| {
                            let slope = gain.slope.like(&t) * t * t;
                            (gain.value.like(&t) * t, gain.by_delta.like(&t), out(slope))
                        };
                        let (value, by_delta, by_a) = values(back.previous);
                        let want = |of: Coefficients<f64>| of.b_prev.unwrap_or_default();
                        for (name, got) in
                            [("b_prev", &forward.b_prev), ("b_prev once more", &again.b_prev)]
                        {
                            let got = got.map_or(f64::NAN, |gain| out(gain * token_factor));
                            previous.push((name, got, want(exact.value)));
                        }
                        previous.push(("b_prev again", out(value), want(exact.value)));
                        previous.push(("b_prev by delta", out(by_delta), want(exact.d_delta)));
                        previous.push(("b_prev by a", by_a, want(exact.d_a)));
                        let (b_bar, d_delta, d_a) = values(back.gain);
                        (back.a_bar, back.decay_slope, b_bar, d_delta, d_a)
                    } else if factored.goes_via_x() {
                        let back = factored.backward_via_x(&token, &state);
                        let [gain, slope] = factored.factors();
                        let gain = back.gain.scale(gain);
                        let through = token_factor * back.gain_slope.scale(slope);
                        let d_delta =
                            through * lanes(a) + gain * factored.token_factor_slope(&token);
                        let d_a = out(through * t);
                        (back.a_bar, back.decay_slope, gain * token_factor, d_delta, d_a)
                    } else {
                        let back = factored.backward(&token, &state);
                        let d_a = back.d_a.map_or(0.0, out);
                        let (b_bar, d_delta) =
                            (back.b_bar.value(&token_factor), back.d_delta.value(&token_factor));
                        (back.a_bar, back.decay_slope, b_bar, d_delta, d_a)
                    };
                    for (name, got, want) in [
                        (
                            "b_bar once more",
                            out(again.b_bar.value(&token_factor)),
                            exact.value.b_bar,
                        ),
                        ("a_bar", out(forward.a_bar), exact.value.a_bar),
                        ("b_bar", out(forward.b_bar.value(&token_factor)), exact.value.b_bar),
                        ("a_bar again", out(back_a_bar), exact.value.a_bar),
                        ("b_bar again", out(b_bar), exact.value.b_bar),
                        ("d_delta", out(d_delta), exact.d_delta.b_bar),
                        (
                            "decay by delta",
                            slope.map_or(out(back_a_bar), out) * a,
                            exact.d_delta.a_bar,
                        ),
                        ("d_a", d_a, exact.d_a.b_bar),
                    ]
                    .into_iter()
                    .chain(previous)
                    {
                        // a_bar and this derivative pass through 0: their absolute errors count.
                        let floor = match name {
                            "b_prev by delta" => 0.1,
                            _ if name.starts_with("a_bar") => 1.0,
                            _ => 1e-7,
                        };
                        let error = (got - want).abs() / want.abs().max(floor);
                        if error > worst.0 || error.is_nan() {
                            let what = format!("{method} {series} {name} delta {delta} a {a}");
                            worst = (error, format!("{what}: {got} for {want}"));
                        }
                        assert!(error <= tolerance, "{error:.1e}: {}", worst.1);
                    }
                }
            }
        }
    }
    println!("worst {worst:?}");
}

// The backward scan evaluates bilinear through r instead of through the coefficients.
#[test]
fn tustin_is_the_plain_formulas() {
    let factored = Discretization::Bilinear.form();
    assert!(factored.is_bilinear());
    let others = Discretization::VARIANTS.iter().filter(|&&m| m != Discretization::Bilinear);
    assert!(others.into_iter().all(|&method| !method.form().is_bilinear()));
    for delta in [1e-4, 0.05, 2.5f64] {
        for i in 0..400 {
            let a = -f64::from((10f64.powf(-4.0 + 7.0 * f64::from(i) / 400.0)) as f32);
            let delta = f64::from(delta as f32);
            let lanes = |x: f64| Lanes::<false>::splat(x as f32);
            let exact = linearize(Discretization::Bilinear, Series::Exact, delta, a);
            let token = factored.backward_token(lanes(delta));
            let r = factored.backward_bilinear(&token, &factored.backward_state(lanes(a)));
            let r = f64::from(r.to_array()[0]);
            for (name, got, want) in [
                ("a_bar", 2.0 * r - 1.0, exact.value.a_bar),
                ("b_bar", delta * r, exact.value.b_bar),
                ("a_bar by delta", r * r * a, exact.d_delta.a_bar),
                ("b_bar by delta", r * r, exact.d_delta.b_bar),
                ("a_bar by a", r * r * delta, exact.d_a.a_bar),
                ("b_bar by a", 0.5 * delta * delta * r * r, exact.d_a.b_bar),
            ] {
                let floor = if name == "a_bar" { 1.0 } else { 1e-12 };
                // r, rounded to f32, twice.
                let error = (got - want).abs() / want.abs().max(floor);
                assert!(error <= 1e-6, "{name} delta {delta} a {a}: {got} for {want}");
            }
        }
    }
}
