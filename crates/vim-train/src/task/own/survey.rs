//! What the data layer finds at a path: images, their sizes, classes and annotations.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use strum::VariantArray;
use vim_data::{
    DataConfig, DataError, DatasetKind, DecodeLimits, Decoder, Encoding, SourceError, Split, Splits,
};

use crate::config::{Config, TaskKind, in_toml};
use crate::error::Error;
use crate::task::dense::is_federated;
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;

/// The share of the training images that is held out, where the data have no such part.
const HELD_OUT: f64 = 0.15;
/// Images whose headers are read.
const SAMPLE: usize = 64;

/// Images that can be trained on, and how.
#[derive(Debug)]
pub(crate) struct Survey {
    /// What `[data]` is to say.
    pub(crate) data: DataConfig,
    pub(crate) task: TaskKind,
    /// For training, validation and test.
    pub(crate) images: [usize; 3],
    pub(crate) classes: Vec<String>,
    /// The fewest and the most training images of a class, where an image has one.
    pub(crate) per_class: Option<[usize; 2]>,
    /// The shorter side of the median image, in pixels.
    pub(crate) side: usize,
    /// Whether all images have that side.
    pub(crate) is_fixed: bool,
    /// Whether objects have boxes and no masks.
    pub(crate) has_boxes_alone: bool,
    /// Oddities, a line each.
    pub(crate) notes: Vec<String>,
}

impl Survey {
    /// Looks at the images in `path`: first for objects, then for label maps, then for classes, as
    /// folders of the former are folders of images, too. Data that are laid out as the former and
    /// cannot be used are no classes: then their error counts.
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        fs::metadata(path).map_err(Error::io("read", path))?;
        let kinds = || DatasetKind::VARIANTS.iter().copied().filter(|kind| is_asked(*kind));
        let with_objects = kinds().filter(|kind| kind.has_objects());
        let with_maps = kinds().filter(|kind| kind.has_pairs());
        let with_classes = kinds().filter(|kind| !kind.has_objects() && !kind.has_pairs());
        let (likely, mut wrong, mut known) = (likely(path), None, None);
        for dataset in with_objects.chain(with_maps).chain(with_classes) {
            let task = if dataset.has_objects() {
                TaskKind::Detection
            } else if dataset.has_pairs() {
                TaskKind::Segmentation
            } else {
                TaskKind::Classification
            };
            if task == TaskKind::Classification && known.is_some() {
                break;
            }
            let mut why: Option<DataError> = None;
            // Data with validation images of their own refuse that some are held out, and objects
            // with boxes alone that masks are learned.
            let heads = if dataset.has_objects() { &["", BOXES][..] } else { &[""] };
            let shares = [HELD_OUT, 0.0].into_iter();
            for (share, head) in
                shares.flat_map(|share| heads.iter().map(move |head| (share, head)))
            {
                let Ok(config) = Config::from_toml(&opening(task, dataset, path, share, head))
                else {
                    continue;
                };
                match with_task!(task, T => <T as NamedTask>::splits(&config)) {
                    // No score of such data would choose a checkpoint.
                    Ok(splits) if share > 0.0 && is_federated(&splits.train) => {}
                    Ok(splits) => {
                        let found = Self::of_splits(path, &config.data, task, &splits)?;
                        return Ok(Self { has_boxes_alone: !head.is_empty(), ..found });
                    }
                    // Without a share only what its refusal hid is news.
                    Err(error) => {
                        let is_hidden = matches!(why, None | Some(DataError::InvalidConfig { .. }));
                        if share > 0.0 || is_hidden {
                            why = Some(error);
                        }
                    }
                }
            }
            let Some(error) = why else { continue };
            if known.is_none() && is_laid_out(dataset, path, &error) {
                known = Some((dataset, error));
            } else if dataset == likely {
                wrong = Some((dataset, error));
            }
        }
        Err(match known.or(wrong) {
            Some((dataset, error)) => advised(dataset, error),
            None => Error::data(format!("{} has no images that can be read", path.display())),
        })
    }

    fn of_splits(
        path: &Path,
        data: &DataConfig,
        task: TaskKind,
        splits: &Splits,
    ) -> Result<Self, Error> {
        let (train, classes) = (&splits.train, splits.train.class_names().to_vec());
        if let (TaskKind::Classification, [one]) = (task, &classes[..]) {
            return Err(Error::data(format!(
                "{} has one class of images, `{one}`, and a classifier learns to tell several \
                 apart: put the images of each class into a folder (docs/own-pictures.md)",
                path.display()
            )));
        }
        let counts = train.class_counts();
        let per_class = counts.and_then(|counts| {
            let of = |count: Option<&usize>| count.copied();
            Some([of(counts.iter().min())?, of(counts.iter().max())?])
        });
        let side = match train.encoding() {
            Encoding::Pixels { size: [height, width] } => height.min(width),
            Encoding::Files => median_side(train)?,
        };
        let val = splits.val.as_ref().map_or(0, Split::len);
        Ok(Self {
            data: data.clone(),
            task,
            images: [train.len(), val, splits.test.len()],
            classes,
            per_class,
            side,
            is_fixed: train.image_size().is_some(),
            has_boxes_alone: false,
            notes: splits.notes.clone(),
        })
    }

    /// Whether images have a class each: published weights are of such.
    pub(crate) fn is_of_classes(&self) -> bool {
        self.task == TaskKind::Classification
    }

    /// What was found, in a line.
    pub(crate) fn describe(&self) -> String {
        let [train, val, test] = self.images;
        let classes = match self.classes.len() {
            1 => "1 class".to_owned(),
            count => format!("{count} classes"),
        };
        let each = match self.per_class {
            Some([least, most]) if least == most => format!(", {least} of each"),
            Some([least, most]) => format!(", {least} to {most} of each"),
            None => String::new(),
        };
        let what = match self.task {
            TaskKind::Classification => "",
            TaskKind::Segmentation => " with label maps",
            TaskKind::Detection => " with objects",
        };
        format!(
            "{train} training, {val} validation and {test} test images{what}, {classes}{each}; \
             {} px on the shorter side",
            self.side
        )
    }
}

