//! Loads images from disk, or draws them, into batches of bytes: deterministically, in order, in
//! bounded memory.
//!
//! [`open`] turns a [`DataConfig`] and a kind of [`Annotation`] into [`Splits`]; a [`Loader`] turns
//! a [`Split`] into [`Batch`]es. Every random choice is a pure function of a key (the seed, the
//! epoch, the index of the image), so neither the number of threads nor a restart in the middle of
//! an epoch changes a single byte.
//!
//! Pixels stay `u8`, height × width × RGB, until they are on the device, which normalises them by
//! [`Statistics`].
//!
//! ```
//! use vim_data::{AugmentPreset, Class, DataConfig, Loader, LoaderConfig, Recipe};
//!
//! let splits = vim_data::open::<Class>(&DataConfig::default())?;
//! let recipe = Recipe::preset(AugmentPreset::Cifar);
//! let loader = Loader::new(splits.train, LoaderConfig::training(64, [32, 32], 2, 0, recipe))?;
//! let batch = loader.epoch(0, 0).next().expect("the split is not empty")?;
//! assert_eq!(batch.images.len(), 64 * 32 * 32 * 3);
//! # Ok::<(), vim_data::DataError>(())
//! ```
//!
//! Shapes: `B` is the batch, `H` and `W` are in pixels; the last axis, of size 3, is red, green,
//! blue.

mod classes;
mod coco;
mod dataset;
mod datasets;
mod decode;
mod dense;
mod error;
mod golden;
mod input;
mod inspect;
mod loader;
mod objects;
mod picture;
mod pixels;
mod relabelled;
mod rng;
mod simd;
mod split;
mod statistics;
mod storage;
mod transforms;

pub use classes::{ClassMatch, match_classes};
pub use coco::{
    COCO_NUMBERS, CocoAnnotations, CocoClassScore, CocoDetections, CocoEvaluation, CocoKind,
    CocoScores, CocoUnusable, Detection, FEDERATED,
};
pub use dataset::{
    Class, Dataset, Encoding, Fingerprint, OnProgress, Progress, Sample, Suspects, Turned,
};
pub use datasets::config::{DataConfig, HoldOut};
pub use datasets::{
    Annotation, Cifar, Coco, DatasetKind, PUBLISHED_ARCHIVES, Pairs, PublishedArchive, Shapes,
    ShapesBackground, ShapesConfig, ShapesPart, Sources, Splits, dry_run, known_archive, open,
    open_coco, open_images, open_in, open_pairs, parts_of,
};
pub use decode::{
    DecodeError, DecodeLimits, Decoded, Decoder, Exif, Header, ImageKind, JpegLibrary,
};
pub use dense::{
    ClassList, ClassScore, Confusion, DensePlan, DenseRecipe, IGNORED, Inference, LONGEST_SIDE,
    LabelMap, LabelMaps, LabelRule, LabelTally, PairError, Photometric,
};
pub use error::{ClassError, ClassSide, DataError, Location, SourceError, StagingError};
pub use golden::{GoldenCount, GoldenEntry, GoldenOutcome, GoldenReport, check_golden};
pub use input::{InputKind, read_input, read_text, without_mark};
pub use inspect::{
    BadRule, ClassCount, ClassPixels, Finding, KnownImages, LabelCounts, ScanReport, Sides,
    VerifyOptions, VerifyReport, scan, scan_objects, scan_pairs, verify, verify_objects,
    verify_pairs,
};
pub use loader::{
    BadSample, BadTest, BadTrain, Batch, BatchBuffer, Batches, CpuAllocation, Described, Draw,
    EvalItems, EvalPair, EvalPairs, EvalScene, EvalScenes, Floors, LOCAL_RANKS, Loader,
    LoaderConfig, LoaderStage, LoaderStats, MOST_THREADS, OnBad, Order, OrderKey, Purpose, Shards,
    THREAD_PREFIX, UnreadPair, Workers,
};
pub use objects::{
    ImageObjects, LeftOut, Mask, Object, ObjectClasses, ObjectError, ObjectPlan, ObjectRecipe,
    Targets,
};
pub use picture::{PictureError, contact_sheet, encode_png, read_picture, read_whole_picture};
pub use pixels::{Pixels, Region};
pub use split::Split;
pub use statistics::{Normalize, Statistics};
pub use storage::EnvPaths;
pub use storage::images::Images;
pub use storage::index::{Facts, Verdict};
pub use storage::layout::DataParts;
pub use storage::pack::{PackOptions, PackReport, ShardReport, pack, remove_abandoned};
pub use storage::staging::{Stage, Staging, StagingStatus};
pub use transforms::filter::Filter;
pub use transforms::recipe::{
    AugmentPreset, AutoAugment, CropMode, EraseMode, MixKey, MixMode, MixPlan, OrderKind,
    RandAugment, Recipe, SampleKey, cutmix_box, label_smoothing_loss, mixed_targets,
    soft_target_loss,
};
pub use transforms::resize::{EVAL_CROP, EvalTransform, Resizer, covered};
pub use transforms::{CropPlan, EraseBox, EraseFill, Op, SamplePlan, Transform};

/// The operations on an image's pixels.
pub mod ops {
    pub use crate::transforms::{Op, Scratch, affine, flip, pad_crop, reflect_crop};
}

/// The operations on images with label maps.
pub mod dense_ops {
    pub use crate::dense::{
        apply_dense, bilinear, choose_corner, coloured, encode_grey, encode_palette,
        hsv_row_to_rgb, nearest, overlay, padding, rescaled, rgb_to_hsv, windows,
    };
}

/// Masks: run lengths and polygons, as COCO has them.
pub mod mask_ops {
    pub use hotcoco::mask::{
        area, bbox_iou, decode, encode, fr_polys, iou, merge, rle_from_string, rle_to_string,
        to_bbox,
    };
    pub use hotcoco::{Rle, Segmentation};
}

/// The operations on images with objects.
pub mod object_ops {
    pub use crate::objects::{Shown, apply_objects, draw_objects, fitted, place_box};
}
