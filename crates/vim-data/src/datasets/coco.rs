//! Images with COCO's annotations, in folders or in the archives as published.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::image_files::start_staging;
use super::{DataConfig, Files, Source, Sources};
use crate::classes::nfc;
use crate::coco::{CocoAnnotations, Tally};
use crate::dataset::{Class, Dataset, Encoding, Fingerprint, OnProgress, Sample, Suspects};
use crate::dense::ClassList;
use crate::error::{DataError, Location, SourceError, listed};
use crate::input::InputKind;
use crate::objects::{ImageObjects, LeftOut, ObjectClasses, ObjectError};
use crate::statistics::Statistics;
use crate::storage::heads::{Wanted, look};
use crate::storage::images::Images;
use crate::storage::layout::Part;
use crate::storage::zips::read_entry;
use crate::storage::{EnvPaths, cache};

/// The source of COCO. The classes are found in the annotations.
pub(super) static SOURCE: Source = Source {
    class_names: &[],
    statistics: Statistics::IMAGENET,
    files: Files::Listed,
    classes: None,
    label_maps: None,
    objects: Some(|config, env_paths| Ok(open_coco(config, env_paths)?.into())),
};

/// One part of a dataset with COCO's annotations.
#[derive(Debug)]
pub struct Coco {
    images: Images,
    /// Of each image: its index among the files, and its objects.
    entries: Vec<(usize, ImageObjects)>,
    classes: Vec<String>,
    object_classes: ObjectClasses,
}

/// The folder of annotations, and the archive that has it.
const ANNOTATIONS: &str = "annotations";
const ANNOTATIONS_ZIP: &str = "annotations_trainval2017.zip";

/// Finds the images and reads the annotations that a configuration of `coco` names. The training
/// part has the images with an object that is no crowd. Objects whose boxes or masks cannot be used
/// are left out of both, and the notes count them.
///
/// # Errors
/// If a folder or a file is missing, the annotations are not of COCO's format or name an image that
/// is not there, most objects of a part cannot be used, or the parts differ in their classes.
pub fn open_coco(config: &DataConfig, env_paths: &EnvPaths) -> Result<Sources<Coco>, DataError> {
    let root = config.required_path()?;
    let root = &root.canonicalize().map_err(DataError::io(root))?;
    let mut notes = Vec::new();
    let mut part = |name: &str| -> Result<Coco, DataError> {
        let images = open_images(root, name, config, env_paths, &mut notes)?;
        let annotations = annotations(root, name)?;
        notes.extend(annotations.notes().iter().cloned());
        let part = Coco::new(images, annotations, name)?;
        notes.extend(part.note());
        Ok(part)
    };
    let (mut train, mut val) = (part("train2017")?, part("val2017")?);
    // Their colours are of the same list if their names are.
    let known = |part: &Coco| -> (Vec<String>, Vec<Option<u64>>) {
        let names = part.classes.iter().map(|name| nfc(name)).collect();
        (names, part.object_classes.categories.clone())
    };
    if known(&train) != known(&val) {
        let (ours, theirs) = (&train.classes, &val.classes);
        let known: HashSet<String> = ours.iter().map(|class| nfc(class)).collect();
        let extra = theirs.iter().filter(|class| !known.contains(&nfc(class)));
        let extra: Vec<String> = extra.cloned().collect();
        let extra = (!extra.is_empty()).then(|| format!("only the former has {}", listed(&extra)));
        let numbered = "their names or numbers are others".to_owned();
        return Err(SourceError::Classes {
            train: train.images.root().to_owned(),
            train_classes: ours.len(),
            val: val.images.root().to_owned(),
            val_classes: theirs.len(),
            difference: extra.unwrap_or(numbered),
            advice: "both must have the same classes",
        }
        .into());
    }
    val.classes.clone_from(&train.classes);
    let all = train.entries.len();
    train.entries.retain(|(_, of_image)| of_image.objects.iter().any(|object| !object.crowd));
    if train.entries.is_empty() {
        return Err(SourceError::Empty(train.images.root().to_owned()).into());
    }
    let without = all - train.entries.len();
    if without > 0 {
        notes.push(format!(
            "{without} of {all} training images have no objects but crowds (or objects that cannot \
             be used) and are left out"
        ));
    }
    let halves = &mut [&mut train.images, &mut val.images];
    let staging = start_staging(halves, &mut notes, config.stage, env_paths)?;
    Ok(Sources { train, val, notes, staging })
}

/// Something is not where the layout has it.
fn missing(root: &Path, what: &str, expected: &'static str) -> DataError {
    SourceError::NoHalf { path: root.to_owned(), what: what.to_owned(), expected }.into()
}

