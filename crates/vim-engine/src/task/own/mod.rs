//! Somebody's own images: what they are, and a recipe for them.

pub mod recipe;
pub mod survey;
