//! What is done to an image and its label map in training: drawn from a key, then applied.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::label_map::{IGNORED, LONGEST_SIDE, LabelMap};
use super::photometric::Photometric;
use super::resize::{nearest_places, rescaled};
use crate::error::DataError;
use crate::pixels::Region;
use crate::rng::{below, between, chance};
use crate::transforms::recipe::SampleKey;

/// The augmentation of pairs of an image and a label map.
///
/// # Source
/// The training pipeline of the original's `seg/configs/_base_/datasets/ade20k.py`, by
/// mmsegmentation 0.29.1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DenseRecipe {
    /// Most pixels of the longer and of the shorter side of an image that is rescaled, before a
    /// ratio is drawn. In evaluation they are the limits.
    pub scale: [usize; 2],
    /// The least and the largest factor of `scale` in training.
    pub ratio: [f64; 2],
    /// A crop is drawn again, up to ten times, as long as one class has this share of its labelled
    /// pixels or more, or it shows a single class; 1 takes the first.
    pub cat_max_ratio: f64,
    /// Probability that a crop is mirrored.
    pub hflip: f64,
    /// Whether brightness, contrast, saturation and hue are changed.
    pub photometric: bool,
    /// How evaluation sees images that are larger than the model's: `slide`, in windows over an
    /// image of `scale`'s size, or `whole`, in one view of the model's size.
    pub inference: Inference,
    /// Pixels from one window to the next. Left out: two thirds of the model's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
}

/// How evaluation sees an image.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Inference {
    /// By windows of the model's size, whose logits are averaged.
    #[default]
    Slide,
    /// Once, with its longer side as long as the model's.
    Whole,
}

impl Default for DenseRecipe {
    fn default() -> Self {
        Self {
            scale: [2048, 512],
            ratio: [0.5, 2.0],
            cat_max_ratio: 0.75,
            hflip: 0.5,
            photometric: true,
            inference: Inference::Slide,
            stride: None,
        }
    }
}

/// Times that a crop is drawn again.
const REDRAWS: usize = 10;

/// What is done to one draw of a pair, in this order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DensePlan {
    /// Height and width that the pair is resized to.
    pub resized: [usize; 2],
    /// Upper left corners of the crop, row and column: the first one that shows enough classes
    /// counts, else the last.
    pub corners: Vec<[usize; 2]>,
    /// Whether the crop is mirrored left to right.
    pub flip: bool,
    /// What is done to its colours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub photometric: Option<Photometric>,
}

impl DenseRecipe {
    /// Checks the values.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] names the key.
    pub fn check(&self) -> Result<(), DataError> {
        let [low, high] = self.ratio;
        let wrong =
            |key, value: String, expected| Err(DataError::InvalidConfig { key, value, expected });
        if self.scale.iter().any(|side| !(1..=LONGEST_SIDE).contains(side)) {
            let value = format!("{:?}", self.scale);
            return wrong("pairs.scale", value, "two sides of 1 to 32768 pixels");
        }
        if !(low > 0.0 && low <= high && high <= 16.0) {
            let value = format!("{:?}", self.ratio);
            let expected = "two factors, the lesser first, above 0 and at most 16";
            return wrong("pairs.ratio", value, expected);
        }
        for (key, share) in
            [("pairs.cat_max_ratio", self.cat_max_ratio), ("pairs.hflip", self.hflip)]
        {
            if !(0.0..=1.0).contains(&share) {
                return wrong(key, share.to_string(), "0 to 1");
            }
        }
        Ok(())
    }

    /// Pixels from one window of `crop` to the next, down and across.
    pub fn stride(&self, crop: [usize; 2]) -> [usize; 2] {
        crop.map(|side| self.stride.unwrap_or((2 * side / 3).max(1)))
    }

    /// Draws what is done to one pair of `source`'s size, `[height, width]`, for crops of `crop`: a
    /// pure function of the arguments.
    pub fn draw(&self, key: SampleKey, source: [usize; 2], crop: [usize; 2]) -> DensePlan {
        let ratio = between(&mut key.rng("vim-data dense scale v1"), self.ratio);
        let scale = self.scale.map(|side| ((side as f64 * ratio) as usize).max(1));
        let resized = rescaled(source, scale);
        let mut rng = key.rng("vim-data dense crop v1");
        let mut corner = || {
            let place = |side: usize, crop: usize| {
                let margin = u32::try_from(side.saturating_sub(crop)).unwrap_or(u32::MAX - 1);
                (margin + 1) as usize
            };
            let bounds = [place(resized[0], crop[0]), place(resized[1], crop[1])];
            bounds.map(|bound| below(&mut rng, bound as u32) as usize)
        };
        DensePlan {
            resized,
            corners: (0..=REDRAWS).map(|_| corner()).collect(),
            flip: chance(&mut key.rng("vim-data dense flip v1"), self.hflip),
            photometric: self
                .photometric
                .then(|| Photometric::draw(&mut key.rng("vim-data dense colour v1"))),
        }
    }
}

/// Which of the `corners` a crop of `crop` is taken at, in the labels of `map` resized to
/// `resized`.
///
/// The first that shows more than one class, none of which has `most` of the labelled pixels or
/// more; the last is not looked at.
///
/// # Panics
/// If there is no corner.
pub fn choose_corner(
    map: &LabelMap,
    resized: [usize; 2],
    corners: &[[usize; 2]],
    crop: [usize; 2],
    most: f64,
) -> usize {
    let last = corners.len() - 1;
    if most >= 1.0 {
        return 0;
    }
    let is_varied = |corner: &[usize; 2]| {
        let region = crop_region(resized, *corner, crop);
        let mut counts = [0_u32; 256];
        let columns =
            nearest_places(map.width, resized[1], region.left..region.left + region.width);
        for row in nearest_places(map.height, resized[0], region.top..region.top + region.height) {
            let row = &map.labels[row * map.width..][..map.width];
            columns.clone().for_each(|column| counts[usize::from(row[column])] += 1);
        }
        counts[usize::from(IGNORED)] = 0;
        let classes = counts.iter().filter(|&&count| count > 0).count();
        let (largest, all) =
            (counts.iter().max().copied().unwrap_or(0), counts.iter().sum::<u32>());
        classes > 1 && f64::from(largest) / f64::from(all) < most
    };
    corners[..last].iter().position(is_varied).unwrap_or(last)
}

/// The part of an image of size `resized` that a crop at `corner` shows: less than `crop` where the
/// image ends.
pub(crate) fn crop_region(resized: [usize; 2], corner: [usize; 2], crop: [usize; 2]) -> Region {
    let [top, left] = corner;
    let [height, width] = [0, 1].map(|axis| crop[axis].min(resized[axis] - corner[axis]));
    Region { top, left, height, width }
}
