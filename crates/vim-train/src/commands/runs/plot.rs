//! The curves of several runs in one figure.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, Tree};
use vim_chart::{LineChart, Marks, Scale, Series, SeriesStyle, document, legend, rounded, text};

use super::curve::thinned;
use crate::error::Error;

/// The curves of a run.
pub(super) struct Curves {
    /// What the legend calls it.
    pub(super) name: String,
    /// Training loss by step.
    pub(super) loss: Vec<(f64, f64)>,
    /// Top-1 accuracy on the validation images by step, 0 to 1.
    pub(super) top1: Vec<(f64, f64)>,
}

/// Where a figure goes, and as what.
pub(super) struct Target {
    path: PathBuf,
    format: Format,
}

enum Format {
    Svg,
    Png,
}

/// The file that `--plot` names.
///
/// # Errors
///
/// If its name ends in nothing that can be drawn, or it is there already and may not be replaced.
pub(super) fn target(path: &Path, force: bool) -> Result<Target, Error> {
    let format = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => Format::Svg,
        Some("png") => Format::Png,
        Some(_) | None => {
            return Err(Error::Extension { path: path.to_owned(), expected: ".svg or .png" });
        }
    };
    if path.exists() && !force {
        return Err(Error::Exists { path: path.to_owned() });
    }
    Ok(Target { path: path.to_owned(), format })
}

/// Width of the figure.
const WIDTH: f64 = 960.0;
/// Height of a panel.
const PANEL: f64 = 362.0;
/// Pixels of a PNG per unit of the figure.
const SCALE: f32 = 2.0;
/// The most points of a curve that are drawn.
const POINTS: usize = 1000;
/// Curves with at most this many points have each of them marked.
const MARKED: usize = 40;

impl Target {
    /// Draws the figure.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn draw(&self, curves: &[Curves]) -> Result<(), Error> {
        let svg = svg(curves);
        let written = match self.format {
            Format::Svg => fs::write(&self.path, svg),
            Format::Png => png(&svg)
                .and_then(|image| image.encode_png().map_err(io::Error::other))
                .and_then(|bytes| fs::write(&self.path, bytes)),
        };
        written.map_err(Error::io("write", &self.path))
    }
}

/// The legend, and below it a panel for each kind of curve.
fn svg(curves: &[Curves]) -> String {
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    let (mut body, top) = legend(&names, 72.0, WIDTH - 72.0);
    let loss = curves.iter().map(|curve| curve.loss.clone());
    let percent = |&(step, top1): &(f64, f64)| (step, 100.0 * top1);
    let top1 = curves.iter().map(|curve| curve.top1.iter().map(percent).collect());
    body.push_str(&panel("training loss", loss.collect(), top));
    body.push_str(&panel("validation top-1, %", top1.collect(), top + PANEL));
    let label = format!("training loss and validation top-1 of {}", names.join(", "));
    document(WIDTH, top + 2.0 * PANEL, &label, &body)
}

fn panel(title: &str, curves: Vec<Vec<(f64, f64)>>, top: f64) -> String {
    let all = || curves.iter().flatten();
    let last = all().map(|point| point.0).fold(0.0, f64::max).max(1.0);
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

/// Renders a figure with DejaVu Sans, which is part of the program: a cluster may have no fonts.
fn png(svg: &str) -> io::Result<Pixmap> {
    let mut options = usvg::Options { font_family: "DejaVu Sans".into(), ..Default::default() };
    options.fontdb_mut().load_font_data(dejavu::sans::regular().to_vec());
    let tree = Tree::from_str(svg, &options).map_err(io::Error::other)?;
    let pixels = |length: f32| (length * SCALE).round() as u32;
    let mut image = Pixmap::new(pixels(tree.size().width()), pixels(tree.size().height()))
        .ok_or_else(|| io::Error::other("the figure is too large for a PNG"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut image.as_mut());
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves(name: &str, from: f64) -> Curves {
        let line = |slope: f64| (0..60).map(move |i| (f64::from(i), from + slope * f64::from(i)));
        Curves { name: name.into(), loss: line(-0.02).collect(), top1: line(0.001).collect() }
    }

    #[test]
    fn every_run_has_its_colour_and_there_are_letters() {
        let png = |curves: &[Curves]| png(&svg(curves)).unwrap();
        let both = png(&[curves("one", 4.0), curves("another", 5.0)]);
        assert_eq!((both.width(), both.height()), (1920, 1520));
        let count = |image: &Pixmap, rows: usize, [red, green, blue]: [u8; 3]| {
            let is_it = |pixel: &&[u8]| **pixel == [red, green, blue, 255];
            image.data()[..4 * 1920 * rows].chunks_exact(4).filter(is_it).count()
        };
        // Each has two lines across most of the figure, four pixels wide.
        let (blue, red, green) = ([0, 114, 178], [213, 94, 0], [0, 158, 115]);
        assert!([blue, red].iter().all(|&colour| count(&both, 1520, colour) > 2 * 1500 * 2));
        assert_eq!(count(&both, 1520, green), 0);
        // One name in the legend less is less black.
        let one = png(&[curves("one", 4.0)]);
        let ink = |image: &Pixmap| count(image, 70, [21, 24, 28]);
        assert!(ink(&one) > 50 && ink(&both) > ink(&one) + 100, "{} {}", ink(&one), ink(&both));
    }

    #[test]
    fn many_runs_with_long_names_fit() {
        let name = "a name that is longer than most and then some".repeat(3);
        let many: Vec<Curves> = (0..50).map(|i| curves(&name, f64::from(i))).collect();
        let figure = svg(&many);
        assert_eq!(figure.matches(&format!(">{name}<")).count(), 50);
        assert!(figure.contains("height=\"1740\""), "{}", &figure[..200]);
    }
}
