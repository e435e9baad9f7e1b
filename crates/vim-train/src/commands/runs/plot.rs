//! The curves of runs in one figure.

use std::path::{Path, PathBuf};

use clap::Args;
use vim_chart::{LineChart, Marks, Scale, Series, SeriesStyle, document, legend, rounded, text};
use vim_run::checkpoint::Selection;
use vim_run::metrics::ScoreKind;
use vim_run::storage::{Disk, replace};

use super::run::Run;
use crate::error::Error;
use crate::output::sparkline::thinned;
use crate::output::{OutputError, check_free, check_no_input};
use crate::task::EvalSplit;
use crate::task::kinds::PRIMARY;
use crate::weights::place::Place;

/// A figure of curves.
#[derive(Debug, Args)]
pub(super) struct PlotArgs {
    /// Draw the curves of loss and score, to a file whose name ends in .svg.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Write over the figure's file if it is there.
    #[arg(long, requires = "plot")]
    force: bool,
}

impl PlotArgs {
    /// Checks that the figure may be written, if one is asked for.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.plot.iter().try_for_each(|path| check_target(path, self.force))
    }

    /// Writes the figure of `runs` under their `names`, if it is asked for.
    pub(super) fn write(&self, runs: &[Run], names: &[String]) -> Result<(), Error> {
        let Some(path) = &self.plot else { return Ok(()) };
        let read =
            runs.iter().flat_map(|run| Place::Run(run.row.path.clone(), Selection::Last).inputs());
        check_no_input(path, read.collect::<Vec<_>>().iter().map(PathBuf::as_path))?;
        let curves = runs.iter().zip(names).map(|(run, name)| Curves {
            name: name.clone(),
            loss: run.history.loss.points(),
            score: run.history.score_curve(),
        });
        let is_watched = |run: &Run| run.history.split() == EvalSplit::Test;
        let split = match (runs.iter().any(is_watched), runs.iter().all(is_watched)) {
            (false, _) => "validation",
            (true, true) => "test",
            (true, false) => "validation or test",
        };
        let kind = runs.first().map_or(PRIMARY[0], |run| run.row.primary);
        let figure = draw(&curves.collect::<Vec<_>>(), split, kind);
        replace(&Disk, path, figure.as_bytes()).map_err(Error::io("write", path))
    }
}

struct Curves {
    name: String,
    loss: Vec<(f64, f64)>,
    /// The primary score by step, on the images that were evaluated during training.
    score: Vec<(f64, f64)>,
}

/// Checks that a figure may be written to `path`.
fn check_target(path: &Path, force: bool) -> Result<(), Error> {
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
fn draw(curves: &[Curves], split: &str, kind: ScoreKind) -> String {
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
}
