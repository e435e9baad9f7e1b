//! Result over training speed.

use vim_chart::{Scale, SeriesStyle, escape, fit, grid_rows, line, rounded, text, text_width};

use super::bars::axis;
use super::figure::Figure;
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
pub(super) fn draw(points: &[Point], metric: Metric) -> Figure {
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
        let title = escape(point.label);
        body.push_str(&format!(r#"<g class="{}"><title>{title}</title>"#, point.style.class()));
        if let Some(sd) = point.speed.sd {
            let (from, to) = (x.at(point.speed.mean - sd), x.at(point.speed.mean + sd));
            body.push_str(&line("whisker", (from, up), (to, up)));
        }
        if let Some(sd) = point.result.sd {
            let [from, to] = [-sd, sd].map(|sd| y.at(factor * (point.result.mean + sd)));
            body.push_str(&line("whisker", (across, from), (across, to)));
        }
        body.push_str(&point.style.marker((across, up), 6.0));
        // A label without a place is left out: the marker has it for a title, and the colour.
        let label = fit(point.label, NAME, (right - left) / 2.0);
        let bounds = (left, 0.0, WIDTH - 2.0, bottom);
        if let Some((at, anchor, area)) = free((across, up), &label, &taken, bounds) {
            taken.push(area);
            if (at.1 - up).abs() > FAR {
                body.push_str(&line("grid", (across, up), (at.0, at.1 - 4.0)));
            }
            body.push_str(&text("name", at, anchor, &label));
        }
        body.push_str("</g>");
    }
    if points.is_empty() {
        let middle = (middle, f64::midpoint(top, bottom));
        body.push_str(&text("none", middle, "middle", "no finished run with a speed"));
    }
    let label = format!("{} over training speed", metric.title());
    Figure { width: WIDTH, height: HEIGHT, label, body }
}

/// Letters of a label are as high.
const NAME: f64 = 14.0;
/// A label that is farther above or below its point has a line to it.
const FAR: f64 = 30.0;

/// Where a text is anchored, how, and what it covers.
type Place = ((f64, f64), &'static str, Rect);

/// The nearest place for a label near a point that covers nothing of `taken`; `None` if `bounds`
/// has none.
fn free((x, y): (f64, f64), label: &str, taken: &[Rect], bounds: Rect) -> Option<Place> {
    let width = text_width(label, NAME);
    let place = |(dx, dy, anchor): (f64, f64, &'static str)| {
        let start = match anchor {
            "start" => x + dx,
            "end" => x + dx - width,
            _ => x + dx - width / 2.0,
        };
        ((x + dx, y + dy), anchor, (start, y + dy - 12.0, start + width, y + dy + 4.0))
    };
    let row = |number: u32| {
        let away = 17.0 * f64::from(number);
        let (above, below) = (-7.0 - away, 17.0 + away);
        [
            (11.0, above, "start"),
            (-11.0, above, "end"),
            (11.0, below, "start"),
            (-11.0, below, "end"),
            (0.0, above - 9.0, "middle"),
            (0.0, below + 9.0, "middle"),
        ]
    };
    let is_free = |&(_, _, area): &Place| {
        let fits =
            area.0 >= bounds.0 && area.1 >= bounds.1 && area.2 <= bounds.2 && area.3 <= bounds.3;
        fits && taken.iter().all(|other| !overlap(area, *other))
    };
    (0..20).flat_map(row).map(place).find(is_free)
}
