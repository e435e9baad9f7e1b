//! The mean and standard deviation that pixels are normalised by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

/// Mean and standard deviation per channel (red, green, blue) of pixels scaled to 0..=1.
///
/// The device computes `(pixel / 255 - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Mean per channel.
    pub mean: [f32; 3],
    /// Standard deviation per channel.
    pub std: [f32; 3],
}

impl Statistics {
    /// ImageNet's, as used by the original Vision Mamba on every dataset.
    ///
    /// # Source
    /// `IMAGENET_DEFAULT_MEAN` and `IMAGENET_DEFAULT_STD` of timm.
    pub const IMAGENET: Self = Self { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

    /// CIFAR-10's training set.
    ///
    /// # Source
    /// The values in common use, taken over the 50 000 training images.
    pub const CIFAR10: Self =
        Self { mean: [0.4914, 0.4822, 0.4465], std: [0.2470, 0.2435, 0.2616] };

    /// CIFAR-100's training set.
    ///
    /// # Source
    /// The values in common use, taken over the 50 000 training images.
    pub const CIFAR100: Self =
        Self { mean: [0.5071, 0.4867, 0.4408], std: [0.2675, 0.2565, 0.2761] };

    /// The default `shapes` training split's, equal in the three channels by construction.
    ///
    /// # Source
    /// The mean by symmetry, the deviation measured over the 10 000 images; a test measures both
    /// again.
    pub const SHAPES: Self = Self { mean: [0.5; 3], std: [0.334; 3] };

    /// The colour of pixels that an operation moves in from outside the image: the mean, so that
    /// normalising makes them almost 0.
    #[must_use]
    pub fn fill(&self) -> [u8; 3] {
        self.mean.map(|mean| (255.0 * f64::from(mean)).round_ties_even() as u8)
    }
}

/// The mean and standard deviation that pixels are normalised by.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum Normalize {
    /// ImageNet's, as the original does on every dataset.
    #[default]
    Imagenet,
    /// The dataset's own.
    Dataset,
}

impl Normalize {
    /// The statistics to normalise by, given the dataset's own.
    pub fn statistics(self, own: Statistics) -> Statistics {
        match self {
            Self::Imagenet => Statistics::IMAGENET,
            Self::Dataset => own,
        }
    }
}
