//! Images with objects in files: COCO's annotations, in the layouts that programs export and in the
//! archives as published, and YOLO's labels.

mod layout;
mod names;
mod yaml;
mod yolo;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::image_files::start_staging;
use super::{DataConfig, DatasetKind, Files, Source, Sources, Splits};
use crate::classes::nfc;
use crate::coco::{CocoAnnotations, FEDERATED, Tally};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, OnProgress, Sample, Suspects};
use crate::decode::Exif;
use crate::dense::ClassList;
use crate::error::{DataError, Location, SourceError, listed};
use crate::objects::{ImageObjects, LeftOut, ObjectClasses, ObjectError};
use crate::statistics::Statistics;
use crate::storage::heads::look;
use crate::storage::images::Images;
use crate::storage::layout::{DataParts, Part};
use crate::storage::{EnvPaths, cache};
use layout::{Found, PartOf};
use names::Places;
use yolo::{Lines, Yolo};

/// The source of objects in files. The classes are found in the annotations.
pub(super) static SOURCE: Source = Source {
    class_names: &[],
    statistics: Statistics::IMAGENET,
    files: Files::Listed,
    classes: None,
    label_maps: None,
    objects: Some(open_parts),
};

/// One part of a dataset with objects in files.
#[derive(Debug)]
pub struct Coco {
    images: Images,
    /// Of each image: its index among the files, and its objects.
    entries: Vec<(usize, ImageObjects)>,
    classes: Vec<String>,
    object_classes: ObjectClasses,
}

/// Images, and the objects of those that are annotated.
struct Labelled {
    images: Images,
    /// Of each image: its index among the files, and its objects.
    entries: Vec<(usize, ImageObjects)>,
    /// Where the annotations are.
    file: Location,
    /// Whether objects have masks.
    masks: bool,
}

/// Finds the images and reads the annotations that a configuration of `coco` or `yolo` names. The
/// training part has the images with an object that is no crowd. Objects whose boxes or masks
/// cannot be used are left out of both, and the notes count them; without `config.masks` masks are
/// not looked at.
///
/// # Errors
/// If a folder or a file is missing, the annotations are not of COCO's or YOLO's format or name an
/// image that is not there, most objects of a part cannot be used, or the parts differ in their
/// classes or share images.
pub fn open_coco(config: &DataConfig, env_paths: &EnvPaths) -> Result<Sources<Coco>, DataError> {
    let root = config.required_path()?;
    let root = &root.canonicalize().map_err(DataError::io(root))?;
    let mut notes = Vec::new();
    let open = if config.dataset == DatasetKind::Yolo { of_labels } else { of_annotations };
    let [train, mut val, mut test] = open(root, config, env_paths, &mut notes)?;
    let train = train.ok_or_else(|| layout::no_training(root))?;
    for other in val.iter_mut().chain(&mut test) {
        check_classes(&train, other)?;
        other.classes.clone_from(&train.classes);
    }
    let mut sources = Sources { train, val, test, notes, staging: None }
        .apart(true, |part: &Coco| (&part.images, part.places()))?;
    let Sources { train, val, test, notes, staging } = &mut sources;
    notes.extend(train.trained_on()?);
    let parts = std::iter::once(train).chain(val).chain(test);
    let mut all: Vec<&mut Images> = parts.map(|part| &mut part.images).collect();
    *staging = start_staging(&mut all, notes, config.stage, env_paths)?;
    Ok(sources)
}

/// All parts, of which one is to be tested: an export of one part has none unless some of it is
/// held out.
fn open_parts(config: &DataConfig, env_paths: &EnvPaths) -> Result<Splits, DataError> {
    let sources = open_coco(config, env_paths)?;
    if sources.val.is_none() && sources.test.is_none() && config.test_share() == 0.0 {
        return Err(layout::no_validation(config.required_path()?));
    }
    Ok(sources.into())
}

