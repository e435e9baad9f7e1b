//! Somebody's own images: what they are, and a recipe for them.

pub(crate) mod recipe;
pub(crate) mod survey;
