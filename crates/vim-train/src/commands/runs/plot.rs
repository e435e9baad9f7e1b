//! The curves of several runs in one figure.

use std::error;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use vim_data::{Pixels, write_png};

use super::canvas::{Canvas, halved};
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

/// Width of the figure, in units of which a letter is 13 high.
const WIDTH: u32 = 960;
/// Height of both panels.
const PANELS: u32 = 724;
/// Pixels of a unit on the canvas; of the PNG, half as many.
const SCALE: u32 = 4;
/// Height of a line of the legend.
const LINE: u32 = 20;
/// Points of a curve that are drawn.
const POINTS: usize = 1000;
/// Curves with no more points than this have them marked.
const MARKED: usize = 40;

/// Okabe and Ito's colours, which colour-blind people tell apart, but for the yellow, which is too light for a line.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

impl Target {
    /// Draws the figure.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn draw(&self, curves: &[Curves]) -> Result<(), Error> {
        let written = match self.format {
            Format::Svg => svg(curves).and_then(|text| fs::write(&self.path, text)),
            Format::Png => png(curves).and_then(|pixels| write_png(&self.path, &pixels)),
        };
        written.map_err(Error::io("write", &self.path))
    }
}

fn svg(curves: &[Curves]) -> io::Result<String> {
    let mut text = String::new();
    let size = (WIDTH, Legend::of(curves).height() + PANELS);
    figure(&SVGBackend::with_string(&mut text, size).into_drawing_area(), curves, 1)
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(text)
}

fn png(curves: &[Curves]) -> io::Result<Pixels> {
    let height = Legend::of(curves).height() + PANELS;
    let mut pixels = Pixels::black((height * SCALE) as usize, (WIDTH * SCALE) as usize);
    figure(&Canvas::new(&mut pixels)?.into_drawing_area(), curves, SCALE)
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok(halved(&pixels))
}

/// How the names of the runs are laid out: in columns, on as many lines as it takes.
struct Legend {
    /// Width of a name with its line.
    entry: u32,
    in_a_line: u32,
    lines: u32,
}

impl Legend {
    fn of(curves: &[Curves]) -> Self {
        let widest = curves.iter().map(|curve| curve.name.chars().count()).max().unwrap_or(0);
        let entry = 48 + 9 * widest as u32;
        let in_a_line = ((WIDTH - 72) / entry).max(1);
        Self { entry, in_a_line, lines: (curves.len() as u32).div_ceil(in_a_line) }
    }

    fn height(&self) -> u32 {
        self.lines * LINE + 16
    }
}

type Area<DB> = DrawingArea<DB, Shift>;
type Failure<DB> = DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>;

/// The legend, and below it a panel for each kind of curve.
fn figure<DB: DrawingBackend>(
    area: &Area<DB>,
    curves: &[Curves],
    scale: u32,
) -> Result<(), Failure<DB>>
where
    DB::ErrorType: error::Error + Send + Sync + 'static,
{
    area.fill(&WHITE)?;
    let sizes = Legend::of(curves);
    let (legend, panels) = area.split_vertically(sizes.height() * scale);
    for (number, curve) in curves.iter().enumerate() {
        let (column, line) = (number as u32 % sizes.in_a_line, number as u32 / sizes.in_a_line);
        let at = |x: u32, y: u32| ((x * scale) as i32, (y * scale) as i32);
        let (x, y) = (72 + column * sizes.entry, 8 + line * LINE + LINE / 2);
        let line: Vec<(i32, i32)> = vec![at(x, y), at(x + 30, y)];
        stroke(&legend, line, number, scale)?;
        let left = Pos::new(HPos::Left, VPos::Center);
        let style = font(scale).into_text_style(&legend).pos(left);
        legend.draw(&Text::new(curve.name.clone(), at(x + 38, y), style))?;
    }
    let panels = panels.split_evenly((2, 1));
    let loss = |curve: &Curves| curve.loss.clone();
    let top1 = |curve: &Curves| -> Vec<(f64, f64)> {
        curve.top1.iter().map(|&(step, top1)| (step, 100.0 * top1)).collect()
    };
    panel(&panels[0], "training loss", &curves.iter().map(loss).collect::<Vec<_>>(), scale)?;
    panel(&panels[1], "validation top-1, %", &curves.iter().map(top1).collect::<Vec<_>>(), scale)?;
    area.present()
}

fn font(scale: u32) -> FontDesc<'static> {
    ("sans-serif", 16 * scale).into_font()
}

