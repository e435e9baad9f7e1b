//! The shortest answers to whether a device computes the right thing: one check of each method, or of each operation that a
//! mixer runs.

use vim_kernels::{Discretization, Implementation, Series};

use super::args::{Dtype, DtypeChoice, methods};
use super::check::{Check, Context, Outcome, Row, Subject};
use super::{both, inner, scan};
use crate::device::Chosen;

/// What a check of a method came to.
pub(crate) struct Smoke {
    pub(crate) method: Discretization,
    /// `selective_scan`, `selective_scan_bidirectional` or `mixer_inner`.
    pub(crate) operation: &'static str,
    /// `kernel`, or `reference` where the device has none.
    pub(crate) implementation: String,
    pub(crate) seconds: f64,
    /// The array of a forward pass that is closest to its tolerance, and the gradient that is.
    pub(crate) closest: [Option<Row>; 2],
    /// Why it failed, in a line.
    pub(crate) failure: Option<String>,
}

/// Runs every method's scan on `chosen`, forward and backward in f32, one by one as the iterator is asked.
pub(crate) fn scans(chosen: &Chosen) -> impl Iterator<Item = Smoke> {
    let context = context(chosen);
    let preferred = context.implementations().first().copied();
    let checks = scan::checks::<f64>(&context).into_iter().filter(wanted(preferred));
    checks.filter_map(move |check| smoke(&check, &context))
}

/// Runs the operations that a mixer may take, of every method by `implementation`: the scan, the scan in both directions at
/// once, and where the device has it, all between the projections as one.
pub(crate) fn mixers(
    chosen: &Chosen,
    implementation: Implementation,
) -> impl Iterator<Item = Smoke> {
    let context = context(chosen);
    let checks = [scan::checks::<f64>(&context), both::checks(&context), inner::checks(&context)];
    let checks = checks.into_iter().flatten().filter(wanted(Some(implementation)));
    checks.filter_map(move |check| smoke(&check, &context))
}

fn context(chosen: &Chosen) -> Context {
    Context {
        device: chosen.device.clone(),
        methods: methods(&[]),
        dtypes: DtypeChoice::F32.dtypes(),
        quick: true,
        compiles: chosen.name != "cpu",
    }
}

/// Checks against the f64 loops of one implementation, in f32 by exact φ functions.
fn wanted(implementation: Option<Implementation>) -> impl FnMut(&Check) -> bool {
    let name = implementation.map(|implementation| implementation.to_string());
    move |check| {
        check.subject == Subject::Oracle
            && check.series == Some(Series::Exact)
            && check.dtype == Dtype::F32.to_string()
            && Some(&check.implementation) == name.as_ref()
    }
}

fn smoke(check: &Check, context: &Context) -> Option<Smoke> {
    let method = check.method?;
    let outcome = Outcome::of(check, context, 1.0);
    let failure = failure(&outcome);
    let Outcome { operation, implementation, seconds, rows, .. } = outcome;
    let forward = |row: &Row| ["y", "last_state"].contains(&row.array.as_str());
    let closest = [true, false].map(|wanted| {
        let rows = rows.iter().filter(|row| forward(row) == wanted);
        rows.max_by(|one, two| one.ratio().total_cmp(&two.ratio())).cloned()
    });
    Some(Smoke { method, operation, implementation, seconds, closest, failure })
}

fn failure(outcome: &Outcome) -> Option<String> {
    if outcome.passed {
        return None;
    }
    let worst = || {
        let row = outcome.worst()?;
        Some(format!("{} is off by {:.1e}, {:.1e} allowed", row.array, row.max, row.tolerance))
    };
    outcome.error.clone().or_else(|| outcome.skipped.clone()).or_else(worst)
}
