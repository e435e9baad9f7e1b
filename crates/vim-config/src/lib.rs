//! Where a configuration's text comes from, before anything is known about its keys.
//!
//! A file may [extend](layers) others, and its paths may hold [variables](expand). The keys and their
//! values are the caller's.

mod layers;
mod location;
mod names;
mod variables;

pub use layers::{EXTENDS, Layer, LayerError, LayerProblem, layers, merge};
pub use location::{Location, caret, position};
pub use names::{hint, nearest};
pub use variables::{ExpandError, expand, is_variable_name};
