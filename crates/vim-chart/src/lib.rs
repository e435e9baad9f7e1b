#![doc = include_str!("../README.md")]

mod legend;
mod lines;
mod scale;
mod style;
mod svg;

pub use legend::legend;
pub use lines::{LineChart, Marks, Series};
pub use scale::{Scale, rounded};
pub use style::SeriesStyle;
pub use svg::{document, error_bar, escape, figure, grid_rows, line, path, text};
