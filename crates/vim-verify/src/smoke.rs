//! The shortest answers to whether a device computes the right thing: one check of each method, or
//! of each operation that a mixer runs.

use burn::tensor::Device;
use strum::VariantArray;
use vim_kernels::{Discretization, Implementation, Series};

use crate::check::{Check, Context, ExplainPanic, Outcome, Row};
use crate::compare::Dtype;
use crate::scan::preferred;
use crate::{bidirectional, mixer_inner, scan};

/// The result of one check of a method.
#[derive(Clone, Debug)]
pub struct Smoke {
    /// The method.
    pub method: Discretization,
    /// `selective_scan`, `selective_scan_bidirectional` or `mixer_inner`.
    pub operation: &'static str,
    /// `kernel`, or `reference` where the device has none.
    pub implementation: String,
    /// Time of the check, in seconds.
    pub seconds: f64,
    /// The array of a forward pass that is closest to its tolerance, and the gradient that is.
    pub closest: [Option<Row>; 2],
    /// Why it failed, in a line.
    pub failure: Option<String>,
}

/// Runs every method's scan on `device`, forward and backward in f32, one by one as the iterator is
/// asked. `compiles` and `explain_panic` are those of [`Context`].
pub fn scans(
    device: &Device,
    compiles: bool,
    explain_panic: ExplainPanic,
) -> impl Iterator<Item = Smoke> {
    let context = context(device, compiles, explain_panic);
    let checks = scan::checks::<f64>(&context);
    smokes(context, checks, preferred(device))
}

/// Runs the operations that a mixer may take, of every method by `implementation`: the scan, the
/// bidirectional scan, and where the device has it, the fused mixer.
pub fn mixers(
    device: &Device,
    compiles: bool,
    implementation: Implementation,
    explain_panic: ExplainPanic,
) -> impl Iterator<Item = Smoke> {
    let context = context(device, compiles, explain_panic);
    let mut checks = scan::checks::<f64>(&context);
    checks.extend(bidirectional::checks(&context));
    checks.extend(mixer_inner::checks(&context));
    smokes(context, checks, implementation)
}

fn context(device: &Device, compiles: bool, explain_panic: ExplainPanic) -> Context {
    Context {
        device: device.clone(),
        methods: Discretization::VARIANTS.to_vec(),
        dtypes: &[Dtype::F32],
        quick: true,
        compiles,
        explain_panic,
    }
}

/// Runs those of the checks that are of `implementation`, by exact φ functions.
fn smokes(
    context: Context,
    checks: Vec<Check>,
    implementation: Implementation,
) -> impl Iterator<Item = Smoke> {
    let name = implementation.to_string();
    let checks = checks
        .into_iter()
        .filter(move |check| check.series == Some(Series::Exact) && check.implementation == name);
    checks.filter_map(move |check| smoke(&check, &context))
}

fn smoke(check: &Check, context: &Context) -> Option<Smoke> {
    let method = check.method?;
    let outcome = Outcome::of(check, context, 1.0);
    let worst = || {
        let row = outcome.worst()?;
        Some(format!("{} is off by {:.1e}, {:.1e} allowed", row.array, row.max, row.tolerance))
    };
    let failure = if outcome.passed {
        None
    } else {
        outcome.error.clone().or_else(|| outcome.skipped.clone()).or_else(worst)
    };
    let Outcome { operation, implementation, seconds, rows, .. } = outcome;
    let forward = |row: &Row| ["y", "last_state"].contains(&row.array.as_str());
    let closest = [true, false].map(|wanted| {
        let rows = rows.iter().filter(|row| forward(row) == wanted);
        rows.max_by(|one, two| one.compared(two)).cloned()
    });
    Some(Smoke { method, operation, implementation, seconds, closest, failure })
}
