//! Throughput and latency over the batch size, as SVG.

use vim_chart::{LineChart, Marks, Scale, Series, SeriesStyle, document, legend, text};

use super::{Point, Table};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;

/// The plots of a mode: name and content.
pub(super) fn all(table: &Table) -> [(String, Vec<u8>); 2] {
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
