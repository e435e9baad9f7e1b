//! Where a configuration's text comes from, before anything is known about its keys.
//!
//! A file may [extend](layers) others, and its paths may hold [variables](expand). The keys and their
//! values are the caller's.

mod layers;
mod names;
mod place;
mod variables;

pub use layers::{EXTENDS, Layer, LayerError, LayerProblem, layers, merge};
pub use names::{hint, nearest};
pub use place::{Place, caret, position};
pub use variables::{ExpandError, expand, is_variable_name};
