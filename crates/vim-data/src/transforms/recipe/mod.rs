//! `[augment]`: the augmentation of training images, and all its random numbers.
//!
//! Three stages. An [`AugmentConfig`] is what a file says: a preset and what differs from it.
//! [`AugmentConfig::resolve`] turns it into a [`Recipe`], in which every value is explicit and
//! checked. A recipe draws a [`SamplePlan`] for an image and a [`MixPlan`] for each image of a
//! batch: pure functions of a key, which determine the pixels. Applying a plan draws only the noise
//! of erased boxes, from a seed in the plan.
//!
//! # Source
//! The transforms of the original (`datasets.py`, `augment.py`), which are those of timm 0.4.12 and
//! torchvision 0.16: the same procedures, hence the same distributions. The original's random
//! numbers depend on the number of worker processes and cannot be reproduced; ours depend on the
//! key alone.

mod auto_augment;
mod check;
mod crop;
mod draw;
mod erase;
mod key;
mod mix;
mod plan;
mod preset;
mod rand_augment;
mod resolve;
mod section;
mod targets;

pub use auto_augment::{AutoAugment, RandAugment};
pub use key::{MixKey, SampleKey};
pub use mix::{MixPlan, cutmix_box};
pub use plan::{CropPlan, EraseBox, EraseFill, SamplePlan};
pub use preset::AugmentPreset;
pub use resolve::{Erasing, Mixing, Recipe};
pub use section::{AugmentConfig, CropMode, EraseMode, MixMode, OrderKind};
pub use targets::{label_smoothing_loss, mixed_targets, soft_target_loss};
