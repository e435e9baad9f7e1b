#![doc = include_str!("../README.md")]

mod comm;
mod environment;
mod error;
mod host;
mod place;
mod rendezvous;
mod tree;

pub use comm::Comm;
pub use environment::environment;
pub use error::CommError;
pub use place::Place;
pub use rendezvous::{Member, Rendezvous, Roster, SHARE_GPU, abort, aborted};
pub use tree::{TreeSum, same_order};
