//! The legend of a document.

use crate::style::SeriesStyle;
use crate::svg::{line, text};

/// Height of a row.
const ROW: f64 = 20.0;

/// The names of series 0, 1, …, each behind a piece of its line, in as many columns as fit into
/// `width`. Returns the drawing, which starts at `(left, 8)`, and its height with margins.
pub fn legend(names: &[&str], left: f64, width: f64) -> (String, f64) {
    let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let column = 48.0 + 8.0 * widest as f64;
    let columns = ((width / column) as usize).max(1);
    let entry = |(number, name): (usize, &&str)| {
        let style = SeriesStyle::new(number);
        let x = left + column * (number % columns) as f64;
        let y = 8.0 + ROW * ((number / columns) as f64 + 0.5);
        let sample = line(style.line_class(), (x, y), (x + 30.0, y));
        let name = text("value", (x + 38.0, y + 4.5), "start", name);
        format!(r#"<g class="{}">{sample}{name}</g>"#, style.class())
    };
    let drawing = names.iter().enumerate().map(entry).collect();
    (drawing, ROW * names.len().div_ceil(columns) as f64 + 16.0)
}
