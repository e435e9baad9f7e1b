//! A batch on the device: uploaded as bytes, normalized, erased and mixed there.

use burn::tensor::{AllocationProperty, Bytes, Device, Tensor};
use vim_data::{Batch, EraseBox, EraseFill, MixPlan, Region, Statistics};
use vim_kernels::{ImageBatch, image_batch};

use crate::error::Error;

/// The images of a batch, `[B, 3, H, W]`, normalized, erased and mixed.
pub fn images(batch: &Batch, by: Statistics, device: &Device) -> Result<Tensor<4>, Error> {
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
    image_batch(images, device).map_err(|error| Error::failed(error.to_string()))
}

fn on_device(Region { top, left, height, width }: Region) -> vim_kernels::Region {
    vim_kernels::Region { top, left, height, width }
}
