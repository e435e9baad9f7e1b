//! The registry of datasets, and the way from a configuration to splits.
//!
//! To add a dataset, write a module with a `static SOURCE` ([`Source`]) and a type that implements
//! [`Dataset`], such as `shapes`; add a variant of [`DatasetKind`] and its row in
//! [`DatasetKind::source`]. The source has a function for each [`Annotation`] that the images have.

mod cifar;
mod coco;
pub(crate) mod config;
mod hold_out;
mod image_files;
mod pairs;
mod shapes;

use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::classes::ClassMatch;
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, Sample};
use crate::dense::LabelMap;
use crate::error::{ClassError, DataError};
use crate::objects::ImageObjects;
use crate::split::Split;
use crate::statistics::{Normalize, Statistics};
use crate::storage::apart::check_apart;
use crate::storage::images::Images;
use crate::storage::{EnvPaths, staging::Staging};
use crate::transforms::recipe::{AutoAugment, Recipe};
use config::DataConfig;
use hold_out::hold_out;

pub use cifar::{Cifar, PUBLISHED_ARCHIVES, PublishedArchive, known_archive};
pub use coco::{Coco, open_coco};
pub use image_files::{open_images, parts_of};
pub use pairs::{Pairs, open_pairs};
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
    /// Images of any kind with label maps, in folders as ADE20K, VOC or CVAT have them, or others.
    Pairs,
    /// Images with objects in COCO's format: as published in 2017, the zips or the folders, or as
    /// Roboflow, CVAT and Label Studio export them; LVIS.
    Coco,
    /// Images with objects in YOLO's files of labels.
    Yolo,
}

impl DatasetKind {
    fn source(self) -> &'static Source {
        match self {
            Self::Shapes => &shapes::SOURCE,
            Self::Cifar10 => &cifar::CIFAR10.source,
            Self::Cifar100 => &cifar::CIFAR100.source,
            Self::Imagenet | Self::Folder => &image_files::SOURCE,
            Self::Ade20k | Self::Pairs => &pairs::SOURCE,
            Self::Coco | Self::Yolo => &coco::SOURCE,
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

    /// Whether its images have label maps and nothing else, so that only segmentation can be
    /// trained on them; [`open_pairs`](crate::open_pairs) opens them.
    pub fn has_pairs(self) -> bool {
        self.source().classes.is_none() && self.source().label_maps.is_some()
    }

    /// Whether its images have objects and nothing else, so that only detection can be trained on
    /// them; [`open_coco`](crate::open_coco) opens them.
    pub fn has_objects(self) -> bool {
        self.source().classes.is_none() && self.source().objects.is_some()
    }

    /// Whether it is a folder or archives of image files, which [`open_images`] opens.
    pub fn has_image_files(self) -> bool {
        self.source().classes.is_some() && matches!(self.source().files, Files::Listed)
    }
}

/// Opens the parts of a dataset.
type Open = fn(&DataConfig, &EnvPaths) -> Result<Splits, DataError>;

/// A dataset as it is registered.
#[derive(Debug)]
pub struct Source {
    /// Name of each class, by label; none if the files tell them.
    class_names: &'static [&'static str],
    /// Statistics of the pixels.
    statistics: Statistics,
    /// The files that it is read from.
    files: Files,
    /// Opens it with a class for each image, if there is one.
    classes: Option<Open>,
    /// Opens it with a label map for each image, if there is one.
    label_maps: Option<Open>,
    /// Opens it with the objects of each image, if they are known.
    objects: Option<Open>,
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
    /// `data.path` names image files, which are listed, and their annotations.
    Listed,
}

/// What a dataset knows of each image: its [`Class`], its [`LabelMap`] or its [`ImageObjects`].
/// [`open`] takes one of them.
pub trait Annotation {
    /// What opens a dataset with it; `None` if its images do not have it.
    #[doc(hidden)]
    fn opener(source: &Source) -> Option<Open>;

    /// The datasets that have it, as a message to those who chose `source` names them.
    #[doc(hidden)]
    fn expected(source: &Source) -> &'static str;
}

impl Annotation for Class {
    fn opener(source: &Source) -> Option<Open> {
        source.classes
    }

    fn expected(source: &Source) -> &'static str {
        match source.label_maps {
            Some(_) => {
                "a dataset with a class for each image; this one's are for each pixel, which \
                 `task = \"segmentation\"` learns"
            }
            None => "a dataset with a class for each image; this one's are for each object",
        }
    }
}

