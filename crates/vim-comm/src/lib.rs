#![doc = include_str!("../README.md")]

pub mod check;
mod comm;
mod environment;
mod error;
mod host;
#[cfg(feature = "cuda")]
pub mod nccl;
mod place;
mod rendezvous;
#[cfg(any(feature = "cuda", all(test, feature = "wgpu")))]
mod rows;
mod tree;

pub use comm::{Comm, LibraryInfo};
pub use environment::environment;
pub use error::CommError;
pub use place::Place;
pub use rendezvous::{
    Member, Node, Rendezvous, Roster, SHARE_GPU, abort, aborted, meet_nodes, shares_gpu,
};
pub use tree::{TreeSum, same_order};
