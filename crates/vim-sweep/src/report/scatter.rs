//! Result over training speed.

use vim_chart::{Scale, SeriesStyle, figure, grid_rows, line, rounded, text};

use super::bars::axis;
use crate::metric::Metric;
use crate::statistics::Sample;

/// A group in the figure.
pub(super) struct Point<'a> {
    /// Its label.
    pub(super) label: &'a str,
    /// Its style.
    pub(super) style: SeriesStyle,
    /// Images per second.
    pub(super) speed: Sample,
    /// The metric.
    pub(super) result: Sample,
}

/// Left, top, right, bottom.
type Rect = (f64, f64, f64, f64);

fn overlap(a: Rect, b: Rect) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

/// The figure of `points`.
pub(super) fn draw(points: &[Point], metric: Metric) -> String {
    const WIDTH: f64 = 540.0;
    const HEIGHT: f64 = 330.0;
    let factor = metric.factor();
    let (left, right, top, bottom) = (46.0, WIDTH - 16.0, 12.0, HEIGHT - 42.0);
    let ends = |sample: &Sample, factor: f64| {
        let sd = sample.sd.unwrap_or(0.0);
        [factor * (sample.mean - sd), factor * (sample.mean + sd)]
    };
    let speeds = points.iter().flat_map(|point| ends(&point.speed, 1.0));
    let results = points.iter().flat_map(|point| ends(&point.result, factor));
    let x = Scale::new(rounded(speeds, 4), (left + 10.0, right - 10.0));
    let y = Scale::new(rounded(results, 4), (bottom - 8.0, top + 8.0));
    let mut body = grid_rows(&y, (left, right));
    body.push_str(&axis(&x, top, bottom));
    body.push_str(&line("axis", (left, bottom), (right, bottom)));
    let middle = f64::midpoint(left, right);
    let title = "training speed, images per second";
    body.push_str(&text("", (middle, bottom + 38.0), "middle", title));
    let place = |point: &Point| (x.at(point.speed.mean), y.at(factor * point.result.mean));
    let mut taken: Vec<Rect> = points
        .iter()
        .map(|point| {
            let (x, y) = place(point);
            (x - 6.0, y - 6.0, x + 6.0, y + 6.0)
        })
        .collect();
    for point in points {
        let (across, up) = place(point);
        body.push_str(&format!(r#"<g class="{}">"#, point.style.class()));
        if let Some(sd) = point.speed.sd {
            let (from, to) = (x.at(point.speed.mean - sd), x.at(point.speed.mean + sd));
            body.push_str(&line("whisker", (from, up), (to, up)));
        }
        if let Some(sd) = point.result.sd {
            let [from, to] = [-sd, sd].map(|sd| y.at(factor * (point.result.mean + sd)));
            body.push_str(&line("whisker", (across, from), (across, to)));
        }
        body.push_str(&point.style.marker((across, up), 6.0));
        let width = 8.2 * point.label.chars().count() as f64;
        let (text_at, anchor, area) = free(across, up, width, &taken, (left, right));
        taken.push(area);
        body.push_str(&text("name", text_at, anchor, point.label));
        body.push_str("</g>");
    }
    if points.is_empty() {
        let middle = (middle, f64::midpoint(top, bottom));
        body.push_str(&text("none", middle, "middle", "no finished run with a speed"));
    }
    figure(WIDTH, HEIGHT, &format!("{} over training speed", metric.title()), &body)
}

/// A position for a label of `width` near a point, unoccupied if possible.
fn free(
    x: f64,
    y: f64,
    width: f64,
    taken: &[Rect],
    (left, right): (f64, f64),
) -> ((f64, f64), &'static str, Rect) {
    let beside = |dx: f64, dy: f64, anchor: &'static str| {
        let start = match anchor {
            "start" => x + dx,
            "end" => x + dx - width,
            _ => x + dx - width / 2.0,
        };
        let area = (start, y + dy - 12.0, start + width, y + dy + 4.0);
        ((x + dx, y + dy), anchor, area)
    };
    let candidates = [
        beside(11.0, -7.0, "start"),
        beside(-11.0, -7.0, "end"),
        beside(11.0, 17.0, "start"),
        beside(-11.0, 17.0, "end"),
        beside(0.0, -16.0, "middle"),
        beside(0.0, 26.0, "middle"),
        beside(14.0, -24.0, "start"),
        beside(14.0, 34.0, "start"),
    ];
    let fits = |area: Rect| area.0 >= left && area.2 <= right + 14.0;
    let is_free = |area: Rect| fits(area) && taken.iter().all(|other| !overlap(area, *other));
    let chosen = candidates.into_iter().find(|(_, _, area)| is_free(*area));
    chosen
        .or_else(|| candidates.into_iter().find(|(_, _, area)| fits(*area)))
        .unwrap_or(candidates[0])
}
