//! Loader settings from a configuration.

use vim_data::{LoaderConfig, Replica};
use vim_model::ImageSize;

use crate::config::Config;

/// Loader settings for training at the model's image size, for one device of several.
pub fn training(config: &Config, size: ImageSize, replica: Replica) -> LoaderConfig {
    let batch = config.train.batch_size / replica.world;
    let workers = config.data.workers.count();
    LoaderConfig {
        readers: config.data.readers.count(),
        prefetch: config.data.prefetch,
        replica,
        on_bad: config.data.bad_train.into(),
        ..LoaderConfig::training(
            batch,
            sides(size),
            workers,
            config.run.seed,
            config.augment.clone(),
        )
    }
}

/// Loader settings for evaluation; batches have the size of training's micro-batches.
pub fn evaluation(config: &Config, size: ImageSize) -> LoaderConfig {
    let batch = config.train.batch_size.div_ceil(config.train.accumulate);
    let workers = config.data.workers.count();
    LoaderConfig {
        readers: config.data.readers.count(),
        prefetch: config.data.prefetch,
        on_bad: config.data.bad_test.into(),
        ..LoaderConfig::evaluation(batch, sides(size), workers, config.augment.eval_crop_ratio)
    }
}

/// `[height, width]`.
pub(crate) fn sides(size: ImageSize) -> [usize; 2] {
    [size.height, size.width]
}
