//! `shapes`: procedural images that need no files.
//!
//! Twelve classes: four shapes × three textures. Place, size, tilt, colours, background and noise
//! vary. Each image is drawn when it is asked for, a pure function of the seed, the part and the
//! index.
//!
//! Colours are drawn so that an image and its inverse are equally likely: the mean image of every
//! class is the same grey, and a linear classifier of pixels hardly beats chance. Likewise a
//! mirrored image is as likely as the image, in the same class.

mod objects;
mod scene;
mod scenes;

use std::sync::Arc;

use objects::ShapeObjects;
use scene::Scene;
use scenes::Scenes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::{DataConfig, Files, Source, Splits};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, Sample};
use crate::{error::DataError, rng, split::Split, statistics::Statistics};

pub(super) static SOURCE: Source = Source {
    class_names: &CLASS_NAMES,
    statistics: Statistics::SHAPES,
    files: Files::None,
    classes: Some(|config, _| parts(config, |shapes| shapes)),
    label_maps: Some(|config, _| {
        parts(config, |shapes| Scenes::new(shapes, config.shapes.background))
    }),
    objects: Some(|config, _| {
        parts(config, |shapes| ShapeObjects::new(shapes, config.masks != Some(false)))
    }),
};

/// Texture varies fastest: `label = 3 · shape + texture`.
#[rustfmt::skip]
static CLASS_NAMES: [&str; 12] = [
    "solid disk", "striped disk", "checkered disk",
    "solid square", "striped square", "checkered square",
    "solid triangle", "striped triangle", "checkered triangle",
    "solid cross", "striped cross", "checkered cross",
];

/// The `[data.shapes]` table: sizes of the procedural dataset.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShapesConfig {
    /// Side of an image, 32 to 1024 pixels.
    pub image_size: usize,
    /// Images in the training split, at most 2 000 000.
    pub train: usize,
    /// Images in the validation split (used when `val_fraction` is 0).
    pub val: usize,
    /// Images in the test split.
    pub test: usize,
    /// Seed of the images themselves; independent of `run.seed`.
    pub seed: u64,
    /// With `task = "segmentation"`: whether what no figure covers is `ignored`, as where it is
    /// left out, or a `class` of its own, the first of 13.
    #[serde(skip_serializing_if = "ShapesBackground::is_default")]
    pub background: ShapesBackground,
    /// How many textures figures have, 1 to 3: solid, striped, checkered. There are four classes of
    /// each; left out: all.
    #[serde(skip_serializing_if = "is_all_textures")]
    pub textures: usize,
    /// With `task = "segmentation"` or `"detection"`: most figures of an image, 1 to 12; left out:
    /// 3.
    #[serde(skip_serializing_if = "is_usual_figures")]
    pub figures: usize,
    /// Likewise: the least and the largest size of a figure, in that of the only one of an image
    /// with one label, 0.05 to 1; left out: 0.5 to 0.9.
    #[serde(skip_serializing_if = "is_usual_scale")]
    pub scale: [f64; 2],
}

/// Textures, which vary fastest among the classes.
const TEXTURES: usize = 3;
/// Most figures of an image, where nothing else is said.
const FIGURES: usize = 3;
/// The sizes of figures, where nothing else is said.
const SCALE: [f64; 2] = [0.5, 0.9];

fn is_all_textures(textures: &usize) -> bool {
    *textures == TEXTURES
}

fn is_usual_figures(figures: &usize) -> bool {
    *figures == FIGURES
}

fn is_usual_scale(scale: &[f64; 2]) -> bool {
    *scale == SCALE
}

/// What the pixels are that no figure covers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "lowercase")]
pub enum ShapesBackground {
    /// No class: they count nowhere.
    #[default]
    Ignored,
    /// The first class.
    Class,
}

impl ShapesBackground {
    /// Whether it is the one that records leave out.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ShapesConfig {
    fn default() -> Self {
        Self {
            image_size: 32,
            train: 10_000,
            val: 2_000,
            test: 2_000,
            seed: 0,
            background: ShapesBackground::Ignored,
            textures: TEXTURES,
            figures: FIGURES,
            scale: SCALE,
        }
    }
}

/// Most images of a part: an epoch's order and a held-out share take seconds at their start.
const MOST_IMAGES: usize = 2_000_000;

/// Most figures of an image that may be asked for.
const MOST_FIGURES: usize = 12;

/// A part of the dataset. No two parts share a random number: theirs are drawn from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ShapesPart {
    /// Trained on.
    Train,
    /// Chooses the best checkpoint.
    Val,
    /// Measured at the end.
    Test,
}

