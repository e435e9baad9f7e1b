//! From a stored image to one of the model's size: what is drawn for it, and its application to pixels.

pub(crate) mod apply;
pub(crate) mod evaluation;
pub mod ops;
pub(crate) mod recipe;
pub(crate) mod resize;
