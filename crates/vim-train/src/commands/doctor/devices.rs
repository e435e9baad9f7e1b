//! What computes, and whether it computes the right thing.

use super::Context;
use super::finding::Finding;
use crate::commands::verify::explain;
use crate::config::Backend;
use crate::device::{self, DeviceName};
use vim_verify::smoke;

/// Each backend of this build: what it is here, or why it is not.
pub(super) fn backends(_: &Context) -> Vec<Finding> {
    let finding = |backend: Backend| {
        let what = format!("backend {backend}");
        match device::choose_named(&DeviceName { backend, number: None }) {
            Ok(chosen) => {
                let name = device::hardware(&chosen.device).unwrap_or_else(|| "present".into());
                Finding::pass(what, name)
            }
            // That a build could do more than this machine is no fault.
            Err(error) => Finding::pass(what, format!("not here: {error}")),
        }
    };
    device::backends().into_iter().map(finding).collect()
}

/// What a run would compute on.
pub(super) fn chosen(context: &Context) -> Vec<Finding> {
    match &context.chosen {
        Ok(chosen) => vec![Finding::pass("device", &chosen.name)],
        Err(error) => vec![Finding::fail("device", error.to_string(), "see docs/install.md")],
    }
}

/// Every method's scan on that device, on small inputs, against loops in f64.
pub(super) fn kernels(context: &Context) -> Vec<Finding> {
    let Ok(chosen) = &context.chosen else { return Vec::new() };
    let finding = |check: smoke::Smoke| {
        let what = format!("scan {}", check.method);
        let detail = format!("{} on {}, {:.1} s", check.implementation, chosen.name, check.seconds);
        match check.failure {
            None => Finding::pass(what, detail),
            Some(failure) => Finding::fail(
                what,
                format!("{detail}: {failure}"),
                format!("see what `vim-train verify --device {}` says", chosen.name),
            ),
        }
    };
    smoke::scans(&chosen.device, !chosen.is_cpu(), explain).map(finding).collect()
}
