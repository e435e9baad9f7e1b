//! The devices that the tests run on, and the inputs, runs and comparisons of the conformance
//! suite, as these tests use them.

use burn::tensor::{DType, Device, Tensor};
use vim_kernels::oracle::{OracleFullScan, OracleScan};
use vim_kernels::{Implementation, KernelError, Precision};
pub(crate) use vim_verify::Dtype;
use vim_verify::compare::figures;
pub(crate) use vim_verify::compare::{Numbers, values};
use vim_verify::run::judged;
pub(crate) use vim_verify::run::{Results, StateNumber, named};
pub(crate) use vim_verify::scan::Form;
use vim_verify::{Row, Verdict, compare, scan};

/// Names the only device to test, if set.
const VARIABLE: &str = "VIM_TEST_DEVICE";

/// Flex, and the device of every GPU feature of the build, or the one that `VIM_TEST_DEVICE` names.
/// A device that the build supports and the machine lacks fails the test that uses it.
pub(crate) fn devices() -> Vec<Device> {
    let all = [
        ("flex", Device::flex()),
        #[cfg(feature = "wgpu")]
        ("wgpu", Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        #[cfg(feature = "cuda")]
        ("cuda", Device::cuda(0)),
    ];
    let wanted = std::env::var(VARIABLE).ok();
    let devices: Vec<Device> = all
        .into_iter()
        .filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name))
        .map(|(_, device)| device)
        .collect();
    assert!(!devices.is_empty(), "{VARIABLE}={wanted:?}: this build has no such device");
    devices
}

/// Those of them that have bf16: Flex and CUDA.
pub(crate) fn bf16_devices() -> Vec<Device> {
    having("bf16", |device| device.supports_dtype(DType::BF16))
}

/// Those of them that multiply bf16. A test that needs one is ignored in a build without `cuda`.
pub(crate) fn bf16_multipliers() -> Vec<Device> {
    having("products of bf16", |device| Precision::Bf16.check(device).is_ok())
}

/// Those of the [`devices`] that have `what`. A test on none of them would check nothing.
fn having(what: &str, has: impl Fn(&Device) -> bool) -> Vec<Device> {
    let devices: Vec<Device> = devices().into_iter().filter(has).collect();
    assert!(!devices.is_empty(), "no device of this build, or of {VARIABLE}, has {what}");
    devices
}

/// Sizes `[B, L, D, N]`.
pub(crate) type Sizes = [usize; 4];

pub(crate) const BOTH: [Implementation; 2] = [Implementation::Kernel, Implementation::Reference];

/// The seed of the tests' scans, whose numbers are other ones than the suite's own.
pub(crate) const SEED: u64 = 5;

/// A scan with every optional input in f32; delta·a reaches about `reach` in magnitude.
pub(crate) fn scan(sizes: Sizes, form: Form, reach: f64) -> OracleScan {
    scan::inputs_of(SEED, sizes, form, reach, Dtype::F32)
}

/// `scan` without D, without z, without the bias of delta, and without softplus and the bias.
pub(crate) fn without_inputs<T: Clone>(scan: &OracleScan<T>) -> [OracleScan<T>; 4] {
    scan::without_inputs(scan, Dtype::F32).map(|(scan, _)| scan)
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
    let what = case(scan, implementation, dtype, device);
    pass(judged(scan, &got, &want, dtype, looser, 1.0, &what));
}

/// The same with a full A.
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
    let what = case(&full.0, implementation, dtype, device);
    pass(judged(&full.0, &got, &want, dtype, looser, 1.0, &what));
}

fn case<T>(of: &OracleScan<T>, by: Implementation, dtype: Dtype, device: &Device) -> String {
    let OracleScan { batch, len, d_inner, d_state, method, series, reverse, .. } = of;
    let sizes = [batch, len, d_inner, d_state];
    format!("{by} {dtype} on {device:?} {method} {series} reverse {reverse} {sizes:?}")
}

/// Checks that every row passes.
pub(crate) fn pass(rows: Vec<Row>) {
    for Row { array, max, verdict, note, .. } in rows {
        assert!(verdict == Verdict::Pass, "{note}: {array} is off by {max:.1e}");
    }
}

/// max |difference| / max |reference|; what is not a number is infinitely far.
pub(crate) fn error(got: &[f64], want: &[f64]) -> f64 {
    figures(got, want, 1e-30).max
}

/// The argument that an error of its shape or its type names.
pub(crate) fn at_fault<T>(result: Result<T, KernelError>) -> &'static str {
    match result {
        Err(KernelError::Shape { tensor, .. } | KernelError::Dtype { tensor, .. }) => tensor,
        Ok(_) | Err(_) => "nothing",
    }
}