/// The parts of YOLO's labels at `root`.
fn of_labels(
    root: &Path,
    config: &DataConfig,
    env_paths: &EnvPaths,
    notes: &mut Vec<String>,
) -> Result<[Option<Coco>; 3], DataError> {
    let yolo = Yolo::new(root)?;
    let (names, file) = yolo.names(config)?;
    if let Some(why) = called_alike(&names) {
        return Err(yolo::wrong(&file, why));
    }
    let categories: Vec<u64> = (0..names.len() as u64).collect();
    let (mut masks, mut parts) = (config.masks, [const { None }; 3]);
    let lines = Lines { classes: names.len(), key_points: yolo.has_key_points() };
    if lines.key_points {
        notes
            .push("`kpt_shape`: of each object the box is read, and not its key points".to_owned());
    }
    for (of, part) in PartOf::ALL.into_iter().zip(&mut parts) {
        let Some(folder) = yolo.images(of, config, notes)? else { continue };
        let labelled = yolo::read((&folder, of), lines, masks, (config, env_paths), notes)?;
        masks = Some(labelled.masks);
        let classes = (names.clone(), categories.clone(), false);
        *part = Some(Coco::new(labelled, classes, notes)?);
    }
    if parts[0].is_none() {
        let why = "there is no folder of training images; set `data.train_images`".to_owned();
        return Err(yolo::wrong(&file, why));
    }
    notes.extend(boxes_note(config, masks));
    Ok(parts)
}

/// The parts of COCO's annotations at `root`.
fn of_annotations(
    root: &Path,
    config: &DataConfig,
    env_paths: &EnvPaths,
    notes: &mut Vec<String>,
) -> Result<[Option<Coco>; 3], DataError> {
    let mut found = [const { None }; 3];
    for (at, of) in PartOf::ALL.into_iter().enumerate() {
        let train: Option<&Found> = found[0].as_ref();
        // What is published for the test has no objects.
        let is_published = train.is_some_and(|train| train.folder == "train2017");
        if of != PartOf::Test || !is_published {
            found[at] = layout::find(root, of, config)?;
        }
    }
    // One file may be of the whole: what all parts say is above all classes is none. Version 2 of
    // the configuration took it for one, and only had these parts.
    let above: HashSet<Option<u64>> =
        found.iter().flatten().map(|one| one.annotations.root()).collect();
    let is_dropped = config.parts != Some(DataParts::TrainVal);
    if let (Some(Some(id)), 1, true) = (above.iter().next().copied(), above.len(), is_dropped) {
        found.iter_mut().flatten().for_each(|one| one.annotations.without_category(id));
        notes.push(format!(
            "category {id} stands above all others and has no object: it is no class"
        ));
    }
    let train = found.iter().flatten().next().map(|one| &one.annotations);
    notes
        .extend(train.and_then(|one| {
            Some(format!("{}: {}", one.file(), called_alike(&one.class_names())?))
        }));
    let has_masks = found[0].as_ref().is_some_and(|train| train.annotations.has_masks());
    let masks = config.masks.unwrap_or(has_masks);
    notes.extend(boxes_note(config, Some(masks)));
    if let Some(one) = found.iter().flatten().find(|one| one.annotations.is_federated()) {
        notes.push(format!("{}: {FEDERATED}", one.annotations.file()));
    }
    let mut parts = [const { None }; 3];
    for (found, part) in found.into_iter().zip(&mut parts) {
        let Some(Found { images, folder, annotations }) = found else { continue };
        let images = open_images(&images, &folder, config, env_paths, notes)?;
        notes.extend(annotations.notes().iter().cloned());
        let of_classes =
            (annotations.class_names(), annotations.categories(), annotations.is_federated());
        let labelled = labelled(images, annotations, &folder, masks)?;
        *part = Some(Coco::new(labelled, of_classes, notes)?);
    }
    Ok(parts)
}

/// That two classes have one name, if so.
fn called_alike(names: &[String]) -> Option<String> {
    let mut known = HashSet::new();
    let name = names.iter().find(|name| !known.insert(nfc(name)))?;
    Some(format!("two classes are called `{name}`: give each a name of its own"))
}

/// That boxes alone are read where nobody says so.
fn boxes_note(config: &DataConfig, masks: Option<bool>) -> Option<String> {
    (config.masks.is_none() && masks == Some(false)).then(|| {
        "no object has a mask: boxes alone are read, as `detection.masks = false` does in training"
            .to_owned()
    })
}

