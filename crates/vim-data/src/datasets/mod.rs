//! The registry of datasets, and the way from a configuration to splits.
//!
//! To add a dataset, write a module with a `static SOURCE` ([`Source`]) and a type that implements
//! [`Dataset`], such as `shapes`; add a variant of [`DatasetKind`] and its row in
//! [`DatasetKind::source`].

mod cifar;
mod coco;
pub(crate) mod config;
mod detection;
mod image_files;
mod pairs;
mod segmentation;
mod shapes;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::dataset::{Dataset, Encoding, Fingerprint};
use crate::storage::{EnvPaths, staging::Staging};
use crate::{error::DataError, rng, split::Split, statistics::Statistics};
use config::DataConfig;

pub use cifar::{Cifar, PUBLISHED_ARCHIVES, PublishedArchive, known_archive};
pub use coco::{Coco, CocoSources, open_coco};
pub use detection::{dry_run_detection, open_detection};
pub use image_files::{Sources, open_images};
pub use pairs::{PairSources, Pairs, open_pairs};
pub use segmentation::{dry_run_segmentation, open_segmentation};
pub use shapes::{Shapes, ShapesBackground, ShapesConfig, ShapesPart};

/// A dataset that can be trained on.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    JsonSchema,
    VariantArray,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DatasetKind {
    /// Procedural images, shape × texture: needs no files.
    #[default]
    Shapes,
    /// CIFAR-10 from the archive as published (binary or python version, packed or unpacked).
    Cifar10,
    /// CIFAR-100 from the archive as published (binary or python version, packed or unpacked).
    Cifar100,
    /// ImageNet-1k: folders of classes, the archives as published, or packs.
    Imagenet,
    /// Images of any kind in folders of classes, archives of such, WebDataset shards or packs.
    Folder,
    /// ADE20K's scenes with label maps of 150 classes, as published: the zip, a tar or the folder.
    Ade20k,
    /// Images of any kind with label maps, in the folders of ADE20K.
    Pairs,
    /// COCO's images with objects of 80 classes, as published in 2017: the zips or the folders.
    Coco,
}

impl DatasetKind {
    fn source(self) -> &'static Source {
        match self {
            Self::Shapes => &shapes::SOURCE,
            Self::Cifar10 => &cifar::CIFAR10.source,
            Self::Cifar100 => &cifar::CIFAR100.source,
            Self::Imagenet | Self::Folder => &image_files::SOURCE,
            Self::Ade20k | Self::Pairs => &segmentation::SOURCE,
            Self::Coco => &detection::SOURCE,
        }
    }

    /// The name as in the configuration file.
    fn name(self) -> &'static str {
        self.into()
    }

    /// Names of the classes, by label; none if the files tell them.
    pub fn class_names(self) -> &'static [&'static str] {
        self.source().class_names
    }

    /// Whether it is read from files, so that `data.path` must be set.
    pub fn has_files(self) -> bool {
        !matches!(self.source().files, Files::None)
    }

    /// Whether it is ADE20K, whose classes are known.
    pub(crate) fn is_ade20k(self) -> bool {
        self == Self::Ade20k
    }

    /// Whether its images have label maps and nothing else, so that only segmentation can be
    /// trained on them; [`open_pairs`](crate::open_pairs) opens them.
    pub fn has_pairs(self) -> bool {
        matches!(self.source().files, Files::Pairs)
    }

    /// Whether its images have objects and nothing else, so that only detection can be trained on
    /// them; [`open_coco`](crate::open_coco) opens them.
    pub fn has_objects(self) -> bool {
        matches!(self.source().files, Files::Objects)
    }

    /// Whether it is a folder or archives of image files, which [`open_images`] opens.
    pub fn has_image_files(self) -> bool {
        matches!(self.source().files, Files::Images)
    }
}

/// A dataset as it is registered.
#[derive(Debug)]
struct Source {
    /// Name of each class, by label; none if the files tell them.
    class_names: &'static [&'static str],
    /// Statistics of the pixels.
    statistics: Statistics,
    /// The files that it is read from.
    files: Files,
    /// Opens it.
    open: fn(&DataConfig, &EnvPaths) -> Result<Splits, DataError>,
}

/// What is known of a dataset's files before they are opened.
#[derive(Debug)]
enum Files {
    /// There are none: images are made on demand.
    None,
    /// `data.path` names one archive, or the folder unpacked from it.
    Archive {
        /// `[H, W]` of every image.
        size: [usize; 2],
        /// Images of the training and of the test part, as published.
        images: [usize; 2],
    },
    /// `data.path` names image files, which are listed.
    Images,
    /// `data.path` names image files and label maps.
    Pairs,
    /// `data.path` names image files and annotations.
    Objects,
}

impl DataConfig {
    /// What pixels are normalised by, without opening the dataset.
    pub fn statistics(&self) -> Statistics {
        self.normalize.statistics(self.dataset.source().statistics)
    }
}

/// The parts of a dataset, disjoint from each other.
#[derive(Clone, Debug)]
pub struct Splits {
    /// Trained on.
    pub train: Split,
    /// Chooses the best checkpoint; absent unless held out or drawn. Never the test set.
    pub val: Option<Split>,
    /// Measured at the end.
    pub test: Split,
    /// Oddities that are no errors, a line each, such as counts that are not ImageNet's.
    pub notes: Vec<String>,
    /// The copying of archives to the node's disk, if there is any.
    pub staging: Option<Arc<Staging>>,
}

impl Splits {
    /// Two parts without notes.
    fn new(train: impl Dataset + 'static, test: impl Dataset + 'static) -> Self {
        let [train, test] = [Arc::new(train) as Arc<dyn Dataset>, Arc::new(test)].map(Split::whole);
        Self { train, val: None, test, notes: vec![], staging: None }
    }
}

