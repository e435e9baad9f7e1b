//! Checkpoint files to named arrays of f32, and back.
//!
//! [`read_checkpoint`] reads PyTorch's zip archives of a pickle and storages (`.pth`, `.pt`) and
//! safetensors; [`write_pytorch`] and [`write_safetensors`] write them.
//!
//! ```
//! use std::io::Cursor;
//! use vim_torch::{ArrayView, Section, read_checkpoint, write_pytorch};
//!
//! let bytes: Vec<u8> = [1.0_f32, 2.0, 3.0].into_iter().flat_map(f32::to_le_bytes).collect();
//! let mut file = Cursor::new(Vec::new());
//! write_pytorch(&mut file, [("head.bias", ArrayView { shape: &[3], bytes: &bytes })], &[])?;
//!
//! let checkpoint = read_checkpoint(file, Section::Model)?;
//! assert_eq!(checkpoint.state.array("head.bias").unwrap().values, [1.0, 2.0, 3.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files may be hostile. Nothing in a pickle is executed: a small machine builds plain nodes, and
//! an unknown class becomes an inert node. Every length is checked against the file, and memory is
//! bounded by a small multiple of the file's size. No input panics (`tests/it/mutations.rs`,
//! `fuzz/`).
//!
//! The crate knows nothing of models: keys and shapes are the file's.

mod archive;
mod element;
mod error;
mod limits;
mod pickle;
mod read;
mod sections;
mod state_dict;
mod wrappers;
mod write;

pub use element::Element;
pub use error::{ReadError, WriteError};
pub use read::{read_checkpoint, read_safetensors};
pub use sections::Section;
pub use state_dict::{Array, ArrayView, Checkpoint, Format, Item, StateDict};
pub use write::{Value, write_mmcv, write_pytorch, write_safetensors};
