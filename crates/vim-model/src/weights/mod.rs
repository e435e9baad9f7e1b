//! Weights: their names, arrays out of a model and into one, and what a file's shapes say.

mod head_rows;
mod infer;
mod load;
mod named_arrays;
pub(crate) mod names;
mod pos_embed;

pub use head_rows::HeadRows;
pub use infer::{Assumption, InferError, Inferred, infer, infer_backbone};
pub use load::{
    ImportError, LoadOptions, LoadReport, Naming, ShapeMismatch, StateDictMismatch, import_pytorch,
    load_module, load_named,
};
pub use named_arrays::{NamedArrays, PendingArrays};
pub use names::{Names, pytorch_key};
pub use pos_embed::Resize;
