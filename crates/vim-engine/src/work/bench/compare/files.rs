//! The files of a mode: CSV with the columns of the original's `compare_benchmarks.py`, and plots.

use vim_chart::{LineChart, Marks, Scale, Series, SeriesStyle, document, legend, text};

use super::{Point, Table};
use crate::error::Error;
use crate::output::csv;

/// The files of a mode: name and content.
pub(super) fn sheets(table: &Table, batch: Option<usize>) -> Result<Vec<(String, Vec<u8>)>, Error> {
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
    let head = "Method,Params (M),FLOPs (B),Latency (ms),Latency Min (ms),Latency Max (ms),\
                Throughput (img/s),Batch Size,Model Size (MB)";
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
    csv([head.split(',').map(str::to_owned).collect()].into_iter().chain(rows))
}

fn all_rows(table: &Table) -> Result<Vec<u8>, Error> {
    let head = "Method,Batch Size,Latency (ms/img),Latency Min,Latency Max,Throughput (img/s),\
                FLOPs (B),Params (M)";
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
    csv([head.split(',').map(str::to_owned).collect()].into_iter().chain(rows))
}

/// Methods by batch sizes; failed rows are empty.
fn pivot(table: &Table, value: impl Fn(&Point) -> String) -> Result<Vec<u8>, Error> {
    let sizes = table.batches.iter().map(ToString::to_string);
    let head: Vec<String> = ["Method".to_owned()].into_iter().chain(sizes).collect();
    let rows = table.series.iter().map(|series| {
        let cells = table
            .batches
            .iter()
            .map(|&batch| table.point(series, batch).map_or_else(String::new, &value));
        [series.clone()].into_iter().chain(cells).collect()
    });
    csv([head].into_iter().chain(rows))
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

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;

/// The plots of a mode: name and content.
pub(super) fn plots(table: &Table) -> [(String, Vec<u8>); 2] {
    [
        draw(table, "throughput", "img/s", |point| point.throughput.img_s),
        draw(table, "latency", "ms per image, median", |point| {
            point.per_image(point.latency.median_ms)
        }),
    ]
}

fn draw(table: &Table, stem: &str, unit: &str, value: fn(&Point) -> f64) -> (String, Vec<u8>) {
    let series: Vec<&String> = table
        .series
        .iter()
        .filter(|&name| table.batches.iter().any(|&batch| table.point(name, batch).is_some()))
        .collect();
    let names: Vec<&str> = series.iter().map(|name| name.as_str()).collect();
    let (left, right) = (76.0, WIDTH - 24.0);
    let (names, legend_height) = legend(&names, left, right - left);
    let batches = table.points.iter().map(|point| point.row.batch as f64);
    let x = Scale::log2(range(batches, 1.15), (left, right));
    let y = range(table.points.iter().map(value), 1.3);
    let y = Scale::log2(y, (HEIGHT - 52.0, 40.0 + legend_height));
    let lines = series.iter().enumerate().map(|(number, name)| {
        let points = table.batches.iter().filter_map(|&batch| table.point(name, batch));
        Series {
            style: SeriesStyle::new(number),
            line: points.map(|point| (point.row.batch as f64, value(point))).collect(),
            band: Vec::new(),
            marks: Marks::All,
        }
    });
    let lines: Vec<Series> = lines.collect();
    let title = format!("{stem}, {}: {unit}", table.mode);
    let mut body = text("name", (left, 28.0), "start", &title);
    body.push_str(&format!(r#"<g transform="translate(0 32)">{names}</g>"#));
    body.push_str(&LineChart { x, y, x_title: "batch size", series: &lines }.draw());
    (table.file(stem, "svg"), document(WIDTH, HEIGHT, &title, &body).into_bytes())
}

/// Range of `values`, widened by the factor `margin` on both sides.
fn range(values: impl Iterator<Item = f64> + Clone, margin: f64) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    (low / margin, values.fold(0.0, f64::max) * margin)
}
