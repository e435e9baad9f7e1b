//! What `eval` and `predict` say of a segmenter.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vim_chart::{document, text, text_width};
use vim_comm::Comm;
use vim_data::dense_ops::{encode_grey, encode_palette, overlay};
use vim_data::{
    Confusion, Exif, LabelMap, LoaderConfig, Pixels, Split, encode_png, read_whole_picture,
};
use vim_dense::{Segmenter, SegmenterConfig};
use vim_run::metrics::Scores;
use vim_run::storage::{Disk, replace};

use super::classes::{ClassRow, class_rows, classes_csv};
use super::evaluate::{SCORES, scores};
use super::inference::Viewer;
use super::trained::TrainedSegmenter;
use super::{ClassShares, PixelClassifier, Segmentation};
use crate::config::Config;
use crate::error::Error;
use crate::output::{check_distinct, check_free, confusion};
use crate::task::Evaluation;
use crate::task::dense::{self, DenseObjective as _};
use crate::task::named::{
    EvalOptions, Evaluating, NamedTask, PredictOptions, Report, Settings, TOP,
};

impl NamedTask for Segmentation {
    type Annotation = LabelMap;
    type Heads = SegmenterConfig;
    type Report = PixelScores;
    type Trained = TrainedSegmenter;
    type Answer = Answer;

    const REFUSED: &'static [(&'static str, &'static str)] = &[
        (
            "--predictions",
            "it has no class for each image: `vim-train predict --maps FOLDER` writes a map of \
             classes for each",
        ),
        ("--detections", "it finds no objects: `vim-train predict --maps FOLDER` writes its maps"),
        ("--annotations", "pixels have classes and no objects"),
        (
            "--output",
            "it has no class for each image: use --maps FOLDER, or --json for the classes that \
             cover most of each image",
        ),
        ("--drawn", "it finds no objects: --maps FOLDER writes each image with its classes"),
        ("--least", "it finds no objects: --top says how many classes are printed"),
    ];
    const PREDICTED_AT_A_TIME: usize = 1;
    const NEEDS_CONFIG: bool = true;
    const SCORES_CLASSES: bool = true;

    fn training(config: &Config, comm: &Comm) -> LoaderConfig {
        dense::training::<PixelClassifier>(config, comm)
    }

    fn published_names(count: usize) -> Option<Vec<String>> {
        dense::published_names(count)
    }

    fn report(model: Segmenter, of: &Evaluating<'_>) -> Result<Option<PixelScores>, Error> {
        let model = model.with_precision(of.config.train.precision)?;
        let Some((confusion, images)) = PixelClassifier::measure(&model, of)? else {
            return Ok(None);
        };
        let classes = class_rows(of.split.class_names(), &confusion);
        let Evaluation { scores, .. } = scores(&confusion, images);
        Ok(Some(PixelScores { scores, images, classes, confusion }))
    }

    fn check_files(options: &PredictOptions, paths: &[PathBuf]) -> Result<(), Error> {
        let outputs = Outputs::of(options);
        let folders = [&outputs.maps, &outputs.submission];
        let folders = folders.into_iter().flatten().map(PathBuf::as_path);
        check_distinct(folders, paths, options.force, |path| outputs.files(path))
    }

    fn trained(model: Segmenter, with: Settings<'_>) -> Result<TrainedSegmenter, Error> {
        TrainedSegmenter::new(model, with)
    }

    fn predictor(
        trained: TrainedSegmenter,
        options: &PredictOptions,
    ) -> Result<impl FnMut(&[PathBuf]) -> Result<Vec<Result<Answer, String>>, Error>, Error> {
        let viewer = Viewer { multi_scale: options.multi_scale, ..trained.viewer };
        let (outputs, top) = (Outputs::of(options), options.top.unwrap_or(TOP));
        if let Some(folder) = &outputs.maps {
            let (path, svg) = (folder.join(LEGEND), legend(&trained.classes, &trained.colours));
            // Maps of other images may lie beside it, by the same classes.
            if fs::read(&path).is_ok_and(|there| there != svg.as_bytes()) {
                check_free(&path, options.force)?;
            }
            replace(&Disk, &path, svg.as_bytes()).map_err(Error::io("write", &path))?;
        }
        Ok(move |paths: &[PathBuf]| {
            let read = |path: &PathBuf| {
                // What is drawn and written lies over the picture as viewers show it.
                let image = read_whole_picture(path, Exif::Apply);
                let image = image.map_err(|error| error.to_string())?;
                let checked = viewer.check(&trained.model, &image);
                checked.map_err(|why| format!("{} {why}", path.display()))?;
                Ok(image)
            };
            let read: Vec<_> = paths.iter().map(read).collect();
            let images: Vec<&Pixels> = read.iter().flatten().collect();
            let labels = viewer.labels(&trained.model, &images, &trained.device)?;
            let mut labels = labels.into_iter();
            let answer = |(path, image): (&PathBuf, &Result<Pixels, String>)| {
                let image = match image {
                    Ok(image) => image,
                    Err(why) => return Ok(Err(why.clone())),
                };
                let labels = labels.next().ok_or_else(|| Error::internal("an image was lost"))?;
                outputs.write(path, image, &labels, &trained.colours)?;
                let classes = trained.shares(&labels, top);
                Ok(Ok(Answer { image: path.display().to_string(), classes }))
            };
            paths.iter().zip(&read).map(answer).collect()
        })
    }
}

