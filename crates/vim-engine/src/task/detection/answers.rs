//! What `eval` and `predict` say of a detector.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use vim_comm::Comm;
use vim_data::mask_ops::{Rle, rle_to_string};
use vim_data::{
    Exif, FEDERATED, ImageObjects, LoaderConfig, PictureError, Pixels, Split, encode_png,
    read_whole_picture,
};
use vim_dense::detection::{Detector, DetectorConfig};
use vim_run::storage::{Disk, replace};

use super::evaluate::Evaluated;
use super::inference::Seen;
use super::trained::TrainedDetector;
use super::{Detection, FoundObject, FoundObjects, ObjectDetector, SHOWN};
use crate::config::Config;
use crate::error::Error;
use crate::output::check_distinct;
use crate::output::coco::{KindReport, classes_csv, kind_reports, tables};
use crate::task::dense::{self, DenseObjective as _, is_federated};
use crate::task::named::{EvalOptions, Evaluating, NamedTask, PredictOptions, Report, Settings};

impl NamedTask for Detection {
    type Annotation = ImageObjects;
    type Heads = DetectorConfig;
    type Report = Evaluated;
    type Trained = TrainedDetector;
    type Answer = Answer;

    const REFUSED: &'static [(&'static str, &'static str)] = &[
        (
            "--predictions",
            "it has no class for each image: --detections FILE.json writes the objects of each",
        ),
        (
            "--confusion",
            "an object may be missed or found twice: --detections FILE.json writes the objects of \
             each image",
        ),
        ("--multi-scale", "a detector sees an image at one size"),
        (
            "--output",
            "it has no class for each image: use --drawn FOLDER for pictures, or --json for boxes \
             and masks",
        ),
        ("--maps", "it has no class for each pixel: --drawn FOLDER writes each image with masks"),
        ("--submission", "it has no class for each pixel: --json has boxes and masks"),
    ];
    const PREDICTED_AT_A_TIME: usize = 32;
    const NEEDS_CONFIG: bool = true;
    const SCORES_CLASSES: bool = true;

    fn training(config: &Config, comm: &Comm) -> LoaderConfig {
        dense::training::<ObjectDetector>(config, comm)
    }

    fn published_names(count: usize) -> Option<Vec<String>> {
        dense::published_names(count)
    }

    fn report(model: Detector, of: &Evaluating<'_>) -> Result<Option<Evaluated>, Error> {
        if is_federated(of.split) {
            return Err(Error::data(format!("no score of these data: {FEDERATED}")));
        }
        let model = model.with_precision(of.config.train.precision)?;
        ObjectDetector::measure(&model, of)
    }

    fn check_files(options: &PredictOptions, paths: &[PathBuf]) -> Result<(), Error> {
        let Some(folder) = &options.drawn else { return Ok(()) };
        let file = |path: &Path| vec![drawn_file(folder, path)];
        check_distinct([folder.as_path()].into_iter(), paths, options.force, file)
    }

    fn trained(model: Detector, with: Settings<'_>) -> Result<TrainedDetector, Error> {
        TrainedDetector::new(model, with)
    }

    fn predictor(
        trained: TrainedDetector,
        options: &PredictOptions,
    ) -> Result<impl FnMut(&[PathBuf]) -> Result<Vec<Result<Answer, String>>, Error>, Error> {
        let PredictOptions { drawn, least, top, json, .. } = options;
        let (folder, top) = (drawn.clone(), top.unwrap_or(usize::MAX));
        let least_drawn = least.unwrap_or(SHOWN);
        let least = least.unwrap_or(if *json { 0.0 } else { SHOWN });
        Ok(move |paths: &[PathBuf]| {
            let TrainedDetector { model, classes, colours, viewer, device } = &trained;
            // What is drawn and written lies over the picture as viewers show it.
            let read = |path: &PathBuf| read_whole_picture(path, Exif::Apply);
            let read: Vec<_> = paths.iter().map(read).collect();
            let images: Vec<&Pixels> = read.iter().flatten().collect();
            let seen = match images.is_empty() {
                true => Vec::new(),
                false => viewer.seen(model, &images, device)?,
            };
            let mut seen = seen.into_iter();
            let answer = |(path, image): (&PathBuf, &Result<Pixels, PictureError>)| {
                let image = match image {
                    Ok(image) => image,
                    Err(why) => return Ok(Err(why.to_string())),
                };
                let seen = seen.next().ok_or_else(|| Error::internal("an image was lost"))?;
                if let Some(folder) = &folder {
                    let file = drawn_file(folder, path);
                    let drawn = seen.drawn(image, classes, colours, least_drawn);
                    let written =
                        encode_png(&drawn).and_then(|bytes| replace(&Disk, &file, &bytes));
                    written.map_err(Error::io("write", &file))?;
                }
                let objects = trained.objects(&seen, least, top);
                let below = seen.below(least, classes);
                Ok(Ok(Answer { image: path.display().to_string(), seen, objects, below }))
            };
            paths.iter().zip(&read).map(answer).collect()
        })
    }
}

