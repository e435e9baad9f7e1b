//! What is done to an image and its objects: drawn from a key in training, fixed in evaluation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::DataError;
use crate::rng::{between, chance, unit};
use crate::transforms::recipe::SampleKey;

/// The augmentation of images with objects: large-scale jitter.
///
/// # Source
/// Ghiasi et al. 2021, "Simple copy-paste", §3; detectron2's `configs/common/coco_loader_lsj.py`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ObjectRecipe {
    /// The least and the largest size of an image, in that of the model's.
    pub scale: [f64; 2],
    /// Probability that an image is mirrored.
    pub hflip: f64,
}

impl Default for ObjectRecipe {
    fn default() -> Self {
        Self { scale: [0.1, 2.0], hflip: 0.5 }
    }
}

/// What is done to one draw of an image, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectPlan {
    /// Whether it is mirrored left to right.
    pub flip: bool,
    /// Height and width that it is resized to.
    pub resized: [usize; 2],
    /// Row and column of the crop's upper left corner.
    pub corner: [usize; 2],
}

impl ObjectRecipe {
    /// Checks the values.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] names the key.
    pub fn check(&self) -> Result<(), DataError> {
        let [low, high] = self.scale;
        let wrong =
            |key, value: String, expected| Err(DataError::InvalidConfig { key, value, expected });
        if !(low > 0.0 && low <= high && high <= 16.0) {
            let expected = "two factors, the lesser first, above 0 and at most 16";
            return wrong("objects.scale", format!("{:?}", self.scale), expected);
        }
        if !(0.0..=1.0).contains(&self.hflip) {
            return wrong("objects.hflip", self.hflip.to_string(), "0 to 1");
        }
        Ok(())
    }

    /// Draws what is done to one image of `source`'s size for crops of `crop`, both
    /// `[height, width]`: a pure function of the arguments.
    pub fn draw(&self, key: SampleKey, source: [usize; 2], crop: [usize; 2]) -> ObjectPlan {
        let flip = chance(&mut key.rng("vim-data objects flip v1"), self.hflip);
        let scale = between(&mut key.rng("vim-data objects scale v1"), self.scale);
        let offset = unit(&mut key.rng("vim-data objects crop v1"));
        ObjectPlan::new(flip, scale, offset, source, crop)
    }
}

impl ObjectPlan {
    /// The plan of these draws: `scale` is the size in that of `crop`, and `offset`, 0 to 1, places
    /// the crop on both axes.
    ///
    /// # Source
    /// detectron2, `ResizeScale` and `FixedSizeCrop` without padding: both round half to even.
    pub fn new(flip: bool, scale: f64, offset: f64, source: [usize; 2], crop: [usize; 2]) -> Self {
        let factors = [0, 1].map(|axis| crop[axis] as f64 * scale / source[axis] as f64);
        let factor = factors[0].min(factors[1]);
        let resized = source.map(|side| ((side as f64 * factor).round_ties_even() as usize).max(1));
        let place = |axis: usize| {
            let margin = resized[axis].saturating_sub(crop[axis]);
            (margin as f64 * offset).round_ties_even() as usize
        };
        Self { flip, resized, corner: [place(0), place(1)] }
    }
}

/// The size of an image of `source` whose longer side is to be `side`, both in pixels.
///
/// # Source
/// detectron2, `ResizeShortestEdge(side, max_size=side)`: two steps, and half is rounded up.
pub fn fitted(source: [usize; 2], side: usize) -> [usize; 2] {
    let side = side as f64;
    let size = source.map(|length| length as f64);
    let scale = side / size[0].min(size[1]);
    let grown = match size[0] < size[1] {
        true => [side, scale * size[1]],
        false => [scale * size[0], side],
    };
    let longer = grown[0].max(grown[1]);
    let back = if longer > side { side / longer } else { 1.0 };
    grown.map(|length| ((length * back + 0.5) as usize).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_of_the_key_and_cover_the_scales() {
        let recipe = ObjectRecipe::default();
        let of = |index| {
            let key = SampleKey { seed: 3, epoch: 1, index, repeat: 0, attempt: 0 };
            recipe.draw(key, [480, 640], [1024, 1024])
        };
        assert_eq!(of(1), of(1));
        let plans: Vec<ObjectPlan> = (0..400).map(of).collect();
        let wide: Vec<usize> = plans.iter().map(|plan| plan.resized[1]).collect();
        assert!(wide.iter().all(|side| (102..=2048).contains(side)));
        assert!(wide.iter().any(|&side| side < 150) && wide.iter().any(|&side| side > 2000));
        let flipped = plans.iter().filter(|plan| plan.flip).count();
        assert!(flipped.abs_diff(200) < 60, "{flipped}");
        for plan in &plans {
            // Of one draw: the crop lies as far along one axis as along the other.
            for axis in [0, 1] {
                assert!(plan.corner[axis] <= plan.resized[axis].saturating_sub(1024));
            }
            assert!(plan.resized[0].abs_diff(plan.resized[1] * 3 / 4) <= 1);
        }
    }

    #[test]
    fn halves_are_rounded_to_even() {
        // 2.5 and 5 pixels, then 0.5 of a margin of one.
        let plan = ObjectPlan::new(false, 0.5, 0.5, [5, 10], [10, 10]);
        assert_eq!(plan, ObjectPlan { flip: false, resized: [2, 5], corner: [0, 0] });
        let plan = ObjectPlan::new(true, 1.5, 0.5, [10, 10], [10, 10]);
        assert_eq!(plan, ObjectPlan { flip: true, resized: [15, 15], corner: [2, 2] });
        assert_eq!(ObjectPlan::new(false, 0.1, 0.0, [1, 1000], [10, 10]).resized, [1, 1]);
    }

    #[test]
    fn evaluation_fits_the_longer_side() {
        assert_eq!(fitted([480, 640], 1024), [768, 1024]);
        assert_eq!(fitted([640, 480], 1024), [1024, 768]);
        assert_eq!(fitted([64, 64], 128), [128, 128]);
        assert_eq!(fitted([1, 4000], 100), [1, 100]);
    }

    #[test]
    fn values_out_of_range_are_named() {
        let of = |scale, hflip| ObjectRecipe { scale, hflip }.check().map_err(|e| e.to_string());
        assert_eq!(of([0.1, 2.0], 0.5), Ok(()));
        for (scale, hflip, key) in [
            ([0.0, 1.0], 0.5, "objects.scale"),
            ([2.0, 1.0], 0.5, "objects.scale"),
            ([0.5, f64::NAN], 0.5, "objects.scale"),
            ([0.5, 1.0], 1.5, "objects.hflip"),
        ] {
            assert!(of(scale, hflip).unwrap_err().contains(key));
        }
    }
}
