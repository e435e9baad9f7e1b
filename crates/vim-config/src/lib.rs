#![doc = include_str!("../README.md")]

mod layers;
mod location;
mod names;
mod variables;

pub use layers::{EXTENDS, Layer, LayerError, LayerProblem, layers, layers_of, merge, read};
pub use location::{Lines, Location, caret, position};
pub use names::{hint, nearest};
pub use variables::{ExpandError, escape, expand, is_variable_name};