/// The images of the part `name`: a folder or a zip.
fn open_images(
    root: &Path,
    name: &str,
    config: &DataConfig,
    env_paths: &EnvPaths,
    notes: &mut Vec<String>,
) -> Result<Images, DataError> {
    let zip = format!("{name}.zip");
    let places = [root.join(name), root.join("images").join(name), root.join(zip)];
    let place = places.into_iter().find(|place| place.exists());
    let place = place.ok_or_else(|| match name {
        "train2017" => missing(root, "training images", "train2017` or `train2017.zip"),
        _ => missing(root, "validation images", "val2017` or `val2017.zip"),
    })?;
    let part = Part::Tree { root: place, folder: name.to_owned() };
    let cached = cache::open(part, config.index_cache.as_deref(), env_paths)?;
    notes.extend(cached.index.notes.iter().chain(&cached.notes).cloned());
    Images::new(cached)
}

/// The annotations of the part `name`, out of their folder or their zip.
fn annotations(root: &Path, name: &str) -> Result<CocoAnnotations, DataError> {
    let file = format!("instances_{name}.json");
    let unpacked = root.join(ANNOTATIONS).join(&file);
    if unpacked.is_file() {
        return CocoAnnotations::read(&unpacked);
    }
    let zip = root.join(ANNOTATIONS_ZIP);
    if !zip.is_file() {
        let expected = match name {
            "train2017" => "annotations/instances_train2017.json` or `annotations_trainval2017.zip",
            _ => "annotations/instances_val2017.json` or `annotations_trainval2017.zip",
        };
        return Err(missing(root, "annotations", expected));
    }
    let member = format!("{ANNOTATIONS}/{file}");
    let bytes = read_entry(&zip, &member, InputKind::Annotations)?;
    CocoAnnotations::parse(bytes, Location { path: zip, member: Some(member) })
}

impl Coco {
    /// The part `folder` of these images.
    fn new(images: Images, annotations: CocoAnnotations, folder: &str) -> Result<Self, DataError> {
        let places: HashMap<String, usize> =
            (0..images.len()).map(|at| (name_in(&images, at, folder), at)).collect();
        let (names, categories) = (annotations.class_names(), annotations.categories());
        let file = annotations.file().clone();
        let entry = |(name, objects): (String, ImageObjects)| {
            let Some(&place) = places.get(name.trim_start_matches("./")) else {
                let why = match name.is_empty() {
                    true => format!("image {} has no `file_name`", objects.id),
                    false => {
                        format!("it names `{name}`, which is not in {}", images.root().display())
                    }
                };
                return Err(SourceError::Coco { file: file.clone(), what: "annotations", why });
            };
            Ok((place, objects))
        };
        let entries = annotations.into_images().into_iter().map(entry);
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        // In the order of the files, so that archives are read from front to back.
        entries.sort_by_key(|&(place, _)| place);
        let tally = tally(&images, &entries);
        tally.check().map_err(|why| SourceError::Coco { file, what: "annotations", why })?;
        let ClassList { names: classes, colours } = match ClassList::coco() {
            known if known.names == names => known,
            _ => ClassList::of_names(names),
        };
        let categories = categories.into_iter().map(Some).collect();
        let object_classes = ObjectClasses { categories, colours };
        Ok(Self { images, entries, classes, object_classes })
    }

    /// The objects that are left out, for a user to know of.
    fn note(&self) -> Option<String> {
        let tally = tally(&self.images, &self.entries);
        let images = self.entries.iter().filter(|(_, one)| !one.left_out.is_empty()).count();
        let (bad, root) = (tally.bad, self.images.root().display());
        (bad > 0).then(|| {
            format!(
                "{bad} objects of {images} images in {root} cannot be used ({})",
                tally.detail()
            )
        })
    }

    /// The image files, among them those without annotations.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The index of an image among the files.
    pub fn place(&self, index: usize) -> usize {
        self.entries[index].0
    }
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

/// The path of an image below the folder of its part.
fn name_in(images: &Images, index: usize, folder: &str) -> String {
    let Location { path, member } = images.location(index);
    match member {
        Some(member) => {
            let below = format!("{folder}/");
            let start = member.find(&below).map_or(0, |at| at + below.len());
            member[start..].to_owned()
        }
        None => path.strip_prefix(images.root()).unwrap_or(&path).to_string_lossy().into_owned(),
    }
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

    fn object_classes(&self) -> Option<&ObjectClasses> {
        Some(&self.object_classes)
    }

    fn objects(&self, index: usize) -> Result<ImageObjects, ObjectError> {
        Ok(self.entries[index].1.clone())
    }

    fn suspects(&self, workers: usize, watch: OnProgress<'_>) -> Result<Suspects, DataError> {
        let places: Vec<usize> = self.entries.iter().map(|&(place, _)| place).collect();
        let wanted = Wanted { images: &self.images, places: &places, is_labels: false };
        let (heads, notes) = look(&[wanted], workers, watch)?;
        let mut suspects = Suspects { notes, ..Suspects::default() };
        let known = self.images.known();
        for (index, ((place, objects), head)) in
            self.entries.iter().zip(heads.into_iter().flatten()).enumerate()
        {
            let size = head.map(|head| head.size());
            let fits = Some(objects.size) == size;
            if !fits || known.bad.contains(&(*place as u32)) {
                suspects.bad.insert(index);
            }
            if head.is_some_and(|head| head.orientation != 1) {
                suspects.turned.insert(index);
            }
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