/// Checks that `other` has the classes of `train`.
fn check_classes(train: &Coco, other: &Coco) -> Result<(), DataError> {
    // Their colours are of the same list if their names are.
    let known = |part: &Coco| -> (Vec<String>, Vec<Option<u64>>) {
        let names = part.classes.iter().map(|name| nfc(name)).collect();
        (names, part.object_classes.categories.clone())
    };
    if known(train) == known(other) {
        return Ok(());
    }
    let (ours, theirs) = (&train.classes, &other.classes);
    let known: HashSet<String> = ours.iter().map(|class| nfc(class)).collect();
    let extra = theirs.iter().filter(|class| !known.contains(&nfc(class)));
    let extra: Vec<String> = extra.cloned().collect();
    let extra = (!extra.is_empty()).then(|| format!("only the former has {}", listed(&extra)));
    let numbered = "their names or numbers are others".to_owned();
    Err(SourceError::Classes {
        train: train.images.root().to_owned(),
        train_classes: ours.len(),
        val: other.images.root().to_owned(),
        val_classes: theirs.len(),
        difference: extra.unwrap_or(numbered),
        advice: "both must have the same classes",
    }
    .into())
}

/// The images of a part at `place`, a folder or a zip with one called `folder`.
fn open_images(
    place: &Path,
    folder: &str,
    config: &DataConfig,
    env_paths: &EnvPaths,
    notes: &mut Vec<String>,
) -> Result<Images, DataError> {
    let part = Part::Tree { root: place.to_owned(), folder: folder.to_owned() };
    let cached = cache::open(part, config.index_cache.as_deref(), env_paths)?;
    // What else is in the folder is of no interest: images are named one by one.
    notes.extend(cached.notes.iter().cloned());
    Images::new(cached, config.exif())
}

/// The objects of `images`, which are below `folder`, as `annotations` have them.
fn labelled(
    images: Images,
    annotations: CocoAnnotations,
    folder: &str,
    masks: bool,
) -> Result<Labelled, DataError> {
    let (places, file) = (Places::new(&images, folder), annotations.file().clone());
    let (mut entries, mut named) = (Vec::new(), HashMap::new());
    for (name, objects) in annotations.into_images(masks) {
        let place = match places.find(&name) {
            Ok(place) => place,
            Err(why) => {
                let why = match name.is_empty() {
                    true => format!("image {} has no `file_name`", objects.id),
                    false => format!("{why} {}", images.root().display()),
                };
                return Err(SourceError::Coco { file, what: "annotations", why }.into());
            }
        };
        let before = named.entry(place).or_insert_with(|| name.clone());
        if *before != name {
            let why = format!("`{before}` and `{name}` are the same file");
            return Err(SourceError::Coco { file, what: "annotations", why }.into());
        }
        entries.push((place, objects));
    }
    // In the order of the files, so that archives are read from front to back.
    entries.sort_by_key(|&(place, _)| place);
    Ok(Labelled { images, entries, file, masks })
}

impl Coco {
    /// The images of `labelled` whose classes have these names and numbers, and whether each image
    /// is annotated with some of them only.
    fn new(
        labelled: Labelled,
        (names, categories, federated): (Vec<String>, Vec<u64>, bool),
        notes: &mut Vec<String>,
    ) -> Result<Self, DataError> {
        let Labelled { images, entries, file, .. } = labelled;
        let tally = tally(&images, &entries);
        tally.check().map_err(|why| SourceError::Coco { file, what: "annotations", why })?;
        notes.extend(left_out_note(&tally, &images, &entries));
        let ClassList { names: classes, colours, .. } = match ClassList::coco() {
            known if known.names == names => known,
            _ => ClassList::of_names(names),
        };
        let categories = categories.into_iter().map(Some).collect();
        let object_classes = ObjectClasses { categories, colours, federated };
        Ok(Self { images, entries, classes, object_classes })
    }

    /// Leaves out the images without an object that is no crowd; a note says how many.
    fn trained_on(&mut self) -> Result<Option<String>, DataError> {
        let all = self.entries.len();
        self.entries.retain(|(_, of_image)| of_image.objects.iter().any(|object| !object.crowd));
        if self.entries.is_empty() {
            let file = Location { path: self.images.root().to_owned(), member: None };
            let why = "no image has an object that can be learned from".to_owned();
            return Err(SourceError::Coco { file, what: "annotations", why }.into());
        }
        let without = all - self.entries.len();
        Ok((without > 0).then(|| {
            format!(
                "{without} of {all} training images have no objects but crowds (or objects that \
                 cannot be used) and are left out"
            )
        }))
    }

