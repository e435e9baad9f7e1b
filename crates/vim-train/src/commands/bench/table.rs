//! Rows as a text table.

use super::record::{Document, Row};
use crate::output::summary::rate;

/// The heading: model, device and column names.
pub(super) fn head(document: &Document, device: &str) -> String {
    let hardware = document.hardware.as_deref().unwrap_or("unnamed hardware");
    format!(
        "bench of {} ({} classes) on {device} ({hardware})\n\n{:<12}{:<6}{:>6}{:>11} [{:>9} {:>9}]{:>10}{:>10}{:>10}{:>9}",
        document.config,
        document.num_classes,
        "method",
        "mode",
        "batch",
        "ms",
        "p10",
        "p90",
        "ms/img",
        "img/s",
        "GFLOP/s",
        "MiB"
    )
}

/// A row, with a reason where there are no times.
pub(super) fn line(row: &Row) -> String {
    let start = format!("{:<12}{:<6}{:>6}", row.method, row.mode.to_string(), row.batch);
    let (Some(latency), Some(throughput)) = (row.latency, row.throughput) else {
        return format!("{start}  {}", row.error.as_deref().unwrap_or("no times"));
    };
    let dash = || "-".to_owned();
    format!(
        "{start}{:>11.3} [{:>9.3} {:>9.3}]{:>10.3}{:>10}{:>10}{:>9}",
        latency.median_ms,
        latency.p10_ms,
        latency.p90_ms,
        latency.median_ms / row.batch as f64,
        rate(throughput.img_s),
        row.flop_s.map_or_else(dash, |rate| format!("{:.1}", rate / 1e9)),
        row.peak_memory_bytes.map_or_else(dash, |bytes| (bytes >> 20).to_string()),
    )
}
