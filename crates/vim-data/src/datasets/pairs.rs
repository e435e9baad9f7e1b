//! Pairs of an image and a label map in files.

use std::path::{Path, PathBuf};

use super::image_files::start_staging;
use super::{DataConfig, DatasetKind, Files, Source, Sources};
use crate::dataset::{
    Class, Dataset, Encoding, Fingerprint, LabelMaps, OnProgress, Sample, Suspects,
};
use crate::decode::Head;
use crate::dense::{ClassList, LabelRule, PairError};
use crate::error::{DataError, SourceError};
use crate::statistics::Statistics;
use crate::storage::halves::{self, Half, HalfOf};
use crate::storage::heads::{Wanted, look};
use crate::storage::images::Images;
use crate::storage::layout::Part;
use crate::storage::{EnvPaths, cache};

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
    /// Colours for classes of these names in pictures: those of `data.classes`, ADE20K's or COCO's
    /// where the names are theirs, else colours far from each other.
    pub fn class_colours(&self, names: &[String]) -> Vec<[u8; 3]> {
        let listed = self.classes.as_deref().and_then(|path| ClassList::read(path).ok());
        let known = listed.into_iter().chain([ClassList::ade20k(), ClassList::coco()]);
        let mut fitting = known.filter(|list| list.names == names);
        fitting.next().unwrap_or_else(|| ClassList::of_names(names.to_vec())).colours
    }
}

/// One part of a dataset of pairs.
#[derive(Debug)]
pub struct Pairs {
    images: Images,
    label_maps: Images,
    classes: Vec<String>,
    maps: LabelMaps,
}

/// Name of a list of classes that lies with the data.
const CLASSES: &str = "classes.txt";

/// Finds the pairs that a configuration of `ade20k` or `pairs` names. Reads none.
///
/// # Errors
/// If a folder is missing, a file has no partner, or the classes cannot be told.
pub fn open_pairs(config: &DataConfig, env_paths: &EnvPaths) -> Result<Sources<Pairs>, DataError> {
    let root = config.required_path()?;
    let root = &root.canonicalize().map_err(DataError::io(root))?;
    let published = PUBLISHED.iter().find(|published| published.dataset == config.dataset);
    let classes = match (&config.classes, published) {
        (Some(path), _) => ClassList::read(path)?,
        (None, Some(published)) => (published.classes)(),
        (None, None) if root.join(CLASSES).is_file() => ClassList::read(&root.join(CLASSES))?,
        (None, None) => {
            let why = "there is none; set `data.classes` to a file with a name a line".to_owned();
            return Err(SourceError::ClassList { path: root.join(CLASSES), why }.into());
        }
    };
    let usual = published.is_some_and(|published| published.reduce_zero);
    let rule = LabelRule::new(config.reduce_zero_label.unwrap_or(usual));
    let mut notes = Vec::new();
    let mut part = |of| -> Result<Pairs, DataError> {
        let mut half = |half| open_half(root, half, of, config, env_paths, &mut notes);
        let (images, label_maps) = (half(Half::Images)?, half(Half::LabelMaps)?);
        check_partners(&images, &label_maps)?;
        let maps = LabelMaps { rule, colours: classes.colours.clone() };
        Ok(Pairs { images, label_maps, classes: classes.names.clone(), maps })
    };
    let (mut train, mut val) = (part(HalfOf::Train)?, part(HalfOf::Val)?);
    if let Some(&Published { name, pairs: [of_train, of_val], .. }) = published {
        let counts = [("training", train.len(), of_train), ("validation", val.len(), of_val)];
        let differ = counts.into_iter().filter(|(_, found, published)| found != published);
        notes.extend(differ.map(|(what, found, published)| {
            format!("{found} {what} pairs; {name} as published has {published}")
        }));
    }
    let halves =
        &mut [&mut train.images, &mut train.label_maps, &mut val.images, &mut val.label_maps];
    let staging = start_staging(halves, &mut notes, config.stage, env_paths)?;
    Ok(Sources { train, val, notes, staging })
}