    /// The image files, among them those without annotations.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The index of each image among the files.
    fn places(&self) -> Vec<usize> {
        self.entries.iter().map(|&(place, _)| place).collect()
    }

    /// The index of an image among the files.
    pub fn place(&self, index: usize) -> usize {
        self.entries[index].0
    }
}

/// The objects that are left out, for a user to know of.
fn left_out_note(
    tally: &Tally,
    images: &Images,
    entries: &[(usize, ImageObjects)],
) -> Option<String> {
    let of = entries.iter().filter(|(_, one)| !one.left_out.is_empty()).count();
    let (bad, root) = (tally.bad, images.root().display());
    let boxes = match tally.without_mask() {
        0 => "",
        _ => "; with `detection.masks = false` boxes alone are learned",
    };
    let cannot =
        |detail| format!("{bad} objects of {of} images in {root} cannot be used ({detail})");
    (bad > 0).then(|| cannot(tally.detail()) + boxes)
}

/// Counts the objects of a part that cannot be used.
fn tally(images: &Images, entries: &[(usize, ImageObjects)]) -> Tally {
    let mut tally = Tally::default();
    for (place, of_image) in entries {
        of_image.objects.iter().for_each(|_| tally.count(None, String::new));
        for one in &of_image.left_out {
            tally.count(Some(one.kind), || {
                let LeftOut { id, why, .. } = one;
                format!("annotation {id} of {}, which {why}", images.file_name(*place))
            });
        }
    }
    tally
}

impl Dataset for Coco {
    fn len(&self) -> usize {
        self.entries.len()
    }

    fn encoding(&self) -> Encoding {
        Encoding::Files
    }

    fn class_names(&self) -> &[String] {
        &self.classes
    }

    /// 0: the objects have the classes.
    fn label(&self, _index: usize) -> Class {
        0
    }

    fn exif(&self) -> Exif {
        self.images.exif()
    }

    fn object_classes(&self) -> Option<&ObjectClasses> {
        Some(&self.object_classes)
    }

    fn objects(&self, index: usize) -> Result<ImageObjects, ObjectError> {
        Ok(self.entries[index].1.clone())
    }

    fn suspects(&self, workers: usize, watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        let (heads, notes) = look(&self.images, &self.places(), workers, watch)?;
        let mut suspects = Suspects { notes, ..Suspects::default() };
        let known = self.images.known();
        for (index, ((place, objects), head)) in self.entries.iter().zip(heads).enumerate() {
            let parts = head.map(|head| [head.stored(), objects.size.into()]);
            let is_known = known.bad.contains(&(*place as u32));
            suspects.add(index, self.exif(), parts, |[ours, theirs]| ours == theirs && !is_known);
        }
        Ok(suspects)
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.images.roots()
    }

    fn name(&self, index: usize) -> String {
        self.images.name(self.place(index))
    }

    fn read(&self, index: usize, into: &mut Sample) -> Result<(), DataError> {
        self.images.read(self.place(index), into)
    }

    fn statistics(&self) -> Statistics {
        Statistics::IMAGENET
    }

    /// The hash of the classes, and of each image's file name and its objects' classes and boxes in
    /// order, those that are left out too: the same data have one fingerprint in folders and in
    /// archives.
    fn fingerprint_by(&self, names: &[String], label: &dyn Fn(Class) -> Class) -> Fingerprint {
        Fingerprint::of(|hasher| {
            hasher.update(b"objects");
            for class in names {
                hasher.update(&(class.len() as u64).to_le_bytes()).update(class.as_bytes());
            }
            for (place, ImageObjects { objects, left_out, .. }) in &self.entries {
                let name = self.images.file_name(*place);
                for word in [name.len(), objects.len()] {
                    hasher.update(&(word as u64).to_le_bytes());
                }
                hasher.update(name.as_bytes());
                for object in objects {
                    hasher.update(&label(object.class).to_le_bytes());
                    object.bbox.iter().for_each(|x| {
                        hasher.update(&x.to_le_bytes());
                    });
                }
                // An evaluation compares their boxes.
                for one in left_out {
                    hasher.update(b"left out").update(&label(one.class).to_le_bytes());
                    one.bbox.iter().flatten().for_each(|x| {
                        hasher.update(&x.to_le_bytes());
                    });
                }
            }
        })
    }
}
