//! 4: the implementation that each method runs, and its agreement with loops in f64.

use serde_json::json;
use strum::VariantArray;
use vim_kernels::Discretization;

use super::super::finding::Finding;
use super::Bench;
use crate::commands::verify::explain;
use crate::error::Error;
use vim_verify::smoke::{Smoke, mixers};

/// One finding per method, over the operations of a mixer.
pub(super) fn agree(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let ran: Vec<Smoke> =
        mixers(&bench.chosen.device, !bench.chosen.is_cpu(), bench.implementation, explain)
            .collect();
    let of = |method: Discretization| ran.iter().filter(move |one| one.method == method);
    let line = |&method: &Discretization| finding(method, &of(method).collect::<Vec<_>>());
    Ok(Discretization::VARIANTS.iter().map(line).collect())
}

fn finding(method: Discretization, ran: &[&Smoke]) -> Finding {
    let what = format!("4 path {method}");
    let advice = "training and its times are of no use here: see what `vim-train verify` says on this device";
    let Some(first) = ran.first() else {
        return Finding::fail(what, "nothing ran", advice);
    };
    let operations: Vec<&str> = ran.iter().map(|one| one.operation).collect();
    let farthest = [0, 1].map(|way| {
        let rows = ran.iter().filter_map(|one| one.closest[way].as_ref());
        rows.max_by(|one, two| one.ratio().total_cmp(&two.ratio()))
    });
    let figures = farthest.map(|row| row.map_or(json!(null), |row| json!(row.max)));
    let error = |at: usize| {
        farthest[at].map_or_else(
            || "nothing".to_owned(),
            |row| format!("{} {:.1e} of {:.1e}", row.array, row.max, row.tolerance),
        )
    };
    let failure = ran.iter().find_map(|one| {
        Some(format!("{} by the {}: {}", one.operation, one.implementation, one.failure.as_ref()?))
    });
    let finding = match failure {
        Some(failure) => Finding::fail(what, failure, advice),
        None => Finding::pass(
            what,
            format!(
                "{} forward (off by {}) and backward (off by {}); {}",
                first.implementation,
                error(0),
                error(1),
                operations.join(", ")
            ),
        ),
    };
    let [forward, backward] = figures;
    finding.with([
        ("implementation", json!(first.implementation)),
        ("operations", json!(operations)),
        ("forward_error", forward),
        ("backward_error", backward),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn one_operation_that_is_off_fails_its_method() {
        let smoke = |operation, failure: Option<&str>| Smoke {
            method: Discretization::Foh,
            operation,
            implementation: "kernel".into(),
            seconds: 0.1,
            closest: [None, None],
            failure: failure.map(str::to_owned),
        };
        let good = smoke("selective_scan", None);
        let bad = smoke("selective_scan_bidirectional", Some("y is off by 1.0e0, 1.0e-5 allowed"));
        assert_eq!(finding(Discretization::Foh, &[&good]).verdict, Verdict::Pass);
        let both = finding(Discretization::Foh, &[&good, &bad]);
        assert_eq!(both.verdict, Verdict::Fail);
        assert!(
            both.detail.contains("selective_scan_bidirectional by the kernel: y is off"),
            "{both:?}"
        );
        assert_eq!(finding(Discretization::Foh, &[]).verdict, Verdict::Fail);
    }
}
