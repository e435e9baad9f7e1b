//! `doctor --performance`: checks whether timings on this machine can be trusted, and compares the
//! methods.
//!
//! The seven checks of the original's script, with its numbers. `profile`'s timer
//! measures; `verify` compares with loops in f64.

mod clock;
mod rates;
mod scans;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;
use vim_kernels::{Discretization, Implementation, ScanOptions, Series};

use vim_verify::Dtype;

use super::{Context, Finding};
use crate::device::DeviceError;
use crate::device::SelectedDevice;
use crate::error::Error;
use crate::fatal;
use crate::work::profile::Shape;
use crate::work::profile::scan::{Inputs, options};
use crate::work::profile::timer::Plan;

/// Which of the seven checks run, and on which sizes.
#[derive(Clone, Debug, Default)]
pub struct PerformanceOptions {
    /// Whether any of them runs.
    pub performance: bool,
    /// Leave out these, from 1.
    pub skip: Vec<u8>,
    /// Sequences of the scans that are timed.
    pub batch: Option<usize>,
    /// Their channels.
    pub dim: Option<usize>,
    /// Their tokens.
    pub seqlen: Option<usize>,
    /// States of a channel.
    pub dstate: Option<usize>,
}

/// The sizes that are timed, for `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sizes {
    batch: usize,
    dim: usize,
    seqlen: usize,
    dstate: usize,
}

impl PerformanceOptions {
    /// The original's sizes on a GPU, smaller ones on a CPU; flags override both.
    pub(super) fn sizes(&self, on_cpu: bool) -> Sizes {
        let [batch, dim, seqlen] = if on_cpu { [2, 128, 256] } else { [8, 512, 1024] };
        Sizes {
            batch: self.batch.unwrap_or(batch),
            dim: self.dim.unwrap_or(dim),
            seqlen: self.seqlen.unwrap_or(seqlen),
            dstate: self.dstate.unwrap_or(16),
        }
    }
}

struct Bench<'a> {
    chosen: &'a SelectedDevice,
    /// The implementation that `ssm.scan` resolves to on the device.
    implementation: Implementation,
    shape: Shape,
    d_state: usize,
    plan: Plan,
}

impl Bench<'_> {
    /// Number of timed calls; slow calls are timed less often.
    const PLAN: Plan = Plan { trials: 20, queued: 4, budget: Duration::from_millis(500) };

    /// The inputs of every method, on the device with or without autodiff.
    fn inputs(&self, tracked: bool) -> Inputs {
        let device = &self.chosen.device;
        let device = if tracked { device.clone().autodiff() } else { device.clone() };
        Inputs::new(self.shape, self.d_state, Dtype::F32, &device, tracked)
    }

    fn options(&self, method: Discretization, series: Series) -> ScanOptions {
        options(method, series, self.implementation)
    }
}

/// One of the seven.
struct Check {
    number: u8,
    /// The name of its findings, after the number.
    name: &'static str,
    run: Run,
}

/// What a check examines.
enum Run {
    /// The process alone.
    Host(fn(&Context) -> Vec<Finding>),
    /// The device.
    Device(fn(&Bench) -> Result<Vec<Finding>, Error>),
}

const CHECKS: [Check; 7] = [
    Check { number: 1, name: "input", run: Run::Device(scans::same) },
    Check { number: 2, name: "synchronisation", run: Run::Device(clock::misleads) },
    Check { number: 3, name: "threads", run: Run::Host(clock::threads) },
    Check { number: 4, name: "path", run: Run::Device(scans::agree) },
    Check { number: 5, name: "warm-up", run: Run::Device(clock::needed) },
    Check { number: 6, name: "operation", run: Run::Device(rates::against_peaks) },
    Check { number: 7, name: "scan", run: Run::Device(rates::compared) },
];

/// Runs the selected checks and reports findings as they come. A check that panics or errors fails.
pub(super) fn findings<'a>(
    options: &'a PerformanceOptions,
    context: &'a Context,
) -> impl Iterator<Item = Vec<Finding>> + 'a {
    let wanted = |check: &&Check| options.performance && !options.skip.contains(&check.number);
    CHECKS.iter().filter(wanted).map(move |check| check.findings(options, context))
}

impl Check {
    fn findings(&self, options: &PerformanceOptions, context: &Context) -> Vec<Finding> {
        let what = format!("{} {}", self.number, self.name);
        let run = match self.run {
            Run::Host(run) => return run(context),
            Run::Device(run) => run,
        };
        let found = guarded(|| run(&bench(options, context)?));
        found.unwrap_or_else(|error| vec![failed(what, &error)])
    }
}

fn bench<'a>(options: &PerformanceOptions, context: &'a Context) -> Result<Bench<'a>, Error> {
    let chosen = context
        .chosen
        .as_ref()
        .map_err(|_| Error::from(DeviceError::Unavailable("no device to run on".into())))?;
    let implementation = context.config.model.ssm.scan.resolve(&chosen.device)?;
    let Sizes { batch, dim, seqlen, dstate } = options.sizes(chosen.name == "cpu");
    let shape = Shape { batch, dim, seqlen };
    Ok(Bench { chosen, implementation, shape, d_state: dstate, plan: Bench::PLAN })
}

/// Returns the result of `run`, or its panic: devices often panic on unsupported operations.
fn guarded<T>(run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(fatal::error_of(&*panic)))
}

/// The finding for a check or a method that did not finish.
fn failed(what: impl Into<String>, error: &Error) -> Finding {
    // Device errors may span many lines.
    let detail = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    Finding::fail(what, detail, "see what `vim-train verify --quick` says on this device")
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn numbers_count_from_one() {
        let numbers: Vec<u8> = CHECKS.iter().map(|check| check.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_panic_is_a_line() {
        let found: Result<Vec<Finding>, Error> = guarded(|| panic!("no such kernel"));
        let line = failed("7 scan rk4", &found.unwrap_err());
        assert_eq!(line.verdict, Verdict::Fail);
        assert!(line.detail.contains("no such kernel"), "{line:?}");
    }

    #[test]
    fn sizes_asked_for_stand() {
        let options = PerformanceOptions { batch: Some(3), ..PerformanceOptions::default() };
        assert_eq!(options.sizes(false), Sizes { batch: 3, dim: 512, seqlen: 1024, dstate: 16 });
        assert_eq!(options.sizes(true).seqlen, 256);
    }
}
