//! A recipe with every value spelled out.

use serde::Serialize;

use crate::error::DataError;
use crate::statistics::Statistics;
use crate::transforms::eval_transform::SMALL;

use super::auto_augment::AutoAugment;
use super::preset::AugmentPreset;
use super::section::{AugmentConfig, CropMode, EraseMode, MixMode, OrderKind};

/// All that training images and their order depend on, besides the seed; [`AugmentConfig`] says what each
/// value means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recipe {
    /// How the crop is chosen.
    pub crop: CropMode,
    /// Share of the area in a resized crop, smallest and largest.
    pub scale: [f64; 2],
    /// Width over height of a resized crop, smallest and largest.
    pub ratio: [f64; 2],
    /// Probability of a horizontal flip.
    pub hflip: f64,
    /// RandAugment, or none.
    pub auto_augment: AutoAugment,
    /// Largest change of brightness, contrast and saturation; made only without RandAugment.
    pub color_jitter: f64,
    /// Whether one of grayscale, solarize and blur is applied.
    pub three_augment: bool,
    /// Random erasing.
    pub erase: Erasing,
    /// Mixup and cutmix.
    pub mix: Mixing,
    /// Draws of an image in an epoch, ≥ 1.
    pub repeats: u32,
    /// Where the order of an epoch comes from.
    pub order: OrderKind,
    /// Target over resized short side, in evaluation.
    pub eval_crop_ratio: f64,
}

/// Random erasing (Zhong et al. 2017).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Erasing {
    /// Probability that an image has erased boxes.
    pub prob: f64,
    /// What they are filled with.
    pub mode: EraseMode,
    /// Most boxes in an image, ≥ 1.
    pub count: u32,
}

/// Mixup (Zhang et al. 2017) and cutmix (Yun et al. 2019).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mixing {
    /// Parameter of mixup's Beta distribution; 0: off.
    pub mixup: f64,
    /// Parameter of cutmix's Beta distribution; 0: off. 1 where [`Mixing::cutmix_minmax`] is set.
    pub cutmix: f64,
    /// Sides of cutmix's box as shares of the image's, smallest and largest.
    pub cutmix_minmax: Option<[f64; 2]>,
    /// Probability of either.
    pub prob: f64,
    /// Probability of cutmix where both are on.
    pub switch_prob: f64,
    /// What shares its mixing.
    pub mode: MixMode,
}

impl Mixing {
    /// Whether there is any: then an image's target is a distribution over classes.
    #[must_use]
    pub fn is_on(&self) -> bool {
        (self.mixup > 0.0 || self.cutmix > 0.0) && self.prob > 0.0
    }
}

impl AugmentConfig {
    /// Applies the preset, and checks every value.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] names the first key whose value is out of range or ruled out by another.
    pub fn resolve(&self) -> Result<Recipe, DataError> {
        let base = Recipe::preset(self.preset);
        let cutmix = match self.cutmix_minmax {
            Some(_) => Some(1.0), // as in the original: the sides' range stands in for the distribution
            None => self.cutmix,
        };
        let recipe = Recipe {
            crop: self.crop.unwrap_or(base.crop),
            scale: self.scale.unwrap_or(base.scale),
            ratio: self.ratio.unwrap_or(base.ratio),
            hflip: self.hflip.unwrap_or(base.hflip),
            auto_augment: self.auto_augment.clone().unwrap_or(base.auto_augment),
            color_jitter: self.color_jitter.unwrap_or(base.color_jitter),
            three_augment: self.three_augment.unwrap_or(base.three_augment),
            erase: Erasing {
                prob: self.erase_prob.unwrap_or(base.erase.prob),
                mode: self.erase_mode.unwrap_or(base.erase.mode),
                count: self.erase_count.unwrap_or(base.erase.count),
            },
            mix: Mixing {
                mixup: self.mixup.unwrap_or(base.mix.mixup),
                cutmix: cutmix.unwrap_or(base.mix.cutmix),
                cutmix_minmax: self.cutmix_minmax.or(base.mix.cutmix_minmax),
                prob: self.mix_prob.unwrap_or(base.mix.prob),
                switch_prob: self.mix_switch_prob.unwrap_or(base.mix.switch_prob),
                mode: self.mix_mode.unwrap_or(base.mix.mode),
            },
            repeats: self.repeats.unwrap_or(base.repeats),
            order: self.order.unwrap_or(base.order),
            eval_crop_ratio: self.eval_crop_ratio.unwrap_or(base.eval_crop_ratio),
        };
        self.check_written(&recipe)?;
        recipe.check()?;
        Ok(recipe)
    }
}

impl Recipe {
    /// The `[augment]` section that spells this recipe out in full, for the record of a run.
    ///
    /// Keys that mean nothing beside the others are left out.
    #[must_use]
    pub fn to_section(&self, preset: AugmentPreset) -> AugmentConfig {
        let resized = matches!(self.crop, CropMode::Resized | CropMode::Auto);
        AugmentConfig {
            preset,
            crop: Some(self.crop),
            scale: resized.then_some(self.scale),
            ratio: resized.then_some(self.ratio),
            hflip: Some(self.hflip),
            auto_augment: Some(self.auto_augment.clone()),
            color_jitter: Some(self.color_jitter),
            three_augment: Some(self.three_augment),
            erase_prob: Some(self.erase.prob),
            erase_mode: Some(self.erase.mode),
            erase_count: Some(self.erase.count),
            mixup: Some(self.mix.mixup),
            cutmix: self.mix.cutmix_minmax.is_none().then_some(self.mix.cutmix),
            cutmix_minmax: self.mix.cutmix_minmax,
            mix_prob: Some(self.mix.prob),
            mix_switch_prob: Some(self.mix.switch_prob),
            mix_mode: Some(self.mix.mode),
            repeats: Some(self.repeats),
            order: Some(self.order),
            eval_crop_ratio: Some(self.eval_crop_ratio),
        }
    }

    /// The crop for images of `target`'s height and width: what [`CropMode::Auto`] stands for there.
    #[must_use]
    pub fn crop_mode(&self, target: [usize; 2]) -> CropMode {
        let large = target[0].max(target[1]) > SMALL;
        match self.crop {
            CropMode::Auto if large => CropMode::Resized,
            CropMode::Auto => CropMode::Pad,
            CropMode::None | CropMode::Pad | CropMode::Resized | CropMode::Simple => self.crop,
        }
    }

    /// The colour of pixels that an operation moves in from outside the image: the mean that it is later
    /// normalised by, so that they become almost 0.
    #[must_use]
    pub fn fill(statistics: &Statistics) -> [u8; 3] {
        statistics.mean.map(|mean| (255.0 * f64::from(mean)).round_ties_even() as u8)
    }
}
