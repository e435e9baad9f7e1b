//! Uploads a batch as bytes; normalizes, erases and mixes on the device.

use burn::tensor::{AllocationProperty, Bytes, Device, Int, Tensor, TensorData};
use vim_data::{
    Batch, CropMode, Encoding, EraseBox, EraseFill, MixPlan, Recipe, Region, Split, Statistics,
};
use vim_kernels::{ImageBatch, image_batch};
use vim_model::VimConfig;

use crate::config::ConfigError;
use crate::error::Error;

/// The targets of a batch.
#[derive(Clone, Debug)]
pub struct Targets {
    /// Classes, `[B]`.
    pub labels: Tensor<1, Int>,
    /// Mixing partners and weights, if images are mixed.
    pub mixed: Option<Mixed>,
}

/// The partners that the images of a batch are mixed with.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// Classes of the partners, `[B]`: the partner of image `i` is image `B − 1 − i`.
    pub partners: Tensor<1, Int>,
    /// Weight of each image's own target, `[B]`; the rest of 1 is its partner's.
    pub shares: Tensor<1>,
}

impl Targets {
    /// Targets of the classes `labels`, mixed in reverse order where there are `shares`.
    pub fn new(labels: Tensor<1, Int>, shares: Option<Tensor<1>>) -> Self {
        let partners = || labels.clone().flip([0]);
        Self { mixed: shares.map(|shares| Mixed { partners: partners(), shares }), labels }
    }

    /// The targets of `len` images from `first` on; partners may be outside the range.
    pub fn narrow(&self, first: usize, len: usize) -> Self {
        let mixed = self.mixed.clone().map(|Mixed { partners, shares }| Mixed {
            partners: partners.narrow(0, first, len),
            shares: shares.narrow(0, first, len),
        });
        Self { labels: self.labels.clone().narrow(0, first, len), mixed }
    }
}

/// `[B, 3, H, W]` images, normalized, erased and mixed, and their targets.
pub fn to_tensors(
    batch: &Batch,
    by: Statistics,
    device: &Device,
) -> Result<(Tensor<4>, Targets), Error> {
    let count = batch.len();
    let erased: Vec<vim_kernels::EraseBox> = batch
        .erased
        .iter()
        .map(|&(image, EraseBox { region, fill })| vim_kernels::EraseBox {
            image,
            region: on_device(region),
            fill: match fill {
                EraseFill::Constant => vim_kernels::EraseFill::Colour([0.0; 3]),
                EraseFill::Colour(colour) => vim_kernels::EraseFill::Colour(colour),
                EraseFill::Pixels { seed } => vim_kernels::EraseFill::Pixels { seed },
            },
        })
        .collect();
    let mixing: Vec<vim_kernels::MixPlan> = batch
        .mixed
        .iter()
        .map(|mixed| match *mixed {
            MixPlan::None => vim_kernels::MixPlan::None,
            MixPlan::Mixup { lambda } => vim_kernels::MixPlan::Mixup { lambda: lambda as f32 },
            MixPlan::Cutmix { region, .. } => {
                vim_kernels::MixPlan::Cutmix { region: on_device(region) }
            }
        })
        .collect();
    let images = ImageBatch {
        // No copy: the loader gets the buffer back after the upload.
        pixels: Bytes::from_shared(batch.images.shared(), AllocationProperty::Other),
        size: [count, batch.height, batch.width],
        mean: by.mean,
        std: by.std,
        erased: &erased,
        mixing: &mixing,
    };
    let images = image_batch(images, device).map_err(|error| Error::failed(error.to_string()))?;
    let labels: Vec<i32> = batch.labels.iter().map(|&label| label as i32).collect();
    let labels = Tensor::from_data(TensorData::new(labels, [count]), device);
    let shares: Vec<f32> = batch.mixed.iter().map(|mixed| mixed.lambda() as f32).collect();
    let shares =
        (!shares.is_empty()).then(|| Tensor::from_data(TensorData::new(shares, [count]), device));
    Ok((images, Targets::new(labels, shares)))
}

fn on_device(Region { top, left, height, width }: Region) -> vim_kernels::Region {
    vim_kernels::Region { top, left, height, width }
}

/// Checks that images that are padded and cropped instead of resized have the model's size.
pub fn check_image_size(
    model: &VimConfig,
    recipe: &Recipe,
    split: &Split,
) -> Result<(), ConfigError> {
    let wanted = [model.image_size.height, model.image_size.width];
    match split.encoding() {
        Encoding::Pixels { size }
            if size != wanted && recipe.crop_mode(wanted) == CropMode::Pad =>
        {
            let [height, width] = size;
            let size =
                if height == width { height.to_string() } else { format!("{height}x{width}") };
            let expected = format!(
                "{size}, the size of the dataset's images, which augment.crop = \"pad\" does not \
                 change"
            );
            Err(ConfigError::range("model.image_size", model.image_size, expected))
        }
        Encoding::Pixels { .. } | Encoding::Files => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Statistics = Statistics { mean: [0.5, 0.0, 0.25], std: [0.5, 2.0, 0.25] };

    #[test]
    fn channels_come_first_and_are_normalised() {
        let batch = Batch::plain(vec![0, 51, 255, 10, 20, 30], vec![7], [1, 2]);
        let (images, targets) = to_tensors(&batch, BY, &Device::flex()).unwrap();
        assert_eq!(images.dims(), [1, 3, 1, 2]);
        let got: Vec<f32> = images.into_data().iter().collect();
        let want = [-1.0, 10.0 / 127.5 - 1.0, 0.1, 20.0 / 510.0, 3.0, 30.0 / 63.75 - 1.0];
        for (got, want) in got.into_iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        assert_eq!(targets.labels.into_scalar::<i32>(), 7);
        assert!(targets.mixed.is_none());
    }

    #[test]
    fn plans_reach_the_device() {
        let region = Region { top: 0, left: 1, height: 1, width: 1 };
        let mut batch = Batch::plain(vec![0; 12], vec![1, 2], [1, 2]);
        batch.erased = vec![(0, EraseBox { region, fill: EraseFill::Colour([9.0, 8.0, 7.0]) })];
        batch.mixed =
            vec![MixPlan::Mixup { lambda: 0.25 }, MixPlan::Cutmix { region, lambda: 0.5 }];
        let (images, targets) = to_tensors(&batch, BY, &Device::flex()).unwrap();
        let got: Vec<f32> = images.into_data().iter().collect();
        // Black is −1, 0, −1. The second pixel of the first image is erased and pasted into the
        // second image.
        let want = [
            -1.0,
            0.25 * 9.0 - 0.75,
            0.0,
            2.0,
            -1.0,
            0.25 * 7.0 - 0.75, // mixed
            -1.0,
            9.0,
            0.0,
            8.0,
            -1.0,
            7.0, // pasted
        ];
        for (got, want) in got.into_iter().zip(want) {
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        let numbers = |mixed: Mixed| -> (Vec<i32>, Vec<f32>) {
            let (partners, shares) = (mixed.partners.into_data(), mixed.shares.into_data());
            (partners.iter().collect(), shares.iter().collect())
        };
        // The partner of the range's only image is outside the range.
        let part = targets.narrow(1, 1);
        assert_eq!(numbers(targets.mixed.unwrap()), (vec![2, 1], vec![0.25, 0.5]));
        assert_eq!(part.labels.into_scalar::<i32>(), 2);
        assert_eq!(numbers(part.mixed.unwrap()), (vec![1], vec![0.5]));
    }
}
