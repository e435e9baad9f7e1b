//! What a recipe may hold.

use crate::error::DataError;

use super::auto_augment::AutoAugment;
use super::crop::PADDING;
use super::section::{CropMode, Recipe};

fn refuse(
    key: &'static str,
    value: impl ToString,
    expected: &'static str,
) -> Result<(), DataError> {
    Err(DataError::InvalidConfig { key, value: value.to_string(), expected })
}

/// A range as in the configuration file.
fn written([low, high]: [f64; 2]) -> String {
    format!("[{low}, {high}]")
}

impl Recipe {
    /// Checks every value that is drawn from, and that the values go together.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] names the first key whose value is out of range or ruled out by
    /// another.
    pub fn check(&self) -> Result<(), DataError> {
        self.check_unused()?;
        for (key, probability) in [
            ("augment.hflip", self.hflip),
            ("augment.erase_prob", self.erase_prob),
            ("augment.mix_prob", self.mix_prob),
            ("augment.mix_switch_prob", self.mix_switch_prob),
        ] {
            if !(0.0..=1.0).contains(&probability) {
                return refuse(key, probability, "a probability, 0 to 1");
            }
        }
        self.check_geometry()?;
        self.check_colours()?;
        self.check_mixing()?;
        for (key, count) in
            [("augment.erase_count", self.erase_count), ("augment.repeats", self.repeats)]
        {
            if !(1..=1000).contains(&count) {
                return refuse(key, count, "1 to 1000");
            }
        }
        Ok(())
    }

    /// Refuses keys that have no effect beside the others.
    fn check_unused(&self) -> Result<(), DataError> {
        if !self.is_resized() {
            let expected = "it left out: it is for `augment.crop = \"resized\"` and `\"auto\"`";
            if let Some(scale) = self.scale {
                return refuse("augment.scale", written(scale), expected);
            }
            if let Some(ratio) = self.ratio {
                return refuse("augment.ratio", written(ratio), expected);
            }
        }
        match (self.cutmix, self.cutmix_minmax) {
            (Some(alpha), Some(_)) => {
                let expected = "it left out: `augment.cutmix_minmax` takes its place";
                refuse("augment.cutmix", alpha, expected)
            }
            _ => Ok(()),
        }
    }

    fn check_geometry(&self) -> Result<(), DataError> {
        let [low, high] = self.scale();
        if !(low > 0.0 && low <= high && high <= 1.0) {
            return refuse(
                "augment.scale",
                written(self.scale()),
                "[low, high], 0 < low ≤ high ≤ 1",
            );
        }
        let [low, high] = self.ratio();
        if !(low > 0.0 && low <= high && high.is_finite()) {
            return refuse("augment.ratio", written(self.ratio()), "[low, high], 0 < low ≤ high");
        }
        if !(self.eval_crop_ratio > 0.0 && self.eval_crop_ratio <= 1.0) {
            return refuse("augment.eval_crop_ratio", self.eval_crop_ratio, "0 < ratio ≤ 1");
        }
        Ok(())
    }

    fn check_colours(&self) -> Result<(), DataError> {
        if !(0.0..=1.0).contains(&self.color_jitter) {
            return refuse("augment.color_jitter", self.color_jitter, "a share, 0 to 1");
        }
        match &self.auto_augment {
            AutoAugment::Rand(rand) if self.three_augment => refuse(
                "augment.auto_augment",
                format!("\"{rand}\""),
                "\"\" beside `augment.three_augment = true`, which takes its place",
            ),
            AutoAugment::Rand(_) | AutoAugment::Off => Ok(()),
        }
    }

    fn check_mixing(&self) -> Result<(), DataError> {
        for (key, alpha) in [("augment.mixup", self.mixup), ("augment.cutmix", self.cutmix())] {
            if !(alpha >= 0.0 && alpha.is_finite()) {
                return refuse(key, alpha, "a number, 0 (off) or more");
            }
        }
        match self.cutmix_minmax {
            Some([low, high]) if !(low >= 0.0 && low < high && high <= 1.0) => {
                let value = written([low, high]);
                refuse("augment.cutmix_minmax", value, "[low, high], 0 ≤ low < high ≤ 1")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Checks that batches of `batch` images can be mixed: each image has another for its partner.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] if images are mixed and the number is odd.
    pub fn check_batch(&self, batch: usize) -> Result<(), DataError> {
        if self.mixes() && batch % 2 == 1 {
            let expected = "an even number of images on each device beside `augment.mixup` and `augment.cutmix`, which mix them in pairs";
            return refuse("train.batch_size", batch, expected);
        }
        Ok(())
    }

    /// Checks that images of `target`'s height and width can be cropped: what is added at an edge
    /// is less than a side.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] if a side is so short that a reflection would have to leave the
    /// image, or that a crop could lie in the padding alone.
    pub fn check_size(&self, target: [usize; 2]) -> Result<(), DataError> {
        match self.crop_mode(target) {
            CropMode::Simple | CropMode::Pad if target.iter().any(|&side| side <= PADDING) => {
                let [height, width] = target;
                let expected = "\"none\" or \"resized\" for images so small: the others add 4 pixels at each edge";
                refuse(
                    "augment.crop",
                    format!("{:?} at {height}x{width}", self.crop.to_string()),
                    expected,
                )
            }
            CropMode::None
            | CropMode::Pad
            | CropMode::Resized
            | CropMode::Simple
            | CropMode::Auto => Ok(()),
        }
    }
}