impl Annotation for LabelMap {
    fn opener(source: &Source) -> Option<Open> {
        source.label_maps
    }

    fn expected(_: &Source) -> &'static str {
        static EXPECTED: LazyLock<String> = LazyLock::new(|| those_with::<LabelMap>("label maps"));
        &EXPECTED
    }
}

impl Annotation for ImageObjects {
    fn opener(source: &Source) -> Option<Open> {
        source.objects
    }

    fn expected(_: &Source) -> &'static str {
        static EXPECTED: LazyLock<String> = LazyLock::new(|| those_with::<ImageObjects>("objects"));
        &EXPECTED
    }
}

/// The datasets that have an annotation, in words.
fn those_with<A: Annotation>(what: &str) -> String {
    let all = DatasetKind::VARIANTS.iter().filter(|kind| A::opener(kind.source()).is_some());
    let names: Vec<&str> = all.map(|kind| kind.name()).collect();
    let (last, others) = names.split_last().expect("invariant: `shapes` has every annotation");
    format!("a dataset with {what}: {} or {last}", others.join(", "))
}

impl DataConfig {
    /// What pixels are normalised by, without opening the dataset.
    pub fn statistics(&self) -> Statistics {
        self.statistics_of(self.normalize)
    }

    /// What pixels would be normalised by with `data.normalize = normalize`.
    pub fn statistics_of(&self, normalize: Normalize) -> Statistics {
        normalize.statistics(self.dataset.source().statistics)
    }

    /// The colour of pixels that RandAugment moves in from outside the image under `recipe`: the
    /// mean that normalises, unless it says another.
    pub fn fill(&self, recipe: &Recipe) -> [u8; 3] {
        self.statistics_of(recipe.fill.unwrap_or(self.normalize)).fill()
    }

    /// The `augment.fill` of `recipe`, if it has an effect that is not always that of ImageNet's
    /// mean.
    pub fn effective_fill(&self, recipe: &Recipe) -> Option<Normalize> {
        let fill = recipe.fill.unwrap_or(self.normalize);
        let mean = |of| self.statistics_of(of).fill();
        let is_used = recipe.auto_augment != AutoAugment::Off
            && [fill, self.normalize].contains(&Normalize::Dataset)
            && mean(Normalize::Dataset) != mean(Normalize::Imagenet);
        is_used.then_some(fill)
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
    /// The share of the training part that the test images are, held out of it; 0 if they are a
    /// part of their own.
    pub test_fraction: f64,
}

impl Splits {
    /// Two parts without notes.
    fn new(train: impl Dataset + 'static, test: impl Dataset + 'static) -> Self {
        let [train, test] = [Arc::new(train) as Arc<dyn Dataset>, Arc::new(test)].map(Split::whole);
        Self { train, val: None, test, notes: vec![], staging: None, test_fraction: 0.0 }
    }

    /// The same images under the labels and the names of recorded classes, as `matched` has them;
    /// see [`Split::relabelled`].
    ///
    /// # Errors
    /// If a class was not recorded, or the match is of other names.
    pub fn relabelled(self, names: &[String], matched: &ClassMatch) -> Result<Self, ClassError> {
        let of = |split: Split| split.relabelled(names, matched);
        let (train, test) = (of(self.train)?, of(self.test)?);
        Ok(Self { train, val: self.val.map(of).transpose()?, test, ..self })
    }
}

/// The parts of a dataset in files.
#[derive(Debug)]
pub struct Sources<D> {
    /// Trained on.
    pub train: D,
    /// Validation images. Without test images they are measured at the end.
    pub val: Option<D>,
    /// Test images.
    pub test: Option<D>,
    /// Oddities that are no errors, a line each.
    pub notes: Vec<String>,
    /// The copying of archives to the node's disk, if there is any.
    pub staging: Option<Arc<Staging>>,
}

impl<D> Sources<D> {
    /// Checks that no image of another part is a training image, of which `files` says of a part
    /// what files there are and which of them are its images', with or without [`links`].
    ///
    /// [`links`]: check_apart
    fn apart(
        self,
        links: bool,
        files: impl Fn(&D) -> (&Images, Vec<usize>),
    ) -> Result<Self, DataError> {
        for (part, what) in [(&self.val, "validation"), (&self.test, "test")] {
            if let Some(part) = part {
                check_apart([files(&self.train), files(part)], what, links)?;
            }
        }
        Ok(self)
    }

