//! Images with objects, each with a class, a box and a mask: what detection learns from.
//!
//! Objects as annotated and as a model's targets, what is done to them in training
//! ([`ObjectRecipe`]), how evaluation sees an image, and pictures of them.

mod clip;
mod mask;
mod object;
mod picture;
mod recipe;
mod transform;

pub use mask::Mask;
pub use object::{ImageObjects, LeftOut, Object, ObjectClasses, ObjectError, Targets};
pub use picture::{Shown, draw_objects};
pub use recipe::{ObjectPlan, ObjectRecipe, fitted};
pub use transform::{apply_objects, place_box};
