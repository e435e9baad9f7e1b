//! `[augment]`: what is done to training images, and every random number that it takes.
//!
//! Three stages. An [`AugmentConfig`] is what a file says: a preset and what differs from it.
//! [`AugmentConfig::resolve`] makes a [`Recipe`] of it, with every value spelled out and checked. A recipe draws
//! a [`SamplePlan`] for an image and a [`MixPlan`] for each image of a batch: pure functions of a key, which hold
//! all that the pixels depend on. Applying a plan draws nothing but the noise of erased boxes, which is itself
//! a function of a seed in the plan.
//!
//! # Source
//! The transforms of the original (`datasets.py`, `augment.py`), which are those of timm 0.4.12 and torchvision
//! 0.16: the same procedures, hence the same distributions. Its random numbers depend on the number of worker
//! processes and cannot be had again; ours depend on the key alone.

mod auto_augment;
mod check;
mod crop;
mod draw;
mod erase;
mod jitter;
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
