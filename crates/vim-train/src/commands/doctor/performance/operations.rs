//! 6: the operations of a layer against the peak rates of the device.

use serde_json::json;

use super::super::finding::Finding;
use super::Bench;
use crate::commands::profile::ops::{OpTiming, basic};
use crate::commands::profile::peaks::Peaks;
use crate::error::Error;

/// Share of the peak below which a finding is a warning.
const LOW: f64 = 0.1;

/// Measures the peaks and the operations in one run.
pub(super) fn against_peaks(bench: &Bench) -> Result<Vec<Finding>, Error> {
    let peaks = Peaks::measure(bench.chosen, bench.plan)?;
    let shape = bench.shape;
    let records = basic(&bench.chosen.device, [shape.batch, shape.seqlen, shape.dim], bench.plan)?;
    let line = Finding::pass("6 peaks", peaks.line().trim_start_matches("peaks: ")).with([
        ("copy_bytes_per_s", json!(peaks.copy_bytes)),
        ("multiply_adds_per_s", json!(peaks.multiply_adds)),
    ]);
    let mut findings = vec![line];
    findings.extend(records.iter().map(|record| finding(record, &peaks)));
    let of = |name: &str| records.iter().find(|record| record.operation == name);
    if let (Some(exponential), Some(reciprocal)) = (of("exponential"), of("reciprocal")) {
        findings.push(decays(exponential.times.best_ms(), reciprocal.times.best_ms()));
    }
    Ok(findings)
}

fn finding(record: &OpTiming, peaks: &Peaks) -> Finding {
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
    let finding = if share < LOW {
        let advice = "too small to load this device, if it is a GPU: take a larger --batch; otherwise others use it, or the build is not optimised";
        Finding::warn(what, detail, advice)
    } else {
        Finding::pass(what, detail)
    };
    finding.with([
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
