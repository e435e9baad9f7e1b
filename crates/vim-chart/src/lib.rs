#![doc = include_str!("../README.md")]

mod lines;
mod matrix;
mod scale;
mod style;
mod svg;

pub use lines::{LineChart, Marks, Series, legend, legend_of};
pub use matrix::Matrix;
pub use scale::{Scale, rounded};
pub use style::{SeriesStyle, heat};
pub use svg::{document, error_bar, escape, figure, fit, grid_rows, line, path, text, text_width};
