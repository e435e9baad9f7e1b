//! Curves over steps: the mean of a group's runs and a band of one standard deviation.

use std::collections::BTreeMap;

use vim_chart::{LineChart, Marks, Scale, Series, SeriesStyle, rounded};

use super::figure::Figure;
use crate::statistics::sample;

/// The curve of a group.
pub(super) struct Curve {
    /// Its style.
    pub(super) style: SeriesStyle,
    /// Step, mean and standard deviation (0 for a single run).
    pub(super) points: Vec<(f64, f64, f64)>,
}

/// The most points of a drawn curve.
const POINTS: usize = 160;

/// The mean curve of a group's runs, at the steps that all of them have.
pub(super) fn mean(runs: &[Vec<(f64, f64)>]) -> Vec<(f64, f64, f64)> {
    let runs: Vec<&Vec<(f64, f64)>> = runs.iter().filter(|run| !run.is_empty()).collect();
    let mut by_step: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (step, value) in runs.iter().copied().flatten() {
        by_step.entry(*step as u64).or_default().push(*value);
    }
    let whole = by_step.into_iter().filter(|(_, values)| values.len() == runs.len());
    let points = whole.filter_map(|(step, values)| {
        let sample = sample(&values)?;
        Some((step as f64, sample.mean, sample.sd.unwrap_or(0.0)))
    });
    thinned(points.collect())
}

/// At most [`POINTS`] points, each the mean of neighbouring ones.
fn thinned(points: Vec<(f64, f64, f64)>) -> Vec<(f64, f64, f64)> {
    if points.len() <= POINTS {
        return points;
    }
    let mean = |of: &[(f64, f64, f64)]| {
        let sum = of.iter().fold((0.0, 0.0, 0.0), |sum, point| {
            (sum.0 + point.0, sum.1 + point.1, sum.2 + point.2)
        });
        let count = of.len() as f64;
        (sum.0 / count, sum.1 / count, sum.2 / count)
    };
    points.chunks(points.len().div_ceil(POINTS)).map(mean).collect()
}

/// The figure of `curves`, without the first fraction `from` of the steps.
pub(super) fn draw(curves: &[Curve], title: &str, factor: f64, from: f64) -> Figure {
    const WIDTH: f64 = 540.0;
    const HEIGHT: f64 = 320.0;
    let (left, right, top, bottom) = (46.0, WIDTH - 12.0, 10.0, HEIGHT - 40.0);
    let last = curves.iter().flat_map(|curve| &curve.points).map(|point| point.0);
    let last = last.fold(0.0, f64::max).max(1.0);
    let first = from * last;
    let all =
        || curves.iter().flat_map(|curve| &curve.points).filter(move |point| point.0 >= first);
    let values = all().flat_map(|(_, mean, sd)| [factor * (mean - sd), factor * (mean + sd)]);
    let (low, high) = rounded(values, 5);
    // A band may reach below zero even if no value does.
    let low = if all().all(|point| point.1 >= 0.0) { low.max(0.0) } else { low };
    let (x, y) = (Scale::new((first, last), (left, right)), Scale::new((low, high), (bottom, top)));
    let series = curves.iter().map(|Curve { style, points }| {
        let points: Vec<&(f64, f64, f64)> =
            points.iter().filter(|point| point.0 >= first).collect();
        let edge = |sign: f64| {
            move |&&(step, mean, sd): &&(f64, f64, f64)| (step, factor * (mean + sign * sd))
        };
        let has_band = points.iter().any(|point| point.2 > 0.0);
        let outline = points.iter().map(edge(1.0)).chain(points.iter().rev().map(edge(-1.0)));
        Series {
            style: *style,
            line: points.iter().map(edge(0.0)).collect(),
            band: if has_band { outline.collect() } else { Vec::new() },
            marks: Marks::Last,
        }
    });
    let series: Vec<Series> = series.collect();
    let chart = LineChart { x, y, x_title: "optimizer step", series: &series };
    Figure { width: WIDTH, height: HEIGHT, label: title.to_owned(), body: chart.draw() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_where_the_shortest_run_does() {
        let runs = [vec![(1.0, 1.0), (2.0, 2.0), (3.0, 9.0)], vec![(1.0, 3.0), (2.0, 2.0)], vec![]];
        let points = mean(&runs);
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].0, points[0].1), (1.0, 2.0));
        assert!((points[0].2 - 2.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(points[1], (2.0, 2.0, 0.0));
    }

    #[test]
    fn long_curves_are_thinned() {
        let long: Vec<(f64, f64)> = (0..1000).map(|step| (f64::from(step), 1.0)).collect();
        let points = mean(&[long]);
        assert!(points.len() <= POINTS && points.len() > POINTS / 2);
        assert_eq!(points[0].1, 1.0);
    }
}
