//! 5: the number of launches until the time is stable.

use std::time::Instant;

use serde_json::json;
use strum::VariantArray;
use vim_kernels::{Discretization, Series};

use super::super::finding::Finding;
use super::Bench;
use crate::commands::profile::timer::{WARM_UP, quantile};
use crate::device::wait;
use crate::error::Error;

/// Number of launches; the second half is the baseline for the first ones.
const LAUNCHES: usize = 20;
/// A launch that takes longer than this many later ones has not warmed up.
const SLOW: f64 = 1.5;

/// Times launches of a scan, forward and backward, from the first one on.
pub(super) fn needed(bench: &Bench) -> Result<Vec<Finding>, Error> {
    // A kernel that no earlier check compiled: a method that the Taylor series changes.
    let changed =
        |method: &&Discretization| method.bounded(Series::Exact) && !method.bounded(Series::Taylor);
    let method = Discretization::VARIANTS.iter().find(changed).copied().unwrap_or_default();
    let options = bench.options(method, Series::Taylor);
    let (device, inputs) = (&bench.chosen.device, bench.inputs(true));
    wait(device)?;
    let mut times = Vec::new();
    for _ in 0..LAUNCHES {
        let start = Instant::now();
        let gradients = inputs.clone().scan(options)?.y.backward();
        wait(device)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        drop(gradients);
    }
    Ok(vec![finding(method, &times)])
}

fn finding(method: Discretization, times: &[f64]) -> Finding {
    let what = "5 warm-up";
    let mut later = times[times.len() / 2..].to_vec();
    later.sort_by(f64::total_cmp);
    let later = quantile(&later, 0.5);
    let first = times.first().copied().unwrap_or(f64::NAN);
    let slow = times.iter().take_while(|time| **time > SLOW * later).count();
    let detail = format!(
        "the first launch of {method} by Taylor's series took {first:.2} ms, later ones {later:.2} ms: {slow} to leave out"
    );
    let finding = if slow > WARM_UP {
        let advice = format!(
            "profile leaves out {WARM_UP}: give it more --trials, and bench --warmup {slow}; or others use this device"
        );
        Finding::warn(what, detail, advice)
    } else {
        Finding::pass(what, detail)
    };
    finding.with([("first_ms", json!(first)), ("later_ms", json!(later)), ("needed", json!(slow))])
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::Verdict;
    use super::*;

    #[test]
    fn slow_launches_are_counted_from_the_first() {
        let of = |times: &[f64]| finding(Discretization::Zoh, times);
        let usual = of(&[90.0, 1.2, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0]);
        assert_eq!(usual.figures.get("needed"), Some(&json!(1)));
        assert_eq!(usual.verdict, Verdict::Pass);
        let slow = of(&[90.0, 9.0, 8.0, 7.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(slow.verdict, Verdict::Warn);
        assert!(slow.line().contains("bench --warmup 4"), "{}", slow.line());
        assert_eq!(of(&[1.0; 4]).figures.get("needed"), Some(&json!(0)));
    }
}