/// Opens the dataset that a configuration names. CIFAR is read into memory whole.
///
/// With `val_fraction > 0` a stratified share of the training set, drawn from `seed`, becomes the
/// validation split. Otherwise only `shapes` has one: ImageNet's published validation images are
/// the test set here, and a checkpoint chosen by them would be measured too well.
///
/// # Errors
/// If a value is out of range, or the dataset's files are missing, damaged or of another dataset.
pub fn open(config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    open_in(config, seed, &EnvPaths::from_env())
}

/// [`open`] with explicit folders instead of those of the environment.
///
/// # Errors
/// As for [`open`].
pub fn open_in(config: &DataConfig, seed: u64, env_paths: &EnvPaths) -> Result<Splits, DataError> {
    check_fraction(config)?;
    check_path(config)?;
    let splits = (config.dataset.source().open)(config, env_paths)?;
    hold_out(splits, config, seed)
}

/// What [`open`] would open, without reading files. The images can be counted; those that come from
/// files cannot be read.
///
/// CIFAR is assumed to have as many images as published. `None` if only the files tell the number.
///
/// # Errors
/// If a value is out of range, or there is no path where one is needed.
pub fn dry_run(config: &DataConfig, seed: u64) -> Result<Option<Splits>, DataError> {
    check_fraction(config)?;
    let source = config.dataset.source();
    let splits = match source.files {
        Files::None => (source.open)(config, &EnvPaths::default())?,
        Files::Archive { size, images } => {
            config.required_path()?;
            let (kind, class_names) = (config.dataset, owned(source.class_names));
            let part = |images| Outline { kind, class_names: class_names.clone(), size, images };
            let [train, test] = images.map(part);
            Splits::new(train, test)
        }
        Files::Images => return config.required_path().map(|_| None),
        Files::Pairs => return Err(segmentation::not_classified(config)),
        Files::Objects => return Err(detection::not_classified(config)),
    };
    hold_out(splits, config, seed).map(Some)
}

/// The names of classes as a dataset has them.
fn owned(class_names: &[&str]) -> Vec<String> {
    class_names.iter().map(|&name| name.to_owned()).collect()
}

/// Takes the validation split out of the training part, if one is to be held out.
fn hold_out(splits: Splits, config: &DataConfig, seed: u64) -> Result<Splits, DataError> {
    if config.val_fraction == 0.0 {
        return Ok(splits);
    }
    let train = &splits.train;
    let (kept, held) = stratified(train.dataset(), config.val_fraction, seed);
    if kept.is_empty() || held.is_empty() {
        return Err(invalid_fraction(config, "a share that leaves both parts an image"));
    }
    Ok(Splits { val: Some(train.only(held)), train: train.only(kept), ..splits })
}

/// Checks that there is something at `data.path`, if the dataset has files.
fn check_path(config: &DataConfig) -> Result<(), DataError> {
    let path = config.path.as_ref().filter(|_| config.dataset.has_files());
    if let Some(path) = path.filter(|path| !path.try_exists().unwrap_or(true)) {
        return Err(DataError::NoImages(path.clone()));
    }
    Ok(())
}

fn check_fraction(config: &DataConfig) -> Result<(), DataError> {
    if (0.0..1.0).contains(&config.val_fraction) {
        return Ok(());
    }
    Err(invalid_fraction(config, "a share, 0 ≤ share < 1"))
}

fn invalid_fraction(config: &DataConfig, expected: &'static str) -> DataError {
    let value = config.val_fraction.to_string();
    DataError::InvalidConfig { key: "data.val_fraction", value, expected }
}

/// Splits a dataset's indices into those to train on and those held out, both ascending.
///
/// About `round(fraction · len)` images are held out, from every class its share to within one
/// image. `seed` alone decides which ones.
fn stratified(dataset: &dyn Dataset, fraction: f64, seed: u64) -> (Vec<usize>, Vec<usize>) {
    let mut by_class = vec![Vec::new(); dataset.num_classes()];
    for index in 0..dataset.len() {
        by_class[dataset.label(index) as usize].push(index);
    }

    let (mut train, mut held) = (Vec::new(), Vec::new());
    let mut seen = 0;
    for (class, mut members) in by_class.into_iter().enumerate() {
        rng::shuffle(&mut rng::keyed("vim-data holdout v1", &[seed, class as u64]), &mut members);
        // Rounding the running total, not each class, keeps the sum right when classes are small.
        seen += members.len();
        let wanted = (fraction * seen as f64).round() as usize - held.len();
        let taken = members.len().min(wanted);
        held.extend_from_slice(&members[..taken]);
        train.extend_from_slice(&members[taken..]);
    }
    train.sort_unstable();
    held.sort_unstable();
    (train, held)
}

/// A part of a dataset without its files: as many images as are published, equally many of every
/// class, none of which can be read.
struct Outline {
    kind: DatasetKind,
    class_names: Vec<String>,
    /// `[H, W]`.
    size: [usize; 2],
    images: usize,
}

impl Dataset for Outline {
    fn len(&self) -> usize {
        self.images
    }

    fn encoding(&self) -> Encoding {
        Encoding::Pixels { size: self.size }
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn label(&self, index: usize) -> u32 {
        (index % self.class_names.len()) as u32
    }

    fn name(&self, index: usize) -> String {
        format!("{} image {index}", self.kind.name())
    }

    fn read(&self, _index: usize, _into: &mut Vec<u8>) -> Result<(), DataError> {
        Err(DataError::MissingPath { dataset: self.kind.name() })
    }

    fn statistics(&self) -> Statistics {
        self.kind.source().statistics
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(|hasher| {
            hasher.update(self.kind.name().as_bytes()).update(b" without its files");
        })
    }
}