/// Whether a path is looked at for it: ImageNet and ADE20K are laid out as datasets of any images.
fn is_asked(kind: DatasetKind) -> bool {
    kind.has_files() && !matches!(kind, DatasetKind::Imagenet | DatasetKind::Ade20k)
}

/// The section of a detector without masks.
const BOXES: &str = "[detection]\nmasks = false\n";

/// A configuration by which images are opened.
fn opening(task: TaskKind, dataset: DatasetKind, path: &Path, share: f64, head: &str) -> String {
    let dataset: &str = dataset.into();
    let path = in_toml(&path.to_string_lossy().into_owned().into());
    let data = format!("dataset = \"{dataset}\"\npath = {path}\nval_fraction = {share:?}");
    format!("task = \"{task}\"\n[data]\n{data}\n{head}")
}

/// `error`, and how the keys that it names are set.
fn advised(dataset: DatasetKind, error: DataError) -> Error {
    let error = Error::from(error);
    let (code, dataset): (_, &str) = (error.exit_code(), dataset.into());
    match error.to_string() {
        text if text.contains("`data.") => Error::with_code(
            code,
            format!(
                "{text}; `new` takes no key: write a file with `data.dataset = \"{dataset}\"`, \
                 `data.path` and such keys, and train by it (docs/data.md)"
            ),
        ),
        _ => error,
    }
}

/// Whether `path` is laid out for data of `kind`, which `error` says cannot be used.
fn is_laid_out(kind: DatasetKind, path: &Path, error: &DataError) -> bool {
    let is_missing = matches!(error, DataError::Source(SourceError::NoHalf { .. }));
    let bases = || inside(path).chain([path.to_owned()]);
    if kind == DatasetKind::Coco {
        let DataError::Source(SourceError::Coco { file, .. }) = error else {
            return !is_missing && likely(path) == DatasetKind::Coco;
        };
        speaks_of_images(&file.path)
    } else if kind == DatasetKind::Yolo {
        let lists = ["data.yaml", "data.yml", "dataset.yaml", "obj.names"];
        path.extension() == Some(OsStr::new("yaml"))
            || lists.iter().any(|name| path.join(name).is_file()) && holds(path, "txt", 2)
            || bases().any(|base| holds(&base.join("labels"), "txt", 1))
    } else if kind == DatasetKind::Pairs && is_missing {
        let any = |base: &Path, names: &[&str], is: &dyn Fn(&Path) -> bool| {
            names.iter().any(|name| is(&base.join(name)))
        };
        let maps = ["masks", "labels", "annotations", "ann_dir", "SegmentationClass"];
        path.join("ImageSets/Segmentation").is_dir()
            || bases().any(|base| {
                any(&base, &["images", "img_dir", "img", "JPEGImages"], &Path::is_dir)
                    && any(&base, &maps, &|maps| holds(maps, "png", 1))
            })
    } else {
        let is_empty = matches!(error, DataError::Source(SourceError::Empty { .. }));
        kind == DatasetKind::Pairs && !is_empty
    }
}

