//! Line charts and their legend.

use crate::scale::Scale;
use crate::style::SeriesStyle;
use crate::svg::{grid_rows, line, path, text};

/// Which points of a line have a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// The last one.
    Last,
    /// All of them.
    All,
}

/// A line and, optionally, a band about it, in the units of the data.
#[derive(Clone, Debug)]
pub struct Series {
    /// Colour and marker.
    pub style: SeriesStyle,
    /// The points; without any, nothing is drawn.
    pub line: Vec<(f64, f64)>,
    /// The outline of the band; empty for none.
    pub band: Vec<(f64, f64)>,
    /// Where the markers are.
    pub marks: Marks,
}

/// Lines over a common axis. The scales' targets are the edges of the plot area.
#[derive(Clone, Debug)]
pub struct LineChart<'a> {
    /// The horizontal axis.
    pub x: Scale,
    /// The vertical axis, from the bottom to the top. Values beyond it are drawn at its end.
    pub y: Scale,
    /// What the horizontal axis shows.
    pub x_title: &'a str,
    /// The lines, later ones over earlier ones.
    pub series: &'a [Series],
}

impl LineChart<'_> {
    /// The chart as SVG elements.
    pub fn draw(&self) -> String {
        let Self { x, y, x_title, series } = self;
        let ((left, right), (bottom, top)) = (x.target(), y.target());
        let mut body = grid_rows(y, (left, right));
        for (at, label) in x.ticks(5) {
            body.push_str(&line("axis", (at, bottom), (at, bottom + 4.0)));
            body.push_str(&text("", (at, bottom + 18.0), "middle", &label));
        }
        body.push_str(&line("axis", (left, bottom), (right, bottom)));
        let center = f64::midpoint(left, right);
        body.push_str(&text("", (center, bottom + 36.0), "middle", x_title));
        let at = |&(px, py): &(f64, f64)| (x.at(px), y.at(py).clamp(top, bottom));
        for Series { style, line, band, marks } in series.iter().filter(|s| !s.line.is_empty()) {
            let line: Vec<(f64, f64)> = line.iter().map(at).collect();
            let mut group = String::new();
            if !band.is_empty() {
                group.push_str(&path("band", &band.iter().map(at).collect::<Vec<_>>()));
            }
            group.push_str(&path(style.line_class(), &line));
            let (marked, radius) = match marks {
                Marks::Last => (&line[line.len() - 1..], 4.0),
                Marks::All => (&line[..], 3.0),
            };
            group.extend(marked.iter().map(|&point| style.marker(point, radius)));
            body.push_str(&format!(r#"<g class="{}">{group}</g>"#, style.class()));
        }
        if series.iter().all(|series| series.line.is_empty()) {
            let middle = (center, f64::midpoint(top, bottom));
            body.push_str(&text("none", middle, "middle", "no records"));
        }
        body
    }
}

/// Height of a row.
const ROW: f64 = 20.0;

/// [`legend_of`] the names of series 0, 1, ….
pub fn legend(names: &[&str], left: f64, width: f64) -> (String, f64) {
    let entry = |(number, name): (usize, &&'_ str)| (SeriesStyle::new(number), name.to_string());
    let entries: Vec<(SeriesStyle, String)> = names.iter().enumerate().map(entry).collect();
    legend_of(&entries, left, width)
}

/// The names of series, each behind a piece of its line, in as many columns as fit into `width`.
/// Returns the drawing, which starts at `(left, 8)`, and its height with margins.
pub fn legend_of(entries: &[(SeriesStyle, String)], left: f64, width: f64) -> (String, f64) {
    let widest = entries.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
    let column = 48.0 + 8.0 * widest as f64;
    let columns = ((width / column) as usize).max(1);
    let entry = |(number, (style, name)): (usize, &(SeriesStyle, String))| {
        let x = left + column * (number % columns) as f64;
        let y = 8.0 + ROW * ((number / columns) as f64 + 0.5);
        let sample = line(style.line_class(), (x, y), (x + 30.0, y));
        let name = text("value", (x + 38.0, y + 4.5), "start", name);
        format!(r#"<g class="{}">{sample}{name}</g>"#, style.class())
    };
    let drawing = entries.iter().enumerate().map(entry).collect();
    (drawing, ROW * entries.len().div_ceil(columns) as f64 + 16.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)], marks: Marks) -> String {
        let line =
            Series { style: SeriesStyle::new(11), line: points.to_vec(), band: Vec::new(), marks };
        LineChart {
            x: Scale::new((0.0, 2.0), (10.0, 110.0)),
            y: Scale::new((0.0, 1.0), (100.0, 0.0)),
            x_title: "step",
            series: &[line],
        }
        .draw()
    }

    #[test]
    fn lines_have_their_style_and_stay_inside() {
        let points = [(0.0, 0.0), (1.0, 0.5), (2.0, 7.0)];
        let all = chart(&points, Marks::All);
        let path =
            r#"<g class="c1"><path class="line dashed" d="M10.0 100.0L60.0 50.0L110.0 0.0"/>"#;
        assert!(all.contains(path), "{all}");
        assert_eq!(all.matches("<polygon").count(), 3);
        assert_eq!(chart(&points, Marks::Last).matches("<polygon").count(), 1);
        assert!(chart(&[], Marks::All).contains("no records"));
    }
}
