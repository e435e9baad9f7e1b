//! The plan of one training image, what is done to it with all numbers drawn: a function of a key.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{AutoAugment, Recipe};
use crate::{pixels::Region, rng, transforms::ops::Op};

/// One draw of one image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct SampleKey {
    /// The run's.
    pub seed: u64,
    /// Pass over the training images.
    pub epoch: u64,
    /// The image's index in the dataset.
    pub index: u64,
    /// Which of its draws in the epoch, `0..repeats`.
    pub repeat: u32,
    /// 0 for the image itself, then the number of the replacement for an image that cannot be read.
    pub attempt: u32,
}

impl SampleKey {
    /// A generator for one purpose, so that the draws of one part of a recipe do not affect
    /// another.
    pub(crate) fn rng(&self, purpose: &str) -> ChaCha8Rng {
        let Self { seed, epoch, index, repeat, attempt } = *self;
        rng::keyed(purpose, &[seed, epoch, index, u64::from(repeat), u64::from(attempt)])
    }
}

/// The augmentation of one draw of an image, in the order that it is applied.
///
/// The crop produces the target's size, which the flip and the operations keep; these three work on
/// bytes. Boxes are erased after normalisation. The default is the plan of evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SamplePlan {
    /// From the source to the target's size.
    pub crop: CropPlan,
    /// Whether the crop is mirrored left to right.
    pub flip: bool,
    /// Applied in this order.
    pub ops: Vec<Op>,
    /// Erased in this order: a later box lies over an earlier one.
    pub erase: Vec<EraseBox>,
}

/// How an image of any size becomes one of the target's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CropPlan {
    /// As in evaluation: nothing is random.
    #[default]
    Evaluation,
    /// Black pixels on all sides, then a crop of the target's size.
    Padded {
        /// Rows added above and below, columns added left and right.
        padding: [usize; 2],
        /// First row of the crop in the padded image.
        top: usize,
        /// First column of the crop in the padded image.
        left: usize,
    },
    /// A part of the source, resized to the target; the filter sees nothing outside the part.
    Resized {
        /// The part.
        region: Region,
    },
    /// The source resized, a border of reflected pixels (the edge itself is not repeated), then a
    /// crop of the target's size.
    Simple {
        /// Height and width that the whole source is resized to.
        resized: [usize; 2],
        /// Pixels reflected on each side.
        padding: usize,
        /// First row of the crop in the padded image.
        top: usize,
        /// First column of the crop in the padded image.
        left: usize,
    },
}

/// A box of the normalised image that is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EraseBox {
    /// Where, inside the image.
    pub region: Region,
    /// With what.
    pub fill: EraseFill,
}

/// What an erased box holds, in units of the normalised image.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseFill {
    /// 0.
    Constant,
    /// One colour: red, green, blue.
    Colour([f32; 3]),
    /// Normally distributed noise per pixel and channel, a function of the seed and the position.
    Pixels {
        /// Of the noise.
        seed: u32,
    },
}

impl Recipe {
    /// Draws what is done to one image: a pure function of the arguments.
    ///
    /// The crop `auto` takes the dataset's images to be of `source`'s size; [`crate::Loader`] knows
    /// better, and replaces it before.
    ///
    /// # Shapes
    /// `source` and `target` are heights and widths in pixels: of the image as stored and of the
    /// model's.
    ///
    /// # Panics
    /// If one of them is 0.
    pub fn draw(&self, key: SampleKey, source: [usize; 2], target: [usize; 2]) -> SamplePlan {
        assert!(source.iter().chain(&target).all(|&side| side > 0), "an image without pixels");
        SamplePlan {
            crop: self.draw_crop(&mut key.rng("vim-data crop v1"), source, target),
            flip: rng::chance(&mut key.rng("vim-data flip v1"), self.hflip),
            ops: self.draw_ops(key, target),
            erase: self.draw_erase(&mut key.rng("vim-data erase v1"), target),
        }
    }

    fn draw_ops(&self, key: SampleKey, size: [usize; 2]) -> Vec<Op> {
        let mut rng = key.rng("vim-data ops v1");
        match &self.auto_augment {
            AutoAugment::Rand(rand) => return rand.draw(&mut rng, size),
            AutoAugment::Off => {}
        }
        let mut ops = Vec::new();
        if self.three_augment {
            ops.push(one_of_three(&mut rng));
        }
        if self.color_jitter > 0.0 {
            ops.extend(color_jitter(&mut rng, self.color_jitter));
        }
        ops
    }
}

/// Brightness, contrast and saturation changed by up to `most`, as a share, in any order.
///
/// # Source
/// torchvision's `ColorJitter(most, most, most)`: three factors, uniform around 1, in a random
/// order.
fn color_jitter(rng: &mut ChaCha8Rng, most: f64) -> [Op; 3] {
    let mut factor = || rng::between(rng, [1.0 - most, 1.0 + most]);
    let mut ops = [
        Op::Brightness { factor: factor() },
        Op::Contrast { factor: factor() },
        Op::Color { factor: factor() },
    ];
    rng::shuffle(rng, &mut ops);
    ops
}

/// One of grayscale, solarize and blur, with equal probability.
///
/// # Source
/// Touvron et al. 2022, "DeiT III", §3; the original's `augment.py`: solarize from 128 on, Pillow's
/// `GaussianBlur` of radius 0.1 to 2.
fn one_of_three(rng: &mut ChaCha8Rng) -> Op {
    match rng::below(rng, 3) {
        0 => Op::Grayscale,
        1 => Op::Solarize { threshold: 128 },
        _ => Op::Blur { radius: rng::between(rng, [0.1, 2.0]) },
    }
}