fn open_half(
    root: &Path,
    half: Half,
    of: HalfOf,
    config: &DataConfig,
    env_paths: &EnvPaths,
    notes: &mut Vec<String>,
) -> Result<Images, DataError> {
    let missing = || {
        let (what, expected) = match (half, of) {
            (Half::Images, HalfOf::Train) => ("training images", "images/training"),
            (Half::Images, HalfOf::Val) => ("validation images", "images/validation"),
            (Half::LabelMaps, HalfOf::Train) => ("training label maps", "annotations/training"),
            (Half::LabelMaps, HalfOf::Val) => ("validation label maps", "annotations/validation"),
        };
        SourceError::NoHalf { path: root.to_owned(), what: what.to_owned(), expected }
    };
    let folder = match root.is_dir() {
        true => halves::find(root, half, of).ok_or_else(missing)?,
        false => root.to_owned(),
    };
    let part = Part::Half { root: folder, half, of };
    let cached = cache::open(part, config.index_cache.as_deref(), env_paths)?;
    notes.extend(cached.index.notes.iter().chain(&cached.notes).cloned());
    if cached.index.entries.is_empty() {
        return Err(missing().into());
    }
    Images::new(cached)
}

/// Checks that every image has a label map of its name, and the other way round.
fn check_partners(images: &Images, label_maps: &Images) -> Result<(), DataError> {
    // With the point, so that stems are in the order of the file names.
    let stem = |of: &Images, at: usize| {
        let name = of.file_name(at);
        name.rfind('.').map_or(name, |dot| &name[..=dot]).to_owned()
    };
    let (mut image, mut map) = (0, 0);
    while image < images.len() || map < label_maps.len() {
        let left = (image < images.len()).then(|| stem(images, image));
        let right = (map < label_maps.len()).then(|| stem(label_maps, map));
        if left == right {
            (image, map) = (image + 1, map + 1);
            continue;
        }
        // Both are in order: the lesser one is alone.
        let is_image = match (&left, &right) {
            (Some(left), Some(right)) => left < right,
            (left, _) => left.is_some(),
        };
        let (file, missing, other) = match is_image {
            true => (images.location(image), "label map", label_maps),
            false => (label_maps.location(map), "image", images),
        };
        return Err(SourceError::Unpaired { file, missing, path: other.root().to_owned() }.into());
    }
    Ok(())
}

impl Pairs {
    /// The images.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The files of the label maps, in the order of the images.
    pub fn label_map_files(&self) -> &Images {
        &self.label_maps
    }
}

impl Dataset for Pairs {
    fn len(&self) -> usize {
        self.images.len()
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

    fn label_maps(&self) -> Option<&LabelMaps> {
        Some(&self.maps)
    }

    fn suspects(&self, workers: usize, watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        let places: Vec<usize> = (0..self.len()).collect();
        let wanted = |images, is_labels| Wanted { images, places: &places, is_labels };
        let all = [wanted(&self.images, false), wanted(&self.label_maps, true)];
        let (heads, notes) = look(&all, workers, watch)?;
        let mut suspects = Suspects { notes, ..Suspects::default() };
        for (index, (image, map)) in heads[0].iter().zip(&heads[1]).enumerate() {
            let fits = |(image, map): (Head, Head)| {
                PairError::check_sizes(image.size(), map.size()).is_ok()
            };
            if !image.zip(*map).is_some_and(fits) {
                suspects.bad.insert(index);
            }
            if image.is_some_and(|image| image.orientation != 1) {
                suspects.turned.insert(index);
            }
        }
        suspects.bad.extend(self.images.known().bad.iter().map(|&index| index as usize));
        Ok(suspects)
    }

    fn roots(&self) -> Vec<PathBuf> {
        [self.images.roots(), self.label_maps.roots()].concat()
    }

    fn name(&self, index: usize) -> String {
        self.images.name(index)
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        self.label_maps.read_file(index, &mut into.labels)?;
        self.images.read_file(index, &mut into.image)
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
            (0..self.len()).for_each(|index| text(self.images.file_name(index)));
        })
    }
}
