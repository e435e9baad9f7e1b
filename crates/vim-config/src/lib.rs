//! Where a configuration's text comes from, before anything is known about its keys.
//!
//! A file may [extend](layers) others; its paths may hold [variables](expand); and a launch script of the
//! original can be [turned into](migrate()) such a file. What keys there are, and what they may hold, is
//! the caller's knowledge.

mod layers;
mod migrate;

mod place;
mod variables;

pub use layers::{EXTENDS, Layer, LayerError, LayerProblem, layers, merge};
pub use migrate::{MigrateError, Migrated, Model, NotCarried, Request, Trouble, migrate};
pub use place::{Place, caret, position};
pub use variables::{ExpandError, expand};
