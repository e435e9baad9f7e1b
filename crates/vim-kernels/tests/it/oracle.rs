//! The oracle's gradients against finite differences of its own output, in f64.

use strum::VariantArray;
use vim_kernels::oracle::{OracleConv, OracleFullScan, OracleNorm, OracleScan};
use vim_kernels::{Complex, Discretization, Series};

use crate::complex_scan::complex;
use crate::full_scan::full;
use crate::support::{Form, Numbers, grad_of, named, scan};

/// Central differences of `loss` in every element that `field` reaches.
fn differences<S: Clone>(
    subject: &S,
    field: impl Fn(&mut S) -> &mut Vec<f64>,
    loss: impl Fn(&S) -> f64,
) -> Vec<f64> {
    let mut subject = subject.clone();
    let len = field(&mut subject).len();
    let mut at = |i: usize, step: f64| {
        let before = field(&mut subject)[i];
        field(&mut subject)[i] = before + step;
        let loss = loss(&subject);
        field(&mut subject)[i] = before;
        loss
    };
    // The fourth-order stencil: truncation of 1e-12, rounding of 1e-11 at this step.
    let h = 2e-4;
    (0..len)
        .map(|i| (8.0 * (at(i, h) - at(i, -h)) - (at(i, 2.0 * h) - at(i, -2.0 * h))) / (12.0 * h))
        .collect()
}

fn check(what: &str, got: &[f64], want: &[f64]) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-7 * w.abs().max(1.0), "{what}[{i}]: {g} against {w}");
    }
    assert_eq!(got.len(), want.len(), "{what}");
}

fn check_scan(scan: &OracleScan) {
    let grad_y = grad_of(scan);
    let loss =
        |s: &OracleScan| -> f64 { s.forward().0.iter().zip(&grad_y).map(|(y, g)| y * g).sum() };
    let grads = scan.backward(&grad_y);
    let want = [
        differences(scan, |s| &mut s.u, loss),
        differences(scan, |s| &mut s.delta, loss),
        differences(scan, |s| &mut s.a, loss),
        differences(scan, |s| &mut s.b, loss),
        differences(scan, |s| &mut s.c, loss),
        differences(scan, |s| s.d.as_mut().unwrap(), loss),
        differences(scan, |s| s.z.as_mut().unwrap(), loss),
        differences(scan, |s| s.delta_bias.as_mut().unwrap(), loss),
    ];
    for ((name, got), want) in named(&grads).into_iter().zip(&want) {
        check(&format!("{} {} {name}", scan.method, scan.series), got, want);
    }
}

#[test]
fn scan_gradients_match_finite_differences() {
    for &method in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            for form in [Form::Variable, Form::Grouped(2), Form::Constant, Form::Mixed] {
                for reverse in [false, true] {
                    let base = scan([2, 3, 4, 2], form, 3.0, 7);
                    check_scan(&OracleScan { method, series, reverse, ..base });
                }
            }
        }
    }
}

/// `OracleScan` with one part of a complex array exposed, as `differences` needs it.
#[derive(Clone)]
struct OnePart {
    scan: OracleScan<Complex<f64>>,
    part: Vec<f64>,
}

#[test]
fn complex_scan_gradients_match_finite_differences() {
    type Array = fn(&mut OracleScan<Complex<f64>>) -> &mut Vec<Complex<f64>>;
    for &method in Discretization::VARIANTS {
        for &series in Series::VARIANTS {
            for form in [Form::Variable, Form::Grouped(2), Form::Constant, Form::Mixed] {
                let base = complex([2, 3, 4, 2], form, 3.0, 3.0, 7);
                let mut scan = OracleScan { method, series, reverse: form == Form::Mixed, ..base };
                let grad_y = Numbers::new(99).vec(scan.u.len(), -1.0, 1.0);
                let loss = |s: &OracleScan<Complex<f64>>| -> f64 {
                    s.forward().0.iter().zip(&grad_y).map(|(y, g)| y * g).sum()
                };
                let grads = scan.backward(&grad_y);
                let what = |name: &str| format!("complex {method} {series} {name}");
                check(&what("u"), &grads.u, &differences(&scan, |s| &mut s.u, loss));
                check(&what("delta"), &grads.delta, &differences(&scan, |s| &mut s.delta, loss));
                let bias = differences(&scan, |s| s.delta_bias.as_mut().unwrap(), loss);
                check(&what("delta_bias"), &grads.delta_bias, &bias);
                check(&what("z"), &grads.z, &differences(&scan, |s| s.z.as_mut().unwrap(), loss));
                let arrays: [(&str, Array, &[Complex<f64>]); 3] = [
                    ("a", |s| &mut s.a, &grads.a),
                    ("b", |s| &mut s.b, &grads.b),
                    ("c", |s| &mut s.c, &grads.c),
                ];
                for (name, array, got) in arrays {
                    for imaginary in [false, true] {
                        let read = |x: &Complex<f64>| if imaginary { x.im } else { x.re };
                        let part = array(&mut scan).iter().map(read).collect();
                        let subject = OnePart { scan: scan.clone(), part };
                        let want = differences(
                            &subject,
                            |s| &mut s.part,
                            |s| {
                                let mut scan = s.scan.clone();
                                for (x, &part) in array(&mut scan).iter_mut().zip(&s.part) {
                                    *(if imaginary { &mut x.im } else { &mut x.re }) = part;
                                }
                                loss(&scan)
                            },
                        );
                        let got: Vec<f64> = got.iter().map(read).collect();
                        check(&what(&format!("{name} imaginary {imaginary}")), &got, &want);
                    }
                }
            }
        }
    }
}

