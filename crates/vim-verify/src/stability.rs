//! Outputs and gradients over a range of |delta·A|: finite, and within what an integrator would
//! give.

use vim_kernels::oracle::OracleScan;
use vim_kernels::{Discretization, Implementation, KernelError, Series, discretize};

use crate::check::{Check, Context, Row, Subject, Verdict};
use crate::compare::{Dtype, Numbers};
use crate::run::{Results, STORED_BF16};
use crate::scan::grad_of;

/// The step. A power of two: `a` is then exactly x/delta in every type.
const DELTA: f64 = 0.5;
/// Tokens.
const LEN: usize = 64;

/// |delta·A| from 1e-3 to 1e4: three to a decade, one if `quick`.
fn magnitudes(quick: bool) -> Vec<f64> {
    let step = if quick { 3 } else { 1 };
    (-9..=12).step_by(step).map(|third: i32| 10_f64.powf(f64::from(third) / 3.0)).collect()
}

/// Every method, series, implementation and type. A method whose input gain is a bare polynomial
/// grows by its definition: it is reported and not judged.
pub(crate) fn checks(context: &Context) -> Vec<Check> {
    let check = |(implementation, dtype), method, series| {
        let run = move |context: &Context, factor| {
            rows(context, method, series, implementation, dtype, factor)
        };
        Check::new(Subject::Stability, "selective_scan", implementation, dtype, run)
            .of(method, series)
    };
    let mut checks = Vec::new();
    for one in context.runs() {
        // One kernel a method, where they are to be few.
        let few = context.few_kernels(one.0);
        for &method in &context.methods {
            let series = if few { &method.series()[..1] } else { method.series() };
            checks.extend(series.iter().map(|&series| check(one, method, series)));
        }
    }
    checks
}

/// One channel for each magnitude.
fn inputs(magnitudes: &[f64], dtype: Dtype) -> OracleScan {
    let mut x = Numbers::new(17);
    let d_inner = magnitudes.len();
    OracleScan {
        batch: 1,
        len: LEN,
        d_inner,
        d_state: 1,
        groups: 1,
        u: x.vec(LEN * d_inner, -1.0, 1.0, dtype),
        delta: vec![DELTA; LEN * d_inner],
        a: magnitudes.iter().map(|x| Dtype::F32.round(-x / DELTA)).collect(),
        b: x.vec(LEN, -1.0, 1.0, dtype),
        c: x.vec(LEN, -1.0, 1.0, dtype),
        ..OracleScan::default()
    }
}

fn rows(
    context: &Context,
    method: Discretization,
    series: Series,
    implementation: Implementation,
    dtype: Dtype,
    factor: f64,
) -> Result<Vec<Row>, KernelError> {
    let magnitudes = magnitudes(context.quick);
    let scan = OracleScan { method, series, ..inputs(&magnitudes, dtype) };
    let grad_y = grad_of(&scan, dtype);
    let got = Results::on_device(&scan, &grad_y, implementation, dtype, &context.device)?;
    let channels = magnitudes.len();
    // For x ≤ 0 no bounded method has a decay above 1 or an input gain above the one at x = 0. So
    // no output is above Σ gain·|b·u|·max |c|, what an integrator of the same input would reach.
    let step = discretize(method, series, DELTA, -1e-9);
    let gain = step.b_bar + step.b_prev.unwrap_or_default();
    let largest_c = scan.c.iter().fold(0.0, |m: f64, c| m.max(c.abs()));
    let rounding = if dtype == Dtype::Bf16 { STORED_BF16 } else { 1e-5 };
    let judged = method.bounded(series);
    let rows = magnitudes.iter().enumerate().map(|(channel, x)| {
        let of = |values: &[f64]| -> Vec<f64> {
            values.iter().skip(channel).step_by(channels).copied().collect()
        };
        let drive: f64 = of(&scan.u).iter().zip(&scan.b).map(|(u, b)| (u * b).abs()).sum();
        let bound = gain * drive * largest_c;
        let y = of(&got.y);
        let grads = [of(&got.grads.u), of(&got.grads.delta), of(&got.grads.a)];
        let finite = y.iter().chain(grads.iter().flatten()).all(|value| value.is_finite());
        let max = y.iter().fold(0.0, |m: f64, y| m.max(y.abs())) / bound;
        let mean = y.iter().map(|y| y.abs()).sum::<f64>() / y.len() as f64 / bound;
        let max = if finite { max } else { f64::INFINITY };
        let tolerance = (1.0 + rounding) * factor;
        let verdict = match (judged, max <= tolerance) {
            (true, true) => Verdict::Pass,
            (true, false) => Verdict::Fail,
            (false, _) => Verdict::Reported,
        };
        let note = match (finite, max <= tolerance) {
            (false, _) => "not finite",
            (true, true) => "bounded",
            (true, false) => "beyond an integrator",
        };
        Row { array: format!("{x:.3e}"), max, mean, tolerance, verdict, note: note.to_owned() }
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn the_sweep_spans_seven_decades() {
        for quick in [false, true] {
            let all = magnitudes(quick);
            assert!((all[0] - 1e-3).abs() < 1e-12 && (all[all.len() - 1] - 1e4).abs() < 1e-6);
        }
    }

    /// The bound that the check uses, in f64, where a method's own formula decides.
    #[test]
    fn a_bounded_method_stays_within_an_integrator_and_a_polynomial_does_not() {
        for &method in Discretization::VARIANTS {
            for &series in method.series() {
                let all = magnitudes(false);
                let limit = discretize(method, series, DELTA, -1e-9).b_bar;
                let within = all.iter().all(|x| {
                    let step = discretize(method, series, DELTA, -x / DELTA);
                    step.a_bar.abs() <= 1.0 && step.b_bar.abs() <= limit * (1.0 + 1e-8)
                });
                assert_eq!(within, method.bounded(series), "{method} {series}");
            }
        }
    }
}
