//! `vim-train predict`: classifies images or their pixels, or finds objects.

mod detection;
mod gallery;
mod output;
mod segmentation;

use std::path::{Path, PathBuf};

use clap::Args;
use vim_data::Pixels;
use vim_run::printable;

use super::images::{ModelArgs, Seer, Walk, images};
use crate::config::TaskKind;
use crate::error::Error;
use crate::output::picture::thumbnail;
use crate::output::{check_free, print, print_json};
use crate::task::Objective;
use crate::task::classification::Classifier;
use crate::task::classification::predict::Guesses;
use output::{Answer, Format, TOP};

/// The longest side of a thumbnail.
const SIDE: usize = 128;

const EXAMPLES: &str = "\
Examples:
  vim-train predict cat.jpg --checkpoint vim_t_midclstok_76p1acc.pth
  vim-train predict *.png --checkpoint zoh-s0 --top 3 --json
  vim-train predict photos/ --checkpoint data/runs/zoh-s0 -o photos.csv      or .jsonl
  vim-train predict photos/ --checkpoint zoh-s0 -o photos.html               a page with thumbnails
  vim-train predict photos/ --checkpoint upernet-s0 --maps maps             label maps and overlays
  vim-train predict photos/ --checkpoint detector-s0 --drawn found             boxes, masks and names
  vim-train predict x.png --checkpoint vim.safetensors --config configs/my.toml --classes names.txt

Images are JPEG, PNG, BMP, GIF or WebP, resized and cropped as evaluation does; of a folder, all below it whose
names end so, sorted. One that cannot be read is named and left out, and the exit code is 65 after all others.
Without --config the model is the one recorded with the weights, else what their shapes say (stderr tells what
had to be assumed).";

/// Classify images or their pixels, or find objects: classes by name, label maps, boxes and masks.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PredictArgs {
    /// Images (JPEG, PNG, BMP, GIF or WebP), and folders of images.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Names of the classes, one a line; left out: those recorded in the run, else the configured
    /// dataset's, else ImageNet's or CIFAR-100's by their number.
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// How many classes to print, the likeliest first.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Write the predictions to this file instead: a table (.csv), a line of JSON for each image
    /// (.jsonl), or a page with thumbnails (.html).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Of a segmentation: write a label map in the classes' colours (NAME.png) and the image seen
    /// through it (NAME_overlay.png) of each image to this folder.
    #[arg(long, value_name = "FOLDER")]
    maps: Option<PathBuf>,
    /// Of a segmentation: write grey label maps to this folder, whose classes are numbered from 1
    /// as ADE20K's server takes them.
    #[arg(long, value_name = "FOLDER")]
    submission: Option<PathBuf>,
    /// Of a segmentation: see each image at six sizes and mirrored, and average the probabilities.
    #[arg(long)]
    multi_scale: bool,
    /// Of a detection: write each image with boxes, masks and names drawn over it
    /// (NAME_objects.png) to this folder.
    #[arg(long, value_name = "FOLDER")]
    drawn: Option<PathBuf>,
    /// Of a detection: the score from which an object is printed and drawn, 0 to 1; left out: 0.5,
    /// and of all that is found with --json.
    #[arg(long, value_name = "SCORE", value_parser = score)]
    least: Option<f32>,
    /// Write over the output if it is there.
    #[arg(long)]
    force: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// A number from 0 to 1.
fn score(text: &str) -> Result<f32, String> {
    let score = text.parse().ok().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

impl PredictArgs {
    /// Checks that there is no flag of another task.
    fn check_task(&self, task: TaskKind) -> Result<(), Error> {
        let of_segmentation = self.maps.is_some() || self.submission.is_some() || self.multi_scale;
        if of_segmentation && task != TaskKind::Segmentation {
            return Err(Error::failed(format!(
                "--maps, --submission and --multi-scale are of a segmentation, and these weights \
                 are of a {task}"
            )));
        }
        if (self.drawn.is_some() || self.least.is_some()) && task != TaskKind::Detection {
            return Err(Error::failed(format!(
                "--drawn and --least are of a detection, and these weights are of a {task}"
            )));
        }
        Ok(())
    }
}

pub(crate) fn run(args: &PredictArgs) -> Result<(), Error> {
    let format = args.output.as_deref().map(Format::of).transpose()?;
    if let Some(path) = &args.output {
        check_free(path, args.force)?;
    }
    let paths = images(&args.images)?;
    let subject = args.model.find()?;
    let task = subject.around().map(|config| config.task).unwrap_or_default();
    args.check_task(task)?;
    match task {
        TaskKind::Segmentation => return segmentation::run(args, &paths, &subject),
        TaskKind::Detection => return detection::run(args, &paths, &subject),
        TaskKind::Classification => {}
    }
    let names = subject.class_names(args.classes.as_deref())?;
    let seer = args.model.load(&subject)?;
    let top = args.top as usize;
    let is_text = format.is_none() && !args.json;
    // Lines of text show the progress themselves.
    let mut walk = Walk::new(paths.len(), !is_text);
    let mut answers = Vec::new();
    for paths in paths.chunks(args.model.batch) {
        let looked = look(&seer, paths, &names, top.max(TOP), format == Some(Format::Html))?;
        for (path, answer) in paths.iter().zip(looked) {
            match answer {
                Ok(mut answer) if is_text => {
                    answer.predictions.truncate(top);
                    let image = path.display().to_string();
                    print(&format!("{}\n{}", printable(&image), answer.predictions))?;
                }
                Ok(answer) => answers.push(answer),
                Err(why) => walk.leave_out(&why),
            }
        }
        walk.advance(paths.len());
    }
    walk.hide();
    if let (Some(path), Some(format)) = (&args.output, format) {
        output::write(path, format, &answers, top, &subject.source.summary())?;
        if !args.json {
            print(&format!("wrote {}, images {}", path.display(), answers.len()))?;
        }
    }
    if args.json {
        answers.iter_mut().for_each(|answer| answer.predictions.truncate(top));
        print_json(&answers)?;
    }
    walk.end()
}

/// What the model says of each image, with the `top` likeliest classes, or why it cannot be read.
fn look(
    seer: &Seer,
    paths: &[PathBuf],
    names: &[String],
    top: usize,
    with_thumbnails: bool,
) -> Result<Vec<Result<Answer, String>>, Error> {
    let pictures = seer.read(paths);
    let guesses = match seer.upload(&pictures)? {
        Some(images) => Classifier::predict(&seer.model, images, names, top)?,
        None => Vec::new(),
    };
    let mut guesses = guesses.into_iter();
    let answer = |(path, picture): (&PathBuf, Result<Vec<u8>, String>)| {
        let pixels = match picture {
            Ok(pixels) => pixels,
            Err(why) => return Ok(Err(why)),
        };
        let predictions = guesses.next();
        let predictions = predictions.ok_or_else(|| Error::internal("an image was lost"))?;
        let [height, width] = seer.size;
        let pixels = Pixels { height, width, data: pixels };
        let thumbnail = with_thumbnails.then(|| thumbnail(&pixels, SIDE)).transpose()?;
        Ok(Ok(answer_of(path, predictions, thumbnail)))
    };
    paths.iter().zip(pictures).map(answer).collect()
}

fn answer_of(path: &Path, predictions: Guesses, thumbnail: Option<String>) -> Answer {
    Answer { image: path.display().to_string(), predictions, thumbnail }
}
