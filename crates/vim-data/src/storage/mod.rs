//! Image files where they lie: in folders, archives, packs, or on the node's own disk.

pub(crate) mod cached_index;
pub(crate) mod env_paths;
mod folder;
pub(crate) mod images;
pub(crate) mod index;
mod labels;
pub(crate) mod layout;
pub(crate) mod pack;
mod reader;
pub(crate) mod staging;
mod tars;
