//! The gradients of the f64 loops against finite differences of their own output: what all else is
//! held against must itself be right.

use strum::VariantArray;
use vim_kernels::Series;
use vim_kernels::oracle::{OracleConv, OracleScan};

use super::args::Dtype;
use super::check::{Check, Context, Row, Run, Subject, Worst};
use super::compare::{Numbers, figures};
use super::scan::{Form, grad_of, inputs, named};

/// max |difference| / max |reference| in f64: the fourth-order stencil below truncates at about 1e-12
/// and rounds at about 1e-11.
const F64: f64 = 1e-8;

/// Central differences of `loss` in every element that `field` reaches.
fn differences<S: Clone>(
    subject: &S,
    field: impl Fn(&mut S) -> Option<&mut Vec<f64>>,
    loss: impl Fn(&S) -> f64,
) -> Vec<f64> {
    let mut subject = subject.clone();
    let len = field(&mut subject).map_or(0, |values| values.len());
    let mut at = |i: usize, step: f64| {
        let mut moved = 0.0;
        if let Some(values) = field(&mut subject) {
            moved = values[i];
            values[i] += step;
        }
        let loss = loss(&subject);
        if let Some(values) = field(&mut subject) {
            values[i] = moved;
        }
        loss
    };
    let h = 2e-4;
    (0..len)
        .map(|i| (8.0 * (at(i, h) - at(i, -h)) - (at(i, 2.0 * h) - at(i, -2.0 * h))) / (12.0 * h))
        .collect()
}

fn dot(one: &[f64], two: &[f64]) -> f64 {
    one.iter().zip(two).map(|(a, b)| a * b).sum()
}

fn scan_rows(scan: &OracleScan, case: &str, factor: f64) -> Vec<Row> {
    let grad_y = grad_of(scan, Dtype::F32);
    let loss = |s: &OracleScan| dot(&s.forward().0, &grad_y);
    let want = [
        differences(scan, |s| Some(&mut s.u), loss),
        differences(scan, |s| Some(&mut s.delta), loss),
        differences(scan, |s| Some(&mut s.a), loss),
        differences(scan, |s| Some(&mut s.b), loss),
        differences(scan, |s| Some(&mut s.c), loss),
        differences(scan, |s| s.d.as_mut(), loss),
        differences(scan, |s| s.z.as_mut(), loss),
        differences(scan, |s| s.delta_bias.as_mut(), loss),
    ];
    let grads = scan.backward(&grad_y);
    named(&grads)
        .into_iter()
        .zip(want)
        .map(|((array, got), want)| {
            Row::judged(array, figures(got, &want, 1e-30), F64 * factor, case)
        })
        .collect()
}

fn conv_rows(conv: &OracleConv, case: &str, factor: f64) -> Vec<Row> {
    let grad_y = Numbers::new(7).vec(conv.x.len(), -1.0, 1.0, Dtype::F32);
    let loss = |c: &OracleConv| dot(&c.forward(), &grad_y);
    let grads = conv.backward(&grad_y);
    [
        ("x", grads.x, differences(conv, |c| Some(&mut c.x), loss)),
        ("weight", grads.weight, differences(conv, |c| Some(&mut c.weight), loss)),
        ("bias", grads.bias, differences(conv, |c| c.bias.as_mut(), loss)),
    ]
    .into_iter()
    .map(|(array, got, want)| Row::judged(array, figures(&got, &want, 1e-30), F64 * factor, case))
    .collect()
}

/// Both operations, every method and series.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for &method in &context.methods {
        for &series in Series::VARIANTS {
            let run = move |context: &Context, factor: f64| {
                let forms = if context.quick { &Form::ALL[1..2] } else { &Form::ALL[..] };
                let mut worst = Worst::default();
                for &form in forms {
                    for reverse in [false, true] {
                        let base = inputs([1, 3, 4, 2], form, 3.0, Dtype::F32);
                        let scan = OracleScan { method, series, reverse, ..base };
                        let case = format!("{form:?} reverse {reverse}");
                        scan_rows(&scan, &case, factor).into_iter().for_each(|r| worst.add(r));
                    }
                }
                Ok(worst.into_rows())
            };
            checks.push(check("selective_scan", Box::new(run)));
            if let Some(check) = checks.last_mut() {
                (check.method, check.series) = (Some(method), Some(series));
            }
        }
    }
    let run = |_: &Context, factor: f64| {
        let mut worst = Worst::default();
        for (silu, reverse) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut x = Numbers::new(5);
            let mut vec = |n| x.vec(n, -1.0, 1.0, Dtype::F32);
            let conv = OracleConv {
                batch: 2,
                len: 5,
                d_inner: 3,
                width: 4,
                silu,
                reverse,
                x: vec(30),
                weight: vec(12),
                bias: Some(vec(3)),
            };
            let case = format!("silu {silu} reverse {reverse}");
            conv_rows(&conv, &case, factor).into_iter().for_each(|row| worst.add(row));
        }
        Ok(worst.into_rows())
    };
    checks.push(check("causal_conv1d", Box::new(run)));
    checks
}

fn check(operation: &'static str, run: Run) -> Check {
    Check {
        subject: Subject::Adjoint,
        operation,
        method: None,
        series: None,
        implementation: "oracle".into(),
        dtype: "f64".into(),
        run,
    }
}
