//! The batches of all tasks: a loader's settings from a configuration, and the images on the
//! device, uploaded as bytes, normalized, erased and mixed there.

use burn::tensor::{AllocationProperty, Bytes, Device, Tensor};
use vim_comm::Comm;
use vim_data::{Batch, EraseBox, EraseFill, LoaderConfig, MixPlan, Region, Shards, Statistics};
use vim_kernels::{ImageBatch, image_batch};
use vim_model::ImageSize;

use crate::config::Config;
use crate::error::Error;

/// Loader settings for training at the model's image size: the shards of this rank.
pub fn training(config: &Config, size: ImageSize, comm: &Comm) -> LoaderConfig {
    let of = config.train.shards();
    let batch = config.train.images() / of;
    let workers = config.data.workers.count();
    LoaderConfig {
        readers: config.data.readers.count(),
        prefetch: config.data.prefetch,
        shards: Shards::of_rank(comm.rank(), comm.size(), of),
        on_bad: config.data.bad_train.into(),
        fill: config.data.fill(&config.augment),
        ..LoaderConfig::training(
            batch,
            sides(size),
            workers,
            config.run.seed,
            config.augment.clone(),
        )
    }
}

/// Loader settings for evaluation; batches have the size of training's micro-batches, and each rank
/// takes one of as many batches as there are ranks.
pub fn evaluation(config: &Config, size: ImageSize, comm: &Comm) -> LoaderConfig {
    let batch = evaluation_batch(config);
    let workers = config.data.workers.count();
    LoaderConfig {
        readers: config.data.readers.count(),
        prefetch: config.data.prefetch,
        on_bad: config.data.bad_test.into(),
        shards: Shards::of_rank(comm.rank(), comm.size(), comm.size()),
        ..LoaderConfig::evaluation(batch, sides(size), workers, config.augment.eval_crop_ratio)
    }
}

/// Images of a batch of an evaluation: those of a micro-batch.
pub(super) fn evaluation_batch(config: &Config) -> usize {
    let train = &config.train;
    (train.images() / train.shards()).div_ceil(train.accumulate)
}

/// `[height, width]`.
pub(crate) fn sides(size: ImageSize) -> [usize; 2] {
    [size.height, size.width]
}

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
