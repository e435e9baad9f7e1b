//! The devices, and whether their results are correct.

use super::Context;
use super::finding::Finding;
use crate::commands::verify::explain;
use crate::config::Backend;
use crate::device::{self, DeviceName};
use vim_verify::smoke;

/// Lists the backends of this build and whether each works here.
pub(super) fn backends(_: &Context) -> Vec<Finding> {
    let finding = |backend: Backend| {
        let what = format!("backend {backend}");
        match device::choose_named(&DeviceName { backend, number: None }) {
            Ok(chosen) => {
                let name = device::hardware(&chosen.device).unwrap_or_else(|| "present".into());
                Finding::pass(what, name)
            }
            // A backend without hardware on this machine is not a fault.
            Err(error) => Finding::pass(what, format!("not here: {error}")),
        }
    };
    device::backends().into_iter().map(finding).collect()
}

/// The device that a run would use.
pub(super) fn chosen(context: &Context) -> Vec<Finding> {
    match &context.chosen {
        Ok(chosen) => vec![Finding::pass("device", &chosen.name)],
        Err(error) => vec![Finding::fail("device", error.to_string(), "see docs/install.md")],
    }
}

/// Compares every method's scan on the device with loops in f64, on small inputs.
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
