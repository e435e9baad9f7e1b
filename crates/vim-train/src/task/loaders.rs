//! Loader settings from a configuration.

use vim_comm::Comm;
use vim_data::{LoaderConfig, Shards};
use vim_model::ImageSize;

use crate::config::Config;

/// Loader settings for training at the model's image size: the shards of this rank.
pub fn training(config: &Config, size: ImageSize, comm: &Comm) -> LoaderConfig {
    let of = config.train.shards();
    let batch = config.train.batch_size / of;
    let workers = config.data.workers.count();
    LoaderConfig {
        readers: config.data.readers.count(),
        prefetch: config.data.prefetch,
        shards: Shards::of_rank(comm.rank(), comm.size(), of),
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
    (train.batch_size / train.shards()).div_ceil(train.accumulate)
}

/// `[height, width]`.
pub(crate) fn sides(size: ImageSize) -> [usize; 2] {
    [size.height, size.width]
}
