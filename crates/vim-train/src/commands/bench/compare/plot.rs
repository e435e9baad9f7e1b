//! Throughput and latency over the batch size, as SVG.

use plotters::prelude::*;

use super::{Point, Table};
use crate::error::Error;

/// Okabe and Ito's colours, told apart by all kinds of colour vision; black last.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(150, 140, 30),
    RGBColor(0, 0, 0),
];

/// A plot: what it shows, and where there is room for its legend.
struct Plot {
    stem: &'static str,
    axis: &'static str,
    value: fn(&Point) -> f64,
    legend: SeriesLabelPosition,
}

/// The plots of a mode: a name and its content each.
pub(super) fn all(table: &Table) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let throughput = Plot {
        stem: "throughput",
        axis: "img/s",
        value: img_s,
        legend: SeriesLabelPosition::LowerRight,
    };
    let latency = Plot {
        stem: "latency",
        axis: "ms per image, median",
        value: ms_per_image,
        legend: SeriesLabelPosition::UpperRight,
    };
    [throughput, latency]
        .into_iter()
        .map(|plot| {
            let name = table.file(plot.stem, "svg");
            let svg = draw(table, plot)
                .map_err(|error| Error::Internal(format!("the plot {name}: {error}")))?;
            Ok((name, svg.into_bytes()))
        })
        .collect()
}

fn img_s(point: &Point) -> f64 {
    point.throughput.img_s
}

fn ms_per_image(point: &Point) -> f64 {
    point.per_image(point.latency.median_ms)
}

fn draw(table: &Table, plot: Plot) -> Result<String, Box<dyn std::error::Error>> {
    let Plot { stem, axis, value, legend } = plot;
    let values = || table.points.iter().map(value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let batches = || table.points.iter().map(|point| point.row.batch as f64);
    // A little room on either side, also where there is one point.
    let (first, last) = (batches().fold(f64::INFINITY, f64::min), batches().fold(1.0, f64::max));

    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (900, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{stem}, {}", table.mode), ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(
            (first / 1.15..last * 1.15).log_scale().base(2.0),
            // Powers of two: a range of less than ten still has its labels.
            (low / 1.3..high * 1.3).log_scale().base(2.0),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc("batch size")
        .y_desc(axis)
        .x_label_formatter(&|batch| format!("{batch:.0}"))
        .y_label_formatter(&|value| label(*value))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .draw()?;
    for (number, series) in table.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let style = colour.stroke_width(2);
        let of_it = table.batches.iter().filter_map(|&batch| table.point(series, batch));
        let line: Vec<(f64, f64)> =
            of_it.map(|point| (point.row.batch as f64, value(point))).collect();
        if line.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style))?
            .label(series.as_str())
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        chart.draw_series(line.iter().map(|&at| Circle::new(at, 4, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(legend)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 15))
        .draw()?;
    area.present()?;
    drop(chart);
    drop(area);
    Ok(svg)
}

/// A number of the axis with no more digits than it needs.
fn label(value: f64) -> String {
    let digits = if value >= 10.0 { 0 } else { (2.0 - value.log10().floor()).max(0.0) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_an_axis() {
        for (value, text) in [
            (1000.0, "1000"),
            (20.0, "20"),
            (2.0, "2"),
            (0.5, "0.5"),
            (0.05, "0.05"),
            (0.125, "0.125"),
        ] {
            assert_eq!(label(value), text);
        }
    }
}