/// What is in a folder.
fn inside(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Whether a file in `folder`, and as many folders below it as `depth` says, ends in `end`.
fn holds(folder: &Path, end: &str, depth: usize) -> bool {
    inside(folder).any(|path| {
        path.extension() == Some(OsStr::new(end)) || depth > 0 && holds(&path, end, depth - 1)
    })
}

/// Whether a file begins as annotations do; other files of JSON may lie beside images.
fn speaks_of_images(file: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(file).and_then(|file| file.take(1 << 16).read_to_end(&mut start));
    let start = String::from_utf8_lossy(&start);
    let words = ["\"images\"", "\"annotations\"", "\"categories\"", "\"licenses\""];
    read.is_ok() && words.iter().any(|word| start.contains(word))
}

/// The dataset whose error is told where none is found, by what lies in the folder `path`.
fn likely(path: &Path) -> DatasetKind {
    let is_json = |path: &Path| path.extension() == Some(OsStr::new("json"));
    let mut all = inside(path).flat_map(|path| inside(&path).chain([path]));
    if is_json(path) || all.any(|path| is_json(&path)) {
        DatasetKind::Coco
    } else if path.join("images").is_dir() {
        DatasetKind::Pairs
    } else {
        DatasetKind::Folder
    }
}

/// The shorter side of the median of some images, by their headers.
fn median_side(images: &Split) -> Result<usize, Error> {
    let decoder = Decoder::new(DecodeLimits::default());
    let decoder = decoder.map_err(|error| Error::internal(format!("a decoder: {error}")))?;
    let count = images.len().min(SAMPLE);
    let mut sides = Vec::with_capacity(count);
    let mut wrong = None;
    for position in (0..count).map(|number| number * images.len() / count) {
        match images.image(position) {
            Ok(file) => match decoder.header(&file) {
                Ok(header) => sides.push(header.height.min(header.width)),
                Err(error) => wrong = Some(error.to_string()),
            },
            Err(error) => wrong = Some(error.to_string()),
        }
    }
    sides.sort_unstable();
    sides
        .get(sides.len() / 2)
        .copied()
        .ok_or_else(|| Error::data(format!("no image can be read: {}", wrong.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a grey picture of `[height, width]`.
    fn picture(path: &Path, [height, width]: [usize; 2]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let data = vec![90; 3 * height * width];
        let pixels = vim_data::Pixels { height, width, data };
        fs::write(path, vim_data::encode_png(&pixels).unwrap()).unwrap();
    }

    #[test]
    fn folders_of_classes_are_found() {
        let folder = tempfile::tempdir().unwrap();
        for (part, count) in [("train", 10), ("val", 2)] {
            for class in ["cat", "dog"] {
                for number in 0..count {
                    let path = folder.path().join(part).join(class).join(format!("{number}.png"));
                    picture(&path, [40, 60 + number]);
                }
            }
        }
        let found = Survey::of(folder.path()).unwrap();
        assert_eq!(found.data.dataset, DatasetKind::Folder);
        assert_eq!((found.task, found.side), (TaskKind::Classification, 40));
        assert_eq!(found.classes, ["cat", "dog"]);
        assert_eq!(found.images.iter().sum::<usize>(), 24);
        assert!(found.describe().contains("2 classes, "), "{}", found.describe());
    }

    #[test]
    fn nothing_is_said_to_be_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Survey::of(folder.path()).is_err());
        let missing = Survey::of(&folder.path().join("x")).unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
        picture(&folder.path().join("train/one/1.png"), [40, 40]);
        picture(&folder.path().join("train/one/2.png"), [40, 40]);
        picture(&folder.path().join("val/one/1.png"), [40, 40]);
        let one = Survey::of(folder.path()).unwrap_err().to_string();
        assert!(one.contains("has one class of images, `one`"), "{one}");
    }

    #[test]
    fn what_is_laid_out_and_wrong_is_no_class() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let says = |name: &str, words: &str| {
            let error = Survey::of(&at(name)).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("class of images"), "{error}");
        };
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        for number in 0..3 {
            for part in ["train", "val"] {
                picture(&at(&format!("maps/{part}/images/{number}.png")), [40, 40]);
                picture(&at(&format!("maps/{part}/masks/{number}_mask.png")), [40, 40]);
                picture(&at(&format!("lines/images/{part}/{number}.png")), [40, 40]);
                write(&format!("lines/labels/{part}/{number}.txt"), "0 9 9 1 1");
                for class in ["cat", "dog"] {
                    picture(&at(&format!("classes/{part}/{class}/{number}.png")), [40, 40]);
                }
            }
            picture(&at(&format!("loose/images/{number}.png")), [40, 40]);
            picture(&at(&format!("loose/masks/{number}.png")), [40, 40]);
            picture(&at(&format!("boxes/images/{number}.png")), [40, 40]);
        }
        fs::write(at("maps/classes.txt"), "a\nb\n").unwrap();
        says("maps", "label_suffix");
        says("maps", "`new` takes no key: write a file with `data.dataset = \"pairs\"`");
        says("lines", "there is no `data.yaml` with `names`");
        says("loose", "expected `images/training`");
        write(
            "boxes/result.json",
            r#"{"images": [{"id": 1, "file_name": "9.png", "height": 40, "width": 40}],
                "categories": [{"id": 1, "name": "a"}], "annotations": []}"#,
        );
        says("boxes", "9.png");
        // Other JSON, and a list of names.
        write("classes/info.json", r#"{"made": "today"}"#);
        write("classes/data.yaml", "names: [cat, dog]\n");
        assert_eq!(Survey::of(&at("classes")).unwrap().classes, ["cat", "dog"]);
    }
}