#[test]
fn full_scan_gradients_match_finite_differences() {
    for form in [Form::Variable, Form::Grouped(2), Form::Constant, Form::Mixed] {
        for reverse in [false, true] {
            let mut full = full([2, 3, 4, 3], form, 3.0, 7);
            full.0.reverse = reverse;
            let grad_y = grad_of(&full.0);
            let loss = |s: &OracleFullScan| -> f64 {
                s.forward().0.iter().zip(&grad_y).map(|(y, g)| y * g).sum()
            };
            let grads = full.backward(&grad_y);
            let want = [
                differences(&full, |s| &mut s.0.u, loss),
                differences(&full, |s| &mut s.0.delta, loss),
                differences(&full, |s| &mut s.0.a, loss),
                differences(&full, |s| &mut s.0.b, loss),
                differences(&full, |s| &mut s.0.c, loss),
                differences(&full, |s| s.0.d.as_mut().unwrap(), loss),
                differences(&full, |s| s.0.z.as_mut().unwrap(), loss),
                differences(&full, |s| s.0.delta_bias.as_mut().unwrap(), loss),
            ];
            for ((name, got), want) in named(&grads).into_iter().zip(&want) {
                check(&format!("full {form:?} {name}"), got, want);
            }
        }
    }
}

#[test]
fn conv_gradients_match_finite_differences() {
    for width in 2..=4 {
        for silu in [false, true] {
            for reverse in [false, true] {
                let mut x = Numbers::new(5);
                let conv = OracleConv {
                    batch: 2,
                    len: 5,
                    d_inner: 3,
                    width,
                    silu,
                    reverse,
                    x: x.vec(30, -1.0, 1.0),
                    weight: x.vec(3 * width, -1.0, 1.0),
                    bias: Some(x.vec(3, -1.0, 1.0)),
                };
                let grad_y = x.vec(30, -1.0, 1.0);
                let loss = |c: &OracleConv| -> f64 {
                    c.forward().iter().zip(&grad_y).map(|(y, g)| y * g).sum()
                };
                let grads = conv.backward(&grad_y);
                check("x", &grads.x, &differences(&conv, |c| &mut c.x, loss));
                check("weight", &grads.weight, &differences(&conv, |c| &mut c.weight, loss));
                let bias = differences(&conv, |c| c.bias.as_mut().unwrap(), loss);
                check("bias", &grads.bias, &bias);
            }
        }
    }
}

#[test]
fn norm_gradients_match_finite_differences() {
    for (rows, d_model) in [(1, 1), (3, 1), (2, 5)] {
        for has_residual in [true, false] {
            let mut x = Numbers::new(11);
            let norm = OracleNorm {
                d_model,
                // Large enough for its share of the gradient to be visible.
                epsilon: 0.3,
                x: x.vec(rows * d_model, -1.0, 1.0),
                residual: has_residual.then(|| x.vec(rows * d_model, -1.0, 1.0)),
                weight: x.vec(d_model, -1.0, 1.0),
            };
            let by_normed = x.vec(rows * d_model, -1.0, 1.0);
            let by_sum = x.vec(rows * d_model, -1.0, 1.0);
            let loss = |n: &OracleNorm| -> f64 {
                let (normed, sum) = n.forward();
                let weigh = |of: Vec<f64>, by: &[f64]| -> f64 {
                    of.iter().zip(by).map(|(y, g)| y * g).sum()
                };
                weigh(normed, &by_normed) + weigh(sum, &by_sum)
            };
            let grads = norm.backward(&by_normed, &by_sum);
            check("x", &grads.x, &differences(&norm, |n| &mut n.x, loss));
            check("weight", &grads.weight, &differences(&norm, |n| &mut n.weight, loss));
            if has_residual {
                let residual = differences(&norm, |n| n.residual.as_mut().unwrap(), loss);
                check("residual", &grads.residual, &residual);
            }
        }
    }
}
