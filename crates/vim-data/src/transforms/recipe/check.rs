//! What a recipe may hold.

use super::regions::PADDING;
use super::{AutoAugment, CropMode, Recipe};
use crate::error::DataError;

/// Refuses the value of a key unless it is `allowed`.
fn require(
    allowed: bool,
    key: &'static str,
    value: impl ToString,
    expected: &'static str,
) -> Result<(), DataError> {
    match allowed {
        true => Ok(()),
        false => Err(DataError::InvalidConfig { key, value: value.to_string(), expected }),
    }
}

/// A range as in the configuration file.
fn written([low, high]: [f64; 2]) -> String {
    format!("[{low}, {high}]")
}

/// Whether `0 < low ≤ high ≤ most`.
fn is_range([low, high]: [f64; 2], most: f64) -> bool {
    low > 0.0 && low <= high && high <= most
}

fn is_share(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

impl Recipe {
    /// Checks every value that is drawn from, and that the values go together.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] names the first key whose value is out of range or ruled out by
    /// another.
    pub fn check(&self) -> Result<(), DataError> {
        let (scale, ratio) = (self.scale(), self.ratio());
        let is_used = |range: Option<_>| range.is_none() || self.is_resized();
        let expected = "it left out: it is for `augment.crop = \"resized\"` and `\"auto\"`";
        require(is_used(self.scale), "augment.scale", written(scale), expected)?;
        require(is_used(self.ratio), "augment.ratio", written(ratio), expected)?;
        let is_used = self.cutmix.is_none() || self.cutmix_minmax.is_none();
        let expected = "it left out: `augment.cutmix_minmax` takes its place";
        require(is_used, "augment.cutmix", self.cutmix.unwrap_or_default(), expected)?;

        for (key, probability) in [
            ("augment.hflip", self.hflip),
            ("augment.erase_prob", self.erase_prob),
            ("augment.mix_prob", self.mix_prob),
            ("augment.mix_switch_prob", self.mix_switch_prob),
        ] {
            require(is_share(probability), key, probability, "a probability, 0 to 1")?;
        }

        let expected = "[low, high], 0 < low ≤ high ≤ 1";
        require(is_range(scale, 1.0), "augment.scale", written(scale), expected)?;
        let expected = "[low, high], 0 < low ≤ high";
        require(is_range(ratio, f64::MAX), "augment.ratio", written(ratio), expected)?;
        let kept = self.eval_crop_ratio;
        require(is_range([kept; 2], 1.0), "augment.eval_crop_ratio", kept, "0 < ratio ≤ 1")?;

        let jitter = self.color_jitter;
        require(is_share(jitter), "augment.color_jitter", jitter, "a share, 0 to 1")?;
        let is_used = self.auto_augment == AutoAugment::Off || !self.three_augment;
        let expected = "\"\" beside `augment.three_augment = true`, which takes its place";
        require(is_used, "augment.auto_augment", format!("\"{}\"", self.auto_augment), expected)?;

        for (key, alpha) in [("augment.mixup", self.mixup), ("augment.cutmix", self.cutmix())] {
            let allowed = alpha >= 0.0 && alpha.is_finite();
            require(allowed, key, alpha, "a number, 0 (off) or more")?;
        }
        if let Some(sides @ [low, high]) = self.cutmix_minmax {
            let allowed = low >= 0.0 && low < high && high <= 1.0;
            let expected = "[low, high], 0 ≤ low < high ≤ 1";
            require(allowed, "augment.cutmix_minmax", written(sides), expected)?;
        }

        for (key, count) in
            [("augment.erase_count", self.erase_count), ("augment.repeats", self.repeats)]
        {
            require((1..=1000).contains(&count), key, count, "1 to 1000")?;
        }
        Ok(())
    }

    /// Checks that batches of `batch` images can be mixed: each image has another for its partner.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] if images are mixed and the number is odd.
    pub fn check_batch(&self, batch: usize) -> Result<(), DataError> {
        let expected = "an even number of images on each device beside `augment.mixup` and `augment.cutmix`, which mix them in pairs";
        require(!self.mixes() || batch.is_multiple_of(2), "train.batch_size", batch, expected)
    }

    /// Checks that images of `target`'s height and width can be cropped: what is added at an edge
    /// is less than a side.
    ///
    /// # Errors
    /// [`DataError::InvalidConfig`] if a side is so short that a reflection would have to leave the
    /// image, or that a crop could lie in the padding alone.
    pub fn check_size(&self, target: [usize; 2]) -> Result<(), DataError> {
        let pads = matches!(self.crop, CropMode::Simple | CropMode::Pad);
        let allowed = !pads || target.iter().all(|&side| side > PADDING);
        let [height, width] = target;
        let value = format!("{:?} at {height}x{width}", self.crop.to_string());
        let expected =
            "\"none\" or \"resized\" for images so small: the others add 4 pixels at each edge";
        require(allowed, "augment.crop", value, expected)
    }
}