    /// The parts by their names, in order.
    pub fn parts(self) -> impl Iterator<Item = (&'static str, D)> {
        let Self { train, val, test, .. } = self;
        [("train", Some(train)), ("val", val), ("test", test)]
            .into_iter()
            .filter_map(|(name, part)| Some((name, part?)))
    }
}

impl<D: Dataset + 'static> From<Sources<D>> for Splits {
    /// The test part has no image if it is to be held out of the training part.
    fn from(Sources { train, val, test, notes, staging }: Sources<D>) -> Self {
        let whole = |part: D| Split::whole(Arc::new(part));
        let (train, val, test) = (whole(train), val.map(whole), test.map(whole));
        let (val, test) = match test {
            Some(test) => (val, test),
            None => (None, val.unwrap_or_else(|| train.only(vec![]))),
        };
        Self { train, val, test, notes, staging, test_fraction: 0.0 }
    }
}

/// Opens the dataset that a configuration names, with the annotation `A` of its images. CIFAR is
/// read into memory whole.
///
/// With `val_fraction > 0` a stratified share of the training set becomes the validation split.
/// Otherwise only `shapes` and folders of three parts have one: ImageNet's published validation
/// images are the test set here, and a checkpoint chosen by them would be measured too well.
///
/// # Errors
/// If a value is out of range, the dataset's images do not have the annotation, or its files are
/// missing, damaged or of another dataset.
pub fn open<A: Annotation>(config: &DataConfig) -> Result<Splits, DataError> {
    open_in::<A>(config, &EnvPaths::from_env())
}

/// [`open`] with explicit folders instead of those of the environment.
///
/// # Errors
/// As for [`open`].
pub fn open_in<A: Annotation>(
    config: &DataConfig,
    env_paths: &EnvPaths,
) -> Result<Splits, DataError> {
    config.check_hold_out()?;
    check_path(config)?;
    let splits = opener::<A>(config)?(config, env_paths)?;
    hold_out(splits, config)
}

/// What opens the dataset with the annotation `A`.
fn opener<A: Annotation>(config: &DataConfig) -> Result<Open, DataError> {
    let source = config.dataset.source();
    A::opener(source).ok_or_else(|| DataError::InvalidConfig {
        key: "data.dataset",
        value: config.dataset.name().to_owned(),
        expected: A::expected(source),
    })
}

/// What [`open`] would open, without reading files. The images can be counted; those that come from
/// files cannot be read.
///
/// CIFAR is assumed to have as many images as published. `None` if only the files tell the number.
///
/// # Errors
/// If a value is out of range, the dataset's images do not have the annotation, or there is no path
/// where one is needed.
pub fn dry_run<A: Annotation>(config: &DataConfig) -> Result<Option<Splits>, DataError> {
    config.check_hold_out()?;
    let (source, open) = (config.dataset.source(), opener::<A>(config)?);
    let splits = match source.files {
        Files::None => open(config, &EnvPaths::default())?,
        Files::Archive { size, images } => {
            config.required_path()?;
            let (kind, class_names) = (config.dataset, owned(source.class_names));
            let part = |images| Outline { kind, class_names: class_names.clone(), size, images };
            let [train, test] = images.map(part);
            Splits::new(train, test)
        }
        Files::Listed => return config.required_path().map(|_| None),
    };
    hold_out(splits, config).map(Some)
}

/// The names of classes as a dataset has them.
fn owned(class_names: &[&str]) -> Vec<String> {
    class_names.iter().map(|&name| name.to_owned()).collect()
}

/// Checks that there is something at `data.path`, if the dataset has files.
fn check_path(config: &DataConfig) -> Result<(), DataError> {
    let path = config.path.as_ref().filter(|_| config.dataset.has_files());
    if let Some(path) = path.filter(|path| !path.try_exists().unwrap_or(true)) {
        return Err(DataError::NoImages(path.clone()));
    }
    Ok(())
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

    fn label(&self, index: usize) -> Class {
        (index % self.class_names.len()) as Class
    }

    fn name(&self, index: usize) -> String {
        format!("{} image {index}", self.kind.name())
    }

    fn read(&self, _index: usize, _into: &mut Sample) -> Result<(), DataError> {
        Err(DataError::MissingPath { dataset: self.kind.name() })
    }

    fn statistics(&self) -> Statistics {
        self.kind.source().statistics
    }

    fn fingerprint_by(&self, _names: &[String], _label: &dyn Fn(Class) -> Class) -> Fingerprint {
        Fingerprint::of(|hasher| {
            hasher.update(self.kind.name().as_bytes()).update(b" without its files");
        })
    }
}
