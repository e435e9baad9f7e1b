//! Draws the plan of one training image: a function of a key.

use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::{AutoAugment, Recipe};
use crate::rng;
use crate::transforms::{Op, SamplePlan};

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
