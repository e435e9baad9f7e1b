//! What the data layer finds at a path: images, their sizes, classes and annotations.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use strum::VariantArray;
use vim_data::{DataConfig, DatasetKind, DecodeLimits, Decoder, Encoding, Split, Splits};

use crate::config::{Config, TaskKind, in_toml};
use crate::error::Error;
use crate::task::kinds::with_task;
use crate::task::named::NamedTask;

/// The share of the training images that is held out, where the data have no such part.
const HELD_OUT: f64 = 0.15;
/// Images whose headers are read.
const SAMPLE: usize = 64;

/// Images that can be trained on, and how.
#[derive(Debug)]
pub struct Survey {
    /// What `[data]` is to say.
    pub data: DataConfig,
    /// What can be learned of them.
    pub task: TaskKind,
    /// For training, validation and test.
    pub images: [usize; 3],
    /// Names of the classes.
    pub classes: Vec<String>,
    /// The fewest and the most training images of a class, where an image has one.
    pub per_class: Option<[usize; 2]>,
    /// The shorter side of the median image, in pixels.
    pub side: usize,
    /// Whether all images have that side.
    pub is_fixed: bool,
    /// Whether objects have boxes and no masks.
    pub has_boxes_alone: bool,
    /// Oddities, a line each.
    pub notes: Vec<String>,
}

impl Survey {
    /// Looks at the images in `path`: first for objects, then for label maps, then for classes, as
    /// folders of the former are folders of images, too.
    pub fn of(path: &Path) -> Result<Self, Error> {
        fs::metadata(path).map_err(Error::io("read", path))?;
        let kinds = || DatasetKind::VARIANTS.iter().copied().filter(|kind| is_asked(*kind));
        let with_objects = kinds().filter(|kind| kind.has_objects());
        let with_maps = kinds().filter(|kind| kind.has_pairs());
        let with_classes = kinds().filter(|kind| !kind.has_objects() && !kind.has_pairs());
        let (likely, mut wrong) = (likely(path), None);
        for dataset in with_objects.chain(with_maps).chain(with_classes) {
            let task = if dataset.has_objects() {
                TaskKind::Detection
            } else if dataset.has_pairs() {
                TaskKind::Segmentation
            } else {
                TaskKind::Classification
            };
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
                    Ok(splits) => {
                        let found = Self::of_splits(path, &config.data, task, &splits)?;
                        return Ok(Self { has_boxes_alone: !head.is_empty(), ..found });
                    }
                    Err(error) if dataset == likely => wrong = Some(error),
                    Err(_) => {}
                }
            }
        }
        Err(match wrong {
            Some(error) => error.into(),
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
    pub fn is_of_classes(&self) -> bool {
        self.task == TaskKind::Classification
    }

    /// What was found, in a line.
    pub fn describe(&self) -> String {
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

/// The dataset whose error is told where none is found, by what lies in the folder `path`.
fn likely(path: &Path) -> DatasetKind {
    let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let is_json = |path: &Path| path.extension() == Some(OsStr::new("json"));
    let mut all = inside(path).flat_map(|entry| {
        let below: Vec<_> = inside(&entry.path()).map(|entry| entry.path()).collect();
        below.into_iter().chain([entry.path()])
    });
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
}
