//! Pairs of an image and a label map in files.

mod halves;
mod partners;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halves::{Finder, Halves};
use partners::{Partners, Places};

use super::image_files::start_staging;
use super::{DataConfig, DatasetKind, Files, Source, Sources};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, OnProgress, Sample, Suspects};
use crate::decode::{Exif, Stored};
use crate::dense::{ClassList, LabelMaps, LabelRule, LabelTally, PairError};
use crate::error::{DataError, Location, SourceError};
use crate::statistics::Statistics;
use crate::storage::EnvPaths;
use crate::storage::apart::check_apart;
use crate::storage::heads::{look, tally};
use crate::storage::images::Images;
use crate::storage::texts::texts;

/// The source of pairs. Their classes are in a list beside the files, or published.
pub(super) static SOURCE: Source = Source {
    class_names: &[],
    statistics: Statistics::IMAGENET,
    files: Files::Listed,
    classes: None,
    label_maps: Some(|config, env_paths| Ok(open_pairs(config, env_paths)?.into())),
    objects: None,
};

/// A published dataset of pairs, whose classes are known.
struct Published {
    dataset: DatasetKind,
    name: &'static str,
    classes: fn() -> ClassList,
    reduce_zero: bool,
    /// Pairs of the training and of the validation part.
    pairs: [usize; 2],
}

static PUBLISHED: [Published; 1] = [Published {
    dataset: DatasetKind::Ade20k,
    name: "ADE20K",
    classes: ClassList::ade20k,
    reduce_zero: true,
    pairs: [20_210, 2_000],
}];

impl DataConfig {
    /// Colours for classes of these names in pictures: those of `data.classes`, ADE20K's, COCO's or
    /// VOC's where the names are theirs, else colours far from each other.
    pub fn class_colours(&self, names: &[String]) -> Vec<[u8; 3]> {
        let listed = self.classes.as_deref().and_then(|path| ClassList::read(path).ok());
        let published = [ClassList::ade20k(), ClassList::coco(), ClassList::voc()];
        let known = listed.into_iter().chain(published);
        let mut fitting = known.filter(|list| list.names == names);
        fitting.next().unwrap_or_else(|| ClassList::of_names(names.to_vec())).colours
    }
}

/// One part of a dataset of pairs.
#[derive(Debug)]
pub struct Pairs {
    images: Arc<Images>,
    label_maps: Arc<Images>,
    /// The places of each image and of its label map.
    places: Places,
    classes: Vec<String>,
    maps: LabelMaps,
}

/// Names of the lists of classes that may lie with the data: ours and CVAT's.
const CLASSES: [&str; 2] = ["classes.txt", "labelmap.txt"];

/// Finds the pairs that a configuration of `ade20k` or `pairs` names. Reads none.
///
/// # Errors
/// If a folder is missing, a file has no partner, or the classes cannot be told.
pub fn open_pairs(config: &DataConfig, env_paths: &EnvPaths) -> Result<Sources<Pairs>, DataError> {
    let root = config.required_path()?;
    let root = &root.canonicalize().map_err(DataError::io(root))?;
    let published = PUBLISHED.iter().find(|published| published.dataset == config.dataset);
    let mut notes = Vec::new();
    let (mut halves, base) = Finder { root, config, env_paths }.find(&mut notes)?;
    let [train, val] = places(&halves, config, &mut notes)?;
    let images = |part: usize, places: &Places| -> (&Images, Vec<usize>) {
        (halves.images(part), places.iter().map(|&[image, _]| image).collect())
    };
    check_apart([images(0, &train), images(1, &val)], "validation", true)?;
    let classes = match (&config.classes, published) {
        (Some(path), _) => ClassList::read(path)?,
        (None, Some(published)) => (published.classes)(),
        (None, None) => {
            let is_vocs = matches!(halves, Halves::Listed(..));
            classes_beside(root, &base, is_vocs, &mut notes)?
        }
    };
    let usual = published.is_some_and(|published| published.reduce_zero);
    let rule = LabelRule::new(config.reduce_zero_label.unwrap_or(usual));
    let by_colour = classes.by_colour(rule.first());
    let maps = LabelMaps { rule, colours: classes.colours, by_colour };
    let staging = start_staging(&mut halves.all(), &mut notes, config.stage, env_paths)?;
    let [of_train, of_val] = halves.of_parts();
    let part = |[images, label_maps]: [Arc<Images>; 2], places| {
        let (classes, maps) = (classes.names.clone(), maps.clone());
        Pairs { images, label_maps, places, classes, maps }
    };
    let (train, val) = (part(of_train, train), part(of_val, val));
    if let Some(&Published { name, pairs: [of_train, of_val], .. }) = published {
        let counts = [("training", train.len(), of_train), ("validation", val.len(), of_val)];
        let differ = counts.into_iter().filter(|(_, found, published)| found != published);
        notes.extend(differ.map(|(what, found, published)| {
            format!("{found} {what} pairs; {name} as published has {published}")
        }));
    }
    Ok(Sources { train, val: Some(val), test: None, notes, staging })
}

