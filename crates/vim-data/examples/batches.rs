//! Loads an epoch of `shapes`, which needs no files, and prints its batches.
//!
//! ```text
//! cargo run --release -p vim-data --example batches
//! ```

use std::process::ExitCode;

use vim_data::{
    AugmentPreset, Class, DataConfig, DataError, Loader, LoaderConfig, LoaderStage, Recipe,
    ShapesConfig, Workers,
};

/// Images per batch.
const BATCH: usize = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), DataError> {
    let shapes = ShapesConfig { train: 512, ..ShapesConfig::default() };
    let config = DataConfig { shapes, val_fraction: 0.1, ..DataConfig::default() };
    let seed = 0;
    let splits = vim_data::open::<Class>(&config)?;
    println!("classes: {}", splits.train.class_names().join(", "));

    // The original's recipe: RandAugment, erasing, mixup and cutmix, every image three times.
    let recipe = Recipe::preset(AugmentPreset::Deit);
    let workers = Workers::Auto.count();
    let size = [32, 32];
    let loader =
        Loader::new(splits.train, LoaderConfig::training(BATCH, size, workers, seed, recipe))?;
    println!("{} batches in an epoch", loader.batches_per_epoch());

    let mut batches = loader.epoch(0, 0);
    for (number, batch) in batches.by_ref().enumerate() {
        let batch = batch?;
        println!(
            "batch {number}: images [{}, {}, {}, 3], {} boxes to erase, first labels {:?}",
            batch.len(),
            batch.height,
            batch.width,
            batch.erased.len(),
            &batch.labels[..6]
        );
    }
    let stats = batches.stats();
    println!("{} images, {:?} of augmentation", stats.images, stats.busy(LoaderStage::Augment));
    Ok(())
}
