//! 6 and 7: the operations of a layer against the peak rates, and the scan of every method.

use burn::tensor::Tensor;
use serde_json::{Value, json};
use strum::VariantArray;
use vim_kernels::{Discretization, Series};

use super::super::Finding;
use super::{Bench, failed, guarded};
use crate::error::Error;
use crate::work::profile::ops::{OpTiming, basic};
use crate::work::profile::roof::Peaks;
use crate::work::profile::scan::Inputs;
use crate::work::profile::timer::{Times, measure};

/// Share of the peak below which a finding is a warning.
const LOW: f64 = 0.1;

pub(super) fn against_peaks(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let peaks = Peaks::measure(bench.chosen, bench.plan)?;
    let shape = bench.shape;
    let records = basic(&bench.chosen.device, [shape.batch, shape.seqlen, shape.dim], bench.plan)?;
    let line = Finding::pass("6 peaks", peaks.line().trim_start_matches("peaks: ")).with([
        ("copy_bytes_per_s", json!(peaks.copy_bytes)),
        ("multiply_adds_per_s", json!(peaks.multiply_adds)),
    ]);
    let mut findings = vec![line];
    findings.extend(records.iter().map(|record| operation(record, &peaks)));
    let of = |name: &str| records.iter().find(|record| record.operation == name);
    if let (Some(exponential), Some(reciprocal)) = (of("exponential"), of("reciprocal")) {
        findings.push(decays(exponential.times.best_ms(), reciprocal.times.best_ms()));
    }
    Ok(findings)
}

fn operation(record: &OpTiming, peaks: &Peaks) -> Finding {
    let (name, ms) = (&record.operation, record.times.best_ms());
    let product = name.starts_with("product");
    let what = format!("6 {}", name.split(' ').next().unwrap_or(name));
    // Elementwise operations are bound by memory.
    let (share, of) = if product {
        (record.rate * 1e9 / peaks.multiply_adds, "the multiply-adds")
    } else {
        (record.gb_per_s * 1e9 / peaks.copy_bytes, "the copy")
    };
    // The copy is larger than any cache.
    let cached = if !product && share > 1.2 { ", as it fits a cache" } else { "" };
    let detail = format!(
        "{name}: {ms:.3} ms, {:.1} GB/s, {:.2} {}, {:.0} % of {of}{cached}",
        record.gb_per_s,
        record.rate,
        record.unit,
        share * 100.0
    );
    let advice = "too small to load this device, if it is a GPU: take a larger --batch; otherwise others use it, or the build is not optimised";
    Finding::pass(what, detail).warn_if(share < LOW, advice).with([
        ("ms", json!(ms)),
        ("rate", json!(record.rate)),
        ("unit", json!(record.unit)),
        ("gb_per_s", json!(record.gb_per_s)),
        ("share_of_peak", json!(share)),
    ])
}

/// Compares bilinear's decay with zoh's: A is diagonal, so its inverse is one division per state.
fn decays(exponential: f64, reciprocal: f64) -> Finding {
    let ratio = reciprocal / exponential;
    let detail = format!(
        "bilinear's inverse takes {ratio:.2} of zoh's exponential, as tensor operations; what that is worth in the scan, 7 says"
    );
    Finding::pass("6 decay", detail).with([("reciprocal_over_exponential", json!(ratio))])
}

/// Ratio of the 90th to the 10th percentile above which the median says little.
const SPREAD: f64 = 2.0;

struct Timed {
    forward: Times,
    /// Forward with saved activations, and backward.
    step: Times,
}

/// A line for each method; one that does not run is a failure.
pub(super) fn compared(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let time = |&method: &Discretization| (method, guarded(|| timed(bench, method)));
    let results: Vec<_> = Discretization::VARIANTS.iter().map(time).collect();
    Ok(lines(bench, &results))
}

fn timed(bench: &Bench, method: Discretization) -> Result<Timed, Error> {
    let (device, options) = (&bench.chosen.device, bench.options(method, Series::Exact));
    let inputs = bench.inputs(false);
    let forward = move |inputs: Inputs| inputs.scan(options);
    finite(forward(inputs.clone())?.y)?;
    let forward = measure(device, bench.plan, || Ok(inputs.clone()), forward)?;
    let inputs = bench.inputs(true);
    let step = move |inputs: Inputs| Ok(inputs.scan(options)?.y.backward());
    let gradients = step(inputs.clone())?;
    let gradient = inputs.u.grad(&gradients);
    finite(gradient.ok_or_else(|| Error::failed("u has no gradient"))?)?;
    let step = measure(device, bench.plan, || Ok(inputs.clone()), step)?;
    Ok(Timed { forward, step })
}

