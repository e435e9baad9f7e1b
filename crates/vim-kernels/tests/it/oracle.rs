//! The oracle's gradients against finite differences of its own output, in f64.

use strum::VariantArray;
use vim_kernels::oracle::{OracleConv, OracleFullScan, OracleScan};
use vim_kernels::{Discretization, Series};

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
