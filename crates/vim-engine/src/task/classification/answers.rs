//! What `eval` and `predict` say of a classifier.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use vim_comm::Comm;
use vim_data::{Class, DatasetKind, LoaderConfig, Split};
use vim_model::Vim;
use vim_run::metrics::Scores;
use vim_run::storage::{Disk, replace};

use super::evaluate::{SCORES, evaluate};
use super::gallery;
use super::predict::{Guess, Guesses};
use super::predictions::Predictions;
use super::trained::{Answered, TrainedClassifier};
use super::weights::LinearHead;
use super::{Classification, check_image_size};
use crate::config::Config;
use crate::error::Error;
use crate::output::confusion::Confusion;
use crate::output::csv;
use crate::output::picture::thumbnail;
use crate::task::classes::IMAGENET;
use crate::task::frame::Seer;
use crate::task::named::{
    EvalOptions, Evaluating, Format, NamedTask, PredictOptions, Report, Settings, TOP,
};
use crate::task::replayed::Replayed;
use crate::task::{Evaluation, batches};

impl NamedTask for Classification {
    type Annotation = Class;
    type Heads = LinearHead;
    type Report = ImageScores;
    type Trained = TrainedClassifier;
    type Answer = Answer;

    const REFUSED: &'static [(&'static str, &'static str)] = &[
        ("--multi-scale", "a classifier sees an image at one size"),
        ("--detections", "it finds no objects; --predictions has a row for each image"),
        ("--annotations", "images have classes and no objects; --predictions has them"),
        ("--maps", "it says nothing of pixels; --output has a row for each image"),
        ("--submission", "it says nothing of pixels; --output has a row for each image"),
        ("--drawn", "it finds no objects; --output FILE.html is a page with the images"),
        ("--least", "it finds no objects; --top says how many classes are printed"),
    ];
    const PREDICTED_AT_A_TIME: usize = 32;
    const NEEDS_CONFIG: bool = false;
    const SCORES_CLASSES: bool = false;

    fn training(config: &Config, comm: &Comm) -> LoaderConfig {
        batches::training(config, config.model.image_size, comm)
    }

    fn evaluation(config: &Config) -> Option<LoaderConfig> {
        Some(batches::evaluation(config, config.model.image_size, &Comm::single()))
    }

    fn published_names(count: usize) -> Option<Vec<String>> {
        match count {
            1000 => Some(IMAGENET.lines().map(str::to_owned).collect()),
            100 => {
                let names = DatasetKind::Cifar100.class_names();
                Some(names.iter().map(|&name| name.to_owned()).collect())
            }
            _ => None,
        }
    }

    fn report(model: Vim, of: &Evaluating<'_>) -> Result<Option<ImageScores>, Error> {
        let &Evaluating { config, split, batch, device, comm, stop, advance, .. } = of;
        check_image_size(model.config(), &config.augment, split)?;
        let model = model.with_precision(config.train.precision)?;
        let mut loading = batches::evaluation(config, model.config().image_size, comm);
        loading.batch_size = batch.unwrap_or(loading.batch_size);
        let mut predictions = Predictions::of(split);
        let mut each = |place, logits: &[f32], is_read| {
            advance(1);
            predictions.add(place, logits, is_read);
        };
        let by = split.statistics(config.data.normalize);
        let evaluation = evaluate(&model, split, by, loading, device, (comm, stop), &mut each)?;
        Ok(evaluation.map(|Evaluation { scores, images }| ImageScores {
            scores,
            images,
            predictions,
        }))
    }

    fn trained(model: Vim, with: Settings<'_>) -> Result<TrainedClassifier, Error> {
        Ok(TrainedClassifier::new(model, with.config, with.classes, with.device))
    }

    fn predictor(
        trained: TrainedClassifier,
        options: &PredictOptions,
    ) -> Result<impl FnMut(&[PathBuf]) -> Result<Vec<Result<Answer, String>>, Error>, Error> {
        let top = options.top.unwrap_or(TOP);
        let with_thumbnails = options.format()? == Some(Format::Html);
        let model = trained.model.clone();
        let mut passes = Replayed::new(move |images| model.forward(images));
        Ok(move |paths: &[PathBuf]| {
            let logits_of = |images| passes.run(images);
            let seen = trained.answers(paths, top.max(IN_TABLE), logits_of)?;
            let answer = |(path, seen): (&PathBuf, Answered)| {
                let (pixels, guesses) = match seen {
                    Ok(seen) => seen,
                    Err(why) => return Ok(Err(why)),
                };
                let thumbnail = with_thumbnails.then(|| thumbnail(&pixels, SIDE)).transpose()?;
                let image = path.display().to_string();
                Ok(Ok(Answer { image, guesses, top, thumbnail }))
            };
            paths.iter().zip(seen).map(answer).collect()
        })
    }

    fn table(format: Format, answers: &[Answer], weights: &str) -> Result<Vec<u8>, Error> {
        match format {
            Format::Csv => {
                let rows: Vec<[String; 5]> = answers.iter().map(Answer::row).collect();
                csv([HEADER.map(str::to_owned)].iter().chain(&rows))
            }
            Format::JsonLines => json_lines(answers),
            Format::Html => Ok(gallery::page(answers, weights).into_bytes()),
        }
    }

    fn into_features(trained: TrainedClassifier) -> Option<(Vim, Seer)> {
        Some((trained.model, trained.seer))
    }
}

