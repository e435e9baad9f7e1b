//! Weights: their names, arrays out of a model and into one, and what a file's shapes say.

mod import;
mod infer;
mod load;
mod mismatch;
mod named_arrays;
pub(crate) mod names;
mod pos_embed;

pub use import::{ImportError, import_pytorch};
pub use infer::{InferError, Inferred, infer};
pub use load::{LoadOptions, LoadReport, load_module};
pub use mismatch::{ShapeMismatch, StateDictMismatch};
pub use named_arrays::{NamedArrays, PendingArrays};
pub use names::{Names, pytorch_key};
pub use pos_embed::Resize;