/// One part of the procedural dataset. The label of image `i` is `i` modulo the number of classes.
#[derive(Clone, Debug)]
pub struct Shapes {
    part: ShapesPart,
    class_names: Vec<String>,
    image_size: usize,
    len: usize,
    seed: u64,
    textures: u32,
    figures: u32,
    scale: [f64; 2],
}

impl Shapes {
    /// Describes one part; draws nothing.
    ///
    /// # Errors
    /// If a value is out of its range, or the part has no images or more than 2 000 000.
    pub fn new(config: ShapesConfig, part: ShapesPart) -> Result<Self, DataError> {
        let ShapesConfig { image_size, train, val, test, seed, .. } = config;
        let ShapesConfig { textures, figures, scale, .. } = config;
        let wrong =
            |key, value: String, expected| DataError::InvalidConfig { key, value, expected };
        if !(32..=1024).contains(&image_size) {
            let (key, expected) = ("data.shapes.image_size", "32 to 1024 pixels");
            return Err(wrong(key, image_size.to_string(), expected));
        }
        if !(1..=TEXTURES).contains(&textures) {
            return Err(wrong("data.shapes.textures", textures.to_string(), "1 to 3 textures"));
        }
        if !(1..=MOST_FIGURES).contains(&figures) {
            return Err(wrong("data.shapes.figures", figures.to_string(), "1 to 12 figures"));
        }
        let [least, most] = scale;
        if !(0.05..=most).contains(&least) || most > 1.0 {
            let expected = "two factors, the lesser first, 0.05 to 1";
            return Err(wrong("data.shapes.scale", format!("{scale:?}"), expected));
        }
        let (key, len) = match part {
            ShapesPart::Train => ("data.shapes.train", train),
            ShapesPart::Val => ("data.shapes.val", val),
            ShapesPart::Test => ("data.shapes.test", test),
        };
        if !(1..=MOST_IMAGES).contains(&len) {
            let expected = "1 to 2000000 images";
            return Err(wrong(key, len.to_string(), expected));
        }
        let named = CLASS_NAMES.iter().enumerate();
        let named = named.filter(|(class, _)| class % TEXTURES < textures);
        let class_names = named.map(|(_, &name)| name.to_owned()).collect();
        let (textures, figures) = (textures as u32, figures as u32);
        Ok(Self { part, class_names, image_size, len, seed, textures, figures, scale })
    }

    /// The number among all classes of a class of this dataset.
    fn class_of(&self, label: u32) -> u32 {
        TEXTURES as u32 * (label / self.textures) + label % self.textures
    }
}

/// All parts, made `of` the images with one label; the validation part may have no images.
fn parts<D: Dataset + 'static>(
    config: &DataConfig,
    of: impl Fn(Shapes) -> D,
) -> Result<Splits, DataError> {
    let part = |part| Shapes::new(config.shapes, part).map(&of);
    let val = match config.shapes.val {
        0 => None,
        _ => Some(Split::whole(Arc::new(part(ShapesPart::Val)?))),
    };
    Ok(Splits { val, ..Splits::new(part(ShapesPart::Train)?, part(ShapesPart::Test)?) })
}

impl Dataset for Shapes {
    fn len(&self) -> usize {
        self.len
    }

    fn encoding(&self) -> Encoding {
        Encoding::Pixels { size: [self.image_size; 2] }
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn label(&self, index: usize) -> Class {
        assert!(index < self.len, "image {index} of {}", self.len);
        (index % self.class_names.len()) as Class
    }

    fn name(&self, index: usize) -> String {
        let part: &str = self.part.into();
        format!("shapes {part} image {index}")
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        let key = [self.seed, self.part as u64, index as u64];
        let mut rng = rng::keyed("vim-data shapes v1", &key);
        let class = self.class_of(self.label(index));
        let scene = Scene::draw(&mut rng, self.image_size, class);
        into.image.resize(3 * self.image_size * self.image_size, 0);
        scene.render(&mut rng, self.image_size, &mut into.image);
        Ok(())
    }

    fn statistics(&self) -> Statistics {
        Statistics::SHAPES
    }

    /// Classes do not count: they follow from what does.
    fn fingerprint_by(&self, _names: &[String], _label: &dyn Fn(Class) -> Class) -> Fingerprint {
        let key = [self.seed, self.part as u64, self.image_size as u64, self.len as u64];
        Fingerprint::of(|hasher| {
            hasher.update(b"shapes");
            for word in key {
                hasher.update(&word.to_le_bytes());
            }
            let (textures, figures) = (self.textures as usize, self.figures as usize);
            let is_usual = is_all_textures(&textures)
                && is_usual_figures(&figures)
                && is_usual_scale(&self.scale);
            if !is_usual {
                hasher.update(format!("{textures} {figures} {:?}", self.scale).as_bytes());
            }
        })
    }
}
