//! Access to image files in folders, archives and packs, and their copies on the node's disk.

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
