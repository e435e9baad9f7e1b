//! 2: the error of a clock that does not wait for the device.

use std::time::Instant;

use serde_json::json;
use vim_kernels::{Discretization, Series};

use super::super::finding::Finding;
use super::Bench;
use crate::commands::profile::timer::{WARM_UP, quantile};
use crate::device::wait;
use crate::error::Error;

/// Ratio of unsynchronised to synchronised time below which a clock without a wait misleads.
const MISLEADS: f64 = 0.8;

/// Times zoh's scan with and without a wait for the device.
pub(super) fn misleads(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let (device, inputs) = (&bench.chosen.device, bench.inputs(false));
    let options = bench.options(Discretization::Zoh, Series::Exact);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for trial in 0..WARM_UP + bench.plan.trials {
        wait(device)?;
        let start = Instant::now();
        let output = inputs.clone().scan(options)?;
        let returned = start.elapsed();
        wait(device)?;
        let done = start.elapsed();
        drop(output);
        if trial >= WARM_UP {
            without.push(returned.as_secs_f64() * 1e3);
            with.push(done.as_secs_f64() * 1e3);
        }
    }
    Ok(vec![finding(median(without), median(with))])
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    quantile(&times, 0.5)
}

/// The finding, from the milliseconds until the call returned and until the device finished.
fn finding(without: f64, with: f64) -> Finding {
    let what = "2 synchronisation";
    let detail = format!("zoh's scan returns after {without:.3} ms and is done after {with:.3} ms");
    let finding = if without < MISLEADS * with {
        let detail =
            format!("{detail}: without a wait it looks {:.1} times as fast", with / without);
        let advice =
            "a clock of your own has to wait for the device, as bench, profile and this command do";
        Finding::warn(what, detail, advice)
    } else {
        Finding::pass(what, format!("{detail}: calls wait by themselves"))
    };
    finding.with([("returned_ms", json!(without)), ("done_ms", json!(with))])
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn a_call_that_returns_early_is_warned_of() {
        assert_eq!(finding(1.0, 1.01).verdict, Verdict::Pass);
        let early = finding(0.1, 2.0);
        assert_eq!(early.verdict, Verdict::Warn);
        assert!(early.detail.contains("20.0 times as fast"), "{}", early.detail);
    }
}
