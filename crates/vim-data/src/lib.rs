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
//! use vim_data::{Augment, DataConfig, Loader, LoaderConfig};
//!
//! let splits = vim_data::open(&DataConfig::default(), 0)?;
//! let loader = Loader::new(splits.train, LoaderConfig::training(64, 2, 0, Augment::Cifar))?;
//! let batch = loader.epoch(0, 0).next().expect("the split is not empty")?;
//! assert_eq!(batch.images.len(), 64 * 32 * 32 * 3);
//! # Ok::<(), vim_data::DataError>(())
//! ```
//!
//! Legend of shapes: `B` batch, `H` `W` pixels; the last axis, of size 3, is red, green, blue.

mod augment;
mod batch;
mod cifar;
mod config;
mod dataset;
mod decode;
mod error;
mod evaluation;
mod holdout;
mod index;
mod inspect;
mod loader;
pub mod ops;
mod pack;
mod picture;
mod pixels;
mod pool;
mod progress;
mod resize;
mod rng;
mod sampler;
mod shapes;
mod simd;
mod sources;
mod split;
mod splits;
mod staging;
mod statistics;
mod surroundings;
mod tars;
mod workers;

pub use augment::AugmentPlan;
pub use batch::Batch;
pub use cifar::{Cifar, PUBLISHED_ARCHIVES, PublishedArchive, known_archive};
pub use config::{Augment, DataConfig, DatasetKind, Normalize, ShapesConfig, Stage};
pub use dataset::{Dataset, Fingerprint, Stored};
pub use decode::{DecodeError, DecodeLimits, Decoded, Decoder, Header, ImageKind, JpegLibrary};
pub use error::{DataError, Location};
pub use evaluation::{EVAL_CROP, Evaluation};
pub use index::{Facts, Verdict};
pub use inspect::{
    Extremes, Finding, ScanReport, Sides, VerifyOptions, VerifyReport, scan, verify,
};
pub use loader::{EpochIter, Loader, LoaderConfig};
pub use pack::{PackOptions, PackReport, ShardReport, pack};
pub use picture::{PictureError, read_picture};
pub use pixels::{Pixels, Region};
pub use progress::{Progress, Watch};
pub use resize::Resizer;
pub use shapes::{Shapes, ShapesPart};
pub use sources::{Images, SourceError, Sources, open_images};
pub use split::Split;
pub use splits::{Splits, open, open_in};
pub use staging::{Staging, StagingError, StagingStatus};
pub use statistics::Statistics;
pub use surroundings::Surroundings;
pub use workers::Workers;