impl Serialize for Evaluated {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Scores<'a> {
            images: usize,
            detections: usize,
            #[serde(flatten)]
            kinds: BTreeMap<String, KindReport<'a>>,
        }
        let (images, detections) = (self.images, self.num_found());
        Scores { images, detections, kinds: kind_reports(&self.scores) }.serialize(serializer)
    }
}

impl Report for Evaluated {
    fn images(&self) -> usize {
        self.images
    }

    fn write(&self, _: &Split, options: &EvalOptions, _: &str) -> Result<(), Error> {
        if let Some(path) = &options.per_class {
            replace(&Disk, path, &classes_csv(&self.scores)?).map_err(Error::io("write", path))?;
        }
        let Some((truths, found)) = &self.compared else { return Ok(()) };
        if let Some(path) = &options.detections {
            replace(&Disk, path, &found.json()).map_err(Error::io("write", path))?;
        }
        if let Some(path) = &options.annotations {
            replace(&Disk, path, &truths.json()).map_err(Error::io("write", path))?;
        }
        Ok(())
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let images = format!("{name} images {}, {} detections", self.images, self.num_found());
        std::iter::once(images).chain(tables(&self.scores)).collect()
    }
}

/// The objects of an image, the surest first.
pub(crate) struct Answer {
    /// Its file.
    image: String,
    seen: Seen,
    /// Those to show.
    objects: Vec<FoundObject>,
    /// Where there are none, what was seen.
    below: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.below {
            Some(below) => write!(formatter, "  {below}"),
            None => write!(formatter, "{}", FoundObjects::from(self.objects.clone())),
        }
    }
}

impl Serialize for Answer {
    /// With masks, if they are found, as COCO's files have them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            image: &'a str,
            size: [usize; 2],
            objects: Vec<Object<'a>>,
        }
        #[derive(Serialize)]
        struct Object<'a> {
            #[serde(flatten)]
            found: &'a FoundObject,
            #[serde(skip_serializing_if = "Option::is_none")]
            segmentation: Option<Segmentation>,
        }
        #[derive(Serialize)]
        struct Segmentation {
            size: [usize; 2],
            counts: String,
        }
        let size = self.seen.size;
        let [h, w] = size.map(|side| side as u32);
        let object = |(at, found): (usize, _)| {
            let segmentation = self.seen.runs.get(at).map(|runs| {
                let counts = rle_to_string(&Rle { h, w, counts: runs.clone() });
                Segmentation { size, counts }
            });
            Object { found, segmentation }
        };
        let objects = self.objects.iter().enumerate().map(object).collect();
        Shown { image: &self.image, size, objects }.serialize(serializer)
    }
}

/// The picture of the image at `path`.
fn drawn_file(folder: &Path, path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    folder.join(format!("{stem}_objects.png"))
}