/// Rejects times measured on results that are not finite.
fn finite(x: Tensor<3>) -> Result<(), Error> {
    let sum: f32 = x.abs().sum().into_data().iter().next().unwrap_or(f32::NAN);
    if sum.is_finite() { Ok(()) } else { Err(Error::failed(format!("the result is {sum}"))) }
}

fn lines(bench: &Bench, results: &[(Discretization, Result<Timed, Error>)]) -> Vec<Finding> {
    let zoh = results.iter().find(|(method, _)| *method == Discretization::Zoh);
    let zoh = zoh.and_then(|(_, timed)| timed.as_ref().ok()).map(|timed| timed.step.median_ms);
    let line = |(method, timed): &(Discretization, Result<Timed, Error>)| {
        let what = format!("7 scan {method}");
        match timed {
            Ok(timed) => scan(what, timed, zoh, bench),
            Err(error) => failed(what, error),
        }
    };
    results.iter().map(line).collect()
}

fn scan(what: String, timed: &Timed, zoh: Option<f64>, bench: &Bench) -> Finding {
    let Timed { forward, step } = timed;
    let shape = bench.shape;
    let sequences = shape.batch as f64 / step.median_ms * 1e3;
    let tokens = sequences * shape.seqlen as f64;
    let ratio = zoh.map(|zoh| step.median_ms / zoh);
    let times = |times: &Times| {
        let Times { median_ms, p10_ms, p90_ms, .. } = times;
        format!("{median_ms:.3} ms [{p10_ms:.3} {p90_ms:.3}]")
    };
    let detail = format!(
        "{} {shape} N={}: forward {}, with backward {}, {:.0} tokens/s, {:.1} sequences/s, {} of zoh's time",
        bench.implementation,
        bench.d_state,
        times(forward),
        times(step),
        tokens,
        sequences,
        ratio.map_or_else(|| "no ratio".to_owned(), |ratio| format!("{ratio:.2}"))
    );
    let is_spread = [forward, step].iter().any(|times| times.p90_ms / times.p10_ms > SPREAD);
    let advice = "the times are spread: others use this device or these cores; repeat it";
    Finding::pass(what, detail).warn_if(is_spread, advice).with([
        ("implementation", json!(bench.implementation.to_string())),
        ("forward", value(forward)),
        ("forward_backward", value(step)),
        ("tokens_per_s", json!(tokens)),
        ("sequences_per_s", json!(sequences)),
        ("over_zoh", json!(ratio)),
    ])
}

fn value(times: &Times) -> Value {
    serde_json::to_value(times).expect("invariant: times have a JSON form")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use burn::tensor::Device;
    use vim_kernels::Implementation;

    use super::super::super::Verdict;
    use super::*;
    use crate::device::SelectedDevice;
    use crate::work::profile::Shape;
    use crate::work::profile::timer::Plan;

    fn times(median: f64, p90: f64) -> Times {
        Times {
            timer: "clock",
            trials: 3,
            median_ms: median,
            min_ms: median,
            p10_ms: median,
            p90_ms: p90,
            back_to_back_ms: median,
            queued: 1,
        }
    }

    #[test]
    fn a_method_that_fails_is_a_line_and_the_ratio_is_to_zoh() {
        let chosen = SelectedDevice { device: Device::flex(), name: "cpu".into() };
        let bench = Bench {
            chosen: &chosen,
            implementation: Implementation::Kernel,
            shape: Shape { batch: 2, dim: 3, seqlen: 100 },
            d_state: 4,
            plan: Plan { trials: 3, queued: 1, budget: Duration::ZERO },
        };
        let timed = |ms, p90| Ok(Timed { forward: times(ms, ms), step: times(ms, p90) });
        let results = [
            (Discretization::Zoh, timed(2.0, 2.0)),
            (Discretization::Foh, Err(Error::failed("the result is NaN"))),
            (Discretization::Rk4, timed(3.0, 9.0)),
        ];
        let lines = lines(&bench, &results);
        let verdicts: Vec<Verdict> = lines.iter().map(|line| line.verdict).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Fail, Verdict::Warn]);
        assert_eq!(lines[0].figures.get("tokens_per_s"), Some(&json!(100_000.0)));
        assert_eq!(lines[2].figures.get("over_zoh"), Some(&json!(1.5)));
        assert!(lines[1].detail.contains("NaN"));
    }
}