/// The scores of all pixels and of each class.
#[derive(Serialize)]
pub(crate) struct PixelScores {
    #[serde(flatten)]
    scores: Scores,
    images: usize,
    classes: Vec<ClassRow>,
    #[serde(skip)]
    confusion: Confusion,
}

impl Report for PixelScores {
    fn images(&self) -> usize {
        self.images
    }

    fn write(&self, split: &Split, options: &EvalOptions, title: &str) -> Result<(), Error> {
        if let Some(path) = &options.per_class {
            let table = classes_csv(&self.classes)?;
            replace(&Disk, path, &table).map_err(Error::io("write", path))?;
        }
        if let Some(path) = &options.confusion {
            let rows = self.confusion.rows().flatten().copied().collect();
            let matrix = confusion::Confusion::of_counts(split.class_names(), rows);
            matrix.write_matrix(path, &format!("{title}, pixels"))?;
        }
        Ok(())
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let shown = SCORES.iter().filter_map(|kind| {
            Some(format!("{} {}", kind.label, kind.show(self.scores.get(kind.name)?)))
        });
        let shown = shown.collect::<Vec<_>>().join(", ");
        vec![table(&self.classes), format!("{name} images {}, {shown}", self.images)]
    }
}

/// The table by class for people.
fn table(classes: &[ClassRow]) -> String {
    let width = classes.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max(5);
    let share = |share: Option<f64>| {
        share.map_or_else(|| "–".to_owned(), |share| format!("{:.2} %", 100.0 * share))
    };
    let mut lines = vec![format!("{:<width$}  {:>9}  {:>9}", "class", "IoU", "accuracy")];
    lines.extend(classes.iter().map(|row| {
        format!("{:<width$}  {:>9}  {:>9}", row.name, share(row.iou), share(row.accuracy))
    }));
    lines.join("\n")
}

/// The file beside maps that says which colour is which class.
const LEGEND: &str = "classes.svg";

/// The classes called `names` beside their `colours`, as a figure.
fn legend(names: &[String], colours: &[[u8; 3]]) -> String {
    const ROW: f64 = 22.0;
    let row = |(at, (name, [red, green, blue])): (usize, (&String, &[u8; 3]))| {
        let y = 10.0 + ROW * at as f64;
        let name = text("value", (38.0, y + 13.0), "start", name);
        format!(
            "<rect class=\"axis\" x=\"12\" y=\"{y}\" width=\"16\" height=\"16\" \
             fill=\"rgb({red},{green},{blue})\"/>{name}\n"
        )
    };
    let rows: String = names.iter().zip(colours).enumerate().map(row).collect();
    let widest = names.iter().map(|name| text_width(name, 13.0)).fold(0.0, f64::max);
    document(widest + 50.0, ROW * names.len() as f64 + 14.0, "classes and their colours", &rows)
}

/// Number of class 0 in a submission.
const FIRST: u8 = 1;

/// What the model says of an image.
#[derive(Serialize)]
pub(crate) struct Answer {
    /// Its file.
    image: String,
    /// The classes that cover most of it.
    classes: ClassShares,
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.classes)
    }
}

/// The folders that label maps go to.
struct Outputs {
    maps: Option<PathBuf>,
    submission: Option<PathBuf>,
}

impl Outputs {
    fn of(options: &PredictOptions) -> Self {
        Self { maps: options.maps.clone(), submission: options.submission.clone() }
    }

    /// What is written of an image.
    fn files(&self, image: &Path) -> Vec<PathBuf> {
        let stem = image.file_stem().unwrap_or_default().to_string_lossy();
        let named = |folder: &Path, end: &str| folder.join(format!("{stem}{end}"));
        let maps =
            self.maps.as_ref().map(|folder| [named(folder, ".png"), named(folder, "_overlay.png")]);
        let submission = self.submission.as_ref().map(|folder| named(folder, ".png"));
        maps.into_iter().flatten().chain(submission).collect()
    }

    fn write(
        &self,
        path: &Path,
        image: &Pixels,
        labels: &[u8],
        colours: &[[u8; 3]],
    ) -> Result<(), Error> {
        let size = [image.height, image.width];
        let mut contents: Vec<io::Result<Vec<u8>>> = Vec::new();
        if self.maps.is_some() {
            contents.push(encode_palette(labels, size, colours));
            contents.push(encode_png(&overlay(image, labels, colours)));
        }
        if self.submission.is_some() {
            let numbered: Vec<u8> =
                labels.iter().map(|label| label.saturating_add(FIRST)).collect();
            contents.push(encode_grey(&numbered, size));
        }
        for (file, content) in self.files(path).into_iter().zip(contents) {
            let written = content.and_then(|bytes| replace(&Disk, &file, &bytes));
            written.map_err(Error::io("write", &file))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend_names_each_colour() {
        let svg = legend(&["sky".to_owned(), "<sea>".to_owned()], &[[1, 2, 3], [4, 5, 6]]);
        let sea = "fill=\"rgb(4,5,6)\"/><text class=\"value\"";
        assert!(svg.contains(sea) && svg.contains(">sky</text>"), "{svg}");
        assert!(svg.contains(">&lt;sea&gt;</text>"), "{svg}");
    }

    #[test]
    fn files_are_named_after_the_image() {
        let outputs = Outputs { maps: Some("m".into()), submission: Some("s".into()) };
        let files = outputs.files(Path::new("a/b.c.jpg"));
        assert_eq!(files, ["m/b.c.png", "m/b.c_overlay.png", "s/b.c.png"].map(PathBuf::from));
    }
}
