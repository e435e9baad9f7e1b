//! The shortest answer to whether a device computes the right thing: one check of each method.

use vim_kernels::{Discretization, Series};

use super::args::{Dtype, DtypeChoice, methods};
use super::check::{Check, Context, Outcome, Subject};
use super::scan;
use crate::device::Chosen;

/// What a check of a method came to.
pub(crate) struct Smoke {
    pub(crate) method: Discretization,
    /// `kernel`, or `reference` where the device has none.
    pub(crate) implementation: String,
    pub(crate) seconds: f64,
    /// Why it failed, in a line.
    pub(crate) failure: Option<String>,
}

/// Runs every method's scan on `chosen`, forward and backward in f32, one by one as the iterator is asked.
pub(crate) fn scans(chosen: &Chosen) -> impl Iterator<Item = Smoke> {
    let context = Context {
        device: chosen.device.clone(),
        methods: methods(&[]),
        dtypes: DtypeChoice::F32.dtypes(),
        quick: true,
        compiles: chosen.name != "cpu",
    };
    let preferred = context.implementations().first().map(ToString::to_string);
    let wanted = move |check: &Check| {
        check.subject == Subject::Oracle
            && check.series == Some(Series::Exact)
            && check.dtype == Dtype::F32.to_string()
            && Some(&check.implementation) == preferred.as_ref()
    };
    let checks = scan::checks::<f64>(&context).into_iter().filter(wanted);
    checks.filter_map(move |check| {
        let outcome = Outcome::of(&check, &context, 1.0);
        let failure = failure(&outcome);
        let Outcome { implementation, seconds, .. } = outcome;
        Some(Smoke { method: check.method?, implementation, seconds, failure })
    })
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
