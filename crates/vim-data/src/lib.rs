//! Images on disk, or drawn on demand, to batches of bytes: deterministic, in order, in bounded memory.
//!
//! [`open`] turns a [`DataConfig`] into [`Splits`]; a [`Loader`] turns a [`Split`] into [`Batch`]es.
//! Every random choice is a pure function of a key (the seed, the epoch, the index of the image), so
//! neither the number of threads nor a restart in the middle of an epoch changes a single byte.
//!
//! Pixels stay `u8`, height × width × RGB, until they are on the device: [`Statistics`] says what they
//! are normalised by there.
//!
//! ```
//! use vim_data::{AugmentPreset, DataConfig, Loader, LoaderConfig, Recipe};
//!
//! let splits = vim_data::open(&DataConfig::default(), 0)?;
//! let recipe = Recipe::preset(AugmentPreset::Cifar);
//! let loader = Loader::new(splits.train, LoaderConfig::training(64, [32, 32], 2, 0, recipe))?;
//! let batch = loader.epoch(0, 0).next().expect("the split is not empty")?;
//! assert_eq!(batch.images.len(), 64 * 32 * 32 * 3);
//! # Ok::<(), vim_data::DataError>(())
//! ```
//!
//! Legend of shapes: `B` batch, `H` `W` pixels; the last axis, of size 3, is red, green, blue.

mod allocation;
mod apply;
mod batch;
mod cifar;
mod config;
mod dataset;
mod decode;
mod error;
mod evaluation;
mod golden;
mod holdout;
mod index;
mod inspect;
mod loader;
pub mod ops;
mod order;
mod pack;
mod picture;
mod pixels;
mod progress;
mod recipe;
mod resize;
mod rng;
mod shapes;
mod sheet;
mod simd;
mod slab;
mod sources;
mod split;
mod splits;
mod staging;
mod statistics;
mod surroundings;
mod tars;
mod workers;

pub use allocation::Allocation;
pub use apply::Applier;
pub use batch::Batch;
pub use cifar::{Cifar, PUBLISHED_ARCHIVES, PublishedArchive, known_archive};
pub use config::{BadTest, BadTrain, DataConfig, DatasetKind, Normalize, ShapesConfig, Stage};
pub use dataset::{Dataset, Fingerprint, Stored};
pub use decode::{DecodeError, DecodeLimits, Decoded, Decoder, Header, ImageKind, JpegLibrary};
pub use error::{DataError, Location};
pub use evaluation::{EVAL_CROP, Evaluation};
pub use golden::{GoldenCount, GoldenEntry, GoldenOutcome, GoldenReport, check_golden};
pub use index::{Facts, Verdict};
pub use inspect::{
    Extremes, Finding, ScanReport, Sides, VerifyOptions, VerifyReport, scan, verify,
};
pub use loader::{
    BadSample, Batches, Described, Loader, LoaderConfig, LoaderStage, LoaderStats, OnBad, Purpose,
    Share, THREADS,
};
pub use ops::Op;
pub use order::{Draw, Order, OrderKey};
pub use pack::{PackOptions, PackReport, ShardReport, pack};
pub use picture::{PictureError, read_picture};
pub use pixels::{Pixels, Region};
pub use progress::{Progress, Watch};
pub use recipe::{
    AugmentConfig, AugmentPreset, AutoAugment, CropMode, CropPlan, EraseBox, EraseFill, EraseMode,
    Erasing, MixKey, MixMode, MixPlan, Mixing, OrderKind, RandAugment, Recipe, SampleKey,
    SamplePlan, cutmix_box, label_smoothing_loss, mixed_targets, soft_target_loss,
};
pub use resize::Resizer;
pub use shapes::{Shapes, ShapesPart};
pub use sheet::{contact_sheet, write_png};
pub use slab::Slab;
pub use sources::{Images, SourceError, Sources, open_images};
pub use split::Split;
pub use splits::{Splits, foresee, open, open_in};
pub use staging::{Staging, StagingError, StagingStatus};
pub use statistics::Statistics;
pub use surroundings::Surroundings;
pub use workers::Workers;
