//! Images with label maps, a class for each pixel: what segmentation learns from.
//!
//! Label maps and their classes, what is done to pairs in training ([`DenseRecipe`]), where windows
//! slide in evaluation, and how predictions are scored ([`Confusion`]).

mod classes;
mod hsv;
mod label_map;
mod photometric;
mod picture;
mod recipe;
mod resize;
mod scores;
mod transform;
mod windows;

pub use classes::ClassList;
pub use hsv::{hsv_row_to_rgb, rgb_to_hsv};
pub use label_map::{IGNORED, LONGEST_SIDE, LabelMap, LabelMaps, LabelRule, LabelTally, PairError};
pub(crate) use label_map::{StrayLabel, decode_labels};
pub use photometric::Photometric;
pub use picture::{coloured, encode_grey, encode_palette, overlay};
pub(crate) use recipe::crop_region;
pub use recipe::{DensePlan, DenseRecipe, Inference, choose_corner};
pub use resize::{bilinear, nearest, rescaled};
pub use scores::{ClassScore, Confusion};
pub(crate) use transform::frame_pixels;
pub use transform::{apply_dense, padding};
pub use windows::windows;