/// The places of images and label maps in the training and the validation part.
fn places(
    halves: &Halves,
    config: &DataConfig,
    notes: &mut Vec<String>,
) -> Result<[Places; 2], DataError> {
    match halves {
        Halves::Parts(parts) => {
            let [train, val] = parts.each_ref().map(|halves| Partners::new(halves, config));
            for part in [&train, &val] {
                notes.extend(part.notes().into_iter().chain(part.twins()));
            }
            Ok([train.all()?, val.all()?])
        }
        Halves::Listed(both, [of_train, of_val]) => {
            let both = Partners::new(both, config);
            notes.extend(both.twins());
            Ok([both.listed(of_train)?, both.listed(of_val)?])
        }
    }
}

/// The classes in the list that lies in `root`, or in its folder `base` beside the halves; VOC's if
/// there is none and `is_vocs`.
fn classes_beside(
    root: &Path,
    base: &Path,
    is_vocs: bool,
    notes: &mut Vec<String>,
) -> Result<ClassList, DataError> {
    let mut found = texts(root, "", &|name| CLASSES.contains(&name))?;
    if base != root {
        found.extend(texts(base, "", &|name| CLASSES.contains(&name))?);
    }
    let path_of = |Location { path, member }: &Location| {
        member.as_ref().map_or_else(|| path.clone(), |member| path.join(member))
    };
    for name in CLASSES {
        let mut of_name = found.iter().filter(|(file, _)| path_of(file).ends_with(name));
        let Some((file, text)) = of_name.next() else { continue };
        let wrong = |why| SourceError::ClassList { path: path_of(file), why }.into();
        return match of_name.find(|(_, other)| other != text) {
            Some((other, _)) => Err(wrong(format!("{other} differs; set `data.classes` to one"))),
            None => ClassList::parse(text).map_err(wrong),
        };
    }
    let [ours, cvats] = CLASSES;
    if is_vocs {
        let (list, folder) = (ClassList::voc(), root.display());
        let count = list.names.len();
        notes.push(format!(
            "the classes are taken for VOC's {count}: neither `{ours}` nor `{cvats}` is in \
             `{folder}`"
        ));
        return Ok(list);
    }
    let why = "there is none; set `data.classes` to a file with a name a line".to_owned();
    Err(SourceError::ClassList { path: root.join(ours), why }.into())
}

impl Pairs {
    /// The files of the images, and of others if lists choose those of the part.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The files of the label maps, likewise.
    pub fn label_map_files(&self) -> &Images {
        &self.label_maps
    }

    /// Where the files of an image and of its label map are among those.
    pub fn places(&self, index: usize) -> [usize; 2] {
        self.places[index]
    }

    /// The places of all images, or of all label maps.
    pub(crate) fn places_of(&self, half: usize) -> Vec<usize> {
        self.places.iter().map(|places| places[half]).collect()
    }
}

impl Dataset for Pairs {
    fn len(&self) -> usize {
        self.places.len()
    }

    fn encoding(&self) -> Encoding {
        Encoding::Files
    }

    fn class_names(&self) -> &[String] {
        &self.classes
    }

    /// 0: the classes are in the label maps.
    fn label(&self, _index: usize) -> Class {
        0
    }

    fn exif(&self) -> Exif {
        self.images.exif()
    }

    fn label_maps(&self) -> Option<&LabelMaps> {
        Some(&self.maps)
    }

    fn suspects(&self, workers: usize, watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        let (heads, mut notes) = look(&self.images, &self.places_of(0), workers, watch)?;
        let by_colour = &self.maps.by_colour;
        let (tallies, more) =
            tally(&self.label_maps, &self.places_of(1), by_colour, workers, watch)?;
        notes.extend(more);
        let mut suspects = Suspects { notes, ..Suspects::default() };
        let known = self.images.known();
        for (index, (image, map)) in heads.iter().zip(&tallies).enumerate() {
            let parts = image.zip(map.as_ref()).map(|(image, map)| {
                let &LabelTally { size, orientation, .. } = map;
                [image.stored(), Stored { size, orientation }]
            });
            let stray = |map: &LabelTally| self.maps.rule.stray(&map.stored(), self.classes.len());
            let is_bad = known.bad.contains(&(self.places[index][0] as u32))
                || map.as_ref().is_some_and(|map| stray(map).is_some());
            suspects.add(index, self.exif(), parts, |[image, map]| {
                PairError::check_sizes(image, map).is_ok() && !is_bad
            });
        }
        Ok(Suspects { tallies, ..suspects })
    }

    fn roots(&self) -> Vec<PathBuf> {
        [self.images.roots(), self.label_maps.roots()].concat()
    }

    fn name(&self, index: usize) -> String {
        self.images.name(self.places[index][0])
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        let [image, map] = self.places[index];
        self.label_maps.read_file(map, &mut into.labels)?;
        self.images.read_file(image, &mut into.image)
    }

    fn statistics(&self) -> Statistics {
        Statistics::IMAGENET
    }

    /// The hash of the classes and of the names of all images in order: the same pairs have one
    /// fingerprint as folders and as an archive.
    fn fingerprint_by(&self, names: &[String], _label: &dyn Fn(Class) -> Class) -> Fingerprint {
        Fingerprint::of(|hasher| {
            hasher.update(b"pairs").update(&[self.maps.rule.first()]);
            let mut text = |text: &str| {
                hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
            };
            names.iter().for_each(|class| text(class));
            self.places.iter().for_each(|&[image, _]| text(self.images.file_name(image)));
        })
    }
}
