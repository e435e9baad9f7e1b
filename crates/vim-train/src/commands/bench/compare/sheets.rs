//! CSV files with the columns of the original's `compare_benchmarks.py`.

use super::{Point, Table};
use crate::error::Error;

/// The files of a mode: name and content.
pub(super) fn all(table: &Table, batch: Option<usize>) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let batch = match batch {
        Some(batch) if table.points.iter().any(|point| point.row.batch == batch) => batch,
        Some(batch) => {
            let there: Vec<String> = table.batches.iter().map(ToString::to_string).collect();
            return Err(Error::failed(format!(
                "--batch-size {batch}: {} was measured at {}; choose one of them",
                table.mode,
                there.join(", ")
            )));
        }
        // The point exists: its batch is in the list.
        None => table.points.iter().map(|point| point.row.batch).min().unwrap_or(1),
    };
    let file = |stem| table.file(stem, "csv");
    Ok(vec![
        (file("benchmark_comparison"), at_one_batch(table, batch)?),
        (file("benchmark_comparison_all_methods_all_batch_sizes"), all_rows(table)?),
        (
            file("benchmark_pivot_latency"),
            pivot(table, |point| cell(point.per_image(point.latency.median_ms)))?,
        ),
        (file("benchmark_pivot_throughput"), pivot(table, |point| cell(point.throughput.img_s))?),
    ])
}

/// The methods at one batch size; latencies per image, as in the original.
fn at_one_batch(table: &Table, batch: usize) -> Result<Vec<u8>, Error> {
    const HEAD: [&str; 9] = [
        "Method",
        "Params (M)",
        "FLOPs (B)",
        "Latency (ms)",
        "Latency Min (ms)",
        "Latency Max (ms)",
        "Throughput (img/s)",
        "Batch Size",
        "Model Size (MB)",
    ];
    let rows = table.series.iter().filter_map(|series| {
        let point = table.point(series, batch)?;
        let row = point.row;
        Some(vec![
            series.clone(),
            params(point),
            flops(point),
            cell(point.per_image(point.latency.median_ms)),
            cell(point.per_image(point.latency.min_ms)),
            cell(point.per_image(point.latency.max_ms)),
            cell(point.throughput.img_s),
            row.batch.to_string(),
            // Four bytes per weight, in MiB.
            cell(row.parameters as f64 * 4.0 / f64::from(1 << 20)),
        ])
    });
    csv(HEAD.map(str::to_owned).to_vec(), rows)
}

fn all_rows(table: &Table) -> Result<Vec<u8>, Error> {
    const HEAD: [&str; 8] = [
        "Method",
        "Batch Size",
        "Latency (ms/img)",
        "Latency Min",
        "Latency Max",
        "Throughput (img/s)",
        "FLOPs (B)",
        "Params (M)",
    ];
    let pairs = table
        .series
        .iter()
        .flat_map(|series| table.batches.iter().filter_map(|&batch| table.point(series, batch)));
    let rows = pairs.map(|point| {
        vec![
            point.series.clone(),
            point.row.batch.to_string(),
            cell(point.per_image(point.latency.median_ms)),
            cell(point.per_image(point.latency.min_ms)),
            cell(point.per_image(point.latency.max_ms)),
            cell(point.throughput.img_s),
            flops(point),
            params(point),
        ]
    });
    csv(HEAD.map(str::to_owned).to_vec(), rows)
}

/// Methods by batch sizes; failed rows are empty.
fn pivot(table: &Table, value: impl Fn(&Point) -> String) -> Result<Vec<u8>, Error> {
    let sizes = table.batches.iter().map(ToString::to_string);
    let head = std::iter::once("Method".to_owned()).chain(sizes).collect();
    let rows = table.series.iter().map(|series| {
        let cells = table
            .batches
            .iter()
            .map(|&batch| table.point(series, batch).map_or_else(String::new, &value));
        std::iter::once(series.clone()).chain(cells).collect()
    });
    csv(head, rows)
}

/// Trainable numbers in millions.
fn params(point: &Point) -> String {
    cell(point.row.parameters as f64 / 1e6)
}

/// Operations of an image in 10⁹; empty where they are not counted.
fn flops(point: &Point) -> String {
    point.row.flops_per_image.map_or_else(String::new, |flops| cell(flops as f64 / 1e9))
}

fn cell(number: f64) -> String {
    format!("{number:.6}")
}

fn csv(head: Vec<String>, rows: impl Iterator<Item = Vec<String>>) -> Result<Vec<u8>, Error> {
    let failed = |error: String| Error::internal(format!("a table has no CSV form: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in std::iter::once(head).chain(rows) {
        writer.write_record(&row).map_err(|error| failed(error.to_string()))?;
    }
    writer.into_inner().map_err(|error| failed(error.to_string()))
}
