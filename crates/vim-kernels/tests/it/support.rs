//! The inputs, runs and comparisons of the conformance suite, as these tests use them.

use burn::tensor::{Device, Tensor};
use vim_kernels::Implementation;
use vim_kernels::oracle::{OracleFullScan, OracleScan};
pub(crate) use vim_verify::Dtype;
use vim_verify::Verdict;
pub(crate) use vim_verify::compare::{Numbers, figures, values};
use vim_verify::run::judged;
pub(crate) use vim_verify::run::{Results, StateNumber, named};
pub(crate) use vim_verify::scan::Form;
use vim_verify::{compare, scan};

/// Sizes `[B, L, D, N]`.
pub(crate) type Sizes = [usize; 4];

pub(crate) const BOTH: [Implementation; 2] = [Implementation::Kernel, Implementation::Reference];

/// A scan with every optional input in f32; delta·a reaches about `reach` in magnitude. The numbers
/// are other ones than the suite's own.
pub(crate) fn scan(sizes: Sizes, form: Form, reach: f64) -> OracleScan {
    let [batch, len, d_inner, d_state] = sizes;
    let base = scan::inputs([0, 0, 0, 0], form, reach, Dtype::F32);
    let groups = base.groups;
    let mut numbers = Numbers::new(3);
    let mut x = |n, low, high| numbers.vec(n, low, high, Dtype::F32);
    let tokens = batch * len * d_inner;
    let projection =
        |constant| if constant { d_inner * d_state } else { batch * len * groups * d_state };
    let (of_b, of_c) = (projection(base.b_constant), projection(base.c_constant));
    OracleScan {
        batch,
        len,
        d_inner,
        d_state,
        u: x(tokens, -1.5, 1.5),
        delta: x(tokens, -3.0, 0.5),
        a: x(d_inner * d_state, -reach, -0.01 * reach),
        b: x(of_b, -1.0, 1.0),
        c: x(of_c, -1.0, 1.0),
        d: Some(x(d_inner, -1.0, 1.0)),
        z: Some(x(tokens, -2.0, 2.0)),
        delta_bias: Some(x(d_inner, -0.5, 0.5)),
        ..base
    }
}

/// `scan` without D, without z, without the bias of delta, and without softplus and the bias.
pub(crate) fn without_inputs<T: Clone>(scan: &OracleScan<T>) -> [OracleScan<T>; 4] {
    // Without softplus, delta is used as it is: make it a step.
    let delta = scan.delta.iter().map(|d| Dtype::F32.round(0.02 + d.abs() / 4.0)).collect();
    [
        OracleScan { d: None, ..scan.clone() },
        OracleScan { z: None, ..scan.clone() },
        OracleScan { delta_bias: None, ..scan.clone() },
        OracleScan { delta_softplus: false, delta_bias: None, delta, ..scan.clone() },
    ]
}

/// A weighting of the outputs, so that gradients of different outputs do not cancel or hide.
pub(crate) fn grad_of<T>(of: &OracleScan<T>) -> Vec<f64> {
    scan::grad_of(of, Dtype::F32)
}

pub(crate) fn tensor<const R: usize>(
    values: &[f64],
    shape: [usize; R],
    device: &Device,
) -> Tensor<R> {
    compare::tensor(values, shape, Dtype::F32, device)
}

/// To the nearest bf16, ties to even.
pub(crate) fn to_bf16(values: &[f64]) -> Vec<f64> {
    values.iter().map(|&value| Dtype::Bf16.round(value)).collect()
}

/// Runs `scan` forward and backward in f32 on `device`.
pub(crate) fn run<T: StateNumber>(
    scan: &OracleScan<T>,
    implementation: Implementation,
    device: &Device,
) -> Results {
    Results::on_device(scan, &grad_of(scan), implementation, Dtype::F32, device).unwrap()
}

/// Checks `scan` on `device` against the oracle; `looser` multiplies the suite's tolerances.
pub(crate) fn check<T: StateNumber>(
    scan: &OracleScan<T>,
    implementation: Implementation,
    dtype: Dtype,
    looser: f64,
    device: &Device,
) {
    let grad_y = scan::grad_of(scan, dtype);
    let got = Results::on_device(scan, &grad_y, implementation, dtype, device).unwrap();
    let want = Results::of_oracle(scan, &grad_y);
    pass(scan, &got, &want, dtype, looser, &format!("{implementation} on {device:?}"));
}

/// Checks `full` on `device` against the oracle; `looser` multiplies the suite's tolerances.
pub(crate) fn check_full(
    full: &OracleFullScan,
    implementation: Implementation,
    dtype: Dtype,
    looser: f64,
    device: &Device,
) {
    let grad_y = scan::grad_of(&full.0, dtype);
    let got = Results::of_full_on_device(full, &grad_y, implementation, dtype, device).unwrap();
    let want = Results::of_full_oracle(full, &grad_y);
    pass(&full.0, &got, &want, dtype, looser, &format!("full {implementation} on {device:?}"));
}

fn pass<T>(
    scan: &OracleScan<T>,
    got: &Results,
    want: &Results,
    dtype: Dtype,
    looser: f64,
    what: &str,
) {
    let OracleScan { batch, len, d_inner, d_state, method, series, reverse, .. } = scan;
    for row in judged(scan, got, want, dtype, looser, 1.0, what) {
        assert!(
            row.verdict == Verdict::Pass,
            "{what} {dtype} {method} {series} reverse {reverse} \
             [{batch}, {len}, {d_inner}, {d_state}]: {} is off by {:.1e}",
            row.array,
            row.max
        );
    }
}

/// max |difference| / max |reference|; what is not a number is infinitely far.
pub(crate) fn error(got: &[f64], want: &[f64]) -> f64 {
    figures(got, want, 1e-30).max
}
