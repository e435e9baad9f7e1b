//! Checkpoint files to named arrays of f32, and back.
//!
//! [`read_checkpoint`] takes any file that a Vim checkpoint is found in: PyTorch's zip archive of a
//! pickle and storages, or safetensors. [`write_pytorch`] and [`write_safetensors`] write them.
//!
//! Files come from strangers. Nothing in a pickle is ever executed: a small machine of our own builds
//! plain nodes, a class it does not know becomes an inert one. Every length is checked against what
//! the file holds, and memory is bounded by a small multiple of the file's size. No input panics:
//! `tests/it/mutations.rs` and `fuzz/` try.
//!
//! It knows nothing of models: keys and shapes are the file's.

mod archive;
mod checkpoint;
mod element;
mod error;
mod limits;
mod pickle;
mod read;
mod safetensors_file;
mod sections;
mod state_dict;
mod write;

pub use checkpoint::{Checkpoint, Format};
pub use element::Element;
pub use error::{ReadError, WriteError};
pub use read::read_checkpoint;
pub use sections::Section;
pub use state_dict::{Array, Item, StateDict};
pub use write::{write_pytorch, write_safetensors};