/// A line of the look of run `number`: a colour, dashed once the colours are used up.
fn stroke<DB: DrawingBackend, CT: CoordTranslate>(
    area: &DrawingArea<DB, CT>,
    points: Vec<CT::From>,
    number: usize,
    scale: u32,
) -> Result<(), Failure<DB>>
where
    CT::From: Clone + 'static,
    DB::ErrorType: error::Error + Send + Sync + 'static,
{
    let style = PALETTE[number % PALETTE.len()].stroke_width(2 * scale);
    if number < PALETTE.len() {
        area.draw(&PathElement::new(points, style))
    } else {
        let (dash, gap) = ((6 * scale) as i32, (3 * scale) as i32);
        area.draw(&DashedPathElement::new(points, dash, gap, style))
    }
}

/// The smallest range with all of `numbers` in it and a little air; 0 to 1 if there are none.
fn range(numbers: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let low = numbers.clone().fold(f64::INFINITY, f64::min);
    let high = numbers.fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return 0.0..1.0;
    }
    let air = if high > low { 0.05 * (high - low) } else { 0.5 * high.abs().max(1.0) };
    low - air..high + air
}

fn panel<DB: DrawingBackend>(
    area: &Area<DB>,
    title: &str,
    curves: &[Vec<(f64, f64)>],
    scale: u32,
) -> Result<(), Failure<DB>>
where
    DB::ErrorType: error::Error + Send + Sync + 'static,
{
    let all = || curves.iter().flatten();
    let steps = 0.0..all().map(|point| point.0).fold(0.0, f64::max).max(1.0) * 1.02;
    let mut chart = ChartBuilder::on(area)
        .margin(8 * scale)
        .margin_right(24 * scale)
        .x_label_area_size(44 * scale)
        .y_label_area_size(64 * scale)
        .build_cartesian_2d(steps, range(all().map(|point| point.1)))?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc(title)
        .label_style(font(scale))
        .axis_desc_style(font(scale))
        .axis_style(BLACK.stroke_width(scale))
        .bold_line_style(BLACK.mix(0.12).stroke_width(scale))
        .light_line_style(TRANSPARENT)
        .set_all_tick_mark_size(4 * scale)
        .x_label_formatter(&|step| format!("{step:.0}"))
        .draw()?;
    for (number, curve) in curves.iter().enumerate() {
        let points = thinned(curve, POINTS);
        if points.len() <= MARKED {
            let color = PALETTE[number % PALETTE.len()];
            let dots = points.iter().map(|&point| Circle::new(point, 3 * scale, color.filled()));
            chart.draw_series(dots)?;
        }
        if !points.is_empty() {
            stroke(chart.plotting_area(), points, number, scale)?;
        }
    }
    if all().next().is_none() {
        let (width, height) = area.dim_in_pixel();
        let middle = Pos::new(HPos::Center, VPos::Center);
        let style = font(scale).into_text_style(area).pos(middle);
        area.draw(&Text::new("no records", ((width / 2) as i32, (height / 2) as i32), style))?;
    }
    Ok(())
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
        let both = png(&[curves("one", 4.0), curves("another", 5.0)]).unwrap();
        assert_eq!((both.width, both.height), (1920, 1520));
        let count = |image: &Pixels, colour: RGBColor| {
            let is_it = |pixel: &&[u8]| **pixel == [colour.0, colour.1, colour.2];
            image.data.chunks_exact(3).filter(is_it).count()
        };
        // Each has two lines across most of the figure, four pixels wide.
        assert!(PALETTE[..2].iter().all(|&colour| count(&both, colour) > 2 * 1500 * 2));
        assert_eq!(count(&both, PALETTE[2]), 0);
        // One name in the legend less is less black.
        let one = png(&[curves("one", 4.0)]).unwrap();
        let legend = |image: &Pixels| {
            let rows = Pixels { height: 70, width: 1920, data: image.data[..3 * 1920 * 70].into() };
            count(&rows, BLACK)
        };
        assert!(legend(&one) > 50 && legend(&both) > legend(&one) + 100);
    }

    #[test]
    fn many_runs_with_long_names_fit() {
        let name = "a name that is longer than most and then some".repeat(3);
        let many: Vec<Curves> = (0..50).map(|i| curves(&name, f64::from(i))).collect();
        let figure = svg(&many).unwrap();
        assert_eq!(figure.matches(&name).count(), 50);
        assert!(figure.contains("height=\"1740\""), "{}", &figure[..200]);
    }

    #[test]
    fn ranges_hold_their_numbers() {
        assert_eq!(range([].into_iter()), 0.0..1.0);
        let constant = range([2.0, 2.0].into_iter());
        assert!(constant.start < 2.0 && constant.end > 2.0);
        let wide = range([1.0, 3.0].into_iter());
        assert!(wide.start < 1.0 && wide.start > 0.8 && wide.end > 3.0 && wide.end < 3.2);
    }
}
