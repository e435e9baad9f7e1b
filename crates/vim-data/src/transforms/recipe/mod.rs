//! `[augment]`: the augmentation of training images, and all its random numbers.
//!
//! A [`Recipe`] is the section: a preset and what differs from it. It draws a [`SamplePlan`] for an
//! image and a [`MixPlan`] for each image of a batch: pure functions of a key, which determine the
//! pixels. Applying a plan draws only the noise of erased boxes, from a seed in the plan.
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
mod section;
mod targets;

pub use auto_augment::{AutoAugment, RandAugment};
pub use key::{MixKey, SampleKey};
pub use mix::{MixPlan, cutmix_box};
pub use plan::{CropPlan, EraseBox, EraseFill, SamplePlan};
pub use preset::AugmentPreset;
pub use section::{CropMode, EraseMode, MixMode, OrderKind, Recipe};
pub use targets::{label_smoothing_loss, mixed_targets, soft_target_loss};
