//! Transforms from a stored image to one of the model's size: drawn as plans, then applied to
//! pixels.

pub(crate) mod eval_transform;
pub mod ops;
pub(crate) mod recipe;
pub(crate) mod resize;
pub(crate) mod transform;
