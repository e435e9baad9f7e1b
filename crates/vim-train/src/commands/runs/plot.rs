//! The curves of several runs in one figure.

use std::path::Path;

use vim_chart::{LineChart, Marks, Scale, Series, SeriesStyle, document, legend, rounded, text};
use vim_run::metrics::ScoreKind;

use crate::error::Error;
use crate::output::{OutputError, check_free};

pub(super) struct Curves {
    pub(super) name: String,
    pub(super) loss: Vec<(f64, f64)>,
    /// The primary score by step, on the images that were evaluated during training.
    pub(super) score: Vec<(f64, f64)>,
}

/// Checks that a figure may be written to `path`.
pub(super) fn check_target(path: &Path, force: bool) -> Result<(), Error> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension != Some("svg") {
        let expected = match extension {
            Some("png") => ".svg: write that and convert it",
            Some(_) | None => ".svg",
        };
        return Err(OutputError::Extension { path: path.to_owned(), expected }.into());
    }
    check_free(path, force)
}

const WIDTH: f64 = 960.0;
const PANEL: f64 = 362.0;
/// Maximum number of points drawn per curve.
const POINTS: usize = 1000;
/// Curves with at most this many points get markers.
const MARKED: usize = 40;

/// The figure as SVG: the legend above one panel per kind of curve; `split` and
/// `kind` are those of the scores.
pub(super) fn draw(curves: &[Curves], split: &str, kind: ScoreKind) -> String {
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    let (mut body, top) = legend(&names, 72.0, WIDTH - 72.0);
    let points = curves.iter().flat_map(|curve| curve.loss.iter().chain(&curve.score));
    let last = points.map(|point| point.0).fold(1.0, f64::max);
    let loss = curves.iter().map(|curve| curve.loss.clone());
    let (factor, unit) = if kind.is_share { (100.0, ", %") } else { (1.0, "") };
    let scaled = |&(step, score): &(f64, f64)| (step, factor * score);
    let score = curves.iter().map(|curve| curve.score.iter().map(scaled).collect());
    let title = format!("{split} {}", kind.label);
    body.push_str(&panel("training loss", loss.collect(), last, top));
    body.push_str(&panel(&format!("{title}{unit}"), score.collect(), last, top + PANEL));
    let label = format!("training loss and {title} of {}", names.join(", "));
    document(WIDTH, top + 2.0 * PANEL, &label, &body)
}

/// The panel at `top`, over the steps up to `last`.
fn panel(title: &str, curves: Vec<Vec<(f64, f64)>>, last: f64, top: f64) -> String {
    let all = || curves.iter().flatten();
    let (left, right) = (72.0, WIDTH - 24.0);
    let x = Scale::new((0.0, last), (left, right));
    let y = rounded(all().map(|point| point.1), 5);
    let y = Scale::new(y, (top + PANEL - 46.0, top + 34.0));
    let series = curves.iter().enumerate().map(|(number, curve)| Series {
        style: SeriesStyle::new(number),
        line: thinned(curve, POINTS),
        band: Vec::new(),
        marks: if curve.len() <= MARKED { Marks::All } else { Marks::Last },
    });
    let series: Vec<Series> = series.collect();
    let title = text("name", (left, top + 20.0), "start", title);
    title + &LineChart { x, y, x_title: "step", series: &series }.draw()
}

/// At most `most` points, each a mean of neighbours; `curve` unchanged if it has no more.
pub(super) fn thinned(curve: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if curve.len() <= most {
        return curve.to_vec();
    }
    let mean = |of: &[(f64, f64)]| {
        let sum = of.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / of.len() as f64, sum.1 / of.len() as f64)
    };
    curve.chunks(curve.len().div_ceil(most)).map(mean).collect()
}

/// The curve as at most `width` block characters, scaled from minimum to maximum.
pub(super) fn sparkline(curve: &[(f64, f64)], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let curve = thinned(curve, width);
    let values = || curve.iter().map(|point| point.1);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::MIN, f64::max));
    let block = |value: f64| {
        let share = if high > low { (value - low) / (high - low) } else { 0.0 };
        BLOCKS[((share * 8.0) as usize).min(7)]
    };
    values().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ScoreKind = ScoreKind::share("top1", "top-1");

    fn curves(name: &str, from: f64) -> Curves {
        let line = |slope: f64| (0..60).map(move |i| (f64::from(i), from + slope * f64::from(i)));
        Curves { name: name.into(), loss: line(-0.02).collect(), score: line(0.001).collect() }
    }

    #[test]
    fn every_run_has_its_colour_and_its_name() {
        let both = draw(&[curves("one", 4.0), curves("another", 5.0)], "validation", KIND);
        for (class, name) in [("c0", "one"), ("c1", "another")] {
            // One line in the legend and one per panel.
            assert_eq!(both.matches(&format!("<g class=\"{class}\">")).count(), 3);
            assert!(both.contains(&format!(">{name}</text>")), "{both}");
        }
        assert!(!both.contains("<g class=\"c2\">"));
    }

    #[test]
    fn many_runs_with_long_names_fit() {
        let name = "a name that is longer than most and then some".repeat(3);
        let many: Vec<Curves> = (0..50).map(|i| curves(&name, f64::from(i))).collect();
        let figure = draw(&many, "validation", KIND);
        assert_eq!(figure.matches(&format!(">{name}<")).count(), 50);
        assert!(figure.contains("height=\"1740\""), "{}", &figure[..200]);
    }

    fn curve(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(step, &value)| (step as f64, value)).collect()
    }

    #[test]
    fn thinning_takes_means_and_keeps_short_curves() {
        let points = curve(&[1.0, 3.0, 5.0, 7.0, 10.0]);
        assert_eq!(thinned(&points, 5), points);
        assert_eq!(thinned(&points, 3), [(0.5, 2.0), (2.5, 6.0), (4.0, 10.0)]);
        assert_eq!(thinned(&[], 3), []);
    }

    #[test]
    fn sparklines_span_the_blocks() {
        let rising = curve(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(sparkline(&rising, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&curve(&[2.0, 2.0]), 8), "▁▁");
        assert_eq!(sparkline(&[], 8), "");
        assert_eq!(sparkline(&curve(&[1.0; 100]), 40).chars().count(), 34);
    }
}