/// The scores of an evaluation, and what the model says of each image.
#[derive(Serialize)]
pub(crate) struct ImageScores {
    #[serde(flatten)]
    scores: Scores,
    images: usize,
    #[serde(skip)]
    predictions: Predictions,
}

impl Report for ImageScores {
    fn images(&self) -> usize {
        self.images
    }

    fn write(&self, split: &Split, options: &EvalOptions, title: &str) -> Result<(), Error> {
        if let Some(path) = &options.predictions {
            replace(&Disk, path, &self.predictions.csv()?).map_err(Error::io("write", path))?;
        }
        let mut confusion = Confusion::of(split.class_names());
        self.predictions.each(|label, predicted| confusion.add(label, predicted));
        options.per_class.iter().try_for_each(|path| confusion.write_classes(path))?;
        options.confusion.iter().try_for_each(|path| confusion.write_matrix(path, title))
    }

    /// One for each score, the primary one last.
    fn lines(&self, name: &str) -> Vec<String> {
        let shown = |is_share: bool| {
            let kinds = SCORES.iter().filter(move |kind| kind.is_share == is_share);
            let shown = kinds.filter_map(|kind| {
                Some(format!("{} {}", kind.label, kind.show(self.scores.get(kind.name)?)))
            });
            shown.collect::<Vec<_>>()
        };
        let others = format!("{name} images {}, {}", self.images, shown(false).join(", "));
        let shares = shown(true).into_iter().rev().map(|share| format!("{name} {share}"));
        std::iter::once(others).chain(shares).collect()
    }
}

/// The longest side of a thumbnail.
const SIDE: usize = 128;

/// What the model says of an image.
pub(crate) struct Answer {
    /// Its file.
    pub(super) image: String,
    guesses: Guesses,
    /// Classes to show.
    top: usize,
    /// As a data URI, for a gallery.
    pub(super) thumbnail: Option<String>,
}

impl Answer {
    /// The likeliest classes, those to show.
    pub(super) fn shown(&self) -> &[Guess] {
        self.guesses.likeliest(self.top)
    }

    /// A row of a table; empty where a probability is not finite.
    fn row(&self) -> [String; 5] {
        let mut row = [const { String::new() }; 5];
        row[0].clone_from(&self.image);
        let guesses = self.guesses.likeliest(IN_TABLE);
        if let Some(best) = guesses.first().filter(|best| best.probability.is_finite()) {
            let classes: Vec<String> =
                guesses.iter().map(|guess| guess.class.to_string()).collect();
            row[1].clone_from(&classes[0]);
            row[2] = format!("{:.6}", best.probability);
            row[3] = classes.join(" ");
            row[4].clone_from(&best.name);
        }
        row
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            image: &'a str,
            predictions: &'a [Guess],
        }
        Shown { image: &self.image, predictions: self.shown() }.serialize(serializer)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut guesses = self.guesses.clone();
        guesses.truncate(self.top);
        write!(formatter, "{guesses}")
    }
}

/// The columns of a table, as those of `eval --predictions`.
const HEADER: [&str; 5] = ["image", "predicted", "probability", "top5", "predicted_name"];
/// Classes in its column `top5`.
const IN_TABLE: usize = 5;

fn json_lines(answers: &[Answer]) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for answer in answers {
        let line = serde_json::json!(answer);
        serde_json::to_writer(&mut bytes, &line)
            .map_err(|error| Error::internal(format!("a prediction has no JSON form: {error}")))?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
